//! What is printed: to standard output without a panic on a closed pipe, as wide as the terminal, and how much of it.

use std::io::{ErrorKind, Write};
use std::ops::Range;

use clap::{Args, ValueEnum};

/// Columns of text where there is no terminal.
const USUAL: usize = 100;

/// The columns of the terminal, if standard output is one.
fn terminal() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into())
}

/// The most columns of text that is read in one piece.
pub(crate) fn width() -> usize {
    terminal().map_or(USUAL, |width| width.clamp(40, USUAL))
}

/// Prints text, on a terminal with tables as wide as that; a closed pipe is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_as_it_is(&terminal().map_or(text.to_owned(), |width| fold(text, width)))
}

/// Prints text that is read by programs too; a closed pipe is not an error.
pub(crate) fn print_as_it_is(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// How much a run prints, and in which format.
#[derive(Args, Default)]
pub(crate) struct OutputArguments {
    /// Print nothing but errors (and, with --format json, the records); results are in the run directory
    #[arg(long, short)]
    quiet: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text", conflicts_with = "dry_run")]
    format: RunFormat,
}

/// Output format of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum RunFormat {
    /// Progress, and a table of results
    #[default]
    Text,
    /// Every record when it is made, one JSON object per line as in metrics.jsonl; everything else goes to standard error
    Json,
}

impl OutputArguments {
    /// Nothing but errors.
    pub(crate) fn silent() -> Self {
        Self { quiet: true, format: RunFormat::Text }
    }

    /// Whether messages and progress are shown.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether records are printed as JSON.
    pub(crate) fn streams_records(&self) -> bool {
        self.format == RunFormat::Json
    }

    /// Prints a result: to standard error if standard output has the records.
    pub(crate) fn result(&self, text: &str) -> anyhow::Result<()> {
        match (self.quiet, self.streams_records()) {
            (true, _) => Ok(()),
            (false, false) => print(text),
            (false, true) => {
                eprint!("{text}");
                Ok(())
            }
        }
    }

    /// Prints a message to standard error.
    pub(crate) fn message(&self, text: &str) {
        if !self.quiet {
            eprint!("{text}");
        }
    }
}

/// Text with its tables in pieces that fit: the first column, and as many of the others as there is room for. A table has a header, a
/// rule of dashes below it that shows its columns, and rows up to the next empty line.
fn fold(text: &str, width: usize) -> String {
    let lines: Vec<&str> = text.split('\n').collect();
    let (mut folded, mut k) = (Vec::new(), 0);
    while k < lines.len() {
        let columns = lines.get(k + 1).map_or(Vec::new(), |rule| columns(rule));
        let rows = lines[k..].iter().take_while(|line| !line.is_empty()).count();
        let table = &lines[k..k + rows];
        let fits = table.iter().all(|line| line.chars().count() <= width);
        if columns.len() < 3 || fits {
            folded.push(lines[k].to_owned());
            k += 1;
            continue;
        }
        for (number, piece) in pieces(&columns, width).iter().enumerate() {
            folded.extend((number > 0).then(String::new));
            folded.extend(table.iter().map(|line| cells(line, piece)));
        }
        k += rows;
    }
    folded.join("\n")
}

/// The columns of a table below whose header this line is.
fn columns(rule: &str) -> Vec<Range<usize>> {
    if rule.is_empty() || !rule.chars().all(|c| c == '-' || c == ' ') {
        return Vec::new();
    }
    let mut columns: Vec<Range<usize>> = Vec::new();
    for (place, _) in rule.chars().enumerate().filter(|(_, c)| *c == '-') {
        match columns.last_mut().filter(|column| column.end == place) {
            Some(column) => column.end += 1,
            None => columns.push(place..place + 1),
        }
    }
    columns
}

/// The columns of each piece of a table.
fn pieces(columns: &[Range<usize>], width: usize) -> Vec<Vec<Range<usize>>> {
    let mut pieces: Vec<Vec<Range<usize>>> = Vec::new();
    let mut room = 0;
    for column in &columns[1..] {
        let needed = column.len() + 2;
        if needed > room || pieces.is_empty() {
            pieces.push(vec![columns[0].clone()]);
            room = width.saturating_sub(columns[0].len());
        }
        room = room.saturating_sub(needed);
        pieces.iter_mut().last().into_iter().for_each(|piece| piece.push(column.clone()));
    }
    pieces
}

/// The cells of a line in some columns.
fn cells(line: &str, columns: &[Range<usize>]) -> String {
    let line: Vec<char> = line.chars().collect();
    let cell = |column: &Range<usize>| -> String {
        (column.clone()).map(|place| line.get(place).copied().unwrap_or(' ')).collect()
    };
    columns.iter().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_too_wide_continues_below_with_its_first_column() {
        let table = "algorithm    loss  |∇f|²  status\n---------  ------  -----  ------\nmile       0.4232  1e-13    done\n";
        let text = format!("before\n\n{table}\nafter\n");
        assert_eq!(fold(&text, 32), text);
        let pieces = "algorithm    loss  |∇f|²\n---------  ------  -----\nmile       0.4232  1e-13\n\n\
                      algorithm  status\n---------  ------\nmile         done\n";
        assert_eq!(fold(&text, 31), format!("before\n\n{pieces}\nafter\n"));
        for width in [12, 20, 25] {
            let folded = fold(&text, width);
            let most = folded.lines().map(|line| line.chars().count()).max();
            assert!(most <= Some(width.max(19)), "{folded}");
            assert_eq!(folded.matches("---------").count(), if width < 25 { 3 } else { 2 });
        }
    }

    #[test]
    fn other_text_is_left_as_it_is() {
        let text = "a long line of words that is wider than the terminal\n--------------------------------\n";
        assert_eq!(fold(text, 10), text);
    }
}
