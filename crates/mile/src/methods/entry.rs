//! An entry of the catalogue: a method with its name, its parameters and how to build it.

use std::borrow::Cow;
use std::sync::Arc;

use super::parameters::{ParameterValue, Parameters};
use super::{Optimizer, OuterMomentum};
use crate::method::{Checker, InvalidParameter, Method};
use crate::network::Network;

/// The documentation of one parameter of a method.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name in experiment files.
    pub name: &'static str,
    /// The values allowed.
    pub expected: &'static str,
    /// The default value.
    pub default: &'static str,
    /// What its values are.
    pub kind: ParameterKind,
}

/// What the values of a parameter are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterKind {
    /// A choice of a part: [`Parameters`] has a field for it.
    Part,
    /// Numbers.
    Number,
    /// Whole numbers.
    Whole,
    /// One of these words; the first is the default.
    Word(&'static [&'static str]),
}

impl Parameter {
    /// A choice of a part.
    pub(super) const fn part(name: &'static str, expected: &'static str, default: &'static str) -> Self {
        Self { name, expected, default, kind: ParameterKind::Part }
    }

    /// A number that only this method has.
    pub(super) const fn number(name: &'static str, expected: &'static str, default: &'static str) -> Self {
        Self { name, expected, default, kind: ParameterKind::Number }
    }

    /// A whole number that only this method has.
    pub(super) const fn whole(name: &'static str, default: &'static str) -> Self {
        Self { name, expected: "a whole number of at least 1", default, kind: ParameterKind::Whole }
    }

    /// An error unless this is a value of this kind.
    fn check(&self, method: &str, value: ParameterValue) -> Result<(), InvalidParameter> {
        match (self.kind, value) {
            (ParameterKind::Number, ParameterValue::Number(_))
            | (ParameterKind::Whole, ParameterValue::Whole(_)) => Ok(()),
            (ParameterKind::Word(words), ParameterValue::Word(word)) if words.contains(&word) => Ok(()),
            _ => Err(Checker(method).refuse(self.name, value, self.expected)),
        }
    }
}

/// Makes a method from its parameters, the network and the seed of the run.
pub type Build =
    dyn Fn(&Parameters, &Network, u64) -> Result<Box<dyn Method>, InvalidParameter> + Send + Sync;

/// How a method is built.
#[derive(Clone)]
pub(super) enum Builder {
    BuiltIn(&'static Build),
    Own(Arc<Build>),
}

/// A method with a name: a built-in one, or [one of your own](Entry::own).
#[derive(Clone)]
#[non_exhaustive]
pub struct Entry {
    /// Its name in experiment files.
    pub name: Cow<'static, str>,
    /// Its name in tables and figures.
    pub title: Cow<'static, str>,
    /// The paper it comes from.
    pub reference: &'static str,
    /// Whether every agent reaches a stationary point of f with a constant step size.
    pub exact: bool,
    /// Its parameters besides the step size.
    pub parameters: &'static [Parameter],
    /// A remark on this implementation; empty if there is none.
    pub note: &'static str,
    /// What identifies a method of your own when a run is resumed, as (key, value); see [`with_facts`](Self::with_facts).
    pub facts: Vec<(String, String)>,
    pub(super) build: Builder,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Entry {
    /// A method of your own, under a name for experiment files; its title is the same.
    pub fn own(
        name: impl Into<String>,
        build: impl Fn(&Parameters, &Network, u64) -> Result<Box<dyn Method>, InvalidParameter>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let name: Cow<'static, str> = Cow::Owned(name.into());
        Self {
            title: name.clone(),
            name,
            reference: "",
            exact: false,
            parameters: &[],
            note: "",
            facts: Vec::new(),
            build: Builder::Own(Arc::new(build)),
        }
    }

    /// Gives it another title.
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Cow::Owned(title.into());
        self
    }

    /// Sets the facts, (key, value), that identify a method: a run is resumed only if they are the same. Without any, its name identifies it.
    pub fn with_facts(mut self, facts: impl IntoIterator<Item = (String, String)>) -> Self {
        self.facts = facts.into_iter().collect();
        self
    }

    /// Whether it has local steps: several updates per communication round.
    pub fn has_local_steps(&self) -> bool {
        self.takes("local_steps")
    }

    /// Whether agents may have different numbers of local steps. Not where numbers are drawn.
    pub fn takes_own_steps(&self) -> bool {
        self.has_local_steps() && !self.takes("probability")
    }

    /// Whether it has a parameter with this name.
    pub fn takes(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|p| p.name == parameter)
    }

    /// Whether it is a method with a server, whose place is taken by exchanges that give every agent the average of all.
    pub fn has_server(&self) -> bool {
        WITH_SERVER.contains(&&*self.name)
    }

    /// Whether it minimises objectives with a penalty.
    pub fn takes_penalty(&self) -> bool {
        WITH_PENALTY.contains(&&*self.name)
    }

    /// An error if it has no proximal form for problems with a penalty: why, and which methods have one.
    pub fn check_penalty(&self) -> Result<(), InvalidParameter> {
        if self.takes_penalty() {
            return Ok(());
        }
        let why = match &*self.name {
            "d2" | "gradient-tracking" | "mg-skip" | "momentum-tracking" | "edm" => {
                "no proximal form of it is built in"
            }
            _ => {
                "its agents would threshold their own models between exchanges, and nothing guarantees that they agree on a minimiser"
            }
        };
        let expected = format!("a problem without a penalty; {why}: use one of {}", WITH_PENALTY.join(", "));
        Err(Checker(&self.name).refuse("penalty", "a problem with one", expected))
    }

    /// The method with these parameters, checked against their ranges and the network.
    ///
    /// `seed` is that of the run, for methods that communicate at random steps.
    pub fn build(
        &self,
        parameters: &Parameters,
        network: &Network,
        seed: u64,
    ) -> Result<Box<dyn Method>, InvalidParameter> {
        if let Some(steps) = parameters.local_steps
            && steps != 1
            && !self.has_local_steps()
        {
            let expected = "1; the method communicates after every update";
            return Err(Checker(&self.name).refuse("local_steps", steps, expected));
        }
        self.check_own_steps(parameters, network)?;
        for (name, value) in &parameters.own {
            let declared = self.parameters.iter().find(|declared| declared.name == *name);
            let unknown = "no such parameter; the method does not have it";
            declared
                .ok_or_else(|| Checker(&self.name).refuse(name, value, unknown))?
                .check(&self.name, *value)?;
        }
        if parameters.penalty {
            self.check_penalty()?;
            if let Some(mu) = parameters.momentum.filter(|mu| *mu != 0.0 && self.takes("momentum")) {
                let expected = "0 with a penalty; a proximal step has no momentum";
                return Err(Checker(&self.name).refuse("momentum", mu, expected));
            }
            if let Some(optimizer) = parameters.local.optimizer.as_ref().filter(|by| **by != Optimizer::Sgd) {
                let expected = "\"sgd\" with a penalty; a proximal step has no other optimiser";
                return Err(Checker(&self.name).refuse("optimizer", optimizer, expected));
            }
            if let Some(outer) = OuterMomentum::of(&self.name, parameters.outer)? {
                let expected = "none with a penalty; a proximal step has no outer momentum";
                return Err(Checker(&self.name).refuse("outer", outer, expected));
            }
        }
        let method = match &self.build {
            Builder::BuiltIn(build) => build(parameters, network, seed),
            Builder::Own(build) => build(parameters, network, seed),
        }?;
        let differ = |own: &Arc<[u64]>| own.iter().any(|steps| *steps != own[0]);
        if let Some(own) =
            parameters.own_steps.as_ref().filter(|own| differ(own) && method.own_steps().is_none())
        {
            let expected = "a whole number; agents cannot differ in it with this method";
            return Err(Checker(&self.name).refuse("local_steps", format!("{own:?}"), expected));
        }
        method.check(network)?;
        Ok(method)
    }

    /// Refuses a list of local steps that does not have a number of at least 1 for each agent.
    fn check_own_steps(&self, parameters: &Parameters, network: &Network) -> Result<(), InvalidParameter> {
        let (Some(own), agents) = (&parameters.own_steps, network.agents()) else { return Ok(()) };
        let check = Checker(&self.name);
        if own.len() != agents {
            let expected = format!("a whole number, or a list of {agents} of them, one for each agent");
            return Err(check.refuse("local_steps", format!("{} numbers", own.len()), expected));
        }
        own.iter().try_for_each(|steps| check.at_least_one("local_steps", *steps).map(drop))
    }
}

/// The methods that minimise objectives with a penalty.
pub const WITH_PENALTY: [&str; 5] = ["extra", "ed", "nids", "dsgd", "local-dsgd"];

/// The methods with a server: they need the complete graph with weights 1/N.
pub const WITH_SERVER: [&str; 2] = ["scaffold", "diloco"];
