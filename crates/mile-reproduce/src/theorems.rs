//! Theorems 1 to 4: both sides of their inequalities on actual runs, as printed and as corrected.

use mile_theory::demonstration::{Case, demonstration};

use super::{Finding, Request, Scale, create_folder};
use mile_lab::error::LabError;
use mile_lab::report::Page;
use mile_lab::store::write_file;
use mile_lab::table::TextTable;

/// Evaluates the theorems and writes `theorems.txt`, `theorems.tex`, `theorems.json` and `report.html`.
pub fn theorems(request: &Request) -> Result<Finding, LabError> {
    let (rounds, seeds) = match request.scale {
        Scale::Quick => (200, 5),
        Scale::Paper => (2000, 20),
    };
    let cases = demonstration(rounds, seeds).map_err(|error| LabError::config("theorems", error))?;
    let (table, remarks) = (table(&cases), explanation(&cases));
    create_folder(request.out)?;
    let json = serde_json::to_string_pretty(&cases).unwrap_or_default() + "\n";
    let text = format!("{table}\n{remarks}");
    for (name, content) in
        [("theorems.txt", &text), ("theorems.tex", &table.to_latex()), ("theorems.json", &json)]
    {
        write_file(&request.out.join(name), content.as_bytes())?;
    }
    let mut page = Page::new("Theorems 1 to 4");
    page.text("Theorems 1 to 4, evaluated", std::slice::from_ref(&remarks));
    page.table("Both sides of the inequalities", &table);
    page.write(&request.out.join("report.html"))?;
    // It takes seconds and is complete by now, even if a stop was requested meanwhile.
    request.finish(&[table.to_string(), remarks], false)
}

fn table(cases: &[Case]) -> TextTable {
    let header = [
        "theorem",
        "tau",
        "xi",
        "start",
        "left side",
        "+-",
        "as printed",
        "left/printed",
        "holds",
        "as corrected",
        "holds",
    ];
    let word = |holds: bool| if holds { "yes" } else { "NO" }.to_owned();
    let row = |case: &Case| {
        let row = &case.row;
        vec![
            row.theorem.to_string(),
            row.tau.to_string(),
            format!("{:.2}", row.xi),
            case.start.to_owned(),
            format!("{:.3e}", row.left),
            if row.left_error > 0.0 { format!("{:.0e}", row.left_error) } else { "-".into() },
            format!("{:.3e}", row.printed),
            format!("{:.3}", row.factor()),
            word(row.printed_holds),
            format!("{:.3e}", row.corrected),
            word(row.corrected_holds),
        ]
    };
    TextTable { header: header.map(str::to_owned).to_vec(), rows: cases.iter().map(row).collect() }
}

fn explanation(cases: &[Case]) -> String {
    let corrected = cases.iter().filter(|case| case.row.corrected_holds).count();
    let failed: Vec<&Case> = cases.iter().filter(|case| !case.row.printed_holds).collect();
    let mut theorems: Vec<String> = failed.iter().map(|case| case.row.theorem.to_string()).collect();
    let mut starts: Vec<&str> = failed.iter().map(|case| case.start).collect();
    theorems.dedup();
    starts.sort_unstable();
    starts.dedup();
    let which = match failed.len() {
        0 => String::new(),
        _ => {
            let s = if theorems.len() > 1 { "s" } else { "" };
            format!(" (Theorem{s} {}; starts: {})", theorems.join(" and "), starts.join("; "))
        }
    };
    format!(
        "Theorems 1 and 3 bound the gradient at the average, 2 and 4 the disagreement; 3 and 4 with stochastic \
         gradients, means over seeds with 95 % confidence. {} of {} inequalities fail as printed{which}; as corrected \
         (docs/src/theory.md) {corrected} hold.\n",
        failed.len(),
        cases.len()
    )
}
