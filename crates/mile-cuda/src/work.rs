//! What a job hands to the device: commands with the numbers that they need.
//!
//! Kernels find all of it in one buffer, so that a round is the same sequence of launches every time, and so that what several jobs do at
//! the same time can be one launch: a kernel gets a list of descriptors, one or more from each job.

use mile::real::{Precision, Real};

/// Places of data are multiples of this many bytes.
const ALIGNMENT: usize = 16;

/// What is done with the objectives of a list of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Task {
    /// Their gradients on samples, with dropout.
    Gradients,
    /// Their exact gradients.
    Exact,
    /// Their losses.
    Losses,
}

/// Commands of the same kind can be one launch. Gradients come late in the order, and norms last, so that jobs about to do something else
/// catch up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Fill,
    Combine {
        /// Whether the old values are not read.
        replaces: bool,
        terms: usize,
    },
    Prox,
    /// A step of AdamW or AMSGrad.
    Adam,
    /// Gradients that are shortened.
    Clip,
    Pull,
    /// Copies of rows that are sent.
    Gather,
    Sketch,
    Mean,
    Rows {
        /// The number of the program that computes them.
        program: usize,
        task: Task,
    },
    /// Sums of squares.
    Squares,
}

/// A command: descriptors of one kind, and how far they reach.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Command {
    pub(crate) kind: Kind,
    pub(crate) descriptors: Descriptors,
    /// How much there is to do for each: numbers, columns, chunks of samples.
    pub(crate) extent: usize,
    /// Agents of the job, where blocks are those of agents.
    pub(crate) agents: usize,
}

/// What kernels read: structures laid out as in the kernels, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Descriptors {
    bytes: Vec<u8>,
    count: usize,
    /// Positions that hold places of the job's data instead of addresses.
    relative: Vec<usize>,
}

impl Descriptors {
    /// An address.
    pub(crate) fn address(&mut self, at: u64) -> &mut Self {
        self.bytes.extend_from_slice(&at.to_ne_bytes());
        self
    }

    /// Several addresses.
    pub(crate) fn addresses(&mut self, all: &[u64]) -> &mut Self {
        all.iter().fold(self, |one, at| one.address(*at))
    }

    /// The address of a place of the job's data.
    pub(crate) fn place(&mut self, place: usize) -> &mut Self {
        self.relative.push(self.bytes.len());
        self.address(place as u64)
    }

    /// A whole number of 64 bits.
    pub(crate) fn long(&mut self, number: usize) -> &mut Self {
        self.address(number as u64)
    }

    /// Two whole numbers of 32 bits.
    pub(crate) fn two(&mut self, first: usize, second: usize) -> &mut Self {
        for number in [first as u32, second as u32] {
            self.bytes.extend_from_slice(&number.to_ne_bytes());
        }
        self
    }

    /// Numbers of this precision.
    pub(crate) fn numbers<T: Real>(&mut self, numbers: &[T]) -> &mut Self {
        for number in numbers {
            match T::PRECISION {
                Precision::F32 => self.bytes.extend_from_slice(&(number.wide() as f32).to_ne_bytes()),
                Precision::F64 => self.bytes.extend_from_slice(&number.wide().to_ne_bytes()),
            }
        }
        self
    }

    /// Marks a structure as complete.
    pub(crate) fn end(&mut self) {
        self.count += 1;
    }

    /// The bytes, with the job's data at this address.
    pub(crate) fn at(&self, data: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for field in &self.relative {
            let field = &mut bytes[*field..field + 8];
            let place = field.try_into().map_or(0, u64::from_ne_bytes);
            field.copy_from_slice(&(data + place).to_ne_bytes());
        }
        bytes
    }
}

/// Commands of one job, in order, and the data that their descriptors point to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Work {
    pub(crate) commands: Vec<Command>,
    data: Vec<u8>,
}

impl Work {
    /// Adds data; returns their place.
    pub(crate) fn data<N: bytemuck::Pod>(&mut self, numbers: &[N]) -> usize {
        let place = self.data.len();
        self.data.extend_from_slice(bytemuck::cast_slice(numbers));
        self.data.resize(self.data.len().next_multiple_of(ALIGNMENT), 0);
        place
    }

    pub(crate) fn add(&mut self, kind: Kind, descriptors: Descriptors, extent: usize, agents: usize) {
        self.commands.push(Command { kind, descriptors, extent, agents });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

/// Commands of several jobs that run at the same time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wave {
    pub(crate) kind: Kind,
    /// The place of their descriptors in the buffer, and how many there are.
    pub(crate) place: usize,
    pub(crate) count: usize,
    /// The largest of their extents and numbers of agents.
    pub(crate) extent: usize,
    pub(crate) agents: usize,
}

/// Bytes that the data and descriptors of several jobs take.
pub(crate) fn bytes(works: &[&Work]) -> usize {
    let of = |work: &&Work| {
        let descriptors = work.commands.iter().map(|command| command.descriptors.bytes.len() + ALIGNMENT);
        work.data.len() + descriptors.sum::<usize>()
    };
    works.iter().map(of).sum()
}

/// The commands of several jobs as waves, and the contents of the buffer at `base` for all of them. Each job's commands keep their order.
pub(crate) fn merge(works: &[&Work], base: u64) -> (Vec<Wave>, Vec<u8>) {
    let (mut buffer, mut data) = (Vec::new(), Vec::new());
    for work in works {
        data.push(base + buffer.len() as u64);
        buffer.extend_from_slice(&work.data);
    }
    let (mut waves, mut next) = (Vec::new(), vec![0; works.len()]);
    let head = |next: &[usize], job: usize| works[job].commands.get(next[job]);
    while let Some(kind) = (0..works.len()).filter_map(|job| Some(head(&next, job)?.kind)).min() {
        let mut wave = Wave { kind, place: buffer.len(), count: 0, extent: 0, agents: 0 };
        for job in 0..works.len() {
            let Some(command) = head(&next, job).filter(|command| command.kind == kind) else { continue };
            buffer.extend_from_slice(&command.descriptors.at(data[job]));
            wave.count += command.descriptors.count;
            wave.extent = wave.extent.max(command.extent);
            wave.agents = wave.agents.max(command.agents);
            next[job] += 1;
        }
        buffer.resize(buffer.len().next_multiple_of(ALIGNMENT), 0);
        waves.push(wave);
    }
    (waves, buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRADIENT: Kind = Kind::Rows { program: 0, task: Task::Gradients };
    const COMBINE: Kind = Kind::Combine { replaces: false, terms: 1 };

    fn work(kinds: &[Kind], mark: u64) -> Work {
        let mut work = Work::default();
        let place = work.data(&[mark]);
        for (k, kind) in kinds.iter().enumerate() {
            let mut one = Descriptors::default();
            one.address(mark + k as u64).place(place).end();
            work.add(*kind, one, 10 * (k + 1), 3);
        }
        work
    }

    #[test]
    fn gradients_of_all_jobs_are_one_wave_whatever_else_the_jobs_do() {
        let first = work(&[GRADIENT, COMBINE, GRADIENT, COMBINE, Kind::Squares], 100);
        let second = work(&[COMBINE, GRADIENT, Kind::Prox, COMBINE, Kind::Squares], 200);
        let works = [&first, &second];
        let (waves, buffer) = merge(&works, 1000);
        let found: Vec<(Kind, usize)> = waves.iter().map(|wave| (wave.kind, wave.count)).collect();
        let expected = [
            (COMBINE, 1),
            (GRADIENT, 2),
            (COMBINE, 1),
            (Kind::Prox, 1),
            (COMBINE, 1),
            (GRADIENT, 1),
            (COMBINE, 1),
            (Kind::Squares, 2),
        ];
        assert_eq!(found, expected);
        assert!(buffer.len() <= bytes(&works));
        let number = |place: usize| u64::from_ne_bytes(buffer[place..place + 8].try_into().unwrap());
        let place = waves[1].place;
        assert_eq!([0, 8, 16, 24].map(|k| number(place + k)), [100, 1000, 201, 1016]);
        assert_eq!((waves[1].extent, waves[1].agents), (20, 3));
        assert_eq!((number(0), number(16)), (100, 200));
    }

    #[test]
    fn one_job_keeps_its_order() {
        let kinds = [Kind::Pull, COMBINE, GRADIENT, Kind::Fill, Kind::Squares];
        let (waves, _) = merge(&[&work(&kinds, 0)], 0);
        assert_eq!(waves.iter().map(|wave| wave.kind).collect::<Vec<_>>(), kinds);
    }
}
