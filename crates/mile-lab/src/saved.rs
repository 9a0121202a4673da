//! The vectors of a job's engine in a state file: written and read by one process, or by all ranks.
//!
//! Every rank writes its own rows into one file, at the places that one process would write them to, and reads only these:
//! a state does not pass through one rank, and can be resumed with any number of them. The file must be on a disk that all
//! ranks share.

use std::path::Path;

use mile::agents::Vector;
use mile::engine::Engine;
use mile::method::Layout;
use mile::ranks::Together;
use mile::real::Real;
use mile_store::parts::{SharedState, of_rows, row_checksums};

use crate::error::LabError;
use crate::loss_and_metrics::hosted;
use crate::objectives::Facts;
use crate::objectives::remembering::Memories;
use crate::ranks::{agree, from_first, is_first};
use crate::state::{self, Header};

/// Writes the state vectors of an engine and what agents remember, whole or not at all. Agents on ranks remember nothing.
pub(crate) fn write<T: Real>(
    together: Together<'_>,
    path: &Path,
    header: &Header,
    layout: &Layout,
    engine: &mut dyn Engine<T>,
    memories: &Memories,
) -> Result<(), LabError> {
    let shape = [engine.agents(), engine.dim()];
    engine.saving(together, path, header.round)?;
    if together.count() == 1 {
        let mut vectors: Vec<(&str, Vec<T>)> = Vec::new();
        for (k, name) in layout.state_names().enumerate() {
            vectors.push((name, engine.vector(Vector(k))?.into_owned()));
        }
        let vectors: Vec<(&str, &[T])> = vectors.iter().map(|(name, values)| (*name, &values[..])).collect();
        return state::save(path, header, &vectors, shape, memories);
    }
    let agents = hosted(engine);
    let mut checksums = Vec::new();
    for (k, name) in layout.state_names().enumerate() {
        let own = row_checksums(&engine.vector(Vector(k))?, shape[1]);
        checksums.push((name, checksum::<T>(together, engine, &own)?));
    }
    // The time of the first rank is written.
    let header = from_first(together, || Ok(header.clone()))?;
    let failed = |action| move |source| LabError::Io { path: path.to_owned(), action, source };
    let shared = SharedState::new::<T, Header>(path, &header, &checksums, shape).map_err(failed("write"))?;
    let first = is_first(&*together);
    let created = if first { shared.create().map_err(failed("write")) } else { Ok(()) };
    agree(together, created)?;
    let mut written = Ok(());
    for (k, name) in layout.state_names().enumerate() {
        let rows = engine.vector(Vector(k))?;
        written = written.and_then(|()| shared.write(name, &agents, &rows).map_err(failed("write")));
    }
    agree(together, written)?;
    let completed = if first { shared.complete().map_err(failed("write")) } else { Ok(()) };
    agree(together, completed)
}

/// The checksum of a vector from those of the hosted rows.
fn checksum<T: Real>(
    together: Together<'_>,
    engine: &mut dyn Engine<T>,
    own: &[u32],
) -> Result<String, LabError> {
    let all = engine.of_all(together, own.iter().map(|sum| f64::from(*sum)).collect())?;
    let all: Vec<u32> = all.into_iter().map(|sum| sum as u32).collect();
    Ok(of_rows(&all, engine.dim() * size_of::<T>()))
}

/// Reads a state with these facts into an engine and returns its header, and what agents remember; `None` if there is no such file. Ranks other than
/// the first count their own costs from 0.
pub(crate) fn read<T: Real>(
    together: Together<'_>,
    path: &Path,
    facts: &Facts,
    layout: &Layout,
    engine: &mut dyn Engine<T>,
) -> Result<Option<(Header, Memories)>, LabError> {
    let shape = [engine.agents(), engine.dim()];
    if together.count() == 1 {
        let Some(mut found) = state::open(path)? else { return Ok(None) };
        state::check(path, &found.header, facts)?;
        for (k, name) in layout.state_names().enumerate() {
            engine.set_vector(Vector(k), &state::vector(&mut found, path, name, shape)?)?;
        }
        engine.restored(together, path, found.header.round)?;
        let memories = state::memories::<T>(&mut found, path)?;
        return Ok(Some((found.header, memories)));
    }
    if !from_first(together, || Ok(path.exists()))? {
        return Ok(None);
    }
    let opened = state::open(path).and_then(|found| {
        let found = found.ok_or_else(|| LabError::Directory {
            path: path.to_owned(),
            problem: "exists on rank 0 only; the run directory must be on a disk that all ranks share".into(),
        })?;
        state::check(path, &found.header, facts)?;
        Ok(found)
    });
    let mut found = agree(together, opened)?;
    let agents = hosted(engine);
    for (k, name) in layout.state_names().enumerate() {
        let rows = agree(together, state::rows::<T>(&mut found, path, name, &agents, shape))?;
        let sum = checksum::<T>(together, engine, &row_checksums(&rows, shape[1]))?;
        agree(together, state::check_sum(&found, path, name, &sum))?;
        engine.set_vector(Vector(k), &rows)?;
    }
    engine.restored(together, path, found.header.round)?;
    let mut header = found.header;
    if !is_first(&*together) {
        (header.bytes_sent, header.gradient_evals) = (0, 0);
    }
    Ok(Some((header, Memories::new())))
}
