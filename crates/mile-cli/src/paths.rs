//! Paths in the section `[problem]` of an experiment, where files are copied or linked to other folders.

use std::path::Path;

use toml::Value;

/// A value that is a path, or a list with it, with another path instead; what follows the path stays, such as the name of a function.
pub(crate) fn moved(value: &Value, path: &Path, to: &str) -> Value {
    let path = path.display().to_string();
    match value {
        Value::Array(list) => {
            let each =
                list.iter().map(|one| if one.as_str() == Some(&path) { to.into() } else { one.clone() });
            each.collect::<Vec<_>>().into()
        }
        other => {
            let rest = other.as_str().and_then(|text| text.strip_prefix(&path)).unwrap_or_default();
            format!("{to}{rest}").into()
        }
    }
}
