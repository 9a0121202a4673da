//! The settings of a run that is resumed: those of its folder, or an experiment file with what was chosen at its start.

use std::path::Path;

use toml::{Table, Value};

use crate::error::LabError;

/// The resolved settings of the run in a folder.
pub fn settings(folder: &Path) -> Result<Table, LabError> {
    let path = folder.join("config.toml");
    let refuse = |problem: String| LabError::Directory { path: path.clone(), problem };
    let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => LabError::Directory {
            path: folder.to_owned(),
            problem: "holds no run to resume: leave --resume out, or give its folder with --out".into(),
        },
        _ => refuse(format!("cannot read the settings of the run: {source}")),
    })?;
    text.parse().map_err(|error: toml::de::Error| refuse(format!("is not valid: {}", error.message())))
}

/// Keys of `[[algorithm]]` that may be `"auto"`, or `"adaptive"`.
const CHOSEN: [&str; 3] = ["step_size", "xi", "gamma"];
/// How a run is evaluated, chosen at its start where it is not given: section and key.
const EVALUATION: [(&str, &str); 4] =
    [("", "eval_every"), ("", "eval_agents"), ("problem", "eval_samples"), ("problem", "test_samples")];

/// Puts what was chosen at the start of the run in `folder` into the table of an experiment: the numbers of `"auto"`, and how
/// the run is evaluated, unless the table says it.
pub fn keep_choices(table: &mut Table, folder: &Path) -> Result<(), LabError> {
    let settings = settings(folder)?;
    fill_numbers(table, &settings);
    keep_evaluation(table, &settings);
    Ok(())
}

/// Puts the numbers that were chosen in resolved settings in the place of `"auto"` and `"adaptive"`.
pub(crate) fn fill_numbers(table: &mut Table, settings: &Table) {
    let before = algorithms(settings);
    for algorithm in table.get_mut("algorithm").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(algorithm) = algorithm.as_table_mut() else { continue };
        let Some(chosen) = before.iter().find(|other| label(other) == label(algorithm)) else { continue };
        let is_auto =
            |key: &str| matches!(algorithm.get(key).and_then(Value::as_str), Some("auto" | "adaptive"));
        // If one of the weights is chosen, both are, except for a gamma that is given.
        let (step_size, weights) = (is_auto("step_size"), is_auto("xi") || is_auto("gamma"));
        let gamma = weights && (is_auto("gamma") || !algorithm.contains_key("gamma"));
        for (key, _) in CHOSEN.into_iter().zip([step_size, weights, gamma]).filter(|(_, chosen)| *chosen) {
            match chosen.get(key) {
                Some(number) => drop(algorithm.insert(key.to_owned(), number.clone())),
                // A gamma that was chosen equal to xi is not written.
                None => drop(algorithm.remove(key)),
            }
        }
    }
}

/// Puts how another run is evaluated, by its resolved settings, into the table of an experiment, unless the table says it.
pub(crate) fn keep_evaluation(table: &mut Table, settings: &Table) {
    for (section, key) in EVALUATION {
        let place = |table: &Table| match section {
            "" => table.get(key).cloned(),
            section => table.get(section)?.as_table()?.get(key).cloned(),
        };
        if let (None, Some(value)) = (place(table), place(settings)) {
            let target = match section {
                "" => Some(&mut *table),
                section => table.get_mut(section).and_then(Value::as_table_mut),
            };
            target.into_iter().for_each(|target| drop(target.insert(key.to_owned(), value.clone())));
        }
    }
}

fn algorithms(table: &Table) -> Vec<&Table> {
    let list = table.get("algorithm").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_table).collect()
}

/// The label of an algorithm: its name, unless it has another.
fn label(algorithm: &Table) -> Option<&str> {
    algorithm.get("label").or(algorithm.get("name")).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_chosen_at_the_start_is_kept_unless_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let written = "eval_every = 5\nrounds = 100\n[problem]\nkind = 'images'\ntest_samples = 500\n\
             [[algorithm]]\nname = 'mile'\nlabel = 'm'\nxi = 0.25\nstep_size = 0.5\n\
             [[algorithm]]\nname = 'mile'\nxi = 0.3\ngamma = 0.9\nstep_size = 0.1\n\
             [[algorithm]]\nname = 'mile'\nlabel = 'n'\nxi = 0.15\ngamma = 0.8\nstep_size = 0.2";
        std::fs::write(folder.path().join("config.toml"), written).unwrap();
        let mut table: Table = "rounds = 400\n[problem]\nkind = 'images'\ntest_samples = 700\n\
             [[algorithm]]\nname = 'mile'\nxi = 'paper'\ngamma = 'auto'\nstep_size = 0.2\n\
             [[algorithm]]\nname = 'mile'\nlabel = 'm'\nxi = 'auto'\ngamma = 'auto'\nstep_size = 'auto'\n\
             [[algorithm]]\nname = 'mile'\nlabel = 'n'\ngamma = 'auto'\nstep_size = 0.2\n\
             [[algorithm]]\nname = 'led'\nstep_size = 'auto'"
            .parse()
            .unwrap();
        keep_choices(&mut table, folder.path()).unwrap();
        let expected: Table =
            "rounds = 400\neval_every = 5\n[problem]\nkind = 'images'\ntest_samples = 700\n\
             [[algorithm]]\nname = 'mile'\nxi = 0.3\ngamma = 0.9\nstep_size = 0.2\n\
             [[algorithm]]\nname = 'mile'\nlabel = 'm'\nxi = 0.25\nstep_size = 0.5\n\
             [[algorithm]]\nname = 'mile'\nlabel = 'n'\ngamma = 0.8\nxi = 0.15\nstep_size = 0.2\n\
             [[algorithm]]\nname = 'led'\nstep_size = 'auto'"
                .parse()
                .unwrap();
        assert_eq!(table, expected);
        let none = keep_choices(&mut table, Path::new("nowhere")).unwrap_err();
        assert!(matches!(none, LabError::Directory { .. }), "{none}");
    }
}
