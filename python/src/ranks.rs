//! Processes that share the agents, by way of `torch.distributed`.

use std::sync::Arc;

use mile::agents::Failure;
use mile::ranks::{Alone, Ranks, Together};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure::Raised;

/// Ranks that a Python object speaks for: `rank`, `count`, `name`, `all_gather(bytes)` and `broadcast(rank, bytes)`.
pub(crate) struct PyRanks {
    object: Py<PyAny>,
    rank: usize,
    count: usize,
    name: String,
    raised: Raised,
}

impl PyRanks {
    pub(crate) fn read(object: &Bound<'_, PyAny>, raised: Raised) -> PyResult<Self> {
        Ok(Self {
            rank: object.getattr("rank")?.extract()?,
            count: object.getattr("count")?.extract()?,
            name: object.getattr("name")?.extract()?,
            object: object.clone().unbind(),
            raised,
        })
    }
}

/// These ranks, or this process alone.
pub(crate) fn or_alone(ranks: Option<&Arc<PyRanks>>) -> &dyn Ranks {
    match ranks {
        Some(ranks) => &**ranks,
        None => &Alone,
    }
}

impl Ranks for PyRanks {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.count
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn all_gather(&self, _: Together<'_>, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        self.raised.call(|py| {
            let all = self.object.bind(py).call_method1("all_gather", (PyBytes::new(py, own),))?;
            all.try_iter()?.map(|one| Ok(one?.cast::<PyBytes>()?.as_bytes().to_vec())).collect()
        })
    }

    fn gather(&self, together: Together<'_>, own: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        Ok(Some(self.all_gather(together, own)?).filter(|_| self.rank == 0))
    }

    fn broadcast(&self, _: Together<'_>, from: usize, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        *bytes = self.raised.call(|py| {
            let sent = self.object.bind(py).call_method1("broadcast", (from, PyBytes::new(py, bytes)))?;
            Ok(sent.cast::<PyBytes>()?.as_bytes().to_vec())
        })?;
        Ok(())
    }
}
