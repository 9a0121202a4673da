//! Tables of results, as text and LaTeX.

use crate::ending::{Ending, Trend, share};
use crate::quantity::Quantity;
use crate::store::{JobStatus, Outcome, labels};
pub use mile::digits::number;

/// A table with a header; the first column is left-aligned, the others right-aligned.
#[derive(Clone, Debug, PartialEq)]
pub struct TextTable {
    /// Names of the columns.
    pub header: Vec<String>,
    /// Cells, row by row.
    pub rows: Vec<Vec<String>>,
}

/// The columns of [`outcomes_table`] that say what a run has cost.
pub(crate) const COSTS: [&str; 5] = ["sent/round", "stored", "MB sent", "gradients", MODELLED];

/// The column with the modelled time, if there is one.
const MODELLED: &str = "modelled s";

/// The last records of every algorithm, averaged over the seeds that are done; if there are none, over those that diverged;
/// if there are none either, over those that were stopped, or else failed. `seeds` is the number of seeds of the run,
/// some of which may not have started.
pub fn outcomes_table(outcomes: &[Outcome], seeds: usize) -> TextTable {
    let labels = labels(outcomes);
    let has = |quantity: &Quantity| outcomes.iter().any(|outcome| quantity.of(&outcome.last).is_some());
    let shown = |quantity: &Quantity| *quantity != Quantity::ConsensusErrorBefore && has(quantity);
    let columns: Vec<Quantity> = Quantity::ALL.into_iter().filter(shown).collect();
    let mut header = vec!["algorithm".to_owned()];
    header.extend(columns.iter().map(|quantity| quantity.symbol()));
    let is_modelled = outcomes.iter().any(|outcome| outcome.last.modelled_s.is_some());
    let costs = COSTS.into_iter().filter(|cost| is_modelled || *cost != MODELLED);
    header.extend(costs.chain(["status"]).map(str::to_owned));
    let row = |label: &&str| {
        let mine: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.label == **label).collect();
        let kinds: [fn(JobStatus) -> bool; 4] = [
            JobStatus::is_done,
            |status| status == JobStatus::Diverged,
            |status| status == JobStatus::Stopped,
            |status| status == JobStatus::Failed,
        ];
        let with =
            |is: fn(JobStatus) -> bool| mine.iter().copied().filter(|o| is(o.status)).collect::<Vec<_>>();
        let meant = kinds.into_iter().map(with).find(|some| !some.is_empty()).unwrap_or_default();
        let mean = |value: &dyn Fn(&Outcome) -> f64| {
            meant.iter().map(|outcome| value(outcome)).sum::<f64>() / meant.len() as f64
        };
        let mut cells = vec![(*label).to_owned()];
        for quantity in &columns {
            cells.push(number(mean(&|outcome| quantity.of(&outcome.last).unwrap_or(f64::NAN))));
        }
        cells.push(number(mean(&|outcome| outcome.vectors_sent_per_round)));
        cells.push(mine[0].vectors_stored.to_string());
        cells.push(number(mean(&|outcome| outcome.last.bytes_sent as f64 / 1e6)));
        cells.push(number(mean(&|outcome| outcome.last.gradient_evals as f64)));
        if is_modelled {
            cells.push(number(mean(&|outcome| outcome.last.modelled_s.unwrap_or(f64::NAN))));
        }
        cells.push(status_of(&mine, seeds));
        cells
    };
    let rows = labels.iter().map(row).collect();
    TextTable { header, rows }
}

/// The status of an algorithm over its seeds.
pub(crate) fn status_of(outcomes: &[&Outcome], seeds: usize) -> String {
    let count = |status| outcomes.iter().filter(|outcome| outcome.status == status).count();
    let (converged, diverged) = (count(JobStatus::Converged), count(JobStatus::Diverged));
    let done = converged + count(JobStatus::LastRound);
    let over = done + diverged;
    let failed = count(JobStatus::Failed);
    if over == 0 {
        return if failed > 0 { "failed" } else { "stopped" }.into();
    }
    let mut parts = Vec::new();
    if failed > 0 {
        parts.push(format!("{failed} failed"));
    }
    if over < seeds {
        parts.push(format!("{over} of {seeds} seeds"));
    }
    match converged {
        _ if done == 0 => {}
        0 => parts.push(JobStatus::LastRound.name().into()),
        all if all == done => parts.push(JobStatus::Converged.name().into()),
        some => parts.push(format!("{some} of {done} converged")),
    }
    parts.extend(far_from_converged(outcomes.iter().copied()));
    match (done, diverged) {
        (_, 0) => {}
        (0, _) => parts.push("diverged".into()),
        (_, some) => parts.push(format!("{some} of {over} diverged, not in the means")),
    }
    parts.join(", ")
}

/// The jobs that ended at their last round, those farthest from a solution first.
fn unconverged<'o>(outcomes: impl Iterator<Item = &'o Outcome>) -> impl Iterator<Item = &'o Outcome> {
    let mut found: Vec<&Outcome> = outcomes.filter(|o| o.status == JobStatus::LastRound).collect();
    let left = |outcome: &Outcome| outcome.ending.gradient_left.unwrap_or(0.0);
    found.sort_by(|a, b| left(b).total_cmp(&left(a)));
    found.into_iter()
}

/// What shows that one of the jobs ended far from converged, the worst if there are several.
pub(crate) fn far_from_converged<'o>(outcomes: impl Iterator<Item = &'o Outcome>) -> Option<String> {
    unconverged(outcomes).find_map(|outcome| outcome.ending.far())
}

/// A sentence for each algorithm that ended far from converged: what shows it, and what may help.
pub fn ending_remarks(outcomes: &[Outcome]) -> Vec<String> {
    let remark = |label: &str| {
        let mine = || outcomes.iter().filter(|outcome| outcome.label == label);
        let far: Vec<&Outcome> = unconverged(mine()).filter(|o| o.ending.far().is_some()).collect();
        let (worst, all) = (far.first()?, mine().count());
        let which = if far.len() < all { format!(" ({} of {all} seeds)", far.len()) } else { String::new() };
        let Ending { stop_reached, gradient_left, gradient, loss, .. } = worst.ending;
        let mut facts = Vec::new();
        if stop_reached == Some(false) {
            facts.push("stop was not reached".to_owned());
        }
        let slow = loss == Some(Trend::Level) && gradient == Some(Trend::Falling);
        let falls = if slow { " and still falling" } else { "" };
        let of_its_start = |left| format!("|\u{2207}f| is {} of its start{falls}", share(left));
        facts.extend(gradient_left.map(of_its_start));
        facts.extend(match loss {
            Some(Trend::Falling) => Some("the loss is still falling".to_owned()),
            Some(Trend::Rising) => Some("the loss is rising".to_owned()),
            Some(Trend::Level) | None => None,
        });
        let rises = if worst.ending.disagree_ever_more() { " and rising" } else { "" };
        facts.push(format!("the consensus error is {}{rises}", number(worst.last.consensus_error)));
        if worst.ending.are_apart() {
            let (own, average) = (number(worst.last.local_loss), number(worst.last.loss));
            facts.push(format!(
                "the loss of the agents' own models is {own}, that of their average {average}"
            ));
        }
        let help = match loss {
            Some(Trend::Falling) => "more rounds would lower it further",
            Some(Trend::Rising) => "a smaller step size may help",
            _ if slow => {
                "more rounds would lower it further, and so would a larger step size if it is stable"
            }
            _ => "a smaller step size, another method or, with mini-batches, larger ones may help",
        };
        Some(format!(
            "{label} stopped at the last round{which}, not converged: {}; {help}.",
            facts.join(", ")
        ))
    };
    labels(outcomes).into_iter().filter_map(remark).collect()
}

/// The table of results with remarks: the contents of `table.txt`.
pub fn results_text(outcomes: &[Outcome], seeds: usize) -> String {
    let remarks: String = ending_remarks(outcomes).iter().map(|remark| format!("\n{remark}\n")).collect();
    format!("{}{remarks}", outcomes_table(outcomes, seeds))
}

impl std::fmt::Display for TextTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |k: usize| {
            let cells = self.rows.iter().map(|row| row[k].chars().count());
            cells.chain([self.header[k].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |cells: &[String]| -> String {
            let cell = |(k, text): (usize, &String)| match k {
                0 => format!("{text:<0$}", widths[0]),
                _ => format!("{text:>0$}", widths[k]),
            };
            cells.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        writeln!(f, "{}", line(&self.header))?;
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        writeln!(f, "{}", rules.join("  "))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{}", line(row)))
    }
}

impl TextTable {
    /// The first column, and those of the others whose names are chosen.
    pub(crate) fn choose(&self, is_chosen: impl Fn(&str) -> bool) -> Self {
        let chosen = |cells: &Vec<String>| -> Vec<String> {
            let named = cells.iter().zip(&self.header).enumerate();
            named
                .filter(|(k, (_, name))| *k == 0 || is_chosen(name))
                .map(|(_, (cell, _))| cell.clone())
                .collect()
        };
        Self { header: chosen(&self.header), rows: self.rows.iter().map(chosen).collect() }
    }

    /// The table as a LaTeX tabular, for any TeX engine and without packages.
    pub fn to_latex(&self) -> String {
        let line = |cells: &[String]| {
            cells.iter().map(|cell| latex(cell)).collect::<Vec<_>>().join(" & ") + " \\\\\n"
        };
        let columns = "r".repeat(self.header.len().saturating_sub(1));
        let body: String = self.rows.iter().map(|row| line(row)).collect();
        let head = line(&self.header);
        format!("\\begin{{tabular}}{{l{columns}}}\n\\hline\n{head}\\hline\n{body}\\hline\n\\end{{tabular}}\n")
    }
}

/// A text for LaTeX. Characters for which pdfTeX has no letter are replaced by a question mark.
fn latex(text: &str) -> String {
    const GREEK: [&str; 25] = [
        "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda",
        "mu", "nu", "xi", "o", "pi", "rho", "varsigma", "sigma", "tau", "upsilon", "varphi", "chi", "psi",
        "omega",
    ];
    let mathematical = |name: &str| format!("\\ensuremath{{{name}}}");
    let one = |c: char| match c {
        '\\' => "\\textbackslash{}".to_owned(),
        '^' => "\\textasciicircum{}".to_owned(),
        '~' => "\\textasciitilde{}".to_owned(),
        '|' => "\\textbar{}".to_owned(),
        '<' => "\\textless{}".to_owned(),
        '>' => "\\textgreater{}".to_owned(),
        '"' => "\\textquotedblright{}".to_owned(),
        '&' | '%' | '$' | '#' | '_' | '{' | '}' => format!("\\{c}"),
        // After the end of a row they would be its options.
        '[' | '*' => format!("{{{c}}}"),
        '\u{3bf}' => "o".to_owned(),
        '\u{3b1}'..='\u{3c9}' => mathematical(&format!("\\{}", GREEK[c as usize - 0x3b1])),
        '\u{d7}' => mathematical("\\times"),
        '\u{b7}' => mathematical("\\cdot"),
        '\u{2212}' => mathematical("-"),
        '\u{2264}' => mathematical("\\leq"),
        '\u{2265}' => mathematical("\\geq"),
        '\u{b2}' => mathematical("^2"),
        '\u{2207}' => mathematical("\\nabla "),
        '\u{221e}' => mathematical("\\infty"),
        '\u{2192}' => mathematical("\\rightarrow"),
        '\u{2013}' => "--".to_owned(),
        '\u{2014}' => "---".to_owned(),
        c if c.is_whitespace() => " ".to_owned(),
        ' '..='~'
        | '\u{c0}'..='\u{cf}'
        | '\u{d1}'..='\u{dd}'
        | '\u{df}'..='\u{ef}'
        | '\u{f1}'..='\u{fd}'
        | '\u{ff}' => c.to_string(),
        _ => "?".to_owned(),
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn outcome(label: &str, seed: u64, status: JobStatus, loss: f64) -> Outcome {
        Outcome {
            label: label.into(),
            algorithm: "mile".into(),
            seed,
            status,
            vectors_stored: 2,
            vectors_sent_per_round: 1.0,
            ending: Ending::default(),
            round: 3,
            last: crate::record::tests::record(label, seed, 3, loss),
            error: None,
        }
    }

    #[test]
    fn numbers_have_four_significant_digits() {
        let cases = [
            (0.0, "0"),
            (12.0, "12"),
            (0.123456, "0.1235"),
            (-3.21456, "-3.215"),
            (12345.678, "12346"),
            (1.5e-9, "1.500e-9"),
            (2e-20, "2.000e-20"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_diverged_seed_is_mentioned_and_not_in_the_means() {
        let outcomes = [
            outcome("a", 0, JobStatus::LastRound, 0.25),
            outcome("a", 1, JobStatus::Diverged, 1e30),
            outcome("a", 2, JobStatus::LastRound, 0.75),
            outcome("b", 0, JobStatus::Diverged, 1e30),
            outcome("b", 1, JobStatus::Diverged, 1e30),
            outcome("b", 2, JobStatus::Diverged, 1e30),
        ];
        let table = outcomes_table(&outcomes, 3);
        let cells = |row: usize| (table.rows[row][1].as_str(), table.rows[row].last().unwrap().as_str());
        assert_eq!(cells(0), ("0.5000", "last round, 1 of 3 diverged, not in the means"));
        assert_eq!(cells(1), ("1.000e30", "diverged"));
    }

    #[test]
    fn means_are_over_finished_seeds_and_the_status_says_how_many() {
        let outcomes = [
            outcome("done", 0, JobStatus::LastRound, 0.25),
            outcome("done", 1, JobStatus::LastRound, 0.75),
            outcome("done", 2, JobStatus::LastRound, 0.5),
            outcome("behind", 0, JobStatus::LastRound, 0.25),
            outcome("behind", 1, JobStatus::Stopped, 9.0),
            outcome("late", 0, JobStatus::Stopped, 9.0),
            outcome("lost", 0, JobStatus::Diverged, 1e30),
            outcome("lost", 1, JobStatus::Stopped, 9.0),
            outcome("half", 0, JobStatus::Diverged, 1e30),
            outcome("half", 1, JobStatus::LastRound, 0.25),
        ];
        let cells = |table: &TextTable| -> Vec<(String, String)> {
            table.rows.iter().map(|row| (row[1].clone(), row.last().unwrap().clone())).collect()
        };
        let expected = [
            ("0.5000", "last round"),
            ("0.2500", "1 of 3 seeds, last round"),
            ("9", "stopped"),
            ("1.000e30", "1 of 3 seeds, diverged"),
            ("0.2500", "2 of 3 seeds, last round, 1 of 2 diverged, not in the means"),
        ];
        let expected = expected.map(|(mean, status)| (mean.to_owned(), status.to_owned()));
        assert_eq!(cells(&outcomes_table(&outcomes, 3)), expected);
        assert_eq!(cells(&outcomes_table(&outcomes, 4))[0].1, "3 of 4 seeds, last round");
    }

    #[test]
    fn the_table_says_who_converged_and_who_is_far_from_it() {
        let ended = |label: &str, seed: u64, status: JobStatus, ending: Ending| Outcome {
            ending,
            ..outcome(label, seed, status, 0.5)
        };
        let falling = Ending { loss: Some(Trend::Falling), gradient_left: Some(0.03), ..Ending::default() };
        let steep = Ending { loss: Some(Trend::Level), gradient_left: Some(0.5), ..Ending::default() };
        let near = Ending { loss: Some(Trend::Level), gradient_left: Some(0.01), ..Ending::default() };
        let outcomes = [
            ended("exact", 0, JobStatus::Converged, near),
            ended("exact", 1, JobStatus::Converged, near),
            ended("half", 0, JobStatus::Converged, near),
            ended("half", 1, JobStatus::LastRound, falling),
            ended("noisy", 0, JobStatus::LastRound, near),
            ended("noisy", 1, JobStatus::LastRound, near),
            ended("biased", 0, JobStatus::LastRound, steep),
            ended("biased", 1, JobStatus::LastRound, near),
        ];
        let table = outcomes_table(&outcomes, 2);
        let cells: Vec<&str> = table.rows.iter().map(|row| row.last().unwrap().as_str()).collect();
        let far = "last round, |\u{2207}f| 0.50 of its start";
        assert_eq!(cells, ["converged", "1 of 2 converged, loss still falling", "last round", far]);
        let remarks = ending_remarks(&outcomes);
        assert_eq!(remarks.len(), 2, "{remarks:?}");
        assert!(remarks[0].starts_with("half ") && remarks[0].contains("(1 of 2 seeds)"), "{}", remarks[0]);
        assert!(remarks[1].starts_with("biased ") && remarks[1].contains("0.50"), "{}", remarks[1]);
        let slow = Ending { gradient: Some(Trend::Falling), stop_reached: Some(false), ..near };
        let remark = ending_remarks(&[ended("slow", 0, JobStatus::LastRound, slow)]).concat();
        assert!(
            remark.contains("0.010 of its start and still falling") && remark.contains("more rounds"),
            "{remark}"
        );
        let apart = Ending { disagreement: Some(Trend::Rising), disagreement_left: Some(1.0), ..near };
        let apart = Ending { own_excess: Some(7.0), ..apart };
        let mut apart = ended("apart", 0, JobStatus::LastRound, apart);
        (apart.last.local_loss, apart.last.consensus_error) = (7.25, 101.0);
        let remark = ending_remarks(&[apart]).concat();
        assert!(remark.contains("101 and rising") && remark.contains("7.250"), "{remark}");
        let text = results_text(&outcomes, 2);
        assert!(text.starts_with(&table.to_string()) && text.contains(&remarks[1]), "{text}");
        assert!(outcomes.iter().all(|outcome| {
            let text = serde_json::to_string(outcome).unwrap();
            serde_json::from_str::<Outcome>(&text).unwrap() == *outcome
        }));
    }

    #[test]
    fn outcomes_of_runs_that_only_said_done_are_read() {
        let mut old = serde_json::to_value(outcome("a", 0, JobStatus::LastRound, 0.5)).unwrap();
        assert_eq!(old["status"], "last round");
        old["status"] = "done".into();
        old.as_object_mut().unwrap().remove("ending");
        assert_eq!(serde_json::from_value::<Outcome>(old).unwrap().status, JobStatus::LastRound);
    }

    #[test]
    fn costs_and_results_are_the_whole_table() {
        let mut timed = outcome("a", 0, JobStatus::LastRound, 0.25);
        timed.last.modelled_s = Some(12.5);
        let table = outcomes_table(&[timed, outcome("b", 0, JobStatus::LastRound, 0.5)], 1);
        let column = table.header.iter().position(|name| name == MODELLED).unwrap();
        assert_eq!((&*table.rows[0][column], &*table.rows[1][column]), ("12.50", "-"));
        let is_cost = |name: &str| COSTS.contains(&name);
        let (costs, results) = (table.choose(is_cost), table.choose(|name| !is_cost(name)));
        assert_eq!(costs.header, [&["algorithm"][..], &COSTS].concat());
        assert_eq!((&results.header[..2], &results.rows[0][..2]), (&table.header[..2], &table.rows[0][..2]));
        assert_eq!(results.header.len() + COSTS.len(), table.header.len());
    }

    #[test]
    fn tables_line_up_and_latex_is_escaped() {
        let table = TextTable {
            header: vec!["algorithm".into(), "loss".into()],
            rows: vec![vec!["a_b".into(), "1".into()], vec!["longer name".into(), "100".into()]],
        };
        let text = table.to_string();
        assert_eq!(text.lines().nth(2), Some("a_b             1"));
        assert!(table.to_latex().contains("a\\_b & 1 \\\\"));
        assert_eq!(
            latex(&Quantity::GradNormSq.symbol()),
            "\\textbar{}\\ensuremath{\\nabla }f\\textbar{}\\ensuremath{^2}"
        );
    }

    #[test]
    #[ignore = "needs TeX: install pdflatex, lualatex or xelatex, and add --include-ignored"]
    fn latex_compiles_whatever_the_labels_are() {
        let printable: String = (' '..='~').collect();
        let letters: String = ('\u{a0}'..='\u{17f}').chain('\u{370}'..='\u{3ff}').collect();
        let labels = [
            "[5pt] first",
            "*",
            printable.as_str(),
            letters.as_str(),
            "a\nb\u{7}",
            "\u{4e2d}\u{1f600}\u{2264}",
        ];
        let outcomes: Vec<Outcome> =
            labels.iter().map(|label| outcome(label, 0, JobStatus::LastRound, 0.5)).collect();
        let table = outcomes_table(&outcomes, 1).to_latex();
        assert_eq!(table.matches(" \\\\\n").count(), 1 + labels.len());
        let folder = tempfile::tempdir().unwrap();
        let document = format!("\\documentclass{{article}}\n\\begin{{document}}\n{table}\\end{{document}}\n");
        std::fs::write(folder.path().join("table.tex"), document).unwrap();
        let compile = |engine: &str| {
            let options = ["-interaction=nonstopmode", "-halt-on-error", "table.tex"];
            std::process::Command::new(engine).args(options).current_dir(folder.path()).output()
        };
        let output = ["pdflatex", "lualatex", "xelatex"].into_iter().find_map(|engine| compile(engine).ok());
        let output = output.expect("a TeX engine: pdflatex, lualatex or xelatex");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
