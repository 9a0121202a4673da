//! Methods by name: their parameters, their references, and how to build one.
//!
//! The built-in ones are [`ALL`]. A [`Catalogue`] is a value: code that reads an experiment is given one; to use your own methods, add
//! them to a copy.

use std::path::PathBuf;
use std::sync::Arc;

use crate::agents::Failure;
use crate::method::{Checker, InvalidParameter, Method};

pub use super::built_in::ALL;
pub use super::entry::{Build, Entry, Parameter, ParameterKind, WITH_PENALTY, WITH_SERVER};
pub use super::parameters::{DEFAULT_LOCAL_STEPS, ParameterValue, Parameters};

/// A method of the paper's Table 1 that is not implemented, and why.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Unavailable {
    /// Its name.
    pub name: &'static str,
    /// Why it is not implemented.
    pub reason: &'static str,
}

/// The methods of the paper's Table 1 that are not implemented.
pub const UNAVAILABLE: [Unavailable; 1] = [Unavailable {
    name: "mind",
    reason: "cited as submitted; there is no public text or code of it, so its recursion is unknown",
}];

/// The built-in method called `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name == name)
}

/// A method that a file defines: what a program needs to load it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The file.
    pub file: PathBuf,
    /// The method's name in the file.
    pub name: String,
    /// What it is made with, as JSON.
    pub arguments: String,
}

/// Makes a method from its definition. It is called when the method is first needed, and again for each job.
pub type Load = dyn Fn() -> Result<Box<dyn Method>, Failure> + Send + Sync;

/// Says how a method is loaded.
type Loader = dyn Fn(Definition) -> Box<Load> + Send + Sync;

/// The methods that an experiment may use: all built-in ones, and those that were added.
#[derive(Clone, Default)]
pub struct Catalogue {
    added: Vec<Entry>,
    /// Whether unknown names are accepted, which is enough to read records.
    any: bool,
    /// How methods are loaded that files define, if they can be.
    loader: Option<Arc<Loader>>,
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalogue")
            .field("added", &self.added)
            .field("any", &self.any)
            .finish_non_exhaustive()
    }
}

impl Catalogue {
    /// Adds a method of your own, or replaces the one of the same name.
    ///
    /// # Errors
    /// If a built-in method has this name.
    pub fn with(mut self, entry: Entry) -> Result<Self, InvalidParameter> {
        if find(&entry.name).is_some() {
            let expected = "a name that no built-in method has";
            return Err(Checker(&entry.name).refuse("name", &entry.name, expected));
        }
        self.added.retain(|other| other.name != entry.name);
        self.added.push(entry);
        Ok(self)
    }

    /// Accepts unknown names too; the results of such methods can be read, but they cannot be run.
    pub fn or_any(mut self) -> Self {
        self.any = true;
        self
    }

    /// Loads methods that files define, such as those in Python.
    pub fn loading(mut self, loader: impl Fn(Definition) -> Box<Load> + Send + Sync + 'static) -> Self {
        self.loader = Some(Arc::new(loader));
        self
    }

    /// The method that a file defines. Nothing is read before the method is built, which is refused if this catalogue cannot load it.
    ///
    /// # Errors
    /// If a built-in method has its name.
    pub fn defined(&self, definition: Definition) -> Result<Entry, InvalidParameter> {
        let name = definition.name.clone();
        if find(&name).is_some() {
            let expected = "a class with a name that no built-in method has";
            return Err(Checker(&name).refuse("factory", &name, expected));
        }
        let load = self.loader.as_ref().map(|loader| loader(definition));
        Ok(Entry::own(name.clone(), move |_, _, _| {
            let check = Checker(&name);
            let Some(load) = &load else {
                let got =
                    format!("{name} in Python; pip install mile-learn, and use its command: python -m mile");
                return Err(check.refuse("factory", got, "a method that this program can load"));
            };
            load().map_err(|error| check.refuse("factory", error, "a method that its file makes"))
        }))
    }

    /// The method called `name`.
    pub fn find(&self, name: &str) -> Option<Entry> {
        let known = find(name).or_else(|| self.added.iter().find(|entry| entry.name == name));
        known.cloned().or_else(|| self.any.then(|| unknown(name)))
    }

    /// All methods, the built-in ones first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        ALL.iter().chain(&self.added)
    }
}

/// A method known only by its name.
fn unknown(name: &str) -> Entry {
    let known = name.to_owned();
    Entry::own(name, move |_, _, _| {
        Err(Checker(&known).refuse(
            "name",
            &known,
            "a built-in method, or one that was added to the catalogue",
        ))
    })
}
