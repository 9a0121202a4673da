//! What a round costs over MPI: against the simulator, and its exchange against a bare exchange of the same bytes.
//!
//! ```text
//! mpirun -n P mile-bench-mpi round    AGENTS DIM ROUNDS   seconds of a round of MILE with five local steps on a ring
//! mpirun -n P mile-bench-mpi exchange AGENTS DIM ROUNDS   an exchange with and without its sums, the bare one, and the sums alone
//! mpirun -n P mile-bench-mpi gpu      AGENTS DIM ROUNDS   an exchange with its sums, on GPUs; MILE_CUDA_AWARE_MPI=0 and =1 compare two ways
//!             mile-bench-mpi simulator AGENTS DIM ROUNDS  the round in one process
//! ```
//! Times are the median over the rounds of the slowest rank.

use std::sync::Arc;
use std::time::Instant;

use mile::agents::{Agents, Failure, Vector};
use mile::graph::Topology;
use mile::methods::Mile;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::Problem;
use mile::ranks::{Ranks, Together};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use mile_cuda::cuda::{self, Cuda};
use mile_cuda::{GpuRank, Stack};
use mile_ranks::engine::RankEngine;
use mile_ranks::exchange::Crossing;
use mile_ranks::mpi::Mpi;
use mile_ranks::placement::Placement;
use mile_ranks::threads::Threads;
use mile_ranks::transport::RankTransport;
use mpi::ffi;

/// f_i(x) = |x - i|^2/2: a gradient is one pass over memory.
struct Springs {
    agents: usize,
    dim: usize,
}

impl Problem<f32> for Springs {
    fn agents(&self) -> usize {
        self.agents
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn loss(&self, agent: usize, x: &[f32]) -> Result<f64, Failure> {
        Ok(x.iter().map(|x| 0.5 * (f64::from(*x) - agent as f64).powi(2)).sum())
    }

    fn gradient(&self, agent: usize, x: &[f32], gradient: &mut [f32]) -> Result<(), Failure> {
        gradient.iter_mut().zip(x).for_each(|(g, x)| *g = x - agent as f32);
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |k: usize| words.get(k).and_then(|word| word.parse::<usize>().ok());
    let (Some(mode), Some(agents), Some(dim), Some(rounds)) =
        (words.first(), number(1), number(2), number(3))
    else {
        return Err("give round, exchange, gpu or simulator, and then AGENTS DIM ROUNDS".into());
    };
    let problem = Springs { agents, dim };
    let network = Network::new(Topology::Ring.build(agents, 0)?, Rule::Metropolis)?;
    let method = Mile::new(5, 0.1)?;
    if mode == "simulator" {
        let mut engine = Simulator::new(&problem, &network, &method, &vec![0.0; dim], 0)?;
        let time = median(rounds_of(&method, &mut engine, rounds)?);
        println!(
            "simulator {agents} x {dim}, {} threads: {:.4} ms a round",
            rayon::current_num_threads(),
            1e3 * time
        );
        return Ok(());
    }
    let transport = Arc::new(Mpi::join_with_pieces(1 << 30)?);
    let placement = Arc::new(Placement::of(network.graph(), transport.count()));
    if mode == "gpu" {
        return gpu(&transport, &placement, &problem, &network, rounds);
    }
    let mut engine = RankEngine::new(
        transport.clone(),
        placement.clone(),
        &problem,
        &network,
        &method,
        &vec![0.0; dim],
        0,
    )?;
    let ranks = transport.count();
    if mode == "round" {
        let time = slowest(&*transport, rounds_of(&method, &mut engine, rounds)?)?;
        if transport.rank() == 0 {
            println!(
                "round {agents} x {dim}, {ranks} ranks x {} threads: {:.4} ms",
                rayon::current_num_threads(),
                1e3 * time
            );
        }
        return Ok(());
    }
    let crossing = Crossing::of(&network, &placement, transport.rank(), 0, 0);
    let times = [
        timed(&*transport, rounds, |prepare| match prepare {
            true => {
                engine.combine(Vector(0), 0.5, &[])?;
                Ok(engine.settle()?)
            }
            false => engine.pull(0, &[(Vector(0), Vector(2))]).map(drop).map_err(Into::into),
        })?,
        only_messages(&transport, &crossing, dim, rounds)?,
        bare(&transport, &crossing, dim, rounds)?,
        only_sums(&transport, &method, placement.agents(transport.rank()).len(), dim, rounds)?,
    ];
    if transport.rank() == 0 {
        let bytes: usize = crossing.peers.iter().map(|peer| 4 * dim * peer.sends.len()).sum();
        let [pull, messages, bare, sums] = times.map(|time| 1e3 * time);
        println!(
            "exchange {agents} x {dim}, {ranks} ranks, {bytes} bytes sent by rank 0: with sums {pull:.4} ms, messages {messages:.4} ms, \
             bare {bare:.4} ms, sums {sums:.4} ms, messages/bare {:.2}, with sums/(bare + sums) {:.2}",
            messages / bare,
            pull / (bare + sums)
        );
    }
    Ok(())
}

fn rounds_of(method: &Mile, agents: &mut dyn Agents, rounds: usize) -> Result<Vec<f64>, Failure> {
    let mut run = Run::start(method, Schedule::constant(0.1), agents)?;
    let mut times = Vec::new();
    for _ in 0..rounds + 2 {
        let begun = Instant::now();
        run.round(agents)?;
        times.push(begun.elapsed().as_secs_f64());
    }
    // In the first rounds pages are touched, and whether threads are worthwhile is measured.
    Ok(times.split_off(2))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The median over the rounds of the time of the slowest rank.
fn slowest(transport: &Mpi, times: Vec<f64>) -> Result<f64, Failure> {
    let bytes: Vec<u8> = times.iter().flat_map(|time| time.to_le_bytes()).collect();
    let all = Together::of(transport).all_gather(&bytes)?;
    let time =
        |rank: &[u8], k: usize| f64::from_le_bytes(rank[8 * k..8 * k + 8].try_into().unwrap_or_default());
    Ok(median((0..times.len()).map(|k| all.iter().map(|rank| time(rank, k)).fold(0.0, f64::max)).collect()))
}

/// `work` is told before each round that it is about to be timed: then it writes what it sends, as a step of a method does. A buffer that
/// never changes would stay in the cache of the rank that receives it.
fn timed(
    transport: &Mpi,
    rounds: usize,
    mut work: impl FnMut(bool) -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let mut times = Vec::new();
    for round in 0..rounds + 2 {
        work(true)?;
        Together::of(transport).all_gather(&[0])?;
        let begun = Instant::now();
        work(false)?;
        if round >= 2 {
            times.push(begun.elapsed().as_secs_f64());
        }
    }
    slowest(transport, times)
}

/// The exchange of ranks on GPUs, which they share if there are too few: gathering rows, messages and sums.
fn gpu(
    transport: &Arc<Mpi>,
    placement: &Arc<Placement>,
    problem: &Springs,
    network: &Network,
    rounds: usize,
) -> Result<(), Failure> {
    let (rank, ranks) = (transport.rank(), transport.count());
    let device = Arc::new(Cuda::open(rank % cuda::devices()?.max(1), None)?);
    let stack = Stack::<f32>::new(device)?;
    let (method, start) = (Mile::new(5, 0.1)?, vec![0.0; problem.dim]);
    let place = (transport.clone(), placement.clone());
    let mut engine = GpuRank::new(&stack, place, problem, network, &method, &start, 0)?;
    let time = timed(transport, rounds, |prepare| {
        match prepare {
            true => {
                engine.combine(Vector(0), 0.5, &[])?;
                engine.settle()?;
            }
            false => drop(engine.pull(0, &[(Vector(0), Vector(2))])?),
        }
        Ok(stack.device().wait()?)
    })?;
    if rank == 0 {
        let crossing = Crossing::of(network, placement, rank, 0, 0);
        let bytes: usize = crossing.peers.iter().map(|peer| 4 * problem.dim * peer.sends.len()).sum();
        let way =
            if transport.takes_device_memory() { "between GPU memories" } else { "through host memory" };
        println!(
            "gpu {} x {}, {ranks} ranks, {bytes} bytes sent by rank 0, {way}: {:.4} ms, {:.2} GB/s",
            problem.agents,
            problem.dim,
            1e3 * time,
            bytes as f64 / time / 1e9
        );
    }
    Ok(())
}

/// Bytes from which the engine sends a row by itself.
const LONG: usize = 8 << 10;

/// The exchange of the engine without its sums: short rows are packed, long ones sent from where they lie.
fn only_messages(transport: &Mpi, crossing: &Crossing, dim: usize, rounds: usize) -> Result<f64, Failure> {
    let rows = crossing.peers.iter().flat_map(|peer| &peer.sends).max().map_or(0, |last| last + 1);
    let mut block = vec![1f32; rows * dim];
    let mut packed: Vec<Vec<f32>> = crossing.peers.iter().map(|_| Vec::new()).collect();
    let mut room: Vec<Vec<f32>> =
        crossing.peers.iter().map(|peer| vec![0.0; peer.receives.len() * dim]).collect();
    let bytes = |rows: &[f32]| -> &'static [u8] {
        // SAFETY: floats are bytes, and both blocks outlive the exchanges below.
        unsafe { std::slice::from_raw_parts(rows.as_ptr().cast(), 4 * rows.len()) }
    };
    timed(transport, rounds, |prepare| {
        if prepare {
            block.iter_mut().for_each(|value| *value += 1.0);
            return Ok(());
        }
        let mut sends: Vec<(usize, &[u8])> = Vec::new();
        for (peer, packed) in crossing.peers.iter().zip(&mut packed) {
            if 4 * dim >= LONG {
                sends.extend(
                    peer.sends.iter().map(|row| (peer.rank, bytes(&block[row * dim..(row + 1) * dim]))),
                );
                continue;
            }
            packed.clear();
            peer.sends.iter().for_each(|row| packed.extend_from_slice(&block[row * dim..(row + 1) * dim]));
            sends.push((peer.rank, bytes(packed)));
        }
        let mut receives: Vec<(usize, &mut [u8])> = Vec::new();
        for (peer, rows) in crossing.peers.iter().zip(&mut room) {
            // SAFETY: as above; any four bytes are a float.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(rows.as_mut_ptr().cast::<u8>(), 4 * rows.len()) };
            let width = if 4 * dim >= LONG { 4 * dim } else { bytes.len() };
            receives.extend(bytes.chunks_mut(width).map(|bytes| (peer.rank, bytes)));
        }
        transport.exchange(&sends, &mut receives, &mut |_| false)
    })
}

/// The sums of equally many rows with equally many neighbours, all of them here: a ring of a rank's agents, on all ranks at once.
fn only_sums(
    transport: &Mpi,
    method: &Mile,
    agents: usize,
    dim: usize,
    rounds: usize,
) -> Result<f64, Failure> {
    let network = Network::new(Topology::Ring.build(agents, 0)?, Rule::Metropolis)?;
    let problem = Springs { agents, dim };
    let here = Arc::new(Threads::world(1).remove(0));
    let placement = Arc::new(Placement::in_order(agents, 1));
    let mut engine = RankEngine::new(here, placement, &problem, &network, method, &vec![0.0; dim], 0)?;
    timed(transport, rounds, |prepare| match prepare {
        true => {
            engine.combine(Vector(0), 0.5, &[])?;
            Ok(engine.settle()?)
        }
        false => engine.pull(0, &[(Vector(0), Vector(2))]).map(drop).map_err(Into::into),
    })
}

/// The same bytes by MPI alone, from and to fixed buffers.
fn bare(transport: &Mpi, crossing: &Crossing, dim: usize, rounds: usize) -> Result<f64, Failure> {
    let mut out: Vec<Vec<f32>> =
        crossing.peers.iter().map(|peer| vec![1.0; peer.sends.len() * dim]).collect();
    let mut room: Vec<Vec<f32>> =
        crossing.peers.iter().map(|peer| vec![0.0; peer.receives.len() * dim]).collect();
    timed(transport, rounds, |prepare| {
        if prepare {
            out.iter_mut().flatten().for_each(|value| *value += 1.0);
            return Ok(());
        }
        // SAFETY: the buffers are not touched until all requests are done, and their lengths fit a count.
        unsafe {
            let mut requests = Vec::new();
            for (peer, room) in crossing.peers.iter().zip(&mut room) {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let (to, count) = (room.as_mut_ptr().cast(), room.len() as i32);
                ffi::MPI_Irecv(
                    to,
                    count,
                    ffi::RSMPI_FLOAT,
                    peer.rank as i32,
                    5,
                    ffi::RSMPI_COMM_WORLD,
                    &mut request,
                );
                requests.push(request);
            }
            for (peer, out) in crossing.peers.iter().zip(&out) {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let (from, count) = (out.as_ptr().cast(), out.len() as i32);
                ffi::MPI_Isend(
                    from,
                    count,
                    ffi::RSMPI_FLOAT,
                    peer.rank as i32,
                    5,
                    ffi::RSMPI_COMM_WORLD,
                    &mut request,
                );
                requests.push(request);
            }
            ffi::MPI_Waitall(requests.len() as i32, requests.as_mut_ptr(), ffi::RSMPI_STATUSES_IGNORE);
        }
        Ok(())
    })
}
