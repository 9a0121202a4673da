//! The experiment files, and the changes of the quick scale.

use toml::{Table, Value};

use super::Scale;
use mile_lab::error::LabError;
use mile_lab::spec::{apply, parse_table};

/// The experiment files of a figure: one for each data set, and the changes of the quick scale.
pub(super) struct Plans {
    pub(super) sets: &'static [(&'static str, &'static str)],
    pub(super) quick: &'static str,
}

pub(super) const FIG1: Plans = Plans {
    sets: &[
        ("mnist", include_str!("../plans/fig1/mnist.toml")),
        ("cifar10", include_str!("../plans/fig1/cifar10.toml")),
    ],
    quick: include_str!("../plans/fig1/quick.toml"),
};

pub(super) const FIG2: Plans = Plans {
    sets: &[
        ("mnist", include_str!("../plans/fig2/mnist.toml")),
        ("cifar10", include_str!("../plans/fig2/cifar10.toml")),
    ],
    quick: include_str!("../plans/fig2/quick.toml"),
};

pub(super) const FIG2_SEARCH: &str = include_str!("../plans/fig2/search.toml");

pub(super) const TABLE1: &str = include_str!("../plans/table1/nonconvex.toml");

impl Plans {
    /// The experiments of a scale, by data set, or only one of them. The quick scale has the data sets for which it has
    /// changes.
    pub(super) fn at(
        &self,
        scale: Scale,
        only: Option<&str>,
    ) -> Result<Vec<(&'static str, Table)>, LabError> {
        let changes = parse_table(self.quick, &[])?;
        let mut plans = Vec::new();
        for (name, text) in self.sets {
            let mut table = parse_table(text, &[])?;
            if scale == Scale::Quick {
                let Some(Value::Table(changes)) = changes.get(*name) else { continue };
                merge(&mut table, changes);
            }
            plans.push((*name, table));
        }
        if let Some(only) = only {
            let names: Vec<_> = plans.iter().map(|(name, _)| *name).collect();
            if !names.contains(&only) {
                let problem = format!("expected {} at this scale, got {only}", names.join(" or "));
                return Err(LabError::config("dataset", problem));
            }
            plans.retain(|(name, _)| *name == only);
        }
        Ok(plans)
    }
}

/// Replaces values of a table by those of another, section by section.
pub(super) fn merge(table: &mut Table, changes: &Table) {
    for (key, value) in changes {
        match (table.get_mut(key), value) {
            (Some(Value::Table(inner)), Value::Table(changes)) => merge(inner, changes),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Applies `--set` assignments.
pub(super) fn apply_all(table: &mut Table, assignments: &[String]) -> Result<(), LabError> {
    assignments.iter().try_for_each(|assignment| apply(table, assignment))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use mile_lab::spec::Spec;
    use mile_lab::sweep::SweepPlan;

    #[test]
    fn every_plan_is_a_valid_experiment_at_every_scale() {
        for scale in [Scale::Quick, Scale::Paper] {
            for (name, table) in FIG1.at(scale, None).unwrap() {
                let experiment = Spec::read(&table, Path::new("")).unwrap();
                assert_eq!(experiment.algorithms.len(), 8, "{name}");
                assert_eq!(experiment.seeds.len(), if scale == Scale::Quick { 1 } else { 3 });
            }
        }
        Spec::read(&parse_table(TABLE1, &[]).unwrap(), Path::new("")).unwrap();
    }

    #[test]
    fn the_search_has_the_same_budget_for_every_method() {
        for (scale, each) in [(Scale::Quick, 3), (Scale::Paper, 12)] {
            for (name, mut table) in FIG2.at(scale, None).unwrap() {
                table.remove("search");
                let sweep = SweepPlan::read(&table, Path::new("")).unwrap().unwrap();
                let mut budget = std::collections::BTreeMap::new();
                for point in &sweep.points {
                    for algorithm in Spec::read(&point.table, Path::new("")).unwrap().algorithms {
                        *budget.entry(algorithm.label).or_insert(0) += 1;
                    }
                }
                assert_eq!(budget.len(), 7, "{name}");
                assert!(budget.values().all(|trials| *trials == each), "{name}: {budget:?}");
            }
        }
    }

    #[test]
    fn one_data_set_can_be_asked_for_if_the_scale_has_it() {
        let names = |plans: &Plans, scale, only| -> Vec<_> {
            plans.at(scale, only).unwrap().into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&FIG1, Scale::Quick, None), ["mnist", "cifar10"]);
        assert_eq!(names(&FIG1, Scale::Paper, Some("cifar10")), ["cifar10"]);
        assert_eq!(names(&FIG2, Scale::Quick, None), ["mnist"]);
        let message = FIG2.at(Scale::Quick, Some("cifar10")).unwrap_err().to_string();
        assert!(message.contains("dataset: ") && message.contains("cifar10"), "{message}");
    }

    #[test]
    fn merging_goes_into_sections_and_replaces_values() {
        let mut table: Table = "a = 1\n[b]\nc = 2\nd = [1, 2]".parse().unwrap();
        merge(&mut table, &"a = 3\n[b]\nd = [4]\n[e]\nf = 5".parse().unwrap());
        assert_eq!(table, "a = 3\n[b]\nc = 2\nd = [4]\n[e]\nf = 5".parse::<Table>().unwrap());
    }
}
