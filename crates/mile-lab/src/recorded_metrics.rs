//! What is measured on held-out data, of the average model and of the agents' own models.

use std::fmt;

use mile::problems::Metric;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The models that a metric is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Models {
    /// The average of all agents' models, which no agent holds.
    Average,
    /// The mean over the models of the [evaluated agents](crate::eval_agents::EvaluatedAgents).
    Own,
    /// The worst of these models: the one with the smallest accuracy, AUC or R^2, or the largest error or loss.
    Worst,
}

impl Models {
    /// All variants, in display order.
    pub const ALL: [Self; 3] = [Self::Average, Self::Own, Self::Worst];
}

/// Name in records and title in figures of a metric of each of the models.
type Names = [(&'static str, &'static str); 3];

macro_rules! names {
    ($name:literal, $noun:literal) => {
        [
            ($name, concat!("Test ", $noun, " of the average model")),
            (concat!("local_", $name), concat!("Test ", $noun, " of the agents' own models, mean")),
            (concat!("worst_", $name), concat!("Test ", $noun, " of the worst agent's own model")),
        ]
    };
}

fn names(metric: Metric) -> Names {
    match metric {
        Metric::Accuracy => names!("accuracy", "accuracy"),
        Metric::Auc => names!("auc", "AUC"),
        Metric::Rmse => names!("rmse", "RMSE"),
        Metric::R2 => names!("r2", "R^2"),
        Metric::TestLoss => names!("test_loss", "loss"),
    }
}

/// The name in records, such as `local_accuracy`.
pub fn name(metric: Metric, models: Models) -> &'static str {
    names(metric)[models as usize].0
}

/// The metric in a sentence.
pub(crate) fn noun(metric: Metric) -> &'static str {
    match metric {
        Metric::Accuracy => "test accuracy",
        Metric::Auc => "test AUC",
        Metric::Rmse => "test RMSE",
        Metric::R2 => "test R^2",
        Metric::TestLoss => "test loss",
    }
}

/// The title in figures.
pub(crate) fn title(metric: Metric, models: Models) -> &'static str {
    names(metric)[models as usize].1
}

/// What was measured on held-out data. In a record each number has its own name, such as `accuracy`, `local_accuracy` and
/// `worst_accuracy`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedMetrics(Vec<(Metric, [f64; 3])>);

impl RecordedMetrics {
    /// Adds a metric of the average model, of the agents' own models and of the worst of them.
    pub(crate) fn push(&mut self, metric: Metric, of: [f64; 3]) {
        self.0.push((metric, of));
    }

    /// The metric of these models; `None` if it is not recorded for the problem.
    pub fn get(&self, metric: Metric, models: Models) -> Option<f64> {
        let found = self.0.iter().find(|(recorded, _)| *recorded == metric);
        found.map(|(_, of)| of[models as usize])
    }
}

impl Serialize for RecordedMetrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3 * self.0.len()))?;
        for (metric, of) in &self.0 {
            for ((name, _), value) in names(*metric).iter().zip(of) {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for RecordedMetrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RecordedMetrics;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a record")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RecordedMetrics, A::Error> {
                let mut values = Metric::ALL.map(|metric| (metric, [None; 3]));
                while let Some(key) = map.next_key::<String>()? {
                    let mut all =
                        values.iter_mut().flat_map(|(metric, of)| names(*metric).into_iter().zip(of));
                    match all.find(|((name, _), _)| *name == key) {
                        Some((_, value)) => {
                            *value = Some(map.next_value::<Option<f64>>()?.unwrap_or(f64::NAN))
                        }
                        None => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                let recorded = values.into_iter().filter(|(_, of)| of.iter().any(Option::is_some));
                Ok(RecordedMetrics(
                    recorded.map(|(metric, of)| (metric, of.map(|v| v.unwrap_or(f64::NAN)))).collect(),
                ))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
