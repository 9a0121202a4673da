//! Table 1: vectors sent and stored by each method, measured, and the paper's claims.

use std::fmt::Write;
use std::path::Path;

use mile::graph::Topology;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::random::{Purpose, stream};
use rand::RngExt;
use rand_distr::StandardNormal;

use super::{Finding, Request, create_folder};
use crate::plans::{TABLE1, apply_all};
use mile_lab::error::LabError;
use mile_lab::plan::first_round_costs;
use mile_lab::report::{Page, RunFolder};
use mile_lab::spec::parse_table;
use mile_lab::store::{JobStatus, Outcome, write_file};
use mile_lab::table::{TextTable, number};

/// A row of the paper's table.
struct Claim {
    /// Name of the method in this library.
    method: &'static str,
    /// Its label in the experiment file.
    label: &'static str,
    consensus: bool,
    nonconvex: bool,
    sent: u64,
    stored: usize,
}

const fn claim(
    method: &'static str,
    label: &'static str,
    (consensus, nonconvex): (bool, bool),
    (sent, stored): (u64, usize),
) -> Claim {
    Claim { method, label, consensus, nonconvex, sent, stored }
}

const CLAIMS: [Claim; 9] = [
    claim("mile", "MILE", (true, true), (1, 2)),
    claim("led", "LED", (false, true), (1, 3)),
    claim("k-gt", "K-GT", (false, true), (2, 3)),
    claim("dec-fedtrack", "Dec-FedTrack", (false, false), (2, 3)),
    claim("gta-1", "GTA-1", (true, false), (2, 3)),
    claim("gta-2", "GTA-2", (true, false), (2, 3)),
    claim("gta-3", "GTA-3", (true, false), (2, 3)),
    claim("diging", "DIGing", (true, false), (2, 3)),
    claim("push-pull", "PPADCO (our reading)", (true, false), (2, 3)),
];

const CONVENTION: &str = "Definitions. Sent: n-vectors to each neighbour in one round of tau updates. Stored: n-vectors \
                          that an agent must keep between updates, gradients not counted (the paper's convention): here, the \
                          vectors in the method's state, less a kept gradient. At work: all vectors an agent holds at its peak, the gradient and the \
                          message being sent or received included. Vectors and bytes sent are counted while a round is run; those stored and at work \
                          are what the method is given to work with, and it has no others. Bytes are of one agent with two neighbours and the paper's \
                          MNIST network (28,938 numbers of 4 bytes).";

/// Consensus errors and squared gradient norms below this are zero up to rounding errors.
const ZERO: f64 = 1e-20;

/// Name of the last gradient in the state of methods that store it.
const GRADIENT: &str = "g";

/// Number of parameters of the paper's MNIST network, for example sizes in bytes.
const PARAMETERS: usize = 28_938;

/// Number of agents on the ring on which costs are measured.
const AGENTS: usize = 10;

/// Measured costs of a method.
struct Measured {
    sent: u64,
    /// Bytes that an agent sends per round and dimension of the problem.
    bytes: f64,
    /// Names of the vectors in the state, without gradients.
    stored: Vec<String>,
    /// Whether the state also has the last gradient.
    gradient: bool,
    vectors: usize,
}

impl Measured {
    fn stored_names(&self) -> String {
        self.stored.join(", ") + if self.gradient { " + gradient" } else { "" }
    }
}

/// Measures the costs, runs every method on a nonconvex problem, and states where the paper's table differs.
pub fn table1(request: &Request) -> Result<Finding, LabError> {
    create_folder(request.out)?;
    write_data(&request.out.join("data"))?;
    let mut table = parse_table(TABLE1, &[])?;
    apply_all(&mut table, request.set)?;
    let folder = request.run(table, request.out, &request.out.join("nonconvex"))?;
    folder.draw("")?;
    let measured: Vec<Measured> =
        CLAIMS.iter().map(|claim| measure(claim.method)).collect::<Result<_, _>>()?;
    let (costs, checks) = (costs(&measured), checks(&folder));
    let findings = findings(&measured, &folder);
    let text = format!("Table 1, measured (paper / here):\n{costs}");
    let check = format!(
        "The same methods on a nonconvex problem (logistic regression with a bounded penalty, exact gradients; {}):\n{checks}",
        request.note(&folder)
    );
    let mut paragraphs = vec![text, CONVENTION.to_owned(), check];
    paragraphs.extend(findings.iter().cloned());
    let mut page = Page::new("Table 1");
    let intro = [vec![CONVENTION.to_owned()], findings].concat();
    page.text("Table 1, measured", &intro);
    page.table("Sent and stored: the paper / here", &costs);
    page.table("On a nonconvex problem", &checks);
    page.run(&folder);
    page.write(&request.out.join("report.html"))?;
    write_file(&request.out.join("table.txt"), format!("{costs}\n{checks}").as_bytes())?;
    write_file(
        &request.out.join("table.tex"),
        format!("{}\n{}", costs.to_latex(), checks.to_latex()).as_bytes(),
    )?;
    request.finish(&paragraphs, request.stopped())
}

fn measure(method: &str) -> Result<Measured, LabError> {
    let unusable = |error: &dyn std::fmt::Display| LabError::config(format!("table1.{method}"), error);
    let entry = catalogue::find(method).ok_or_else(|| unusable(&"not built in"))?;
    let graph = Topology::Ring.build(AGENTS, 0).map_err(|error| unusable(&error))?;
    let network = Network::new(graph, Rule::Metropolis).map_err(|error| unusable(&error))?;
    let method = entry.build(&Parameters::default(), &network, 0).map_err(|error| unusable(&error))?;
    let costs = first_round_costs(&*method, &network)?;
    let layout = method.layout();
    let names = || layout.state_names();
    Ok(Measured {
        sent: costs.vectors_sent,
        bytes: costs.bytes_sent as f64 / AGENTS as f64,
        stored: names().filter(|name| *name != GRADIENT).map(str::to_owned).collect(),
        gradient: names().any(|name| name == GRADIENT),
        vectors: layout.vectors(),
    })
}

fn costs(measured: &[Measured]) -> TextTable {
    let header = ["method", "sent", "stored", "kept here", "at work", "kB sent a round", "peak kB"];
    let kilobytes = |bytes: f64| number((bytes * PARAMETERS as f64 / 100.0).round() / 10.0);
    let row = |(claim, here): (&Claim, &Measured)| {
        vec![
            claim.label.to_owned(),
            format!("{} / {}", claim.sent, here.sent),
            format!("{} / {}", claim.stored, here.stored.len()),
            here.stored_names(),
            here.vectors.to_string(),
            kilobytes(here.bytes),
            kilobytes((here.vectors * size_of::<f32>()) as f64),
        ]
    };
    let mut rows: Vec<Vec<String>> = CLAIMS.iter().zip(measured).map(row).collect();
    rows.push(["MIND", "1 / -", "2 / -", "not available", "-", "-", "-"].map(str::to_owned).to_vec());
    TextTable { header: header.map(str::to_owned).to_vec(), rows }
}

/// Whether a run converged to consensus at a stationary point.
fn reached(outcome: &Outcome) -> bool {
    outcome.last.consensus_error < ZERO && outcome.last.grad_norm_sq.is_some_and(|g| g < ZERO)
}

fn checks(folder: &RunFolder) -> TextTable {
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    let header = [
        "method",
        "seed",
        "consensus: paper",
        "nonconvex: paper",
        "consensus error",
        "|\u{2207}f|\u{b2}",
        "reached here",
        "MB sent",
    ];
    let row = |outcome: &Outcome| {
        let claim = CLAIMS.iter().find(|claim| claim.label == outcome.label);
        let gradient = outcome.last.grad_norm_sq.unwrap_or(f64::NAN);
        vec![
            outcome.label.clone(),
            outcome.seed.to_string(),
            claim.map_or("-", |claim| yes(claim.consensus)).to_owned(),
            claim.map_or("-", |claim| yes(claim.nonconvex)).to_owned(),
            number(outcome.last.consensus_error),
            number(gradient),
            if outcome.status == JobStatus::Stopped { "stopped" } else { yes(reached(outcome)) }.to_owned(),
            number(outcome.last.bytes_sent as f64 / 1e6),
        ]
    };
    TextTable { header: header.map(str::to_owned).to_vec(), rows: folder.outcomes.iter().map(row).collect() }
}

fn findings(measured: &[Measured], folder: &RunFolder) -> Vec<String> {
    let mut findings = Vec::new();
    for (claim, here) in CLAIMS.iter().zip(measured) {
        if here.stored.len() != claim.stored {
            let gradient =
                if here.gradient { ", beside the last gradient, which it does not count" } else { "" };
            findings.push(format!(
                "{}: the paper says {} vectors stored; by its own convention {} suffice ({}{gradient}).",
                claim.label,
                claim.stored,
                here.stored.len(),
                here.stored.join(", ")
            ));
        }
        if here.sent != claim.sent {
            findings.push(format!(
                "{}: the paper says {} vectors sent; here {}.",
                claim.label, claim.sent, here.sent
            ));
        }
    }
    findings.push(
        "So by that convention LED and DIGing need two vectors, as MILE does, and no gradient kept beside them: MILE's \
         advantage in memory is over K-GT and Dec-FedTrack, its advantage in communication over all here but LED."
            .into(),
    );
    let there = |claim: &&Claim| {
        let mut runs = folder.outcomes.iter().filter(|outcome| outcome.label == claim.label).peekable();
        runs.peek().is_some() && runs.all(reached)
    };
    let beyond: Vec<&str> =
        CLAIMS.iter().filter(|c| !(c.consensus && c.nonconvex)).filter(there).map(|c| c.label).collect();
    if !beyond.is_empty() {
        findings.push(format!(
            "The columns on consensus and nonconvex problems are about what was proved. In this run {} reached consensus \
             at a stationary point of a nonconvex f too; one run proves nothing in general.",
            beyond.join(", ")
        ));
    }
    findings
        .push("MIND is cited as submitted: no public text or code was found, so it is not measured.".into());
    findings
}

/// Writes data for ten agents, each with its own true parameters and feature mean: 40 rows of 8 features and a label.
fn write_data(folder: &Path) -> Result<(), LabError> {
    const FEATURES: usize = 8;
    create_folder(folder)?;
    for agent in 0..10u64 {
        let mut random = stream(1, Purpose::Data, agent, 0);
        let mut normal = || random.sample::<f64, _>(StandardNormal);
        let parameters: Vec<f64> = (0..FEATURES).map(|_| 1.0 + normal()).collect();
        let mean: Vec<f64> = (0..FEATURES).map(|_| 0.5 * normal()).collect();
        let names: Vec<String> = (1..=FEATURES).map(|k| format!("a{k}")).collect();
        let mut text = format!("{},y\n", names.join(","));
        for _ in 0..40 {
            let row: Vec<f64> = mean.iter().map(|c| c + normal()).collect();
            let score: f64 = row.iter().zip(&parameters).map(|(a, t)| a * t).sum::<f64>() + normal();
            row.iter().for_each(|value| {
                let _ = write!(text, "{value:.6},");
            });
            let _ = writeln!(text, "{}", if score > 0.0 { 1 } else { -1 });
        }
        write_file(&folder.join(format!("agent-{agent}.csv")), text.as_bytes())?;
    }
    Ok(())
}
