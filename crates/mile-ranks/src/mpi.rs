//! Ranks of an MPI job.
//!
//! Only this file and its submodule `asked` call MPI, one thread at a time ([`Threading::Serialized`]). Counts in MPI are 32-bit
//! numbers, so long messages go in pieces; MPI preserves the order of pieces between two ranks. Failures of MPI itself end the job with its own
//! message: that is MPI's default, and it is left unchanged.

#[cfg(unix)]
mod asked;

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mile::agents::Failure;
use mile::ranks::{Ranks, Together};
use mpi::datatype::PartitionMut;
use mpi::environment::{Threading, Universe, processor_name};
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Root};

use crate::device_memory;
use crate::transport::{Arrived, RankTransport, Region};

/// Maximum bytes of a piece.
const PIECE: usize = 1 << 30;
/// Tag of the messages of exchanges.
const TAG: c_int = 17;
/// Set by the launcher of a job's ranks: Open MPI, MPICH and its derivatives, and Slurm with PMIx.
const LAUNCHED: [&str; 5] =
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_SIZE"];

/// This process as a rank of an MPI job.
pub struct Mpi {
    /// Ends MPI when it is dropped.
    _universe: Universe,
    world: Mutex<SimpleCommunicator>,
    rank: usize,
    count: usize,
    host: String,
    piece: usize,
    takes_device_memory: bool,
}

// SAFETY: MPI was initialised for calls from any thread, one at a time, and all calls are made with `world` locked; the
// universe is not used until it is dropped.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

impl Mpi {
    /// Joins the job that this process was started for; `None` if it was not started by `mpirun`, `mpiexec` or `srun`.
    ///
    /// # Errors
    /// If MPI is in use already or accepts calls from the main thread only, or if the environment describes the job inconsistently.
    pub fn join() -> Result<Option<Self>, Failure> {
        if LAUNCHED.iter().all(|name| std::env::var_os(name).is_none()) {
            return Ok(None);
        }
        Self::join_with_pieces(PIECE).map(Some)
    }

    /// The same, but also without a job, and with messages in pieces of at most `piece` bytes.
    pub fn join_with_pieces(piece: usize) -> Result<Self, Failure> {
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)
            .ok_or("MPI is in use already: it can be initialised once in a process")?;
        if threading < Threading::Serialized {
            return Err(
                "this MPI takes calls from the main thread only: use one with MPI_THREAD_SERIALIZED".into()
            );
        }
        let world = universe.world();
        let (rank, count) = (world.rank() as usize, world.size() as usize);
        let host = processor_name().unwrap_or_else(|_| "an unnamed host".into());
        let piece = piece.clamp(1, PIECE);
        #[cfg(unix)]
        let library = asked::library();
        #[cfg(not(unix))]
        let library =
            device_memory::Library { version: String::new(), is_built_for_cuda: None, is_switched_on: None };
        let takes_device_memory = device_memory::is_taken(&library, |name| std::env::var(name).ok())?;
        let world = Mutex::new(world);
        Ok(Self { _universe: universe, world, rank, count, host, piece, takes_device_memory })
    }

    /// Ends all ranks of the job at once.
    pub fn abort(&self, code: u8) -> ! {
        self.world().abort(code.into())
    }

    fn world(&self) -> MutexGuard<'_, SimpleCommunicator> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of bytes that all ranks give.
    fn lengths(&self, own: usize) -> Vec<usize> {
        let mut all = vec![0u64; self.count];
        self.world().all_gather_into(&(own as u64), &mut all[..]);
        all.into_iter().map(|length| length as usize).collect()
    }
}

impl Ranks for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.count
    }

    fn name(&self) -> String {
        format!("rank {} on {}", self.rank, self.host)
    }

    fn all_gather(&self, together: Together<'_>, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        // A single rank may run several jobs at once.
        if self.count == 1 {
            return Ok(vec![own.to_vec()]);
        }
        let lengths = self.lengths(own.len());
        let total: usize = lengths.iter().sum();
        if total == 0 {
            return Ok(vec![Vec::new(); self.count]);
        }
        if total > PIECE {
            // More than one call can count, so each rank takes its turn.
            let one = |from: usize| {
                let mut bytes = if from == self.rank { own.to_vec() } else { Vec::new() };
                self.broadcast(together, from, &mut bytes).map(|()| bytes)
            };
            return (0..self.count).map(one).collect();
        }
        let counts: Vec<c_int> = lengths.iter().map(|length| *length as c_int).collect();
        let starts: Vec<c_int> = counts
            .iter()
            .scan(0, |next, count| {
                *next += count;
                Some(*next - count)
            })
            .collect();
        // The address of an empty vector is 1, which Open MPI reads as MPI_IN_PLACE.
        let own = if own.is_empty() { &[0][..0] } else { own };
        let mut all = vec![0u8; total];
        let mut parts = PartitionMut::new(&mut all[..], counts, &starts[..]);
        self.world().all_gather_varcount_into(own, &mut parts);
        let mut rest = &all[..];
        let part = |length: &usize| {
            let (part, after) = rest.split_at(*length);
            rest = after;
            part.to_vec()
        };
        Ok(lengths.iter().map(part).collect())
    }

    fn gather(&self, _: Together<'_>, own: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        if self.count == 1 {
            return Ok(Some(vec![own.to_vec()]));
        }
        let lengths = self.lengths(own.len());
        if self.rank > 0 {
            self.exchange(&[(0, own)], &mut [], &mut |_| false)?;
            return Ok(None);
        }
        let mut all: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
        all[0].copy_from_slice(own);
        let mut receives: Vec<(usize, &mut [u8])> =
            all.iter_mut().enumerate().skip(1).map(|(from, bytes)| (from, &mut bytes[..])).collect();
        self.exchange(&[], &mut receives, &mut |_| false)?;
        Ok(Some(all))
    }

    fn broadcast(&self, _: Together<'_>, from: usize, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        let world = self.world();
        let root = world.process_at_rank(from as c_int);
        let mut length = bytes.len() as u64;
        root.broadcast_into(&mut length);
        bytes.resize(length as usize, 0);
        bytes.chunks_mut(self.piece).for_each(|piece| root.broadcast_into(piece));
        Ok(())
    }
}

/// Ends the process if it is dropped: MPI must not go on using the buffers of a function that a panic left in the middle of an
/// exchange. The panic's message has been printed by then.
struct InExchange;

impl Drop for InExchange {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Requests of one kind, each with the number of its message.
#[derive(Default)]
struct Requests {
    handles: Vec<ffi::MPI_Request>,
    messages: Vec<usize>,
    done: Vec<c_int>,
}

impl Requests {
    fn add(&mut self, handle: ffi::MPI_Request, message: usize) {
        self.handles.push(handle);
        self.messages.push(message);
    }

    /// Notes which of the requests are done. If asked, waits for at least one of them; some must still be pending then.
    fn look(&mut self, wait: bool, missing: &mut [usize]) {
        if self.handles.is_empty() {
            return;
        }
        self.done.resize(self.handles.len(), 0);
        let mut count: c_int = 0;
        let look = if wait { ffi::MPI_Waitsome } else { ffi::MPI_Testsome };
        // SAFETY: the arrays have room for all requests, which are live or null.
        unsafe {
            look(
                self.handles.len() as c_int,
                self.handles.as_mut_ptr(),
                &mut count,
                self.done.as_mut_ptr(),
                ffi::RSMPI_STATUSES_IGNORE,
            )
        };
        // A negative count, `MPI_UNDEFINED`, means that all are done already.
        for done in self.done.iter().take(usize::try_from(count).unwrap_or(0)) {
            missing[self.messages[*done as usize]] -= 1;
        }
    }
}

impl Mpi {
    /// The pieces in which a message is sent.
    fn pieces(&self, message: Region) -> impl Iterator<Item = Region> {
        let piece = self.piece;
        (0..message.bytes).step_by(piece).map(move |first| Region {
            at: message.at + first as u64,
            bytes: piece.min(message.bytes - first),
        })
    }

    /// Posts all receives and sends.
    ///
    /// # Safety
    /// As [`RankTransport::exchange_regions`], until all requests are done.
    unsafe fn post(&self, sends: &[(usize, Region)], receives: &[(usize, Region)]) -> (Requests, Requests) {
        let world = self.world();
        let (mut incoming, mut outgoing) = (Requests::default(), Requests::default());
        for (k, (from, room)) in receives.iter().enumerate() {
            for piece in self.pieces(*room) {
                // SAFETY: the caller reserves the room for this message alone; its length fits a count.
                let request = unsafe {
                    let mut request = ffi::RSMPI_REQUEST_NULL;
                    ffi::MPI_Irecv(
                        piece.at as *mut c_void,
                        piece.bytes as c_int,
                        ffi::RSMPI_UINT8_T,
                        *from as c_int,
                        TAG,
                        world.as_raw(),
                        &mut request,
                    );
                    request
                };
                incoming.add(request, k);
            }
        }
        for (k, (to, message)) in sends.iter().enumerate() {
            for piece in self.pieces(*message) {
                // SAFETY: the caller leaves the message unchanged; its length fits a count.
                let request = unsafe {
                    let mut request = ffi::RSMPI_REQUEST_NULL;
                    ffi::MPI_Isend(
                        piece.at as *const c_void,
                        piece.bytes as c_int,
                        ffi::RSMPI_UINT8_T,
                        *to as c_int,
                        TAG,
                        world.as_raw(),
                        &mut request,
                    );
                    request
                };
                outgoing.add(request, k);
            }
        }
        (incoming, outgoing)
    }

    /// Sends and receives messages. `meanwhile` is told how many pieces of each are missing; otherwise it is as in [`RankTransport::exchange`].
    ///
    /// # Safety
    /// As [`RankTransport::exchange_regions`]; `meanwhile` may read messages that have arrived in full, and what is sent.
    unsafe fn carry_out(
        &self,
        sends: &[(usize, Region)],
        receives: &[(usize, Region)],
        meanwhile: &mut dyn FnMut(&[usize]) -> bool,
    ) {
        let mut missing: Vec<usize> =
            receives.iter().map(|(_, room)| room.bytes.div_ceil(self.piece)).collect();
        let until_done = InExchange;
        // SAFETY: promised by the caller; this function is not left before all requests are done.
        let (mut incoming, mut outgoing) = unsafe { self.post(sends, receives) };
        loop {
            let turn = self.world();
            incoming.look(false, &mut missing);
            drop(turn);
            if meanwhile(&missing) {
                continue;
            }
            if missing.iter().all(|missing| *missing == 0) {
                break;
            }
            let _turn = self.world();
            incoming.look(true, &mut missing);
        }
        let _turn = self.world();
        // SAFETY: the requests are live or null.
        unsafe {
            ffi::MPI_Waitall(
                outgoing.handles.len() as c_int,
                outgoing.handles.as_mut_ptr(),
                ffi::RSMPI_STATUSES_IGNORE,
            )
        };
        std::mem::forget(until_done);
    }
}

impl RankTransport for Mpi {
    fn exchange(
        &self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        meanwhile: &mut dyn FnMut(&Arrived<'_>) -> bool,
    ) -> Result<(), Failure> {
        let region = |at: *const u8, bytes: usize| Region { at: at as u64, bytes };
        let sends: Vec<(usize, Region)> =
            sends.iter().map(|(to, bytes)| (*to, region(bytes.as_ptr(), bytes.len()))).collect();
        let room: Vec<(usize, Region)> = receives
            .iter_mut()
            .map(|(from, bytes)| (*from, region(bytes.as_mut_ptr(), bytes.len())))
            .collect();
        let mut look = |missing: &[usize]| {
            let one = |((_, room), missing): (&(usize, Region), &usize)| {
                // SAFETY: all pieces of this message are here, so MPI is done with its room, which stays borrowed.
                (*missing == 0)
                    .then(|| unsafe { std::slice::from_raw_parts(room.at as *const u8, room.bytes) })
            };
            meanwhile(&room.iter().zip(missing).map(one).collect::<Vec<_>>())
        };
        // SAFETY: all of it is borrowed until this function returns, what is received mutably.
        unsafe { self.carry_out(&sends, &room, &mut look) };
        Ok(())
    }

    fn takes_device_memory(&self) -> bool {
        self.takes_device_memory
    }

    unsafe fn exchange_regions(
        &self,
        sends: &[(usize, Region)],
        receives: &[(usize, Region)],
    ) -> Result<(), Failure> {
        // SAFETY: promised by the caller.
        unsafe { self.carry_out(sends, receives, &mut |_| false) };
        Ok(())
    }
}
