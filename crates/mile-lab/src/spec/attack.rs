//! `[attack]`: malicious agents, for experiments on robust exchanges.

use mile::attack::{Attack, AttackKind};
use toml::{Table, Value};

use super::whole;
use crate::error::LabError;
use crate::section::{Section, as_whole};

/// The attack on a network of this many agents.
pub(super) fn read(section: &Table, agents: usize) -> Result<Attack, LabError> {
    let reader = Section::new("attack", section);
    let expected = format!("a list of agents such as [3, 7], some but not all of the {agents}");
    let value = reader.value("agents").ok_or_else(|| reader.missing("agents", &*expected))?;
    let numbers: Option<Vec<u64>> = value.as_array().and_then(|list| list.iter().map(as_whole).collect());
    let mut malicious: Vec<usize> =
        numbers.unwrap_or_default().into_iter().filter_map(|agent| usize::try_from(agent).ok()).collect();
    malicious.sort_unstable();
    malicious.dedup();
    let given = value.as_array().map_or(0, Vec::len);
    let fits = malicious.last().is_some_and(|last| *last < agents) && malicious.len() < agents;
    if !fits || malicious.len() != given {
        return Err(reader.refuse("agents", value, expected));
    }
    let kind = reader.choice("kind", &AttackKind::ALL, None)?;
    let expected = "a positive number";
    let strength = reader.number("strength", expected)?.unwrap_or(kind.usual_strength());
    if !(strength > 0.0 && strength.is_finite()) {
        return Err(reader.refuse("strength", &Value::Float(strength), expected));
    }
    reader.finish()?;
    Ok(Attack { agents: malicious, kind, strength })
}

/// The section as it is written.
pub(crate) fn to_table(attack: &Attack) -> Table {
    let agents = attack.agents.iter().map(|agent| whole(*agent as u64)).collect::<Vec<_>>();
    super::table([
        ("agents", Some(Value::Array(agents))),
        ("kind", Some(attack.kind.name().into())),
        ("strength", Some(attack.strength.into())),
    ])
}
