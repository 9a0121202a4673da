//! What methods and the theory refuse, under the key that has to be changed.

use mile::method::InvalidParameter;
use mile::methods::catalogue::Entry;
use mile::time::InvalidTime;
use mile_theory::TheoryError;

use crate::error::LabError;

/// What is wrong with the method of an algorithm.
pub(crate) fn invalid(index: usize, entry: &Entry, error: InvalidParameter) -> LabError {
    let InvalidParameter { parameter, got, expected, .. } = error;
    let title = &entry.title;
    match parameter {
        "network" | "mixing" => {
            LabError::expected("network", format!("{expected}; {title} (algorithm[{index}]) needs it"), got)
        }
        "penalty" => LabError::config(
            "problem.l1",
            format!("{title} (algorithm[{index}]): expected {expected}, or leave l1 out"),
        ),
        _ => LabError::expected(format!("algorithm[{index}].{parameter}"), expected, got),
    }
}

/// An error of the theory about an algorithm, when it was to find the value of `key`: what it is about is the parameter that is wrong, if
/// there is one.
pub(crate) fn of_algorithm(index: usize, entry: &Entry, key: &str, error: TheoryError) -> LabError {
    match error {
        TheoryError::Method(error) => invalid(index, entry, error),
        TheoryError::Parameter { parameter, got, expected }
            if parameter == "local_steps" || entry.takes(parameter) =>
        {
            LabError::expected(format!("algorithm[{index}].{parameter}"), expected, got)
        }
        error => of_theory(&format!("algorithm[{index}].{key}"), error),
    }
}

/// An error of the theory under a key, except for a failing objective.
pub(crate) fn of_theory(key: &str, error: TheoryError) -> LabError {
    match error {
        TheoryError::Agents(error) => error.into(),
        error => LabError::config(key, error),
    }
}

/// An error of a model of time under its section.
pub(crate) fn of_time(error: InvalidTime) -> LabError {
    let InvalidTime { name, expected, got, .. } = error;
    LabError::expected(format!("time.{name}"), expected, got)
}
