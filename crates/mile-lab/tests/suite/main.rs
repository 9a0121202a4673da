//! Tests of the experiment layer, in one binary.
#![allow(unreachable_pub, reason = "a test binary has no users")]

mod arrays; // the user's .npy, .npz and .safetensors files
mod attack; // malicious agents, and robust exchanges
mod auto; // what is chosen where a file says "auto" or nothing
mod auto_matrix; // the automatic step size of every method, network and loss
mod browser; // the report and the live view in a real browser
mod browser_network; // the page of a network in a real browser
mod cross_validation; // sweeps over the objective, and folds
mod defined; // methods that files define
mod drawn; // experiments drawn at random over all keys
mod ending; // when a job ends, and what is said of it
mod estimates; // coefficients in the units of the data, and their standard errors
mod held_out; // tables with held-out rows
mod membership; // agents that leave and join
mod own; // user-defined problems and engines
mod pairs; // exchanges in pairs: records, logs, resuming, replaying, refusals
mod promises; // what a plan says before a run
mod runs; // run directories: stopped, resumed, extended, diverged, foreign
mod spec; // mistakes in experiment files, named by their key
mod sweep; // points of a sweep, their results, and resuming them
mod tables; // the user's CSV files
mod time; // modelled time, bursts of loss and absent agents
mod written; // what an experiment writes is the experiment
