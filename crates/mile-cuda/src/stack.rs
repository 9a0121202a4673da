//! Jobs that share a device: what several of them do at the same time is one launch.
//!
//! Each job runs in its own thread and hands in its work, a round at a time. When all jobs have done so, one of the threads merges their work
//! ([`merge`]) and launches them: the rows of a gradient are then the agents of all jobs. A job waits for the others for a
//! tenth of a second at most. What a job computes does not depend on which jobs it computes with.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use mile::optimiser::norm_lanes;
use mile::real::Real;

use crate::device::{Buffer, Device, DeviceError, Grid};
use crate::kernels;
use crate::objective::Program;
use crate::queue::{Kernels, Queue};
use crate::script::{Recordings, Script};
use crate::vectors::squares;
use crate::work::{Kind, Wave, Work, bytes, merge};

/// Threads of a block.
const THREADS: u32 = 256;
/// Most blocks in the second and third dimensions of a grid.
const MOST_BLOCKS: usize = 65_535;
/// How long a job waits for the others.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long it does so without sleeping.
const AWAKE: Duration = Duration::from_micros(100);
/// Intermediate values of gradients take at most one part in this many of the free memory, unless a single row needs more.
const SHARE: u64 = 2;

/// A device on which several jobs compute together.
pub struct Stack<T> {
    pub(crate) queue: Queue,
    shared: Mutex<Shared>,
    turn: Condvar,
    marker: PhantomData<T>,
}

/// What a job gets back: the sum of squares that it asked for, if it did.
pub(crate) type Answer = Result<Option<f64>, DeviceError>;

/// Where a job finds its answer. It polls for a while before it sleeps, because waking takes longer than a round of a small problem.
#[derive(Default)]
struct Slot {
    answer: Mutex<Option<Answer>>,
    is_there: AtomicBool,
}

impl Slot {
    fn put(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.is_there.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<Answer> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What all jobs of a device share. Holding it means holding the device's queue.
pub(crate) struct Shared {
    queue: Queue,
    kernels: Kernels,
    members: Vec<usize>,
    next_member: usize,
    waiting: BTreeMap<usize, (Work, Arc<Slot>)>,
    /// Descriptors and data of the work that is carried out.
    buffer: Buffer,
    room: usize,
    recordings: Recordings,
    programs: BTreeMap<usize, Kept>,
    next_program: usize,
    /// Data that several jobs use, by kind.
    data: HashMap<(&'static str, usize), Weak<dyn Any + Send + Sync>>,
    /// Sums of squares of jobs.
    totals: Buffer,
    room_for_totals: usize,
}

struct Kept {
    key: String,
    program: Box<dyn Program>,
    /// Rows of each job that uses it.
    rows: HashMap<usize, usize>,
}

/// A job that uses a program.
#[derive(Clone, Copy)]
pub(crate) struct Users {
    pub(crate) member: usize,
    /// Its rows.
    pub(crate) rows: usize,
    /// Whether jobs use it at the same time.
    pub(crate) together: bool,
}

fn names() -> Vec<String> {
    let combines = (0..=8).flat_map(|k| [format!("combine_{k}"), format!("replace_{k}")]);
    let others = ["pull", "gather", "sketch", "prox", "fill", "mean", "squares", "total"];
    let optimisers = ["adam", "clip_sums", "clip_factors", "clip_scale"];
    combines.chain(others.into_iter().chain(optimisers).map(str::to_owned)).collect()
}

impl<T: Real> Stack<T> {
    /// No jobs yet.
    pub fn new(device: Arc<dyn Device>) -> Result<Arc<Self>, DeviceError> {
        let queue = Queue { device };
        let (room, room_for_totals) = (1 << 16, 64);
        let shared = Shared {
            kernels: queue.kernels(&kernels::verbs::<T>(), &names())?,
            members: Vec::new(),
            next_member: 0,
            waiting: BTreeMap::new(),
            buffer: Buffer::new::<u8>(&queue.device, room)?,
            room,
            recordings: Recordings::new(&queue.device),
            programs: BTreeMap::new(),
            next_program: 0,
            data: HashMap::new(),
            totals: Buffer::new::<f64>(&queue.device, room_for_totals)?,
            room_for_totals,
            queue: queue.clone(),
        };
        Ok(Arc::new(Self { queue, shared: Mutex::new(shared), turn: Condvar::new(), marker: PhantomData }))
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.queue.device
    }

    /// The queue of the device, and everything that jobs share.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands in the work of a job and waits until it is launched, and for a sum of squares if there is one.
    pub(crate) fn together(&self, member: usize, work: Work) -> Answer {
        let slot = Arc::new(Slot::default());
        let mut shared = self.lock();
        shared.waiting.insert(member, (work, slot.clone()));
        let mut patient = true;
        if !shared.all_wait() {
            drop(shared);
            let begun = Instant::now();
            while begun.elapsed() < AWAKE {
                if let Some(answer) = slot.take() {
                    return answer;
                }
                std::hint::spin_loop();
            }
            shared = self.lock();
        }
        loop {
            if let Some(answer) = slot.take() {
                return answer;
            }
            if !patient || shared.all_wait() {
                shared.carry_out_waiting();
                self.turn.notify_all();
                continue;
            }
            let (again, waited) =
                self.turn.wait_timeout(shared, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            (shared, patient) = (again, !waited.timed_out());
        }
    }

    /// Carries out work at once, by itself.
    pub(crate) fn alone(&self, work: &Work) -> Answer {
        self.lock().carry_out(&[work]).map(|squares| squares.first().copied())
    }

    /// Ends a job: the others no longer wait for it, and what was made for it is freed.
    pub(crate) fn leave(&self, member: usize) {
        let mut shared = self.lock();
        shared.members.retain(|other| *other != member);
        for kept in shared.programs.values_mut() {
            kept.rows.remove(&member);
        }
        drop(shared);
        self.turn.notify_all();
    }
}

impl Shared {
    /// Whether all jobs have handed in their work.
    fn all_wait(&self) -> bool {
        self.members.iter().all(|member| self.waiting.contains_key(member))
    }

    /// The number of a new job.
    pub(crate) fn number(&mut self) -> usize {
        self.next_member += 1;
        self.next_member
    }

    /// From now on the others wait for this job.
    pub(crate) fn join(&mut self, member: usize) {
        self.members.push(member);
    }

    /// Frees the memory of programs that no job uses.
    pub(crate) fn give_back_unused(&mut self) -> Result<(), DeviceError> {
        self.queue.device.wait()?;
        self.recordings.forget();
        self.programs.retain(|_, kept| !kept.rows.is_empty());
        Ok(())
    }

    /// The program with this key for one more job: that of other jobs, or a new one.
    pub(crate) fn program(
        &mut self,
        key: String,
        Users { member, rows, together }: Users,
        make: impl FnOnce(&Queue) -> Result<Box<dyn Program>, DeviceError>,
    ) -> Result<usize, DeviceError> {
        let found = self.programs.iter().find(|(_, kept)| kept.key == key).map(|(number, _)| *number);
        let number = match found {
            Some(number) => number,
            None => {
                self.give_back_unused()?;
                self.next_program += 1;
                let kept = Kept { key, program: make(&self.queue)?, rows: HashMap::new() };
                self.programs.insert(self.next_program, kept);
                self.next_program
            }
        };
        let Some(kept) = self.programs.get_mut(&number) else { return Ok(number) };
        kept.rows.insert(member, rows);
        let (all, most) = (kept.rows.values().sum::<usize>(), kept.rows.values().max());
        let wanted = if together { all } else { most.copied().unwrap_or(0) }.min(MOST_BLOCKS);
        if wanted > kept.program.room() {
            self.queue.device.wait()?;
            self.recordings.forget();
            // All rows at once if there is memory for them, otherwise as many as fit, in several turns.
            let held = kept.program.room() as u64 * kept.program.bytes_of_row();
            let available = self.queue.device.available()? + held;
            let each = kept.program.bytes_of_row().max(1);
            if each > available {
                let what = " for the values between the layers of one model".into();
                return Err(DeviceError::Memory { needed: each, available, what });
            }
            let fit = usize::try_from(available / SHARE / each).unwrap_or(usize::MAX).max(1);
            if wanted.min(fit) > kept.program.room() {
                kept.program.reserve(wanted.min(fit))?;
            }
        }
        Ok(number)
    }

    /// Data of this kind and number: shared with other jobs, or new.
    pub(crate) fn data<D: Any + Send + Sync>(
        &mut self,
        key: (&'static str, usize),
        make: impl FnOnce(&Arc<dyn Device>) -> Result<D, DeviceError>,
    ) -> Result<Arc<D>, DeviceError> {
        let kept = self.data.get(&key).and_then(Weak::upgrade);
        if let Some(Ok(data)) = kept.map(Arc::downcast::<D>) {
            return Ok(data);
        }
        let data = Arc::new(make(&self.queue.device)?);
        let weak: Weak<D> = Arc::downgrade(&data);
        self.data.insert(key, weak);
        Ok(data)
    }

    fn carry_out_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let works: Vec<&Work> = waiting.values().map(|(work, _)| work).collect();
        match self.carry_out(&works) {
            Ok(squares) => {
                let mut squares = squares.into_iter();
                for (work, slot) in waiting.values() {
                    let asks = work.commands.iter().any(|command| command.kind == Kind::Squares);
                    slot.put(Ok(if asks { squares.next() } else { None }));
                }
            }
            Err(error) => waiting.values().for_each(|(_, slot)| slot.put(Err(error.clone()))),
        }
    }

    /// Carries out the work of several jobs; returns the sums of squares of those that ask for one.
    fn carry_out(&mut self, works: &[&Work]) -> Result<Vec<f64>, DeviceError> {
        if works.iter().all(|work| work.is_empty()) {
            return Ok(Vec::new());
        }
        let (needed, totals) = (bytes(works), works.len());
        if needed > self.room || totals > self.room_for_totals {
            self.queue.device.wait()?;
            self.recordings.forget();
            (self.room, self.room_for_totals) = (
                needed.max(self.room).next_power_of_two(),
                totals.max(self.room_for_totals).next_power_of_two(),
            );
            self.buffer = Buffer::new::<u8>(&self.queue.device, self.room)?;
            self.totals = Buffer::new::<f64>(&self.queue.device, self.room_for_totals)?;
        }
        let (waves, buffer) = merge(works, self.buffer.at().bits());
        self.buffer.write(0, &buffer)?;
        let mut script = Script::default();
        for wave in &waves {
            self.launch(&mut script, wave);
        }
        // SAFETY: arguments of launches are the buffer, the totals and memory of programs, and whatever replaces these forgets all
        // recordings; descriptors refer to buffers of jobs that wait for this.
        unsafe { self.recordings.run(script)? };
        let squares = waves.iter().find(|wave| wave.kind == Kind::Squares);
        let mut found = vec![0.0; squares.map_or(0, |wave| wave.count)];
        if !found.is_empty() {
            self.totals.read(0, &mut found)?;
        }
        Ok(found)
    }

    /// The launches of a wave.
    fn launch(&self, script: &mut Script, wave: &Wave) {
        let (jobs, agents, all) = (wave.count as u32, wave.agents as u32, self.buffer.from::<u8>(wave.place));
        let over = |numbers: usize, most: u32| Grid::over(numbers, THREADS, most.max(1)).blocks[0];
        let busy = self.queue.busy();
        // SAFETY: the descriptors are those of the kernels, of vectors of their jobs.
        unsafe {
            match wave.kind {
                Kind::Fill => {
                    let grid = Grid::new([over(wave.extent, busy), jobs, 1], THREADS);
                    self.kernels.launch(script, "fill", grid, &[all]);
                }
                Kind::Combine { replaces, terms } => {
                    let name = format!("{}_{terms}", if replaces { "replace" } else { "combine" });
                    let grid = Grid::new([over(wave.extent, busy), jobs, 1], THREADS);
                    self.kernels.launch(script, &name, grid, &[all]);
                }
                Kind::Prox => {
                    let grid = Grid::new([over(wave.extent, 1024), agents, jobs], THREADS);
                    self.kernels.launch(script, "prox", grid, &[all]);
                }
                Kind::Adam => {
                    let grid = Grid::new([over(wave.extent, busy), jobs, 1], THREADS);
                    self.kernels.launch(script, "adam", grid, &[all]);
                }
                Kind::Clip => {
                    let sums = Grid::new([over(norm_lanes(wave.extent), u32::MAX), agents, jobs], THREADS);
                    self.kernels.launch(script, "clip_sums", sums, &[all]);
                    let factors = Grid::new([agents, jobs, 1], THREADS);
                    self.kernels.launch(script, "clip_factors", factors, &[all]);
                    let scale =
                        Grid::new([over(wave.extent, busy.div_ceil(agents.max(1))), agents, jobs], THREADS);
                    self.kernels.launch(script, "clip_scale", scale, &[all]);
                }
                Kind::Pull => {
                    let columns = over(wave.extent, (4 * busy / agents.max(1)).min(MOST_BLOCKS as u32));
                    let grid = Grid::new([agents, columns, jobs], THREADS);
                    self.kernels.launch(script, "pull", grid, &[all]);
                }
                Kind::Gather => {
                    let rows = agents.clamp(1, MOST_BLOCKS as u32);
                    let grid = Grid::new([over(wave.extent, busy.div_ceil(rows)), rows, jobs], THREADS);
                    self.kernels.launch(script, "gather", grid, &[all]);
                }
                Kind::Sketch => {
                    let grid = Grid::new([agents, jobs, 1], THREADS);
                    self.kernels.launch(script, "sketch", grid, &[all]);
                }
                Kind::Mean => {
                    let grid = Grid::new([over(wave.extent, busy), jobs, 1], THREADS);
                    self.kernels.launch(script, "mean", grid, &[all]);
                }
                Kind::Squares => {
                    let grid = Grid::new([squares(wave.extent) as u32, agents, jobs], THREADS);
                    self.kernels.launch(script, "squares", grid, &[all]);
                    let grid = Grid::new([jobs, 1, 1], THREADS);
                    self.kernels.launch(script, "total", grid, &[all, self.totals.at()]);
                }
                Kind::Rows { program, task } => {
                    let Some(kept) = self.programs.get(&program) else { return };
                    let (room, each) = (kept.program.room().max(1), kept.program.descriptor());
                    for first in (0..wave.count).step_by(room) {
                        let count = room.min(wave.count - first);
                        kept.program.launch(script, task, all.plus(first * each), count, wave.extent);
                    }
                }
            }
        }
    }
}
