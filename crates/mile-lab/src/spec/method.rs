//! Which method a section `[[algorithm]]` is about: one of the catalogue by its `name`, or one that a Python file defines by its `factory`.

use std::path::Path;

use mile::methods::catalogue::{self, Catalogue, Definition, Entry};

use crate::error::LabError;
use crate::objectives::PythonFunction;
use crate::section::Section;

/// The method, and the class that makes it if a file defines it.
pub(super) fn read(
    reader: &Section,
    folder: &Path,
    catalogue: &Catalogue,
) -> Result<(Entry, Option<PythonFunction>), LabError> {
    let expected = "a class in a file, such as \"train.py:MyMethod\"";
    let name = reader.text("name", "the name of a method (mile algorithms lists them)")?;
    let Some(factory) = PythonFunction::read(reader, folder, expected)? else {
        return Ok((by_name(reader, name, catalogue)?, None));
    };
    if let Some(name) = name.filter(|name| *name != factory.name) {
        let problem = format!(
            "expected {}, the class in factory, got {name}; leave it out, and use label for another name",
            factory.name
        );
        return Err(LabError::config(reader.path("name"), problem));
    }
    if let Some(path) = factory.files.iter().find(|path| path.to_string_lossy().contains("{agent}")) {
        let expected = "files that all agents have; one for each agent belongs to the problem";
        return Err(LabError::expected(reader.path("files"), expected, path.display()));
    }
    let definition = Definition {
        file: factory.file.clone(),
        name: factory.name.clone(),
        arguments: serde_json::to_string(&factory.arguments).unwrap_or_default(),
    };
    let refuse = |error: mile::method::InvalidParameter| {
        LabError::expected(reader.path(error.parameter), error.expected, error.got)
    };
    Ok((catalogue.defined(definition).map_err(refuse)?, Some(factory)))
}

fn by_name(reader: &Section, name: Option<&str>, catalogue: &Catalogue) -> Result<Entry, LabError> {
    let expected = "the name of a method (mile algorithms lists them)";
    let name = name.ok_or_else(|| reader.missing("name", expected))?;
    catalogue.find(name).ok_or_else(|| {
        if let Some(absent) = catalogue::UNAVAILABLE.iter().find(|absent| absent.name == name) {
            return LabError::config(
                reader.path("name"),
                format!("{name} is not available: {}", absent.reason),
            );
        }
        let names: Vec<&str> = catalogue.entries().map(|entry| &*entry.name).collect();
        reader.unknown_word("name", name, &names, expected)
    })
}
