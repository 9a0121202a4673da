//! What the contract expects of each method: a row for each, and how rows are made from others.

use mile::compression::Compression;
use mile::graph::Topology;
use mile::methods::catalogue::{self, Parameters};
use mile::methods::{CorrectionAt, LocalSteps, Optimizer, OuterMomentum, Variant};
use mile::mixing::Rule;
use mile::network::Network;
use mile::optimiser::Adam;
use mile::real::Real;
use mile::robust::Robust;
use mile::steady::summary_len;

use crate::common::*;

/// What is expected of a method.
pub struct Row {
    pub name: &'static str,
    pub parameters: Parameters,
    pub step_size: f64,
    pub rounds: usize,
    /// Vectors sent to each neighbour per round.
    pub sent: u64,
    /// Numbers in double precision that are sent along with them.
    pub beside: usize,
    /// How many times per round an agent waits for its neighbours.
    pub exchanges: u64,
    /// Vectors stored between updates.
    pub stored: usize,
    /// State vectors whose sum over the agents is zero.
    pub zero_sum: &'static [&'static str],
    /// Whether the mean of `y` is the mean gradient.
    pub tracks: bool,
    /// The vector that moves between exchanges, and whether its mean descends along the mean gradient.
    pub moves: (&'static str, bool),
    /// Where it ends.
    pub end: End,
}

/// Where a method ends with exact gradients and a constant step size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// Every agent at a common stationary point.
    Exact,
    /// Somewhere else, because the f_i differ.
    Biased,
    /// Somewhere that its optimiser decides (`optimisers.rs`).
    Open,
}

fn row(name: &'static str, parameters: Parameters) -> Row {
    Row {
        name,
        parameters,
        step_size: 0.1,
        rounds: 6_000,
        sent: 1,
        beside: 0,
        exchanges: 1,
        stored: 2,
        zero_sum: &["c"],
        tracks: false,
        moves: ("x", true),
        end: if catalogue::find(name).unwrap().exact { End::Exact } else { End::Biased },
    }
}

/// A method with momentum, whose average does not move along the mean gradient alone.
fn heavy(row: Row, mu: f64, nesterov: bool) -> Row {
    let parameters = with_momentum(row.parameters, mu, nesterov);
    let moves = (row.moves.0, false);
    Row { parameters, step_size: row.step_size * (1.0 - mu), stored: row.stored + 1, moves, ..row }
}

/// A method with outer momentum, whose average does not move along the mean gradient alone.
fn outer(row: Row, momentum: f64, step_size: f64) -> Row {
    let parameters = Parameters { outer: Some(OuterMomentum { momentum, step_size }), ..row.parameters };
    let stored = row.stored + if row.name == "k-gt" { 1 } else { 2 };
    Row { parameters, stored, moves: (row.moves.0, false), ..row }
}

/// A method with AdamW, AMSGrad or another optimiser in its local steps, and what that stores.
fn local(row: Row, local: LocalSteps, stored: usize) -> Row {
    let parameters = Parameters { local, ..row.parameters };
    Row { parameters, step_size: 0.01, stored: row.stored + stored, moves: (row.moves.0, false), ..row }
}

fn amsgrad(row: Row) -> Row {
    let adam = Adam { betas: [0.9, 0.99], amsgrad: true, ..Adam::default() };
    local(row, LocalSteps { optimizer: Some(Optimizer::Adam(adam)), ..LocalSteps::default() }, 3)
}

/// AdamW, whose own steps do not settle.
fn adamw(row: Row, correction: CorrectionAt) -> Row {
    let optimizer = Some(Optimizer::Adam(Adam { decay: 0.01, ..Adam::default() }));
    let steps =
        LocalSteps { optimizer, correction: Some(correction), clip: Some(1.0), share_moments: Some(1) };
    let row = local(row, steps, 2);
    Row { sent: row.sent + 1, exchanges: row.exchanges + 1, end: End::Open, ..row }
}

/// A method that sends compressed differences from public copies, and stores a given number of vectors.
fn copying(stored: usize, row: Row) -> Row {
    Row { stored, zero_sum: &["c", "s"], ..row }
}

fn compressed(by: Compression, parameters: Parameters) -> Parameters {
    Parameters { compression: Some(by), ..parameters }
}

/// A method that is defined by its momentum.
fn momentum(name: &'static str, step_size: f64) -> Row {
    Row { step_size, moves: ("x", false), ..row(name, Parameters::default()) }
}

fn tracker(name: &'static str, parameters: Parameters) -> Row {
    Row { sent: 2, stored: 3, zero_sum: &[], tracks: true, step_size: 0.05, ..row(name, parameters) }
}

/// ADMM, whose local steps are pulled back.
fn alternating(row: Row) -> Row {
    Row { stored: 3, zero_sum: &["p"], moves: ("x", false), ..row }
}

/// MoTEF with compressed messages, each in its own exchange.
fn tracking_copies(by: Compression) -> Row {
    let parameters = compressed(by, Parameters::default());
    let zero_sum: &[_] = &["wh", "wg"];
    Row { parameters, sent: 2, exchanges: 2, stored: 7, zero_sum, ..momentum("motef", 0.05) }
}

/// A method with a robust exchange.
fn robust(by: Robust, row: Row) -> Row {
    Row { parameters: Parameters { robust: Some(by), ..row.parameters }, ..row }
}

/// One whose agents treat an edge each in their own way, so that the average moves in exchanges too.
fn one_sided(by: Robust, row: Row) -> Row {
    robust(by, Row { stored: 1, zero_sum: &[], moves: ("x", false), ..row })
}

/// A method defined by its outer step.
fn outer_steps(name: &'static str, parameters: Parameters) -> Row {
    Row { step_size: 0.02, stored: 3, zero_sum: &[], moves: ("x", false), ..row(name, parameters) }
}

/// Every method, some with several parameters.
pub fn rows() -> Vec<Row> {
    let none = Parameters::default;
    let two = |communications| tau(3).with("communications", communications);
    vec![
        row("mile", xi(5, 0.22)),
        row("mile", Parameters { gamma: Some(0.8), ..xi(5, 0.1) }),
        row("mile", Parameters { gamma: Some(0.8), ..growing(5, 0.001, 0.1, 50) }),
        row("mile", growing(5, 0.02, 0.22, 7)),
        heavy(row("mile", xi(5, 0.22)), 0.3, false),
        heavy(row("mile", Parameters { gamma: Some(0.8), ..xi(5, 0.004) }), 0.9, false),
        heavy(row("mile", Parameters { gamma: Some(1.0), ..xi(5, 0.02) }), 0.8, true),
        heavy(row("mile", Parameters { gamma: Some(1.0), ..growing(5, 0.0005, 0.005, 50) }), 0.9, true),
        Row { stored: 3, beside: summary_len(DIM), ..row("mile", adaptive(5, 0.1, 0.8)) },
        heavy(
            Row { stored: 3, beside: summary_len(DIM), ..row("mile", adaptive(5, 0.004, 0.8)) },
            0.9,
            false,
        ),
        copying(4, row("mile", compressed(Compression::EightBit, xi(5, 0.22)))),
        copying(4, row("mile", compressed(Compression::Bf16, xi(5, 0.22)))),
        copying(4, row("mile", compressed(Compression::Fp16, xi(5, 0.22)))),
        copying(4, row("mile", compressed(Compression::TopK(0.4), tau(5)))),
        heavy(
            copying(
                4,
                row(
                    "mile",
                    compressed(Compression::EightBit, Parameters { gamma: Some(0.8), ..xi(5, 0.004) }),
                ),
            ),
            0.9,
            false,
        ),
        outer(row("mile", xi(5, 0.15)), 0.5, 0.7),
        outer(row("mile", Parameters { gamma: Some(0.8), ..xi(5, 0.05) }), 0.5, 0.7),
        outer(row("mile", Parameters { gamma: Some(0.8), ..growing(5, 0.001, 0.03, 50) }), 0.3, 1.0),
        outer(heavy(row("mile", Parameters { gamma: Some(0.8), ..xi(5, 0.002) }), 0.9, true), 0.5, 0.7),
        outer(Row { stored: 3, beside: summary_len(DIM), ..row("mile", adaptive(5, 0.05, 0.8)) }, 0.5, 0.7),
        outer(copying(4, row("mile", compressed(Compression::EightBit, xi(5, 0.1)))), 0.5, 0.7),
        outer(row("led", tau(5)), 0.5, 0.7),
        outer(heavy(row("led", tau(5)), 0.9, false), 0.5, 0.7),
        outer(Row { sent: 2, stored: 3, moves: ("u", true), ..row("k-gt", tau(5)) }, 0.3, 0.7),
        outer(Row { stored: 1, zero_sum: &[], ..row("local-dsgd", tau(5)) }, 0.5, 0.7),
        outer(
            Row {
                zero_sum: &["s"],
                ..copying(3, row("local-dsgd", compressed(Compression::EightBit, tau(5))))
            },
            0.5,
            0.7,
        ),
        amsgrad(row("mile", Parameters { gamma: Some(0.9), ..xi(5, 0.01) })),
        amsgrad(row("mile", Parameters { gamma: Some(0.9), ..growing(5, 0.001, 0.01, 50) })),
        amsgrad(Row { stored: 3, beside: summary_len(DIM), ..row("mile", adaptive(5, 0.01, 0.9)) }),
        amsgrad(copying(
            4,
            row("mile", compressed(Compression::EightBit, Parameters { gamma: Some(0.9), ..xi(5, 0.01) })),
        )),
        outer(amsgrad(row("mile", Parameters { gamma: Some(0.9), ..xi(5, 0.005) })), 0.5, 0.7),
        amsgrad(row("led", tau(5).with("beta", 0.01))),
        amsgrad(Row { stored: 1, zero_sum: &[], ..row("local-dsgd", tau(5)) }),
        adamw(row("mile", Parameters { gamma: Some(0.9), ..xi(5, 0.05) }), CorrectionAt::Step),
        adamw(
            row("mile", Parameters { gamma: Some(0.9), ..xi(5, 0.01) }),
            CorrectionAt::Gradient { scale: 0.5 },
        ),
        adamw(row("led", tau(5)), CorrectionAt::Step),
        adamw(Row { sent: 2, stored: 3, moves: ("u", true), ..row("k-gt", tau(5)) }, CorrectionAt::Step),
        adamw(
            Row { sent: 2, stored: 3, moves: ("u", true), ..row("k-gt", tau(5)) },
            CorrectionAt::Gradient { scale: 0.1 },
        ),
        row("led", tau(5)),
        heavy(row("led", tau(5)), 0.9, false),
        heavy(row("led", tau(5)), 0.8, true),
        Row { sent: 2, stored: 3, moves: ("u", true), ..row("k-gt", tau(5)) },
        Row { sent: 2, stored: 3, moves: ("u", false), ..row("k-gt", tau(5).with("eta_s", 0.5)) },
        heavy(Row { sent: 2, stored: 3, moves: ("u", true), ..row("k-gt", tau(5)) }, 0.9, false),
        heavy(Row { sent: 2, stored: 3, moves: ("u", true), ..row("k-gt", tau(5)) }, 0.8, true),
        Row { sent: 2, step_size: 0.05, ..row("periodical-gt", tau(5)) },
        Row { sent: 2, stored: 3, moves: ("u", true), ..row("dec-fedtrack", tau(5)) },
        tracker("gta-1", tau(5)),
        tracker("gta-2", tau(5)),
        Row { exchanges: 2, ..tracker("gta-3", tau(5)) },
        Row { sent: 4, exchanges: 2, ..tracker("gta-1", two(2)) },
        Row { sent: 4, exchanges: 2, ..tracker("gta-2", two(2)) },
        Row { sent: 6, exchanges: 6, ..tracker("gta-3", two(3)) },
        Row { sent: 2, step_size: 0.05, ..row("diging", tau(5)) },
        tracker("push-pull", tau(5)),
        row("extra", none()),
        row("ed", none()),
        row("nids", none()),
        row("d2", none()),
        row("proxskip", tau(5)),
        Row { sent: 3, exchanges: 3, ..row("mg-skip", tau(5).with("gossip", 3)) },
        Row { stored: 1, zero_sum: &[], ..row("local-dsgd", tau(5)) },
        heavy(Row { stored: 1, zero_sum: &[], ..row("local-dsgd", tau(5)) }, 0.9, false),
        heavy(Row { stored: 1, zero_sum: &[], ..row("local-dsgd", tau(5)) }, 0.9, true),
        Row { zero_sum: &["s"], ..copying(3, row("local-dsgd", compressed(Compression::EightBit, tau(5)))) },
        Row { zero_sum: &["s"], ..copying(3, row("local-dsgd", compressed(Compression::Bf16, tau(5)))) },
        Row { zero_sum: &["s"], ..copying(3, row("local-dsgd", compressed(Compression::TopK(0.4), tau(5)))) },
        Row { stored: 1, zero_sum: &[], ..row("dsgd", none()) },
        Row { stored: 1, zero_sum: &[], ..row("dsgd", none().with("variant", Variant::Cta)) },
        robust(Robust::Threshold(0.5), row("mile", xi(5, 0.22))),
        robust(Robust::Threshold(0.2), row("mile", Parameters { gamma: Some(0.8), ..xi(5, 0.1) })),
        robust(
            Robust::Threshold(0.5),
            heavy(row("mile", Parameters { gamma: Some(0.8), ..xi(5, 0.004) }), 0.9, false),
        ),
        amsgrad(robust(Robust::Threshold(0.5), row("mile", Parameters { gamma: Some(0.9), ..xi(5, 0.01) }))),
        robust(Robust::Threshold(0.2), Row { stored: 1, zero_sum: &[], ..row("local-dsgd", tau(5)) }),
        one_sided(Robust::Clip { byzantine: 1 }, row("local-dsgd", tau(5))),
        one_sided(Robust::TrimmedMean { byzantine: 2 }, row("local-dsgd", tau(5))),
        one_sided(Robust::Clip { byzantine: 2 }, row("dsgd", none())),
        one_sided(Robust::TrimmedMean { byzantine: 1 }, row("dsgd", none().with("variant", Variant::Cta))),
        tracker("gradient-tracking", none()),
        Row { sent: 2, stored: 4, zero_sum: &[], moves: ("y", true), ..row("scaffold", tau(5)) },
        Row { sent: 2, stored: 3, ..momentum("momentum-tracking", 0.005) },
        Row { stored: 3, ..momentum("edm", 0.1) },
        Row { zero_sum: &[], ..momentum("qg-dsgdm", 0.01) },
        Row { zero_sum: &[], parameters: with_momentum(none(), 0.9, true), ..momentum("qg-dsgdm", 0.01) },
        Row { zero_sum: &[], ..momentum("decentlam", 0.01) },
        Row { stored: 3, zero_sum: &["c", "d"], ..row("lt-admm", tau(5)) },
        Row { stored: 3, zero_sum: &["c", "d"], ..row("lt-admm", tau(3).with("rho", 1.0)) },
        alternating(row("dinno", tau(5))),
        alternating(row("dinno", tau(3).with("rho", 2.0))),
        amsgrad(alternating(row("dinno", tau(5)))),
        row("fspda", none()),
        row("fspda", Parameters { gamma: Some(0.8), ..none().with("beta", 0.1) }),
        Row { sent: 2, stored: 3, zero_sum: &[], ..momentum("motef", 0.05) },
        tracking_copies(Compression::EightBit),
        tracking_copies(Compression::Fp16),
        tracking_copies(Compression::TopK(0.4)),
        outer_steps("diloco", tau(5)),
        outer_steps("noloco", tau(5)),
        outer_steps("gasloc", tau(5)),
        Row { step_size: 0.002, ..amsgrad(outer_steps("diloco", tau(5))) },
        amsgrad(outer_steps("noloco", tau(5))),
        amsgrad(outer_steps("gasloc", tau(5))),
        heavy(outer_steps("gasloc", tau(5)), 0.9, true),
    ]
}

impl Row {
    pub fn network(&self) -> Network {
        self.network_of(AGENTS)
    }

    pub fn network_of(&self, agents: usize) -> Network {
        let complete = self.has_server() || self.parameters.robust.is_some_and(|by| by.byzantine().is_some());
        let rule = if self.has_server() { Rule::Metropolis } else { Rule::LazyMetropolis };
        network(if complete { Topology::Complete } else { Topology::Ring }, agents, rule)
    }

    pub fn has_server(&self) -> bool {
        catalogue::find(self.name).unwrap().has_server()
    }

    /// A server has one model: its agents start together.
    pub fn start<T: Real>(&self, agents: usize, dim: usize) -> Vec<T> {
        if self.has_server() { scattered(1, dim).repeat(agents) } else { scattered(agents, dim) }
    }

    pub fn what(&self) -> String {
        format!("{} {:?}", self.name, self.parameters)
    }
}
