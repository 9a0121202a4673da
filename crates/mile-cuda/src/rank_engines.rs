//! Opens the engines of one rank on its GPU for the jobs of an experiment.
//!
//! A rank uses the GPU with its number among the ranks of its machine, modulo the number of GPUs that it sees.

use std::sync::Arc;

use mile::engine::{Engine, HostError};
use mile::network::Network;
use mile::ranks::{Ranks, Together};
use mile::real::Real;
use mile_lab::engines::{EngineSetup, Engines, EnginesIn, Jobs};
use mile_lab::error::LabError;
use mile_lab::ranks::{agree, lost};
use mile_ranks::placement::Placement;
use mile_ranks::transport::RankTransport;

use crate::cuda;
use crate::engine::GpuRank;
use crate::engines::GpuEngines;

/// Variables in which a job's launcher tells a rank its number on its machine: Open MPI, MPICH and its derivatives, Slurm.
const LOCAL: [&str; 6] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "PMI_LOCAL_RANK",
    "SLURM_LOCALID",
];
/// How many ranks' GPUs are named in a message.
const NAMED: usize = 8;

/// Engines of this rank on its GPU, for [`Plan::spread`](mile_lab::plan::Plan::spread).
pub struct GpuRankEngines<C> {
    transport: Arc<C>,
    gpu: GpuEngines,
    /// How many ranks share the GPU.
    sharing: usize,
}

/// The machine of a rank, from its name in messages.
fn machine(name: &str) -> &str {
    name.split_once(" on ").map_or("", |(_, machine)| machine)
}

/// The number of a rank among those of its machine, as the launcher gave it, or else derived from the names of all.
fn local_number(told: Option<String>, names: &[String], rank: usize) -> usize {
    let before = || names[..rank].iter().filter(|name| machine(name) == machine(&names[rank])).count();
    told.and_then(|text| text.trim().parse().ok()).unwrap_or_else(before)
}

/// The GPU of a rank, as reported to the others.
struct Gpu {
    number: usize,
    /// Whether messages are sent from and received in its memory; otherwise they go through the host's.
    is_direct: bool,
    name: String,
}

impl Gpu {
    fn told(&self) -> String {
        format!("{} {} {}", self.number, u8::from(self.is_direct), self.name)
    }

    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut words = text.splitn(3, ' ');
        let number = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let is_direct = words.next() == Some("1");
        Self { number, is_direct, name: words.next().unwrap_or_default().to_owned() }
    }
}

/// Which rank has which GPU, and which way messages go, in one line.
fn line(names: &[String], gpus: &[Gpu]) -> String {
    let one = |(name, gpu): (&String, &Gpu)| format!("{name}: cuda:{}, {}", gpu.number, gpu.name);
    let mut parts: Vec<String> = names.iter().zip(gpus).take(NAMED).map(one).collect();
    if names.len() > NAMED {
        parts.push(format!("and {} other ranks", names.len() - NAMED));
    }
    let (direct, all) = (gpus.iter().filter(|gpu| gpu.is_direct).count(), gpus.len());
    match direct {
        _ if all == 1 => {}
        0 => parts.push("messages through host memory".into()),
        _ if direct == all => parts.push("messages between GPU memories".into()),
        _ => parts.push(format!("messages from and to GPU memory on {direct} of {all} ranks")),
    }
    format!("device: {}\n", parts.join("; "))
}

impl<C: RankTransport + 'static> GpuRankEngines<C> {
    /// On the GPU of this rank, counting from number `first`, and a line for the user. `say` gets notes for the user, on the first
    /// rank. All ranks open theirs at the same time.
    ///
    /// # Errors
    /// The same on all ranks, if any has no GPU that can be used.
    pub fn open(transport: Arc<C>, first: usize, say: fn(&str)) -> Result<(Self, String), LabError> {
        let ranks = transport.clone();
        let together = Together::of(&*ranks);
        let names = names(together)?;
        let told = LOCAL.iter().find_map(|name| std::env::var(name).ok());
        let local = local_number(told, &names, transport.rank());
        let say = if transport.rank() == 0 { say } else { |_: &str| () };
        let open = || {
            let found = cuda::devices().map_err(HostError::from)?;
            let number = (first + local) % found.max(1);
            Ok((GpuEngines::open(number, say)?, number))
        };
        let (gpu, number) = agree(together, open())?;
        let own = Gpu { number, is_direct: transport.takes_device_memory(), name: gpu.name().to_owned() };
        let gpus = together.all_gather(own.told().as_bytes()).map_err(lost)?;
        let gpus: Vec<Gpu> = gpus.iter().map(|bytes| Gpu::read(bytes)).collect();
        let here = machine(&names[transport.rank()]);
        let is_same = |(name, gpu): &(&String, &Gpu)| machine(name) == here && gpu.number == number;
        let sharing = names.iter().zip(&gpus).filter(is_same).count();
        Ok((Self { transport, gpu, sharing }, line(&names, &gpus)))
    }

    /// On this rank's own device.
    pub fn on(transport: Arc<C>, gpu: GpuEngines) -> Self {
        Self { transport, gpu, sharing: 1 }
    }
}

/// The names of all ranks.
fn names(together: Together<'_>) -> Result<Vec<String>, LabError> {
    let all = together.all_gather(together.name().as_bytes()).map_err(lost)?;
    Ok(all.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

impl<C: RankTransport + 'static> Engines for GpuRankEngines<C> {
    fn ranks(&self) -> &dyn Ranks {
        &*self.transport
    }

    fn hosted(&self, network: &Network) -> Vec<usize> {
        Placement::of(network.graph(), self.transport.count()).agents(self.transport.rank()).to_vec()
    }

    fn has_memory_of_its_own(&self) -> bool {
        true
    }
}

impl<T: Real, C: RankTransport + 'static> EnginesIn<T> for GpuRankEngines<C> {
    fn open<'a>(&self, setup: EngineSetup<'a, T>) -> Result<Box<dyn Engine<T> + 'a>, HostError> {
        let EngineSetup { problem, network, method, start, seed, .. } = setup;
        let placement = Arc::new(Placement::of(network.graph(), self.transport.count()));
        let place = (self.transport.clone(), placement);
        let agents = GpuRank::new(&self.gpu.stack()?, place, problem, network, method, start, seed)?;
        self.gpu.note(agents.computes_gradients());
        Ok(Box::new(agents))
    }

    /// Refuses a job that does not fit.
    fn fitting(&self, jobs: Jobs<'_, T>) -> Result<usize, HostError> {
        let agents = jobs.problem.agents().div_ceil(self.transport.count());
        self.gpu.stack()?.check(jobs.problem, jobs.vectors, agents, self.sharing)?;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_told_its_number_on_its_machine_or_derives_it() {
        let names = ["rank 0 on a", "rank 1 on b", "rank 2 on a", "rank 3 on a"].map(str::to_owned);
        assert_eq!([0, 1, 2, 3].map(|rank| local_number(None, &names, rank)), [0, 0, 1, 2]);
        assert_eq!(local_number(Some("5".into()), &names, 3), 5);
        assert_eq!(local_number(Some("none".into()), &names, 3), 2);
    }

    fn gpus(number: usize, direct: &[bool]) -> Vec<Gpu> {
        let one = |is_direct: &bool| Gpu { number, is_direct: *is_direct, name: "NVIDIA H200".into() };
        direct.iter().map(|is_direct| Gpu::read(one(is_direct).told().as_bytes())).collect()
    }

    #[test]
    fn some_of_many_ranks_are_named() {
        let names: Vec<String> = (0..11).map(|rank| format!("rank {rank} on a")).collect();
        let text = line(&names, &gpus(1, &[false; 11]));
        assert!(text.contains("rank 0 on a: cuda:1") && text.contains("rank 7 on a"), "{text}");
        assert!(!text.contains("rank 8"), "{text}");
    }

    #[test]
    fn the_route_of_messages_is_shown_if_there_are_any() {
        let names = ["rank 0 on a", "rank 1 on b"].map(str::to_owned);
        let [through_host, direct] = [false, true].map(|is_direct| line(&names, &gpus(0, &[is_direct; 2])));
        assert_ne!(through_host, direct);
        let mixed = line(&names, &gpus(0, &[false, true]));
        assert!(mixed.contains("1 of 2 ranks"), "{mixed}");
        assert_eq!(line(&names[..1], &gpus(2, &[true])), "device: rank 0 on a: cuda:2, NVIDIA H200\n");
    }
}
