//! Ranks that run one experiment together: what they must agree on.
//!
//! Rank 0 writes the run directory; every rank hosts some agents, has only their data, and makes the same records. A rank
//! that fails while the others wait for it must not leave them waiting: before the first step errors are agreed on, so
//! that all ranks return one; later the program that started the ranks ends them all.

use mile::agents::{AgentsError, Failure};
use mile::ranks::{Ranks, Together};
use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// An error of one rank, as the others learn of it.
#[derive(Serialize, Deserialize)]
struct Told {
    rank: String,
    message: String,
    is_usage: bool,
}

/// The error of ranks that could not communicate.
pub fn lost(source: Failure) -> LabError {
    LabError::Agents(AgentsError::Engine(source))
}

/// The result, if all ranks have one; otherwise the same error on all ranks ([`LabError::Agreed`]).
pub fn agree<V>(ranks: Together<'_>, result: Result<V, LabError>) -> Result<V, LabError> {
    if ranks.count() == 1 || matches!(result, Err(LabError::Agreed(_))) {
        return result;
    }
    let told = result.as_ref().err().map(|error| Told {
        rank: ranks.name(),
        message: error.to_string(),
        is_usage: error.is_usage(),
    });
    let all = ranks.all_gather(&serde_json::to_vec(&told).unwrap_or_default()).map_err(lost)?;
    let all: Vec<Option<Told>> =
        all.iter().map(|text| serde_json::from_slice(text).unwrap_or(None)).collect();
    let Some(first) = all.iter().flatten().next() else { return result };
    let is_common = all.iter().all(|told| told.as_ref().is_some_and(|told| told.message == first.message));
    match result {
        Err(own) if is_common => Err(LabError::Agreed(Box::new(own))),
        _ => {
            let Told { rank, message, is_usage } = first;
            let (rank, message) = (rank.clone(), message.clone());
            Err(LabError::Agreed(Box::new(LabError::OnRank { rank, message, is_usage: *is_usage })))
        }
    }
}

/// Whether this is the rank that writes.
pub fn is_first(ranks: &dyn Ranks) -> bool {
    ranks.rank() == 0
}

/// What rank 0 returns, on all ranks; an error there is an error everywhere.
pub fn from_first<V: Serialize + serde::de::DeserializeOwned>(
    ranks: Together<'_>,
    make: impl FnOnce() -> Result<V, LabError>,
) -> Result<V, LabError> {
    if ranks.count() == 1 {
        return make();
    }
    let made = if is_first(&*ranks) { make().map(Some) } else { Ok(None) };
    let made = agree(ranks, made)?;
    let mut text = made.map_or_else(Vec::new, |made| serde_json::to_vec(&made).unwrap_or_default());
    ranks.broadcast(0, &mut text).map_err(lost)?;
    serde_json::from_slice(&text).map_err(|error| lost(format!("rank 0 sent no valid text: {error}").into()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, Mutex};

    use super::*;

    /// A rank in a thread; all write into one list and read it when all have written.
    struct Threads {
        rank: usize,
        count: usize,
        slots: Arc<Mutex<Vec<Vec<u8>>>>,
        barrier: Arc<Barrier>,
    }

    impl Ranks for Threads {
        fn rank(&self) -> usize {
            self.rank
        }

        fn count(&self) -> usize {
            self.count
        }

        fn name(&self) -> String {
            format!("rank {} on here", self.rank)
        }

        fn all_gather(&self, _: Together<'_>, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
            self.slots.lock().unwrap()[self.rank] = own.to_vec();
            self.barrier.wait();
            let all = self.slots.lock().unwrap().clone();
            self.barrier.wait();
            Ok(all)
        }

        fn gather(&self, together: Together<'_>, own: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Failure> {
            Ok(Some(self.all_gather(together, own)?).filter(|_| self.rank == 0))
        }

        fn broadcast(&self, together: Together<'_>, from: usize, bytes: &mut Vec<u8>) -> Result<(), Failure> {
            *bytes = self.all_gather(together, bytes)?.swap_remove(from);
            Ok(())
        }
    }

    fn on_ranks<V: Send>(count: usize, work: impl Fn(Together<'_>) -> V + Sync) -> Vec<V> {
        let slots = Arc::new(Mutex::new(vec![Vec::new(); count]));
        let barrier = Arc::new(Barrier::new(count));
        std::thread::scope(|scope| {
            let start = |rank| {
                let ranks = Threads { rank, count, slots: slots.clone(), barrier: barrier.clone() };
                let work = &work;
                scope.spawn(move || work(Together::of(&ranks)))
            };
            let threads: Vec<_> = (0..count).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn an_error_of_one_rank_is_reported_with_its_name_and_an_error_of_all_unchanged() {
        let errors = on_ranks(3, |ranks| {
            let result = if ranks.rank() == 1 { Err(LabError::config("rounds", "got 0")) } else { Ok(5) };
            agree(ranks, result).unwrap_err()
        });
        for error in errors {
            assert!(error.is_usage() && matches!(error, LabError::Agreed(_)), "{error:?}");
            assert_eq!(error.to_string(), "rank 1 on here: rounds: got 0");
        }
        let errors =
            on_ranks(3, |ranks| agree::<()>(ranks, Err(LabError::config("rounds", "got 0"))).unwrap_err());
        for error in errors {
            assert_eq!(error.in_file("a.toml").to_string(), "a.toml: rounds: got 0");
        }
        assert_eq!(on_ranks(3, |ranks| agree(ranks, Ok(ranks.rank())).unwrap()), [0, 1, 2]);
    }

    #[test]
    fn what_the_first_rank_returns_is_on_all() {
        let found = on_ranks(4, |ranks| from_first(ranks, || Ok(ranks.rank() as u64 + 7)).unwrap());
        assert_eq!(found, [7; 4]);
        let failed =
            on_ranks(2, |ranks| from_first::<u64>(ranks, || Err(LabError::config("a", "b"))).unwrap_err());
        assert!(failed.iter().all(|error| error.to_string() == "rank 0 on here: a: b"));
        assert_eq!(
            on_ranks(3, |ranks| (ranks.any(1 << ranks.rank()).unwrap(), ranks.total(2).unwrap())),
            [(7, 6); 3]
        );
    }
}
