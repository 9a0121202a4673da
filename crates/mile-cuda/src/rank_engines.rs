//! Opens engines of one rank on its GPU for the jobs of an experiment.
//!
//! A rank takes the GPU of its number among the ranks of its machine, modulo the number of GPUs that it sees.

use std::sync::Arc;

use mile::engine::Engine;
use mile::network::Network;
use mile::ranks::Ranks;
use mile::real::Real;
use mile_lab::engines::{EngineSetup, Engines, Jobs};
use mile_lab::error::LabError;
use mile_lab::ranks::agree;
use mile_mpi::placement::Placement;
use mile_mpi::transport::Transport;

use crate::cuda;
use crate::engine::GpuRank;
use crate::engines::{GpuEngines, failed, refused};
use crate::stack::Stack;

/// Where what starts the ranks of a job tells a rank its number on its machine: Open MPI, MPICH and those derived from it, Slurm.
const LOCAL: [&str; 6] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "PMI_LOCAL_RANK",
    "SLURM_LOCALID",
];
/// Ranks whose GPUs are named in a message.
const NAMED: usize = 8;

/// Engines of this rank on its GPU, for [`Plan::spread`](mile_lab::plan::Plan::spread).
pub struct GpuRankEngines<C> {
    transport: Arc<C>,
    gpu: GpuEngines,
    /// Ranks that have the same GPU.
    sharing: usize,
}

/// The machine of a rank, from its name in messages.
fn machine(name: &str) -> &str {
    name.split_once(" on ").map_or("", |(_, machine)| machine)
}

/// The number of a rank among those of its machine, as it was told, or else from the names of all.
fn local_number(told: Option<String>, names: &[String], rank: usize) -> usize {
    let before = || names[..rank].iter().filter(|name| machine(name) == machine(&names[rank])).count();
    told.and_then(|text| text.trim().parse().ok()).unwrap_or_else(before)
}

/// Which rank has which GPU, in one line.
fn line(names: &[String], gpus: &[(usize, String)]) -> String {
    let one = |(name, (number, gpu)): (&String, &(usize, String))| format!("{name}: cuda:{number}, {gpu}");
    let mut parts: Vec<String> = names.iter().zip(gpus).take(NAMED).map(one).collect();
    if names.len() > NAMED {
        parts.push(format!("and {} other ranks", names.len() - NAMED));
    }
    format!("device: {}\n", parts.join("; "))
}

impl<C: Transport + 'static> GpuRankEngines<C> {
    /// On the GPU of this rank, counted from number `first`, and a line for the user. `say` gets notes for the user, on the first
    /// rank. A call of all ranks together.
    ///
    /// # Errors
    /// The same on all ranks, if any has no GPU that can be used.
    pub fn open(transport: Arc<C>, first: usize, say: fn(&str)) -> Result<(Self, String), LabError> {
        let names = names(&*transport)?;
        let told = LOCAL.iter().find_map(|name| std::env::var(name).ok());
        let local = local_number(told, &names, transport.rank());
        let say = if transport.rank() == 0 { say } else { |_: &str| () };
        let open = || {
            let found = cuda::devices().map_err(failed)?;
            let number = (first + local) % found.max(1);
            Ok((GpuEngines::open(number, say)?, number))
        };
        let (gpu, number) = agree(&*transport, open())?;
        let own = format!("{number} {}", gpu.name());
        let gpus = transport.all_gather(own.as_bytes()).map_err(lost)?;
        let read = |bytes: &Vec<u8>| {
            let text = String::from_utf8_lossy(bytes);
            let (number, name) = text.split_once(' ').unwrap_or(("0", &text));
            (number.parse().unwrap_or(0), name.to_owned())
        };
        let gpus: Vec<(usize, String)> = gpus.iter().map(read).collect();
        let here = machine(&names[transport.rank()]);
        let is_same = |(name, gpu): &(&String, &(usize, String))| machine(name) == here && gpu.0 == number;
        let sharing = names.iter().zip(&gpus).filter(is_same).count();
        Ok((Self { transport, gpu, sharing }, line(&names, &gpus)))
    }

    /// On a device of this rank's own.
    pub fn on(transport: Arc<C>, gpu: GpuEngines) -> Self {
        Self { transport, gpu, sharing: 1 }
    }

    fn agents<'a, T: Real>(
        &self,
        stack: &Arc<Stack<T>>,
        setup: EngineSetup<'a, T>,
    ) -> Result<Box<dyn Engine<T> + 'a>, LabError> {
        let EngineSetup { problem, network, method, start, seed, .. } = setup;
        let placement = Arc::new(Placement::of(network.graph(), self.transport.count()));
        let place = (self.transport.clone(), placement);
        let agents = GpuRank::new(stack, place, problem, network, method, start, seed).map_err(refused)?;
        self.gpu.note(agents.computes_gradients());
        Ok(Box::new(agents))
    }

    /// Refuses a job that does not fit.
    fn fitting<T: Real>(&self, stack: &Stack<T>, jobs: Jobs<'_, T>) -> Result<usize, LabError> {
        let agents = jobs.problem.agents().div_ceil(self.transport.count());
        stack.check(jobs.problem, jobs.vectors, agents, self.sharing).map_err(failed)?;
        Ok(1)
    }
}

/// The names of all ranks.
fn names(ranks: &dyn Ranks) -> Result<Vec<String>, LabError> {
    let all = ranks.all_gather(ranks.name().as_bytes()).map_err(lost)?;
    Ok(all.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// The error of a call of all ranks together.
fn lost(source: mile::agents::Failure) -> LabError {
    LabError::Agents(mile::agents::AgentsError::Engine(source))
}

impl<C: Transport + 'static> Engines for GpuRankEngines<C> {
    fn ranks(&self) -> &dyn Ranks {
        &*self.transport
    }

    fn hosted(&self, network: &Network) -> Vec<usize> {
        Placement::of(network.graph(), self.transport.count()).agents(self.transport.rank()).to_vec()
    }

    fn single<'a>(&self, agents: EngineSetup<'a, f32>) -> Result<Box<dyn Engine<f32> + 'a>, LabError> {
        self.agents(&self.gpu.stack_of_singles()?, agents)
    }

    fn double<'a>(&self, agents: EngineSetup<'a, f64>) -> Result<Box<dyn Engine<f64> + 'a>, LabError> {
        self.agents(&self.gpu.stack_of_doubles()?, agents)
    }

    fn has_memory_of_its_own(&self) -> bool {
        true
    }

    fn fitting_single(&self, jobs: Jobs<'_, f32>) -> Result<usize, LabError> {
        self.fitting(&*self.gpu.stack_of_singles()?, jobs)
    }

    fn fitting_double(&self, jobs: Jobs<'_, f64>) -> Result<usize, LabError> {
        self.fitting(&*self.gpu.stack_of_doubles()?, jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_told_its_number_on_its_machine_or_counts() {
        let names = ["rank 0 on a", "rank 1 on b", "rank 2 on a", "rank 3 on a"].map(str::to_owned);
        assert_eq!([0, 1, 2, 3].map(|rank| local_number(None, &names, rank)), [0, 0, 1, 2]);
        assert_eq!(local_number(Some("5".into()), &names, 3), 5);
        assert_eq!(local_number(Some("none".into()), &names, 3), 2);
    }

    #[test]
    fn some_of_many_ranks_are_named() {
        let names: Vec<String> = (0..11).map(|rank| format!("rank {rank} on a")).collect();
        let gpus = vec![(1, "H200".to_owned()); 11];
        let text = line(&names, &gpus);
        assert!(text.starts_with("device: rank 0 on a: cuda:1, H200; rank 1 on a: cuda:1, H200;"), "{text}");
        assert!(text.ends_with("; and 3 other ranks\n") && !text.contains("rank 8"), "{text}");
    }
}
