//! One view of a network, for `mile watch` and for the page that an agent serves to its operator.

mod judgement;
pub(crate) mod page;
pub(crate) mod token;

use mile::graph::Topology;
use mile::membership::Membership;
use mile_lab::error::LabError;
use mile_lab::spec::Spec;

pub(crate) use self::judgement::{json, view};

/// What an agent's file says of the network.
pub(crate) struct Layout {
    membership: Membership,
    topology: Option<Topology>,
}

impl Layout {
    /// The network of an experiment.
    pub(crate) fn of(spec: &Spec) -> Result<Self, LabError> {
        Ok(Self { membership: spec.membership()?, topology: spec.network.topology() })
    }
}
