//! Tests of the theory: its numbers against recursions, simulations and the paper.
#![allow(unreachable_pub, reason = "a test binary has no users")]

mod auto; // weights chosen for the user, against the paper's on quadratics
mod common; // problems and networks
mod drops; // edges that drop: measured growth against long runs
mod lemma1; // the closed form against the recursion and against MILE itself
mod momentum; // the rule of small step sizes with momentum, against period matrices
mod pairs; // exchanges in pairs: the limit of two agents, and what does not grow for more
mod report; // the page, its JSON names, refusals and advice
mod smoothness; // L and noise against known ones
mod stability; // period matrices against theory, and step limits against simulation
mod theorems; // the four inequalities on actual runs
mod weights; // ranges of xi and gamma against eigenvalues
