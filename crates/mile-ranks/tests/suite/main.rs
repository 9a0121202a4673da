//! Ranks against one process, to the bit. Ranks are threads here; `tests/mpi.sh` does the same with processes.

mod choices;
mod engines;
mod lab;
