//! The page, its JSON names, refusals and advice.

use mile::graph::Topology;
use mile::methods::Momentum;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Failure, Problem};
use mile::schedule::Weight;
use mile::varying::TimeVarying;
use mile::varying::finite::base_k;
use mile_theory::TheoryError;
use mile_theory::advice::{Advice, AdvisedRun, Severity, advise};
use mile_theory::mixed::StepLimits;
use mile_theory::report::{Inquiry, TheoryReport};
use mile_theory::sample::Sample;
use mile_theory::weights::WeightChoice;

use crate::common::*;

fn inquiry(network: &Network) -> Inquiry<'_> {
    Inquiry { step_size: Some(0.1), ..Inquiry::new(network) }
}

#[test]
fn own_local_steps_have_the_limits_of_the_largest_number() {
    let network = ring(8, Rule::Metropolis);
    let own = [50, 1, 7, 20, 3, 50, 1, 12];
    let largest = Inquiry { local_steps: 50, ..inquiry(&network) };
    let report = TheoryReport::new(&Inquiry { own_steps: Some(&own), ..largest }).unwrap();
    let alike = TheoryReport::new(&largest).unwrap();
    let limits = |report: &TheoryReport| {
        [
            report.xi_paper_max,
            report.xi_spectrum_max,
            report.xi_exact_max,
            report.xi_switching_max,
            report.xi_auto,
        ]
    };
    assert_eq!(limits(&report), limits(&alike));
    let mean = 8.0 / own.iter().map(|steps| 1.0 / *steps as f64).sum::<f64>();
    assert!(
        (report.local_steps_harmonic.unwrap() - mean).abs() < 1e-12 && alike.local_steps_harmonic.is_none()
    );
}

/// Edges used in turn with weights that they set: limits are those of the rounds, not of their mean.
#[test]
fn a_finite_time_graph_has_the_limits_of_its_rounds() {
    let in_turn = Network::in_turn(base_k(10, 1)).unwrap();
    let mean = Network::with_matrix(in_turn.graph().clone(), in_turn.mixing().clone()).unwrap();
    let limit = |network: &Network| TheoryReport::new(&inquiry(network)).unwrap().xi_drop_max;
    assert!(limit(&in_turn).unwrap() > 0.0 && limit(&mean).is_none());
    let steps = |network: &Network| {
        let method = build("k-gt", &tau(3), network);
        StepLimits::of(&*method, network, 0).unwrap().different
    };
    assert!(steps(&in_turn) > 0.0 && steps(&in_turn) < steps(&mean), "{} {}", steps(&in_turn), steps(&mean));
}

#[test]
fn the_json_has_the_names_of_the_contract() {
    let network = ring(10, Rule::Metropolis);
    let report = TheoryReport::new(&inquiry(&network)).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    for name in [
        "lambda",
        "lambda_2",
        "lambda_n",
        "spectral_gap",
        "xi_paper_max",
        "xi_spectrum_max",
        "xi_exact_max",
        "xi",
        "rho",
        "contraction_per_round",
        "a1",
        "a3",
        "a4",
        "b2",
        "step_size_max",
        "step_size_max_stochastic",
    ] {
        assert!(json.get(name).is_some_and(|v| !v.is_null()), "{name}: {json}");
    }
    assert_eq!(json["lambda"].as_array().unwrap().len(), 10);
    let rho = json["rho"][1].as_f64().unwrap();
    assert!((rho - (1.0 - report.xi + report.xi * report.lambda_2.unwrap())).abs() < 1e-15);
}

#[test]
fn the_page_reads_and_names_every_method_with_local_steps() {
    let network = ring(10, Rule::Metropolis);
    let page = TheoryReport::new(&inquiry(&network)).unwrap().to_string();
    for word in ["MILE", "LED", "K-GT", "DIGing", "ProxSkip"] {
        assert!(page.contains(word), "{word}");
    }
    assert!(page.lines().all(|line| line.chars().count() < 140));
}

#[test]
fn the_page_says_what_the_smoothness_was_estimated_from() {
    let network = ring(4, Rule::Metropolis);
    let page = |sample| TheoryReport::new(&Inquiry { sample, ..inquiry(&network) }).unwrap().to_string();
    let sample = Sample { agents: (4, 4), rows: Some((2000, 50_000)), one_point: true };
    assert!(page(Some(sample)).contains("2,000 of 50,000 rows") && !page(None).contains("50,000"));
}

#[test]
fn one_agent_and_weights_outside_the_theorems_are_reported_not_refused() {
    let alone = network(Topology::Path, 1, Rule::Metropolis);
    let report = TheoryReport::new(&inquiry(&alone)).unwrap();
    assert_eq!((report.lambda_2, report.contraction_per_round, report.b2), (None, 0.0, None));
    let ring = ring(10, Rule::Metropolis);
    let report = TheoryReport::new(&Inquiry { xi: WeightChoice::Number(0.24), ..inquiry(&ring) }).unwrap();
    assert!(report.b2.is_some() || report.outside_theorems.is_some());
    let report = TheoryReport::new(&Inquiry { xi: WeightChoice::Number(0.9), ..inquiry(&ring) }).unwrap();
    assert!(report.b2.is_none() && report.outside_theorems.is_some() && report.contraction_per_round > 1.0);
    assert_eq!(report.advice[0].severity, Severity::Warning);
    let both = TheoryReport::new(&Inquiry { gamma: Some(WeightChoice::Auto), ..inquiry(&ring) }).unwrap();
    assert_eq!((both.xi, both.gamma), (both.decoupled_auto.xi, both.decoupled_auto.gamma));
}

#[test]
fn bad_numbers_are_refused_by_name() {
    let network = ring(10, Rule::Metropolis);
    let refused = |inquiry: Inquiry| match TheoryReport::new(&inquiry).unwrap_err() {
        TheoryError::Parameter { parameter, .. } => parameter,
        other => panic!("{other}"),
    };
    let good = inquiry(&network);
    assert_eq!(refused(Inquiry { local_steps: 0, ..good }), "local_steps");
    for bad in [0.0, -0.1, 1.01, f64::NAN] {
        assert_eq!(refused(Inquiry { xi: WeightChoice::Number(bad), ..good }), "xi");
        assert_eq!(refused(Inquiry { gamma: Some(WeightChoice::Number(bad)), ..good }), "gamma");
    }
    for bad in [0.0, -2.0, f64::NAN, f64::INFINITY] {
        assert_eq!(refused(Inquiry { smoothness: bad, ..good }), "smoothness");
        assert_eq!(refused(Inquiry { step_size: Some(bad), ..good }), "step_size");
    }
}

fn advice(network: &Network, name: &str, parameters: Parameters, step_size: f64) -> Vec<Advice> {
    let entry = catalogue::find(name).unwrap();
    let plan =
        AdvisedRun { entry, parameters: &parameters, network, step_size, smoothness: Some(1.0), seed: 0 };
    let found = advise(&plan).unwrap();
    found.iter().for_each(|a| println!("{name}: {:?} {} -> {:?}", a.severity, a.message, a.suggestion));
    found
}

#[test]
fn advice_is_given_where_it_is_needed_and_only_there() {
    let plain = ring(10, Rule::Metropolis);
    let mile = |xi: f64| Parameters { xi: Some(xi.into()), ..tau(10) };
    assert!(advice(&plain, "mile", mile(0.1), 0.1).is_empty());
    assert!(advice(&plain, "k-gt", tau(10), 0.01).is_empty());

    let beyond = advice(&plain, "mile", mile(0.3), 0.1);
    assert_eq!((beyond[0].severity, beyond[0].parameter), (Severity::Warning, "xi"));
    assert!(
        advice(&plain, "mile", mile(beyond[0].suggestion.unwrap()), 0.1)
            .iter()
            .all(|a| a.severity < Severity::Caution)
    );

    let shaky = advice(&plain, "mile", mile(0.2), 1.0);
    assert_eq!((shaky[0].severity, shaky[0].parameter), (Severity::Caution, "xi"));

    let steep = advice(&plain, "diging", tau(10), 1.5);
    assert_eq!((steep[0].severity, steep[0].parameter), (Severity::Warning, "step_size"));
    assert!(advice(&plain, "diging", tau(10), steep[0].suggestion.unwrap()).is_empty());

    assert_eq!(advice(&plain, "led", tau(10), 0.1)[0].severity, Severity::Caution);

    let dropping = plain.with_drop_rate(0.6).unwrap();
    let fewer = advice(&dropping, "mile", mile(0.14), 0.1);
    assert_eq!((fewer[0].severity, fewer[0].parameter), (Severity::Warning, "gamma"));
    let better = Parameters { gamma: fewer[0].suggestion, xi: Some(0.02.into()), ..tau(10) };
    assert!(advice(&dropping, "mile", better, 0.1).is_empty());
    assert!(advice(&dropping, "k-gt", tau(10), 0.1).is_empty());
}

/// `f_i(x) = 1/2 sum_k h_ik (x_k - b_i)^2`: in coordinate k the agents curve that have a one in its binary digits, and the others hardly do.
struct Patterns(Vec<f64>);

impl Patterns {
    fn curvature(agent: usize, k: usize) -> f64 {
        if (k >> agent) % 2 == 1 { 1.0 } else { 0.02 }
    }

    fn minimiser(&self) -> Vec<f64> {
        let mean = |k: usize| {
            let curvatures = (0..self.agents()).map(|agent| Self::curvature(agent, k));
            let weighted = curvatures.clone().zip(&self.0).map(|(h, centre)| h * centre).sum::<f64>();
            weighted / curvatures.sum::<f64>()
        };
        (0..self.dim()).map(mean).collect()
    }
}

impl Problem<f64> for Patterns {
    fn agents(&self) -> usize {
        self.0.len()
    }

    fn dim(&self) -> usize {
        1 << self.0.len()
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        let one = |(k, x): (usize, &f64)| 0.5 * Self::curvature(agent, k) * (x - self.0[agent]).powi(2);
        Ok(x.iter().enumerate().map(one).sum())
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        for (k, (g, x)) in gradient.iter_mut().zip(x).enumerate() {
            *g = Self::curvature(agent, k) * (x - self.0[agent]);
        }
        Ok(())
    }
}

/// K-GT whose edges take turns is stable with steps up to 0.25, and between 0.26 and 1.5 it is not, by less than 0.6% in a round: the radius of the
/// product of its period matrices says so (computed in numpy for all patterns of curvatures 1 and 0.02).
#[test]
fn a_typed_step_size_is_warned_of_where_edges_take_turns() {
    let ring = ring(5, Rule::Metropolis);
    let in_turn = ring.clone().with_time_varying(TimeVarying::matchings(ring.graph())).unwrap();
    let (method, problem) = (build("k-gt", &tau(3), &in_turn), Patterns(gaussian(5, 5)));
    for (step_size, is_stable) in
        [(0.05, true), (0.15, true), (0.3, false), (0.5, false), (0.7, false), (0.9, false), (1.0, false)]
    {
        let found = advice(&in_turn, "k-gt", tau(3), step_size);
        let is_warned =
            found.first().is_some_and(|a| (a.severity, a.parameter) == (Severity::Warning, "step_size"));
        let errors = errors(&problem, &in_turn, &*method, step_size, 6000, &problem.minimiser());
        let last = *errors.last().unwrap();
        println!("{step_size}: error {last:e}, warned: {is_warned}");
        assert_eq!((last < 1e-3, last > 1e3), (is_stable, !is_stable), "{step_size}: {last}");
        assert_eq!(is_warned, !is_stable, "{step_size}: {found:?}");
        if let Some(better) = found.first().and_then(|advice| advice.suggestion) {
            assert!(advice(&in_turn, "k-gt", tau(3), better).is_empty(), "{better}");
        }
    }
}

#[test]
fn a_weight_that_changes_is_checked_at_both_ends() {
    let ring = ring(10, Rule::Metropolis);
    let changing = |from: f64, to: f64| {
        let weight = Weight::Geometric { from, to, rounds: 100 };
        let inquiry = Inquiry { xi: WeightChoice::Changing(weight), step_size: Some(0.1), ..inquiry(&ring) };
        TheoryReport::new(&inquiry).unwrap()
    };
    let calm = changing(0.001, 0.1);
    assert_eq!((calm.xi, calm.advice.len()), (0.1, 0), "{:?}", calm.advice);
    let constant = Inquiry { xi: WeightChoice::Number(0.9), step_size: Some(0.1), ..inquiry(&ring) };
    let constant = TheoryReport::new(&constant).unwrap();
    for report in [changing(0.01, 0.9), changing(0.9, 0.01)] {
        let first = &report.advice[0];
        assert_eq!((first.severity, first.parameter), (Severity::Warning, "xi"), "{:?}", report.advice);
        assert_eq!(first.suggestion, constant.advice[0].suggestion, "that of the larger end");
    }
}

#[test]
fn an_adaptive_weight_is_judged_at_its_largest() {
    let ring = ring(10, Rule::Metropolis);
    let report = |xi, momentum| {
        TheoryReport::new(&Inquiry { xi, momentum, step_size: Some(0.1), ..inquiry(&ring) }).unwrap()
    };
    let found = report(WeightChoice::Adaptive, None);
    assert_eq!(found.gamma, 1.0);
    assert!(
        found.xi <= 0.9 * found.xi_switching_max && found.xi > 0.8 * found.xi_switching_max,
        "{}",
        found.xi
    );
    assert!(found.advice.is_empty(), "{:?}", found.advice);
    let momentum = Some(Momentum { mu: 0.9, nesterov: false });
    let heavy = report(WeightChoice::Adaptive, momentum);
    assert!(heavy.xi <= 0.5 * heavy.xi_momentum_max.unwrap() && heavy.xi < 0.1 * found.xi, "{}", heavy.xi);
    let large = report(WeightChoice::Changing(Weight::Adaptive(0.5)), None);
    let first = &large.advice[0];
    assert_eq!((first.severity, first.parameter), (Severity::Warning, "xi"), "{:?}", large.advice);
    assert_eq!(large.xi, 0.5, "{first:?}");
}

#[test]
fn momentum_has_its_own_limits_and_its_own_weights() {
    let ring = ring(10, Rule::Metropolis);
    let with = |mu: f64, gamma: Option<WeightChoice>, xi: WeightChoice| {
        let momentum = Some(Momentum { mu, nesterov: false });
        let inquiry = Inquiry { momentum, gamma, xi, step_size: Some(0.01), ..inquiry(&ring) };
        TheoryReport::new(&inquiry).unwrap()
    };
    let auto = with(0.9, Some(WeightChoice::Auto), WeightChoice::Auto);
    assert!(auto.xi < auto.xi_momentum_max.unwrap() && auto.contraction_per_round < 1.0, "{auto}");
    assert_eq!(auto.momentum_auto, Some((auto.xi, auto.gamma)));
    assert!(auto.advice.is_empty() && auto.outside_theorems.is_some());
    // That of gradient descent is 2 (1 + mu)/L with momentum.
    let limit = |name: &str| auto.methods.iter().find(|line| line.name == name).unwrap().step_size_limit;
    assert!(limit("local-dsgd") > 2.0 && limit("diging") < 2.0, "{auto}");
    assert!(limit("mile") > 0.1 && limit("led") > 0.1 && limit("k-gt") > 0.1, "{auto}");
    let coupled = with(0.9, None, WeightChoice::Paper);
    assert!(coupled.contraction_per_round > 1.0);
    assert_eq!(coupled.advice[0].severity, Severity::Warning, "{:?}", coupled.advice);
}
