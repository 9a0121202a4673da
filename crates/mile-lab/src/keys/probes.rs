//! Small experiment files that together make the readers ask for every key.

use std::path::Path;

use mile::methods::catalogue::{self, Catalogue};
use toml::Table;

use crate::objectives::Kinds;
use crate::spec::{AgentSettings, AgentSpec, Spec};
use crate::sweep::Sweep;

/// A file to read, and what its section `[problem]` is called in the reference.
pub(super) struct Probe {
    text: String,
    problem: &'static str,
    reader: Reader,
}

/// Who reads a file.
#[derive(Clone, Copy, PartialEq)]
enum Reader {
    Spec,
    Agent,
    Sweep,
}

const ALGORITHM: &str = "[[algorithm]]\nname = 'mile'\nstep_size = 0.1\n";

/// Sections `[problem]`, one for each kind.
const PROBLEMS: [(&str, &str); 8] = [
    ("problem (quadratic)", "kind = 'quadratic'"),
    ("problem (table)", "kind = 'table'\ndata = 'd.csv'\ntarget = 'y'\nloss = 'logistic'"),
    ("problem (table)", "kind = 'table'\ndata = 'd.csv'\ntarget = 'y'\nloss = 'huber'\ndelta = 1"),
    ("problem (table)", "kind = 'table'\ndata = 'd.csv'\ntarget = 'y'\nloss = 'welsch'\nc = 1"),
    ("problem (images)", "kind = 'images'"),
    ("problem (arrays)", "kind = 'arrays'\ndata = 'd.npz'"),
    ("problem (arrays)", "kind = 'arrays'\ninputs = 'x.npy'\ntargets = 'y.npy'"),
    ("problem (python)", "kind = 'python'\nfactory = 'train.py:problem'"),
];

pub(super) fn all() -> Vec<Probe> {
    let probe = |text: String| Probe { text, problem: "problem (quadratic)", reader: Reader::Spec };
    let quadratic = "[problem]\nkind = 'quadratic'\n";
    let mut probes: Vec<Probe> = PROBLEMS
        .iter()
        .map(|(name, keys)| Probe { problem: name, ..probe(format!("[problem]\n{keys}\n{ALGORITHM}")) })
        .collect();
    probes.push(probe(format!("[time]\n{quadratic}{ALGORITHM}")));
    probes.push(probe(format!(
        "[attack]\nagents = [1]\nkind = 'slow'\nstrength = 0.3\n{quadratic}{ALGORITHM}"
    )));
    let networks = [
        "bursts = { begin = 0.1, end = 0.2 }\nabsence = { begin = 0.1, end = 0.2 }",
        "topology = 'erdos-renyi'",
        "topology = 'small-world'",
        "topology = 'file'\nedges = 'e'",
        "mixing = 'file'\nmatrix = 'm'",
        "time_varying = 'base-k'",
        "time_varying = { weights = ['even.txt'] }",
    ];
    probes.extend(networks.map(|keys| probe(format!("[network]\n{keys}\n{quadratic}{ALGORITHM}"))));
    probes.extend(
        ["'step'", "'cosine'"]
            .map(|kind| probe(format!("{quadratic}{ALGORITHM}schedule = {{ kind = {kind} }}"))),
    );
    let changing = "xi = { from = 0.01, to = 0.1, rounds = 10 }";
    probes.push(probe(format!("{quadratic}{ALGORITHM}{changing}")));
    probes.push(probe(format!("{quadratic}{ALGORITHM}xi = {{ adaptive = 0.1 }}")));
    probes.push(probe(format!("{quadratic}{ALGORITHM}compression = {{ top_k = 0.1 }}")));
    let robust = "exchange = { robust = 'clip', byzantine = 1 }";
    probes.push(probe(format!("{quadratic}{ALGORITHM}{robust}")));
    probes.push(probe(format!("{quadratic}{ALGORITHM}outer = {{ momentum = 0.5, step_size = 0.7 }}")));
    let optimizers =
        ["'sgd'", "'adamw'", "'amsgrad'", "'muon'"].map(|name| format!("optimizer = {{ name = {name} }}"));
    probes.extend(optimizers.map(|key| probe(format!("{quadratic}{ALGORITHM}{key}"))));
    probes.push(probe(format!(
        "{quadratic}{ALGORITHM}optimizer = 'adamw'\ncorrection = {{ kind = 'gradient' }}"
    )));
    let events = ["replace = 1", "leave = 1\nedges = [[0, 2]]", "join = 3\nneighbours = [0]"];
    probes.extend(events.map(|event| {
        probe(format!("{quadratic}{ALGORITHM}[network]\nagents = 3\n[[event]]\nround = 3\n{event}\n"))
    }));
    let later = "change = [{ round = 3, step_size = 0.1 }]";
    probes.push(probe(format!("{quadratic}{ALGORITHM}{later}")));
    probes.push(probe(format!("stop = {{ consensus = 1.0 }}\n{quadratic}{ALGORITHM}")));
    probes.push(probe(format!(
        "{quadratic}[[algorithm]]\nname = 'MyMethod'\nfactory = 'train.py:MyMethod'\nstep_size = 0.1\n"
    )));
    for entry in catalogue::ALL {
        let name = &entry.name;
        probes.push(probe(format!("{quadratic}[[algorithm]]\nname = '{name}'\nstep_size = 0.1\n")));
    }
    let neighbours = "[[agent.neighbour]]\nid = 1\nkey = 'k'\n[[agent.neighbour]]\nid = 2\nkey = 'k'\n";
    let agents =
        ["[agent]\nid = 0\nstop = { consensus = 1.0 }\n", "[agent]\nid = 0\non_missing = 'skip-edge'\n"];
    for agent in agents {
        let text = format!("{quadratic}{ALGORITHM}[network]\nagents = 3\n{agent}{neighbours}");
        probes.push(Probe { reader: Reader::Agent, ..probe(text) });
    }
    let sweep = format!("{quadratic}{ALGORITHM}[sweep]\nstep_size = [0.1, 0.2]\n");
    probes.push(Probe { reader: Reader::Sweep, ..probe(sweep) });
    probes
}

impl Probe {
    /// Reads the file, and writes what was understood in addition to what was given; errors in it are ignored.
    pub(super) fn read(&self) -> Option<(Table, Table)> {
        let table = self.text.parse::<Table>().ok()?;
        let here = Path::new("");
        let written = match self.reader {
            Reader::Spec => Spec::read(&table, here).ok()?.to_table(),
            Reader::Agent => {
                drop(AgentSettings::of_swarm(&table));
                let (_, agent) =
                    AgentSpec::parse(&self.text, here, &Kinds::default(), &Catalogue::default()).ok()?;
                Table::from_iter([("agent".to_owned(), agent.settings.to_table().into())])
            }
            Reader::Sweep => {
                Table::from_iter([("sweep".to_owned(), Sweep::read(&table).ok()??.to_table().into())])
            }
        };
        Some((table, written))
    }

    /// The name of a section in the reference: without the number of an algorithm or a neighbour.
    pub(super) fn section(&self, path: &str) -> String {
        let mut name = String::new();
        let mut inside = false;
        for c in path.chars() {
            match c {
                '[' => inside = true,
                ']' => inside = false,
                c if !inside => name.push(c),
                _ => {}
            }
        }
        match name.as_str() {
            "problem" => self.problem.to_owned(),
            "algorithm.change.schedule" => "algorithm.schedule".to_owned(),
            _ => name,
        }
    }
}
