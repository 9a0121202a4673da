//! Where the agents of `mile run` are hosted: in this process, on its CPU or a GPU, or over the ranks of a job that this process was
//! started for.

use std::sync::Arc;

use mile_lab::engines::Engines;
use mile_lab::error::LabError;
use mile_lab::plan::Plan;

use crate::device::DeviceArguments;

/// Where agents are hosted.
pub(crate) struct Place {
    engines: Arc<dyn Engines>,
    device: String,
    #[cfg(feature = "mpi")]
    job: Option<Arc<mile_ranks::mpi::Mpi>>,
}

impl Place {
    /// The ranks of a job if this process was started for one, otherwise these engines; on CPUs.
    #[cfg(feature = "mpi")]
    pub(crate) fn find(here: Arc<dyn Engines>) -> anyhow::Result<Self> {
        use mile::ranks::Ranks;

        let job =
            mile_ranks::mpi::Mpi::join().map_err(|error| anyhow::anyhow!("cannot join the job: {error}"))?;
        let job = job.map(Arc::new);
        let engines: Arc<dyn Engines> = match job.as_ref().filter(|job| job.count() > 1) {
            Some(job) => Arc::new(mile_ranks::RankEngines::new(job.clone())),
            None => here,
        };
        Ok(Self { engines, device: String::new(), job })
    }

    /// This process; on its CPU.
    #[cfg(not(feature = "mpi"))]
    pub(crate) fn find(here: Arc<dyn Engines>) -> anyhow::Result<Self> {
        Ok(Self { engines: here, device: String::new() })
    }

    /// Uses the device that was asked for, on every rank.
    pub(crate) fn take(&mut self, device: &DeviceArguments) -> Result<(), LabError> {
        #[cfg(feature = "mpi")]
        if let Some(job) = self.job.as_ref().filter(|_| self.is_shared()) {
            (self.engines, self.device) = device.engines_of_rank(job)?;
            return Ok(());
        }
        (self.engines, self.device) = device.engines(self.engines())?;
        Ok(())
    }

    /// A line about the device, if one was chosen.
    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// Opens the engines of the jobs.
    pub(crate) fn engines(&self) -> Arc<dyn Engines> {
        self.engines.clone()
    }

    /// Whether this process shows what happens and writes the run directory.
    pub(crate) fn is_first(&self) -> bool {
        self.engines.ranks().rank() == 0
    }

    /// Whether there are other processes.
    pub(crate) fn is_shared(&self) -> bool {
        self.engines.ranks().count() > 1
    }

    /// What crosses ranks, for a dry run.
    pub(crate) fn describe(&self, plan: &Plan) -> String {
        #[cfg(feature = "mpi")]
        if self.is_shared() {
            return describe(plan, self.engines.ranks().count());
        }
        let _ = plan;
        String::new()
    }

    /// Ends this process's part of the MPI job: an error that all ranks return is printed by the first; any other is printed by this rank,
    /// which then ends all ranks, because some may wait for it. The exit code is that of the first rank, and the others exit with 0: the
    /// launcher ends all ranks when one exits with another code, and the first may still have something to print.
    pub(crate) fn end(&self, result: anyhow::Result<u8>) -> anyhow::Result<u8> {
        if !self.is_shared() {
            return result;
        }
        let error = match result {
            Ok(code) => return Ok(if self.is_first() { code } else { 0 }),
            Err(error) => error,
        };
        if matches!(error.downcast_ref(), Some(LabError::Agreed(_))) {
            return if self.is_first() { Err(error) } else { Ok(0) };
        }
        #[cfg(feature = "mpi")]
        if let Some(job) = &self.job {
            use mile::ranks::Ranks;
            eprintln!("mile: {}: {}", job.name(), crate::error_message(&error));
            job.abort(crate::exit_code(&error));
        }
        Err(error)
    }
}

/// Whether this process is a rank of a job, but not its first, according to its launcher.
pub(crate) fn is_other_rank() -> bool {
    let names: &[&str] =
        if cfg!(feature = "mpi") { &["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"] } else { &[] };
    names.iter().find_map(|name| std::env::var(name).ok()).is_some_and(|rank| rank != "0")
}

#[cfg(feature = "mpi")]
fn describe(plan: &Plan, ranks: usize) -> String {
    use std::fmt::Write;

    use indicatif::HumanBytes;
    use mile_lab::table::TextTable;
    use mile_ranks::Placement;

    let graph = plan.network().graph();
    let placement = Placement::of(graph, ranks);
    let (cut, numbered) = (placement.cut(graph), Placement::in_order(graph.agents(), ranks).cut(graph));
    let (least, most) = (graph.agents() / ranks, graph.agents().div_ceil(ranks));
    let each = if least == most { least.to_string() } else { format!("{least} or {most}") };
    let mut text = format!(
        "ranks: {ranks}, {each} agents each; {} of {} edges cross ranks, between {} pairs of ranks\n",
        cut.crossing,
        cut.edges,
        cut.messages / 2
    );
    let _ = match placement.is_in_order() {
        true => writeln!(text, "placement: blocks of agents in the order of their numbers"),
        false => writeln!(
            text,
            "placement: by a partition of the graph, which sends {} rows per exchange instead of {}",
            cut.rows, numbered.rows
        ),
    };
    let row = |(k, algorithm): (usize, &mile_lab::spec::AlgorithmSpec)| {
        let vectors = plan.methods[k].first_round.vectors_sent;
        let bytes = vectors * plan.message_bytes(k) as u64;
        vec![
            algorithm.label.clone(),
            HumanBytes(bytes * cut.rows as u64).to_string(),
            HumanBytes(bytes * cut.most_rows as u64).to_string(),
        ]
    };
    let header = ["algorithm", "crossing/round", "most by a rank"];
    let rows = plan.spec.algorithms.iter().enumerate().map(row).collect();
    let _ = writeln!(text, "{}", TextTable { header: header.map(str::to_owned).to_vec(), rows });
    text
}
