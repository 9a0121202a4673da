//! `--set key.path=value`: replaces a value of an experiment file from the command line.

use toml::{Table, Value};

use crate::error::LabError;

/// Applies one assignment. The value is parsed as TOML, or else taken as a string. A number in the path selects an entry
/// of a list, as in `algorithm.0.xi=0.05`; a name selects the algorithm with that label or name, as in
/// `algorithm.mile.xi=0.05`; `*` selects all, as in `algorithm.*.step_size=0.1`. Keys with dots or equals signs are quoted, as in
/// `sweep."problem.l2"=[0, 0.1]`.
pub fn apply(table: &mut Table, assignment: &str) -> Result<(), LabError> {
    let bad = |problem: &str| LabError::config(format!("--set {assignment}"), problem);
    let (keys, text) = split(assignment).ok_or_else(|| bad("expected key.path=value"))?;
    if keys.iter().any(|key| key.is_empty()) {
        return Err(bad("expected key.path=value without empty keys"));
    }
    assign(table, &keys, parse(text.trim()), &bad)
}

/// The keys of an assignment, and its value.
fn split(assignment: &str) -> Option<(Vec<&str>, &str)> {
    let (mut keys, mut rest) = (Vec::new(), assignment.trim_start());
    loop {
        let (key, after) = match rest.chars().next()? {
            quote @ ('"' | '\'') => rest[1..].split_once(quote)?,
            _ => rest.split_at(rest.find(['.', '='])?),
        };
        keys.push(key.trim());
        rest = match after.trim_start().split_at_checked(1)? {
            (".", rest) => rest.trim_start(),
            ("=", value) => return Some((keys, value)),
            _ => return None,
        };
    }
}

/// Sets the value at a path; `bad` makes the error of a path that does not exist.
pub fn assign(
    table: &mut Table,
    keys: &[&str],
    value: Value,
    bad: &dyn Fn(&str) -> LabError,
) -> Result<(), LabError> {
    let (key, rest) = keys.split_first().ok_or_else(|| bad("expected key.path=value"))?;
    if rest.is_empty() {
        table.insert((*key).to_owned(), value);
        return Ok(());
    }
    match table.entry((*key).to_owned()).or_insert_with(|| Value::Table(Table::new())) {
        Value::Table(inner) if rest[0] == "*" => {
            let keys: Vec<&str> = inner.keys().map(String::as_str).collect();
            let has = if keys.is_empty() { String::new() } else { format!(" with {}", keys.join(", ")) };
            Err(bad(&format!(
                "'*' selects all entries of a list such as algorithm, but '{key}' is a section{has}"
            )))
        }
        Value::Table(inner) => assign(inner, rest, value, bad),
        Value::Array(list) => {
            let (which, rest) = match rest.split_first() {
                Some((which, rest)) if !rest.is_empty() => (which, rest),
                _ => {
                    return Err(bad(
                        "this is a list; select an entry by number or name, or all with *, as in algorithm.mile.xi=0.05",
                    ));
                }
            };
            let has = entries(list);
            if *which == "*" {
                let mut tables = list.iter_mut().filter_map(Value::as_table_mut);
                return tables.try_for_each(|table| assign(table, rest, value.clone(), bad));
            }
            let missing = || bad(&format!("the list has no entry '{which}'; it has {has}"));
            assign(pick(list, which).ok_or_else(missing)?, rest, value, bad)
        }
        _ => Err(bad(&format!("'{key}' is a value, not a section"))),
    }
}

/// The labels or names of a list's entries.
fn entries(list: &[Value]) -> String {
    let name = |(k, value): (usize, &Value)| {
        let label = value.get("label").and_then(Value::as_str);
        label.or(name_of(value)).map_or_else(|| k.to_string(), str::to_owned)
    };
    let names: Vec<String> = list.iter().enumerate().map(name).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn pick<'t>(list: &'t mut [Value], which: &str) -> Option<&'t mut Table> {
    list.get_mut(position(list, which)?)?.as_table_mut()
}

/// The index of the list entry with this number, label or name.
pub(crate) fn position(list: &[Value], which: &str) -> Option<usize> {
    let labelled = |value: &Value| value.get("label").and_then(Value::as_str) == Some(which);
    which.parse::<usize>().ok().filter(|index| *index < list.len()).or_else(|| {
        let named = |value: &Value| name_of(value) == Some(which);
        list.iter().position(labelled).or_else(|| list.iter().position(named))
    })
}

/// The name of a list's entry: that of a method in a file is in its factory.
fn name_of(value: &Value) -> Option<&str> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    text("name").or_else(|| text("factory")?.rsplit_once(':').map(|(_, name)| name))
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
        let unknown = set(text, "algorithm.led.xi=1").unwrap_err().to_string();
        assert!(["led", "mile", "ours"].iter().all(|name| unknown.contains(name)), "{unknown}");
        assert!(set(text, "algorithm=1").is_ok());
        assert!(set(text, "algorithm").is_err());
        assert!(set("rounds = 3", "rounds.x=1").unwrap_err().to_string().contains("rounds"));
        assert!(set("", "a..b=1").is_err());
        assert!(set("", ".a=1").is_err() && set("", "=1").is_err() && set("", "").is_err());
    }

    #[test]
    fn quoted_keys_may_have_dots_and_equals_signs() {
        let table = set("", "sweep.\"problem.l2\"=[0, 0.1]").unwrap();
        assert_eq!(table["sweep"]["problem.l2"].as_array().unwrap().len(), 2);
        let text = "[[algorithm]]\nname = 'mile'\nlabel = 'xi = 0.1'";
        let table = set(text, "algorithm.'xi = 0.1'.xi = 0.2").unwrap();
        assert_eq!(table["algorithm"][0]["xi"].as_float(), Some(0.2));
        assert!(set("", "a.\"b=1").is_err() && set("", "\"a\"b=1").is_err());
    }

    #[test]
    fn a_star_selects_all_algorithms() {
        let text =
            "[network]\nagents = 3\n[[algorithm]]\nname = 'mile'\nstep_size = 1\n[[algorithm]]\nname = 'led'";
        let table = set(text, "algorithm.*.step_size=0.1").unwrap();
        for k in 0..2 {
            assert_eq!(table["algorithm"][k]["step_size"].as_float(), Some(0.1));
        }
        let table = set(text, "algorithm.*.schedule.kind=cosine").unwrap();
        assert_eq!(table["algorithm"][1]["schedule"]["kind"].as_str(), Some("cosine"));
        let refused = |assignment: &str| set(text, assignment).unwrap_err().to_string();
        assert!(refused("network.*.agents=1").contains("network"));
        assert!(refused("algorithm.*=1").contains("algorithm"));
        assert!(refused("seeds.*.x=1").contains("seeds"));
    }
}
