//! Commands in the documentation, compared with the help of the program.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The built program, next to the tests.
pub(crate) struct Program {
    path: PathBuf,
    /// The help of commands that were looked at.
    known: Mutex<BTreeMap<Vec<String>, Help>>,
}

/// What the help of a command lists.
#[derive(Clone, Default)]
struct Help {
    subcommands: Vec<String>,
    flags: Vec<String>,
}

impl Program {
    /// The program that cargo has built together with this test, or before it.
    pub(crate) fn find() -> Self {
        let test = std::env::current_exe().expect("the path of this test");
        let folder = test.ancestors().nth(2).expect("the folder of the profile");
        let path = folder.join(format!("mile{}", std::env::consts::EXE_SUFFIX));
        assert!(
            path.exists(),
            "{} is not there: cargo test --workspace builds it, and so does cargo build -p mile-cli",
            path.display()
        );
        Self { path, known: Mutex::default() }
    }

    /// What is wrong with the arguments of a command.
    pub(crate) fn problem(&self, arguments: &[String]) -> Option<String> {
        let mut command: Vec<String> = Vec::new();
        let mut words = arguments.iter();
        let mut help = self.help(&command);
        while !help.subcommands.is_empty() {
            let Some(word) = words.as_slice().first().filter(|word| !word.starts_with('-')) else { break };
            if !help.subcommands.contains(word) {
                return Some(format!("'{word}' is not one of {}", help.subcommands.join(", ")));
            }
            if word == "help" {
                return self.problem(&words.as_slice()[1..]);
            }
            words.next();
            command.push(word.clone());
            help = self.help(&command);
        }
        let is_flag = |word: &&String| word.starts_with('-') && word.len() > 1;
        let name = |word: &String| word.split('=').next().unwrap_or_default().to_owned();
        let unknown = words.filter(is_flag).map(name).find(|flag| !help.flags.contains(flag))?;
        Some(format!("'{unknown}' is not one of {}", help.flags.join(", ")))
    }

    fn help(&self, command: &[String]) -> Help {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(command.to_vec()).or_insert_with(|| self.ask(command)).clone()
    }

    fn ask(&self, command: &[String]) -> Help {
        let output = Command::new(&self.path).args(command).arg("--help").output().expect("the program");
        assert!(output.status.success(), "mile {} --help: {output:?}", command.join(" "));
        let text = String::from_utf8(output.stdout).expect("text");
        let mut help = Help::default();
        let mut section = "";
        for line in text.lines() {
            if !line.starts_with(' ') {
                section = line.trim_end_matches(':');
                continue;
            }
            // Descriptions are indented further than names.
            let names = line.trim_start();
            let indent = line.len() - names.len();
            match section {
                "Commands" if indent == 2 => {
                    help.subcommands.extend(names.split_whitespace().next().map(str::to_owned))
                }
                _ if names.starts_with('-') && indent <= 6 => {
                    let words = names.split([' ', ',', '[', '=']);
                    help.flags.extend(words.filter(|word| word.starts_with('-')).map(str::to_owned));
                }
                _ => {}
            }
        }
        help
    }
}

/// The command lines of a block of shell text, without comments and prompts; a line that ends in a backslash continues.
pub(crate) fn lines(text: &str) -> Vec<String> {
    text.replace("\\\n", " ").lines().map(str::to_owned).collect()
}

/// The arguments of every call of mile in a command line.
pub(crate) fn of_mile(line: &str) -> Vec<Vec<String>> {
    let mut calls: Vec<Vec<String>> = Vec::new();
    let mut call: Vec<String> = Vec::new();
    for word in words(line) {
        if ["&&", "||", "|", ";", "&"].contains(&word.as_str()) {
            calls.push(std::mem::take(&mut call));
        } else {
            call.push(word);
        }
    }
    calls.push(call);
    calls.iter().filter_map(|call| arguments(call)).collect()
}

fn arguments(call: &[String]) -> Option<Vec<String>> {
    let call = call.strip_prefix(&["$".to_owned()][..]).unwrap_or(call);
    let first = call.first()?;
    let rest = if first == "mile" || first.ends_with("/mile") {
        &call[1..]
    } else if first == "cargo" && call.iter().any(|word| word == "mile-cli") {
        let at = call.iter().position(|word| word == "--")?;
        &call[at + 1..]
    } else {
        return None;
    };
    Some(rest.iter().map(|word| word.trim_matches(['[', ']']).to_owned()).collect())
}

/// The words of a line up to a comment; quotes and a final semicolon are left out.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut is_word) = (String::new(), None, false);
    // A unit of systemd names its command behind an equals sign.
    let line = line.strip_prefix("ExecStart=").unwrap_or(line);
    for c in line.chars().chain([' ']) {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.push(c),
            ('\'' | '"', None) => (quote, is_word) = (Some(c), true),
            ('#', None) if !is_word => return words,
            (';', None) => {
                words.push(std::mem::take(&mut word));
                words.push(";".into());
                is_word = false;
            }
            (c, None) if c.is_whitespace() => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            (c, None) => {
                word.push(c);
                is_word = true;
            }
        }
    }
    words
}

#[test]
fn commands_are_found_with_their_arguments() {
    let all = |line: &str| of_mile(line).iter().map(|call| call.join(" ")).collect::<Vec<_>>();
    assert_eq!(all("mile run a.toml --set 'a b=1'   # and so on"), ["run a.toml --set a b=1"]);
    assert_eq!(all("$ mile status runs/x"), ["status runs/x"]);
    assert_eq!(all("cargo run --release -p mile-cli -- run"), ["run"]);
    assert_eq!(all("mile data get mnist && mile data get cifar10"), ["data get mnist", "data get cifar10"]);
    assert_eq!(all("ExecStart=/usr/local/bin/mile agent a.toml"), ["agent a.toml"]);
    assert_eq!(all("mile run [FILE] [--resume]"), ["run FILE --resume"]);
    assert!(all("cargo test --workspace").is_empty() && all("smile run").is_empty());
    assert_eq!(lines("mile run \\\n  a.toml"), ["mile run    a.toml"]);
}

#[test]
fn what_does_not_exist_is_found() {
    let program = Program::find();
    let problem = |text: &str| program.problem(&words(text));
    for right in ["run a.toml --dry-run", "data get mnist", "--version", "graph --topology ring", "help run"]
    {
        assert_eq!(problem(right), None, "{right}");
    }
    for wrong in ["walk", "run --dry-walk", "data got mnist", "swarm a.toml --topology ring", "help walk"] {
        assert!(problem(wrong).is_some(), "{wrong}");
    }
}
