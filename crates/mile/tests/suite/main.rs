//! Tests of the library as its users see it, in one binary.
#![allow(unreachable_pub, reason = "a test binary has no users")]

mod channels; // the same methods over threads that exchange messages: equal bits
mod common; // problems, networks, and how to drive a method
mod composite; // objectives with a nonsmooth penalty: literal forms, minimisers, equal bits
mod contract; // laws that every method obeys
mod contract_rows; // what they expect of each; adding a method is adding a row
mod drops; // edges that are down
mod gradients; // gradients against central differences
mod identities; // which methods are equivalent, and which are not
mod literal; // every recursion written a second time, densely
mod literal_rivals; // the same of ADMM, random graphs, and what language models are trained with
mod momentum; // methods with momentum: literal forms, equivalent methods, step sizes that change
mod optimisers; // AdamW, AMSGrad and Muon in local steps: literal forms, where they end, what changes nothing
mod outer; // methods with outer momentum: literal forms, DiLoCo
mod own_steps; // agents that make different numbers of local steps: literal forms, what stays exact, what is counted
mod pairs; // exchanges in pairs: a literal form, limits, exactness, logs, resuming
mod public_copies; // compressed messages: literal forms with copies of the neighbours
mod robust; // exchanges that limit what malicious neighbours can do: literal forms, limit cases, what stays exact
mod schedules; // step sizes that change
mod time; // modelled time: every method against an event queue
