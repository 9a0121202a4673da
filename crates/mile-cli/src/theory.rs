//! `mile theory`: what the theory says about a network and a step size.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use mile::methods::{Mile, Momentum};
use mile::network::Network;
use mile_lab::Lab;
use mile_lab::advice::{estimate, inquiry};
use mile_lab::error::LabError;
use mile_lab::plan::Plan;
use mile_lab::plot::{StabilityMode, Used, modes_svg, stability_map_svg, write_picture};
use mile_lab::sweep::SweepPlan;
use mile_theory::modes::Modes;
use mile_theory::report::{Inquiry, TheoryReport};
use mile_theory::stability::{self, MODES};
use mile_theory::weights::WeightChoice;

use crate::network::NetworkArguments;
use crate::run::read_experiment;
use crate::{CommandLine, Format, USAGE, output};

/// Rows and columns of a stability map.
const GRID: usize = 40;

/// Spectrum, admissible weights and step sizes, convergence rates and stability.
#[derive(Args)]
pub(crate) struct TheoryArguments {
    /// Experiment file that gives the network, the parameters of the first MILE algorithm and the smoothness (estimated from
    /// the problem), instead of the options below
    #[arg(value_name = "EXPERIMENT.toml", conflicts_with_all = [
        "topology", "agents", "mixing", "p", "degree", "rewire", "edges", "matrix", "seed", "drop_rate", "time_varying",
    ])]
    experiment: Option<PathBuf>,
    /// Replace a value of the experiment file, e.g. network.agents=20; may be given several times
    #[arg(long, value_name = "KEY.PATH=VALUE", requires = "experiment")]
    set: Vec<String>,
    #[command(flatten)]
    network: NetworkArguments,
    /// Probability that an edge is down in a round [default: 0]
    #[arg(long)]
    drop_rate: Option<f64>,
    /// How the graph changes from round to round: random-matching or matchings [default: it stays the same]
    #[arg(long)]
    time_varying: Option<String>,
    /// Local steps per round, tau [default: 10, or the experiment's]
    #[arg(long, alias = "tau")]
    local_steps: Option<u64>,
    /// Weight xi of MILE: a number in (0, 1], paper (0.9 * 2/(tau+3)), auto, or adaptive (each edge adapts its own) [default: paper, or the experiment's]
    #[arg(long)]
    xi: Option<String>,
    /// Weight gamma of MILE's mixing, if decoupled from xi: a number in (0, 1], or auto [default: xi, or the experiment's]
    #[arg(long)]
    gamma: Option<String>,
    /// Momentum of the local steps, a number in [0, 1) [default: none, or the experiment's]
    #[arg(long)]
    momentum: Option<f64>,
    /// Use Nesterov's form of momentum
    #[arg(long, requires = "momentum")]
    nesterov: bool,
    /// Smoothness constant L of the objectives [default: 1, or estimated from the experiment's problem]
    #[arg(long, allow_negative_numbers = true)]
    smoothness: Option<f64>,
    /// Step size to check against the bounds [default: none, or the experiment's]
    #[arg(long, allow_negative_numbers = true)]
    step_size: Option<f64>,
    /// Write figures to this folder: stability maps, and the eigenvalues of one round (SVG and PNG)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: &TheoryArguments, line: &CommandLine) -> anyhow::Result<u8> {
    let (xi, gamma) = match (weight("xi", &arguments.xi), weight("gamma", &arguments.gamma)) {
        (Ok(xi), Ok(gamma)) => (xi, gamma),
        (Err(problem), _) | (_, Err(problem)) => {
            eprintln!("mile: {problem}");
            return Ok(USAGE);
        }
    };
    if let Some(mu) = arguments.momentum.filter(|mu| !(0.0..1.0).contains(mu)) {
        eprintln!("mile: --momentum: expected a number in [0, 1), got {mu}");
        return Ok(USAGE);
    }
    match &arguments.experiment {
        Some(path) => {
            let name = path.display().to_string();
            let plan = plan(path, arguments, line).map_err(|error| error.in_file(&name))?;
            let estimate = estimate(&plan).map_err(|error| error.in_file(&name))?;
            let inquiry = inquiry(&plan, &estimate).map_err(|error| error.in_file(&name))?;
            print_report(arguments, with_arguments(inquiry, arguments, xi, gamma))
        }
        None => {
            let network =
                arguments.network.config(arguments.drop_rate, arguments.time_varying.as_deref())?.build()?;
            print_report(arguments, with_arguments(Inquiry::new(&network), arguments, xi, gamma))
        }
    }
}

/// The plan of an experiment file, or of the first point of its sweep.
fn plan(path: &Path, arguments: &TheoryArguments, line: &CommandLine) -> Result<Plan, LabError> {
    let (table, base) = read_experiment(Some(path), &arguments.set, None)?;
    let (kinds, catalogue, engines) = (line.kinds(), line.catalogue(), line.engines());
    match SweepPlan::read_with(&table, &base, &kinds, catalogue, engines.clone())? {
        None => Lab::new(kinds, catalogue.clone(), engines).plan(&table, &base, None),
        Some(sweep) => {
            let first = &sweep.points[0];
            eprintln!("note: {} has a [sweep]; this is its first point, {}", path.display(), first.name);
            sweep.plan(first)
        }
    }
}

/// The inquiry with the values given on the command line.
fn with_arguments<'a>(
    mut inquiry: Inquiry<'a>,
    arguments: &TheoryArguments,
    xi: Option<WeightChoice>,
    gamma: Option<WeightChoice>,
) -> Inquiry<'a> {
    if let Some(local_steps) = arguments.local_steps {
        (inquiry.local_steps, inquiry.own_steps) = (local_steps, None);
    }
    if xi.is_some() {
        (inquiry.xi, inquiry.gamma) = (xi.unwrap_or(inquiry.xi), None);
    }
    inquiry.gamma = gamma.or(inquiry.gamma);
    if let Some(mu) = arguments.momentum {
        inquiry.momentum = (mu > 0.0).then_some(Momentum { mu, nesterov: arguments.nesterov });
    }
    if let Some(smoothness) = arguments.smoothness {
        (inquiry.smoothness, inquiry.estimate, inquiry.sample) = (smoothness, None, None);
    }
    inquiry.step_size = arguments.step_size.or(inquiry.step_size);
    inquiry
}

fn print_report(arguments: &TheoryArguments, inquiry: Inquiry) -> anyhow::Result<u8> {
    let report = match TheoryReport::new(&inquiry) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("mile: {error}");
            return Ok(USAGE);
        }
    };
    if let Some(folder) = &arguments.out {
        write_figures(folder, &inquiry, &report)?;
    }
    output::print(&match arguments.format {
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
        Format::Text => report.to_string(),
    })?;
    Ok(0)
}

fn weight(name: &str, given: &Option<String>) -> Result<Option<WeightChoice>, String> {
    let Some(text) = given else { return Ok(None) };
    match text.as_str() {
        "auto" => Ok(Some(WeightChoice::Auto)),
        "paper" if name == "xi" => Ok(Some(WeightChoice::Paper)),
        "adaptive" if name == "xi" => Ok(Some(WeightChoice::Adaptive)),
        number => number.parse().map(|number| Some(WeightChoice::Number(number))).map_err(|_| {
            let words = if name == "xi" { "paper, auto or adaptive" } else { "or auto" };
            format!("--{name}: expected a number in (0, 1], {words}, got \"{number}\"")
        }),
    }
}

/// `steps` logarithmically spaced values from `low` to `high`.
fn logarithmic(low: f64, high: f64, steps: usize) -> Vec<f64> {
    (0..steps).map(|k| low * (high / low).powf(k as f64 / (steps - 1) as f64)).collect()
}

fn write_figures(folder: &Path, inquiry: &Inquiry, report: &TheoryReport) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let spectrum = inquiry.network.spectrum();
    // The parameters in use are within the maps.
    let used = inquiry.step_size.unwrap_or(1.0 / inquiry.smoothness);
    let steps = logarithmic(
        (1e-3 / inquiry.smoothness).min(used / 2.0),
        (3.0 / inquiry.smoothness).max(2.0 * used),
        GRID,
    );
    let tau = inquiry.local_steps;
    let apart = (report.gamma != report.xi).then_some(report.gamma);
    let boxed = |tau: u64, xi: f64| {
        let method = Mile::decoupled(tau, xi, apart.unwrap_or(xi))?.with_momentum(inquiry.momentum);
        Ok(Box::new(method) as Box<dyn mile::method::Method>)
    };
    let top = (1.5 * report.xi_exact_max).max(1.1 * report.xi).min(1.0);
    let weights: Vec<f64> = (1..=GRID).map(|k| top * k as f64 / GRID as f64).collect();
    let by_xi = stability::map("xi", &weights, &steps, inquiry.smoothness, spectrum, |xi| boxed(tau, xi))?;
    let stride = (tau + tau / 4).div_ceil(20).max(1);
    let taus: Vec<f64> = (1..=20).map(|k| (k * stride) as f64).collect();
    let by_tau = stability::map("local_steps", &taus, &steps, inquiry.smoothness, spectrum, |tau| {
        boxed(tau as u64, report.xi)
    })?;
    let write = |name: &str, svg: String| write_picture(folder, name, &svg);
    let mark = |value: f64| Used { value, step_size: inquiry.step_size };
    let fixed = apart.map(|gamma| format!(", gamma = {gamma:.4}")).unwrap_or_default();
    let title = format!("Stability of MILE with {tau} local steps{fixed}");
    write("stability-xi", stability_map_svg(&by_xi, &title, mark(report.xi)))?;
    let title = format!("Stability of MILE with xi = {:.4}{fixed}", report.xi);
    write("stability-tau", stability_map_svg(&by_tau, &title, mark(tau as f64)))?;
    let method = Mile::decoupled(tau, report.xi, report.gamma)?.with_momentum(inquiry.momentum);
    write(
        "modes",
        modes_svg(&modes(inquiry.network, &method, inquiry)?, "Eigenvalues of one round of MILE"),
    )?;
    Ok(())
}

/// The eigenvalues of one round, at zero curvature and, if a step size is given, at the largest curvature.
fn modes(network: &Network, method: &Mile, inquiry: &Inquiry) -> anyhow::Result<Vec<StabilityMode>> {
    let of = Modes::of(method)?;
    let mut found = Vec::new();
    let top = inquiry.step_size.map(|alpha| alpha * inquiry.smoothness);
    for lambda in network.spectrum().disagreement(MODES) {
        for a in [Some(0.0), top].into_iter().flatten() {
            let eigenvalues = of.eigenvalues(a, lambda)?;
            found.extend(eigenvalues.into_iter().map(|(re, im)| StabilityMode { re, im, lambda, a }));
        }
    }
    Ok(found)
}
