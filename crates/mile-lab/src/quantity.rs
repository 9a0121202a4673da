//! The quantities of a record that can be plotted, and the axes they are plotted against.

use mile::problems::Metric;

use crate::record::Record;
use crate::recorded_metrics::{self, Models};

/// A quantity of a record, for the vertical axis of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quantity {
    /// f at the average of the agents' models, which no agent holds.
    Loss,
    /// Mean over the [evaluated agents](crate::eval_agents::EvaluatedAgents) of f at their own models.
    LocalLoss,
    /// Largest f over the evaluated agents' own models.
    WorstLoss,
    /// f at the average model, minus the least that was recorded with the same seed in all runs that are shown together; no single
    /// record has it.
    LossGap,
    /// `|∇f|²` at the average model.
    GradNormSq,
    /// Mean squared distance of the agents' models from their average.
    ConsensusError,
    /// The consensus error just before mixing.
    ConsensusErrorBefore,
    /// A metric on held-out data.
    Test(Metric, Models),
}

impl Quantity {
    /// All quantities, in display order.
    pub const ALL: [Self; 22] = {
        let mut all = [Self::Loss; 22];
        all[1] = Self::LocalLoss;
        all[2] = Self::WorstLoss;
        all[3] = Self::LossGap;
        all[4] = Self::GradNormSq;
        all[5] = Self::ConsensusError;
        all[6] = Self::ConsensusErrorBefore;
        let mut k = 0;
        while k < 15 {
            all[7 + k] = Self::Test(Metric::ALL[k / 3], Models::ALL[k % 3]);
            k += 1;
        }
        all
    };

    /// Its name in records and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::LocalLoss => "local_loss",
            Self::WorstLoss => "worst_loss",
            Self::LossGap => "loss_gap",
            Self::GradNormSq => "grad_norm_sq",
            Self::ConsensusError => "consensus_error",
            Self::ConsensusErrorBefore => "consensus_error_before",
            Self::Test(metric, models) => recorded_metrics::name(metric, models),
        }
    }

    /// Its title in figures.
    pub fn title(self) -> &'static str {
        match self {
            Self::Loss => "Loss of the average model",
            Self::LocalLoss => "Loss of the agents' own models, mean",
            Self::WorstLoss => "Loss of the worst agent's own model",
            Self::LossGap => "Loss of the average model, above the least recorded",
            Self::GradNormSq => "|\u{2207}f|\u{b2} at the average model",
            Self::ConsensusError => "Consensus error after mixing",
            Self::ConsensusErrorBefore => "Consensus error before mixing",
            Self::Test(metric, models) => recorded_metrics::title(metric, models),
        }
    }

    /// What it is called in tables and along axes.
    pub fn symbol(self) -> String {
        match self {
            Self::LossGap => "loss \u{2212} the least recorded with its seed".into(),
            Self::GradNormSq => "|\u{2207}f|\u{b2}".into(),
            other => other.name().replace('_', " "),
        }
    }

    /// Its value in a record; `None` if it is not recorded for the problem, or is not a quantity of one record.
    pub fn of(self, record: &Record) -> Option<f64> {
        match self {
            Self::Loss => Some(record.loss),
            Self::LocalLoss => Some(record.local_loss),
            Self::WorstLoss => Some(record.worst_loss),
            Self::LossGap => None,
            Self::GradNormSq => record.grad_norm_sq,
            Self::ConsensusError => Some(record.consensus_error),
            Self::ConsensusErrorBefore => record.consensus_error_before,
            Self::Test(metric, models) => record.held_out.get(metric, models),
        }
    }

    /// Whether larger values are better.
    pub fn larger_is_better(self) -> bool {
        matches!(self, Self::Test(metric, _) if metric.larger_is_better())
    }

    /// Whether it converges to zero by orders of magnitude, so that it needs a logarithmic axis.
    pub(crate) fn tends_to_zero(self) -> bool {
        matches!(self, Self::LossGap | Self::GradNormSq | Self::ConsensusError | Self::ConsensusErrorBefore)
    }

    /// The quantity of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|quantity| quantity.name() == name)
    }
}

/// A cost of a run, for the horizontal axis of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Axis {
    /// Communication rounds.
    Round,
    /// Bytes sent by all agents.
    BytesSent,
    /// Gradients evaluated by all agents.
    GradientEvals,
    /// Seconds of computing.
    WallS,
    /// Seconds of modelled time.
    ModelledS,
}

impl Axis {
    /// All variants, in display order.
    pub const ALL: [Self; 5] =
        [Self::Round, Self::BytesSent, Self::GradientEvals, Self::WallS, Self::ModelledS];

    /// Its name in records and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Round => "round",
            Self::BytesSent => "bytes_sent",
            Self::GradientEvals => "gradient_evals",
            Self::WallS => "wall_s",
            Self::ModelledS => "modelled_s",
        }
    }

    /// Its short title, for buttons.
    pub fn short(self) -> &'static str {
        match self {
            Self::Round => "rounds",
            Self::BytesSent => "bytes sent",
            Self::GradientEvals => "gradients",
            Self::WallS => "time",
            Self::ModelledS => "modelled time",
        }
    }

    /// Its value in a record, if it has one.
    pub fn of(self, record: &Record) -> Option<f64> {
        match self {
            Self::Round => Some(record.round as f64),
            Self::BytesSent => Some(record.bytes_sent as f64),
            Self::GradientEvals => Some(record.gradient_evals as f64),
            Self::WallS => Some(record.wall_s),
            Self::ModelledS => record.modelled_s,
        }
    }

    /// The axis of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|axis| axis.name() == name)
    }

    /// The divisor of the values on the axis, and the title of the axis with its unit.
    pub(crate) fn unit(self, largest: f64) -> (f64, String) {
        let pick = |units: &[(f64, &str)]| {
            let fits = |(factor, _): &&(f64, &str)| largest >= *factor;
            units.iter().rev().find(fits).map_or((1.0, units[0].1.to_owned()), |(f, u)| (*f, (*u).to_owned()))
        };
        match self {
            Self::Round => (1.0, "communication rounds".into()),
            Self::BytesSent => {
                let (factor, unit) =
                    pick(&[(1.0, "bytes"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")]);
                (factor, format!("sent by all agents ({unit})"))
            }
            Self::GradientEvals => {
                let (factor, unit) = pick(&[(1.0, ""), (1e4, " (thousands)"), (1e7, " (millions)")]);
                let factor = if factor > 1.0 { factor / 10.0 } else { factor };
                (factor, format!("gradient evaluations of all agents{unit}"))
            }
            Self::WallS | Self::ModelledS => {
                let (factor, unit) = pick(&[(1.0, "s"), (180.0, "min"), (10800.0, "h")]);
                let factor = match unit.as_str() {
                    "min" => 60.0,
                    "h" => 3600.0,
                    _ => factor,
                };
                match self {
                    Self::ModelledS => (factor, format!("modelled time ({unit})")),
                    _ => (factor, format!("computing time, each run on its own threads ({unit})")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        assert!(Quantity::ALL.iter().all(|q| Quantity::named(q.name()) == Some(*q)));
        assert!(Axis::ALL.iter().all(|axis| Axis::named(axis.name()) == Some(*axis)));
    }

    #[test]
    fn metrics_have_three_names_and_titles_in_the_same_words() {
        let names: Vec<&str> = Quantity::ALL.iter().map(|q| q.name()).collect();
        assert_eq!(
            names[7..13],
            ["accuracy", "local_accuracy", "worst_accuracy", "auc", "local_auc", "worst_auc"]
        );
        assert_eq!(names[19..], ["test_loss", "local_test_loss", "worst_test_loss"]);
        let worst = Quantity::Test(Metric::Rmse, Models::Worst);
        assert_eq!((worst.name(), worst.title()), ("worst_rmse", "Test RMSE of the worst agent's own model"));
        let better: Vec<&str> =
            Quantity::ALL.into_iter().filter(|q| q.larger_is_better()).map(Quantity::name).collect();
        let larger = ["accuracy", "auc", "r2"]
            .map(|name| [name.to_owned(), format!("local_{name}"), format!("worst_{name}")]);
        assert_eq!(better, larger.concat());
    }

    #[test]
    fn axes_have_units_a_person_can_read() {
        assert_eq!(Axis::BytesSent.unit(4.2e7), (1e6, "sent by all agents (MB)".into()));
        assert_eq!(Axis::GradientEvals.unit(900.0), (1.0, "gradient evaluations of all agents".into()));
        assert_eq!(Axis::GradientEvals.unit(3e4).0, 1e3);
        assert_eq!(Axis::GradientEvals.unit(2e7).0, 1e6);
        assert_eq!(Axis::WallS.unit(60.0), (1.0, "computing time, each run on its own threads (s)".into()));
        assert_eq!(
            Axis::WallS.unit(600.0),
            (60.0, "computing time, each run on its own threads (min)".into())
        );
        assert_eq!(Axis::WallS.unit(0.0).0, 1.0);
        assert_eq!(Axis::ModelledS.unit(7200.0), (60.0, "modelled time (min)".into()));
    }
}
