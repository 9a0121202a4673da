//! Agents on a simulated network: every frame, cut, kill and restart is an event, and a seed decides which comes
//! next. Whatever happens, the run ends with the bits of the simulator.

mod liars;
mod limits;
mod losses;
mod node;
mod schedules;
mod skips;
mod world;

/// How many seeds are tried: MILE_SCHEDULES times as many as usual, for overnight runs.
pub(crate) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let times = std::env::var("MILE_SCHEDULES").ok().and_then(|times| times.parse::<u64>().ok()).unwrap_or(1);
    0..usual * times
}
