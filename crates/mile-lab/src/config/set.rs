//! `--set key.path=value`: replaces a value of an experiment file from the command line.

use toml::{Table, Value};

use crate::error::LabError;

/// Applies one assignment. The value is parsed as TOML, or else taken as a string. A number in the path selects an entry
/// of a list, as in `algorithm.0.xi=0.05`; a name selects the algorithm with that label or name, as in
/// `algorithm.mile.xi=0.05`.
pub fn apply(table: &mut Table, assignment: &str) -> Result<(), LabError> {
    let bad = |problem: &str| LabError::config(format!("--set {assignment}"), problem);
    let (path, text) = assignment.split_once('=').ok_or_else(|| bad("takes key.path=value"))?;
    let keys: Vec<&str> = path.trim().split('.').collect();
    if keys.iter().any(|key| key.is_empty()) {
        return Err(bad("takes key.path=value, with no empty key"));
    }
    assign(table, &keys, parse(text.trim()), &bad)
}

/// Sets the value at a path; `bad` makes the error of a path that does not exist.
pub fn assign(
    table: &mut Table,
    keys: &[&str],
    value: Value,
    bad: &dyn Fn(&str) -> LabError,
) -> Result<(), LabError> {
    let (last, parents) = keys.split_last().ok_or_else(|| bad("takes key.path=value"))?;
    let mut here = table;
    let mut walked = parents.iter();
    while let Some(key) = walked.next() {
        let entry = here.entry((*key).to_owned()).or_insert_with(|| Value::Table(Table::new()));
        here = match entry {
            Value::Table(inner) => inner,
            Value::Array(list) => {
                let which = walked.next().ok_or_else(|| {
                    bad("is a list: select an entry by number or name, as in algorithm.mile.xi=0.05")
                })?;
                pick(list, which).ok_or_else(|| bad(&format!("the list has no entry '{which}'")))?
            }
            _ => return Err(bad(&format!("'{key}' is a value, not a section"))),
        };
    }
    here.insert((*last).to_owned(), value);
    Ok(())
}

fn pick<'t>(list: &'t mut [Value], which: &str) -> Option<&'t mut Table> {
    list.get_mut(position(list, which)?)?.as_table_mut()
}

/// The index of the list entry with this number, label or name.
pub(crate) fn position(list: &[Value], which: &str) -> Option<usize> {
    let named = |value: &Value, key: &str| value.get(key).and_then(Value::as_str) == Some(which);
    which.parse::<usize>().ok().filter(|index| *index < list.len()).or_else(|| {
        let by = |key: &str| list.iter().position(|value| named(value, key));
        by("label").or_else(|| by("name"))
    })
}

fn parse(text: &str) -> Value {
    let document: Option<Table> = format!("value = {text}").parse().ok();
    document.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str, assignment: &str) -> Result<Table, LabError> {
        let mut table: Table = text.parse().unwrap();
        apply(&mut table, assignment)?;
        Ok(table)
    }

    #[test]
    fn values_are_toml_or_words() {
        let table = set("rounds = 3", "rounds=10").unwrap();
        assert_eq!(table["rounds"].as_integer(), Some(10));
        let table = set("", "network.topology=ring").unwrap();
        assert_eq!(table["network"]["topology"].as_str(), Some("ring"));
        let table = set("", "problem.partition={ kind = \"dirichlet\", alpha = 0.1 }").unwrap();
        assert_eq!(table["problem"]["partition"]["alpha"].as_float(), Some(0.1));
        assert_eq!(set("", "seeds=[1, 2]").unwrap()["seeds"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn algorithms_are_picked_by_number_name_or_label() {
        let text = "[[algorithm]]\nname = 'mile'\n[[algorithm]]\nname = 'mile'\nlabel = 'ours'";
        for (which, index) in [("0", 0), ("mile", 0), ("ours", 1), ("1", 1)] {
            let table = set(text, &format!("algorithm.{which}.xi=0.05")).unwrap();
            assert_eq!(table["algorithm"][index]["xi"].as_float(), Some(0.05), "{which}");
        }
        assert!(set(text, "algorithm.led.xi=1").unwrap_err().to_string().contains("no entry 'led'"));
        assert!(set(text, "algorithm=1").is_ok());
        assert!(set(text, "algorithm").unwrap_err().to_string().contains("key.path=value"));
        assert!(set("rounds = 3", "rounds.x=1").unwrap_err().to_string().contains("not a section"));
        assert!(set("", "a..b=1").is_err());
    }
}
