//! A device that fails in the middle of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mile::agents::{Agents, AgentsError, Vector};
use mile::engine::Engine;
use mile::methods::catalogue::Parameters;
use mile::problems::{Batch, Loss};
use mile::run::Run;
use mile::schedule::Schedule;
use mile_cuda::device::{Device, DeviceError, DeviceKernel, Grid, Recording};
use mile_cuda::{GpuAgents, Stack};

use crate::common::*;
use crate::methods::table;

/// A device that is lost after a given number of launches and replays.
struct Losing {
    device: Arc<dyn Device>,
    left: AtomicUsize,
}

impl Losing {
    fn spend(&self) -> Result<(), DeviceError> {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let problem = "the device fell off the bus".to_owned();
        left.map(drop).map_err(|_| DeviceError::Failed { doing: "run a kernel", problem })
    }
}

impl Device for Losing {
    fn name(&self) -> String {
        self.device.name()
    }
    fn available(&self) -> Result<u64, DeviceError> {
        self.device.available()
    }
    fn multiprocessors(&self) -> u32 {
        self.device.multiprocessors()
    }
    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.device.allocate(bytes)
    }
    unsafe fn free(&self, at: u64) {
        // SAFETY: promised by the caller.
        unsafe { self.device.free(at) }
    }
    unsafe fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: promised by the caller.
        unsafe { self.device.write(at, bytes) }
    }
    unsafe fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: promised by the caller.
        unsafe { self.device.read(at, bytes) }
    }
    fn compile(&self, source: &str, names: &[&str]) -> Result<Vec<DeviceKernel>, DeviceError> {
        self.device.compile(source, names)
    }
    unsafe fn launch(&self, kernel: DeviceKernel, grid: Grid, arguments: &[u64]) -> Result<(), DeviceError> {
        self.spend()?;
        // SAFETY: promised by the caller.
        unsafe { self.device.launch(kernel, grid, arguments) }
    }
    fn aside(&self, yes: bool) -> Result<(), DeviceError> {
        self.device.aside(yes)
    }
    fn join(&self) -> Result<(), DeviceError> {
        self.device.join()
    }
    fn record(&self) -> Result<(), DeviceError> {
        self.device.record()
    }
    fn recorded(&self) -> Result<Recording, DeviceError> {
        self.device.recorded()
    }
    unsafe fn replay(&self, recording: Recording) -> Result<(), DeviceError> {
        self.spend()?;
        // SAFETY: promised by the caller.
        unsafe { self.device.replay(recording) }
    }
    fn forget(&self, recording: Recording) {
        self.device.forget(recording);
    }
    fn wait(&self) -> Result<(), DeviceError> {
        self.device.wait()
    }
}

/// Runs rounds until an error, which must be that of the device; returns how many were done.
fn until_lost(agents: &mut GpuAgents<'_, f64>, method: &dyn mile::method::Method) -> usize {
    let lost = |error: AgentsError| assert!(error.to_string().contains("fell off the bus"), "{error}");
    let mut run = match Run::start(method, Schedule::constant(0.05), agents) {
        Ok(run) => run,
        Err(error) => {
            lost(error);
            return 0;
        }
    };
    for round in 0..100 {
        if let Err(error) = run.round(agents) {
            lost(error);
            return round;
        }
    }
    panic!("the device was not lost");
}

#[test]
fn every_job_gets_the_error_and_none_continues_with_what_is_left() {
    let problem = table::<f64>(4, 5, Loss::Logistic, 0.0, Batch::Size(2));
    let network = ring(4);
    let method = build("mile", &Parameters::default(), &network);
    let start = random::<f64>(5, 50);
    for (device, after) in
        devices().into_iter().flat_map(|device| [20, 45, 60].map(|after| (device.clone(), after)))
    {
        let losing = Arc::new(Losing { device, left: AtomicUsize::new(after) });
        let stack = Stack::<f64>::new(losing).unwrap();
        let open = |seed| GpuAgents::within(&stack, &problem, &network, &*method, &start, seed).unwrap();
        let (mut first, mut second) = (open(1), open(2));
        let rounds = std::thread::scope(|scope| {
            let other = scope.spawn(|| until_lost(&mut second, &*method));
            (until_lost(&mut first, &*method), other.join().unwrap())
        });
        assert!(rounds.0.abs_diff(rounds.1) <= 1, "{rounds:?}");
        for agents in [&mut first, &mut second] {
            let error = agents.settle().unwrap_err();
            assert!(matches!(error, AgentsError::Unusable), "{error}");
            assert!(agents.vector(Vector(0)).is_err());
        }
    }
}
