//! What is written for tables of several kinds.

use super::*;

fn written(csv: &str, target: Option<&str>) -> Result<toml::Table, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some data.csv");
    std::fs::write(&path, csv).unwrap();
    let found = experiment(&path, "\"some data.csv\"", target).map_err(|error| error.to_string())?;
    let text = found.text;
    assert!(!text.contains('@'), "{text}");
    assert_eq!(found.asks, text.contains("# question: ") && found.summary.contains("question: "));
    Ok(text.parse().unwrap())
}

fn rows(header: &str, row: impl Fn(usize) -> String) -> String {
    (0..40).fold(format!("{header}\n"), |text, k| text + &row(k) + "\n")
}

#[test]
fn the_loss_follows_from_the_target() {
    let loss = |row: &dyn Fn(usize) -> String| {
        written(&rows("a,b,y", row), None).unwrap()["problem"]["loss"].as_str().unwrap().to_owned()
    };
    assert_eq!(loss(&|k| format!("{k},1,{}", k % 2)), "logistic");
    assert_eq!(loss(&|k| format!("{k},1,{}", ["yes", "no"][k % 2])), "logistic");
    assert_eq!(loss(&|k| format!("{k},1,{}", ["low", "middle", "high"][k % 3])), "softmax");
    assert_eq!(loss(&|k| format!("{k},1,{}", k % 8)), "softmax");
    assert_eq!(loss(&|k| format!("{k},1,{}", k % 9)), "least-squares", "40 rows are few for 9 classes");
    assert_eq!(loss(&|k| format!("{k},1,{}.5", k % 4)), "least-squares");
    assert_eq!(loss(&|k| format!("{k},1,{k}")), "least-squares");
    let refused = written(&rows("a,y", |k| format!("{k},name {k}")), None).unwrap_err();
    assert!(refused.contains("--target: "), "{refused}");
    let refused = written(&rows("a,y", |k| format!("{k},{k}")), Some("z")).unwrap_err();
    assert!(refused.contains('z'), "{refused}");
}

#[test]
fn a_first_line_without_names_is_refused() {
    let of =
        |header: &str, cells: usize| written(&rows(header, |k| vec![k.to_string(); cells].join(",")), None);
    assert!(of("a,b,c", 3).is_ok() && of("5.1,3.5,0.2", 3).is_err());
    assert!(of("a b c", 1).unwrap_err().contains("\"a b c\""));
    // As pandas writes frames without names of columns.
    assert_eq!(of("0,1,2", 3).unwrap()["problem"]["target"].as_str(), Some("2"));
}

#[test]
fn the_summary_says_how_the_target_is_written_and_which_lines_may_be_comments() {
    let folder = tempfile::tempdir().unwrap();
    let told = |csv: &str| {
        let path = folder.path().join("all.csv");
        std::fs::write(&path, csv).unwrap();
        experiment(&path, "\"all.csv\"", None).unwrap().summary
    };
    let prices = told(&rows("x,y", |k| format!("{k},\"{k},5\"")));
    let target = prices.lines().find(|line| line.starts_with("target: ")).unwrap();
    assert!(target.contains("decimal-comma"), "{target}");
    let commented = told(&rows("x,y", |k| format!("{}{k},{k}", ["", "#"][k % 2])));
    let column = commented.lines().find(|line| line.starts_with("  x")).unwrap();
    assert!(column.contains("20 ") && column.contains("comment = \"#\""), "{column}");
}

#[test]
fn agents_come_from_a_column_of_names() {
    let of = |header: &str, row: &dyn Fn(usize) -> String| written(&rows(header, row), None).unwrap();
    let site = of("kind,site,x,y", &|k| format!("{},s{},{k},{k}", ["p", "q"][k % 2], k % 3));
    assert_eq!(site["problem"]["by"].as_str(), Some("site"));
    assert_eq!(site["network"]["agents"].as_integer(), Some(3));
    assert_eq!(site["problem"]["categorical"][0].as_str(), Some("kind"));
    let plain = of("x,y", &|k| format!("{k},{k}"));
    assert!(plain["problem"].get("by").is_none());
    assert_eq!(plain["problem"]["partition"]["kind"].as_str(), Some("iid"));
    let ids = of("id,x,y", &|k| format!("id-{k},{k},{k}"));
    assert!(ids["problem"].get("by").is_none());
    // Words without such a name are features.
    let colours = of("colour,x,y", &|k| format!("{},{k},{k}", ["red", "blue"][k % 2]));
    assert!(colours["problem"].get("by").is_none());
    assert_eq!(colours["problem"]["categorical"][0].as_str(), Some("colour"));
    for name in ["siteId", "Site 2", "sites", "site"] {
        let numbered = of(&format!("x,{name},y"), &|k| format!("{k},{},{k}", k % 4));
        assert_eq!(numbered["problem"]["by"].as_str(), Some(name));
    }
    let website = of("website,x,y", &|k| format!("{},{k},{k}", ["p", "q"][k % 2]));
    assert!(website["problem"].get("by").is_none(), "a part of a word says nothing");
}

#[test]
fn delimiters_and_missing_values_are_seen() {
    for (delimiter, written_as) in [(";", Some(";")), ("\t", Some("\t")), ("|", Some("|")), (",", None)] {
        let csv = rows(&["x", "y"].join(delimiter), |k| format!("{k}{delimiter}{k}.25"));
        let table = written(&csv, Some("y")).unwrap();
        assert_eq!(table["problem"].get("delimiter").and_then(toml::Value::as_str), written_as);
    }
    let table =
        written(&rows("x,z,y", |k| format!("{},{k},{k}", if k == 3 { "NA" } else { "1" })), None).unwrap();
    assert_eq!(table["problem"]["missing"].as_str(), Some("mean"));
    let gap = |k: usize, value: &'static str| if k == 3 { "NA" } else { value };
    for (row, missing) in [
        // The mean of words is not a word, and a row without a target is left out.
        (&|k| format!("{k},{},{k}.5", gap(k, ["u", "v"][k % 2])) as String, Some("category")),
        (&|k| format!("{k},1,{}", gap(k, ["0.5", "0.7", "1"][k % 3])), Some("mean")),
    ] as [(&dyn Fn(usize) -> String, Option<&str>); 2]
    {
        let table = written(&rows("x,z,y", row), Some("y")).unwrap();
        assert_eq!(table["problem"].get("missing").and_then(toml::Value::as_str), missing);
    }
    let many = (0..200).map(|k| if k == 3 { "NA,1,1\n".into() } else { format!("name {k},{k},{k}\n") });
    let table = written(&format!("x,z,y\n{}", many.collect::<String>()), None).unwrap();
    assert!(table["problem"].get("exclude").is_some() && table["problem"].get("missing").is_none());
    for wrong in ["", "only\n1\n", "a,b\n", "a,b\n1,2\n3\n"] {
        assert!(written(wrong, None).is_err(), "{wrong:?}");
    }
}

#[test]
fn one_odd_cell_leaves_a_column_of_numbers_what_it_is() {
    for (odd, format, word) in [
        ("\"1,234.5\"", Some("thousands"), None),
        ("inf", None, Some("inf")),
        ("1e999", None, Some("1e999")),
        ("\0", None, Some("\0")),
        ("oops", None, Some("oops")),
        ("none", None, None),
    ] {
        let row = |k: usize| format!("{},{k}", if k == 17 { odd.to_owned() } else { format!("{k}.5") });
        let table = written(&rows("x,y", row), None).unwrap();
        let problem = &table["problem"];
        assert!(problem.get("exclude").is_none() && problem.get("categorical").is_none(), "{odd:?}");
        assert_eq!(problem.get("formats").and_then(|f| f["x"].as_str()), format, "{odd:?}");
        assert_eq!(problem.get("missing_words").and_then(|w| w["x"][0].as_str()), word, "{odd:?}");
        let missing = format.is_none().then_some("mean");
        assert_eq!(problem.get("missing").and_then(toml::Value::as_str), missing, "{odd:?}");
    }
    // A word that occurs again beside few numbers makes categories of all.
    let table =
        written(&rows("x,y", |k| format!("{},{k}", ["1", "2", "X"][usize::from(k % 13 == 0) * 2])), None);
    assert_eq!(table.unwrap()["problem"]["categorical"][0].as_str(), Some("x"));
}

#[test]
fn formats_are_understood_or_asked_for() {
    let format = |cells: [&str; 3]| {
        let row = |k: usize| format!("{};{k}.5", cells[k % 3]);
        let table = written(&rows("x;y", row), Some("y")).unwrap();
        table["problem"].get("formats").map(|formats| formats["x"].as_str().unwrap().to_owned())
    };
    for (cells, expected) in [
        (["1", "2.5", "-3e-2"], None),
        (["1,5", "2", "3,25"], Some("decimal-comma")),
        (["1.234,5", "2", "3,25"], Some("decimal-comma")),
        (["0,125", "2", "3"], Some("decimal-comma")),
        (["1,234.5", "2", "3"], Some("thousands")),
        (["1,234,567", "2", "3"], Some("thousands")),
        (["1,234", "2.5", "3"], Some("thousands")),
        (["1,234", "2", "3"], Some("?")),
        (["12%", "2.5 %", "3%"], Some("percent")),
        (["12,5%", "2 %", "3%"], Some("percent-comma")),
        (["yes", "No", "no"], Some("boolean")),
        (["TRUE", "false", "NA"], Some("boolean")),
        (["2026-11-18", "2025-01-01", "2024-02-29"], Some("date")),
        (["2026-11-18 10:00", "2025-01-01T00:00:00Z", "2024-02-29"], Some("date")),
        (["18.11.2026", "1.1.2025", "29.2.2024"], Some("date-day-first")),
        (["11/18/2026", "1/1/2025", "2/29/2024"], Some("date-month-first")),
        (["03/04/2026", "1/1/2025", "2/9/2024"], Some("?")),
        (["10:30", "00:00", "23:59:59"], Some("time")),
        (["t", "f", "n"], None),
    ] {
        assert_eq!(format(cells), expected.map(str::to_owned), "{cells:?}");
    }
    // Another column of the file leaves no doubt.
    let table = written(&rows("a;x;y", |k| format!("{k},5;1,234;{k}.5")), Some("y")).unwrap();
    assert!(
        table["problem"].get("formats").is_some_and(|formats| formats.get("x").is_none()),
        "it is constant"
    );
    let table = written(&rows("a;x;y", |k| format!("{k},5;{},234;{k}", k + 1)), Some("y")).unwrap();
    assert_eq!(table["problem"]["formats"]["x"].as_str(), Some("decimal-comma"));
}

#[test]
fn names_that_toml_must_quote_are_quoted() {
    let table = written(&rows("\"a \"\"b\"\"\",\"c\nd\"", |k| format!("{k},{k}")), None).unwrap();
    assert_eq!(table["problem"]["target"].as_str(), Some("c\nd"));
}

#[test]
fn counts_with_a_column_of_exposures_are_a_poisson_regression() {
    let csv = rows("IDpol,age,Exposure,claims", |k| format!("{},{k}.5,0.{},{}", 90 - k, k % 9 + 1, k % 4));
    let table = written(&csv, None).unwrap();
    let problem = &table["problem"];
    assert_eq!(problem["loss"].as_str(), Some("poisson"));
    assert_eq!(problem["exposure"].as_str(), Some("Exposure"));
    assert_eq!(problem["exclude"][0].as_str(), Some("IDpol"), "it numbers the policies");
    // The mean count is 1.5, and there are two features with the intercept.
    let algorithms = table["algorithm"].as_array().unwrap();
    assert!(algorithms.iter().all(|algorithm| algorithm["step_size"].as_float() == Some(0.1)), "{table}");
    // A category is one feature of a row, whatever the number of its values.
    let row = |k: usize| format!("{},{k}.5,0.{},{}", ["u", "v", "w"][k % 3], k % 9 + 1, k % 4);
    let table = written(&rows("brand,age,Exposure,claims", row), None).unwrap();
    assert_eq!(table["algorithm"][0]["step_size"].as_float(), Some(0.1), "{table}");
    for (what, header, row) in [
        ("an exposure of zero", "age,Exposure,claims", "0,1"),
        ("a negative count", "age,Exposure,claims", "1,-1"),
        ("a part of a count", "age,Exposure,claims", "1,0.5"),
        ("another name", "age,overexposure,claims", "1,1"),
    ] {
        let csv = rows(header, |k| match k {
            3 => format!("{k},{row}"),
            _ => format!("{k},0.{},{}", k % 9 + 1, k % 4),
        });
        assert_ne!(written(&csv, None).unwrap()["problem"]["loss"].as_str(), Some("poisson"), "{what}");
    }
}

#[test]
fn small_tables_get_more_rounds_and_the_stop_is_in_the_units_of_the_target() {
    let of = |rows: usize, target: &dyn Fn(usize) -> String| {
        let row = |k: usize| format!("{k}.5,{}\n", target(k));
        let table = written(&format!("x,y\n{}", (0..rows).map(row).collect::<String>()), None).unwrap();
        (table["rounds"].as_integer().unwrap(), table["stop"]["grad_norm"].as_float().unwrap())
    };
    assert_eq!(of(40, &|k| (k % 2).to_string()), (5000, 1e-6));
    assert_eq!(of(400_000, &|k| (k % 2).to_string()), (3000, 1e-6));
    assert_eq!(of(40, &|k| format!("{}", 123_000 + k)), (5000, 0.1));
    assert_eq!(of(40, &|k| format!("{}", k as f64 * 1e-3)), (5000, 1e-8));
    // Of a decimal comma, not of a thousand.
    assert_eq!(of(40, &|k| format!("\"{},{:03}\"", k % 9, 3 * k)), (5000, 1e-6));
}
