//! The report as text, with the meaning of each number.

use std::fmt::{self, Display, Formatter};

use crate::advice::Severity;
use crate::report::TheoryReport;

/// Width of the column of names.
const NAME: usize = 34;

impl Display for TheoryReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        graph(self, f)?;
        weights(self, f)?;
        certificate(self, f)?;
        methods(self, f)?;
        advice(self, f)
    }
}

fn line(f: &mut Formatter, name: &str, value: impl Display, meaning: &str) -> fmt::Result {
    writeln!(f, "  {name:NAME$} {value:>11}  {meaning}")
}

/// Five decimals, or scientific notation for very small and very large numbers.
fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || (1e-3..1e5).contains(&size) { format!("{value:.5}") } else { format!("{value:.4e}") }
}

fn graph(report: &TheoryReport, f: &mut Formatter) -> fmt::Result {
    writeln!(
        f,
        "The network: {} agents, {} edges (eigenvalues by {})",
        report.agents, report.edges, report.solver
    )?;
    if let Some(lambda_2) = report.lambda_2 {
        line(f, "second eigenvalue lambda_2", number(lambda_2), "the closer to 1, the slower the consensus")?;
        line(
            f,
            "smallest eigenvalue lambda_n",
            number(report.lambda_n),
            "the closer to -1, the smaller xi must be",
        )?;
        line(
            f,
            "spectral gap",
            number(report.spectral_gap),
            "one mixing with W removes at least this share of disagreement",
        )?;
    }
    if report.drop_rate > 0.0 {
        line(f, "drop rate", number(report.drop_rate), "probability that an edge is down in a round")?;
    }
    if report.lost_share > report.drop_rate + f64::EPSILON {
        let why = "share of the rounds in which an edge is down, bursts and absent agents included";
        line(f, "lost", number(report.lost_share), why)?;
    }
    if let Some(varying) = &report.time_varying {
        line(f, "time-varying graph", varying.clone(), "the eigenvalues are those of all edges together")?;
    }
    writeln!(f)
}

fn weights(report: &TheoryReport, f: &mut Formatter) -> fmt::Result {
    writeln!(f, "The weight xi of MILE at {} local steps", report.local_steps)?;
    if let Some(mean) = report.local_steps_harmonic {
        let remark = "harmonic; limits are those of the largest number, progress is that of this one";
        line(f, "mean of the agents' local steps", number(mean), remark)?;
    }
    line(f, "proven for any graph, below", number(report.xi_paper_max), "the paper: 2/(tau + 3)")?;
    line(
        f,
        "proven for this graph, below",
        number(report.xi_spectrum_max),
        "the same condition with its own lambda_n",
    )?;
    line(
        f,
        "stable for tiny steps, below",
        number(report.xi_exact_max),
        "exact; above it the agents diverge",
    )?;
    line(
        f,
        "safe if curvature changes, below",
        number(report.xi_switching_max),
        "for any change within [0, L] at this step size",
    )?;
    if let Some(limit) = report.xi_drop_max {
        line(f, "stable with edges down, below", number(limit), "simulated with the edges of each round")?;
    }
    line(f, "xi = \"paper\"", number(report.xi_paper), "0.9 times the paper's bound")?;
    line(f, "xi = \"auto\"", number(report.xi_auto), "stable if curvature changes, and faster if possible")?;
    line(
        f,
        "fastest for tiny steps",
        number(report.xi_best),
        &format!("disagreement times {} per round", number(report.xi_best_contraction)),
    )?;
    let both = &report.decoupled_auto;
    line(
        f,
        "gamma = \"auto\"",
        number(both.gamma),
        &format!("with xi = {} (decoupled MILE)", number(both.xi)),
    )?;
    if let (Some(mu), Some(limit)) = (report.momentum, report.xi_momentum_max) {
        let form = if report.nesterov { ", Nesterov's" } else { "" };
        line(
            f,
            "with momentum",
            number(mu),
            &format!("xi below {} at the gamma in use{form}", number(limit)),
        )?;
    }
    if let Some((xi, gamma)) = report.momentum_auto {
        line(f, "gamma = \"auto\" with momentum", number(gamma), &format!("with xi = {}", number(xi)))?;
    }
    line(f, "in use: xi", number(report.xi), &format!("gamma = {}", number(report.gamma)))?;
    if let Some(schedule) = &report.xi_schedule {
        let shown = if schedule.starts_with("adaptive") { "the largest" } else { "the last" };
        line(f, "xi changes", "", &format!("{schedule}; above, {shown}"))?;
    }
    let digit =
        report.rounds_per_digit.map_or("does not shrink".into(), |r| format!("a tenth in {r:.1} rounds"));
    line(f, "disagreement per round", number(report.contraction_per_round), &digit)?;
    writeln!(f)
}

fn certificate(report: &TheoryReport, f: &mut Formatter) -> fmt::Result {
    writeln!(
        f,
        "The guarantee (Theorems 1 to 4: f smooth with L = {}, convex or not)",
        number(report.smoothness)
    )?;
    if let Some(sample) = report.smoothness_sample {
        writeln!(f, "  L was estimated from {sample}.")?;
    }
    if let Some(estimate) = &report.smoothness_estimate {
        let (low, high) = estimate.spread;
        writeln!(
            f,
            "  L was estimated from {} gradients; at different points it was {} to {}. It is a lower bound.",
            estimate.gradients,
            number(low),
            number(high)
        )?;
    }
    match (report.step_size_max, report.step_size_max_stochastic) {
        (Some(exact), Some(stochastic)) => {
            line(f, "step size proven, exact gradients", number(exact), "1/(sqrt(5 B_2) L)")?;
            line(f, "step size proven, stochastic", number(stochastic), "1/(sqrt(13 B_2) L)")?;
            let constants =
                [report.a1, report.a3, report.a4, report.b2].map(|c| c.map_or("-".into(), number));
            writeln!(
                f,
                "  constants: A_1 = {}, A_3 = {}, A_4 = {}, B_2 = {}",
                constants[0], constants[1], constants[2], constants[3]
            )?;
            writeln!(
                f,
                "  These bounds are far too small to be used in practice: they prove that some step size works."
            )?;
            writeln!(f, "  Use the table below to choose one.")?;
        }
        _ => writeln!(f, "  none for this xi and graph")?,
    }
    if let Some(reason) = &report.outside_theorems {
        writeln!(f, "  note: {reason}")?;
    }
    writeln!(f)
}

fn methods(report: &TheoryReport, f: &mut Formatter) -> fmt::Result {
    writeln!(f, "Largest stable step size for curvatures up to L (from each method's own code)")?;
    writeln!(
        f,
        "  {:16} {:>11} {:>11} {:>13}   limit set by",
        "method", "Hessians", "Hessians", "disagreement"
    )?;
    writeln!(f, "  {:16} {:>11} {:>11} {:>13}", "", "equal", "different", "per round")?;
    for m in &report.methods {
        let by = if m.step_size_limit == 0.0 {
            "unstable for every step size".to_string()
        } else if m.limiting_lambda == 1.0 {
            "the average of the agents, as in gradient descent".to_string()
        } else {
            format!("disagreement, mode lambda = {:.4}", m.limiting_lambda)
        };
        let coin = if m.exact { "" } else { " (random communication)" };
        let (limit, rate) = (number(m.step_size_limit), number(m.contraction_per_round));
        let mixed = number(m.step_size_limit_mixed);
        writeln!(f, "  {:16} {limit:>11} {mixed:>11} {rate:>13}   {by}{coin}", m.title)?;
    }
    writeln!(f, "  equal: all agents have the same Hessian and use all edges, exact;")?;
    writeln!(f, "  different: each has its own, with the edges of each round, simulated.")?;
    writeln!(
        f,
        "  Start with half of the latter or less, as \"auto\" does. Per round: factor for tiny steps; below 1 the agents reach consensus."
    )?;
    writeln!(f)
}

fn advice(report: &TheoryReport, f: &mut Formatter) -> fmt::Result {
    for advice in &report.advice {
        let word = match advice.severity {
            Severity::Note => "note",
            Severity::Caution => "caution",
            Severity::Warning => "warning",
        };
        writeln!(f, "{word}: {}", advice.message)?;
        if let Some(value) = advice.suggestion {
            writeln!(f, "  try {} = {}", advice.parameter, number(value))?;
        }
    }
    Ok(())
}
