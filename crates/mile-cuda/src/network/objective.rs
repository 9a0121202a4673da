//! Images divided among agents, with a network: the objectives of those of a job's agents that are hosted here.

use std::sync::Arc;

use mile::problems::device::{Block, Images as Data, NetworkForm};
use mile::problems::{Batch, Draw, Metric};
use mile::real::Real;

use super::DeviceNetwork;
use super::data::{DeviceData, load, values};
use super::gradient::Images;
use crate::device::{Buffer, DeviceError};
use crate::objective::{Model, Needs, Objective, Place, Program};
use crate::queue::Queue;
use crate::stack::{Shared, Users};
use crate::work::{Descriptors, Kind, Task, Work};

/// Most samples of an agent that are processed at a time.
const MOST_SAMPLES: usize = 512;
/// Samples of a model that are evaluated at a time.
const EVALUATED: usize = 2048;
/// Stands for the sample of an agent that has no more.
const NONE: u32 = u32::MAX;

/// The objectives of the agents hosted here.
pub(crate) struct DeviceImages<T> {
    program: usize,
    /// Samples that are processed at a time.
    samples: usize,
    train: Arc<DeviceData>,
    batch: Batch,
    hosted: Vec<usize>,
    parts: Vec<Vec<u32>>,
    /// Samples of the agent that has most, wherever it is: sums over its samples and those of all others are split alike.
    largest: usize,
    evaluation: Evaluation,
    marker: std::marker::PhantomData<T>,
}

/// What models are evaluated on.
struct Evaluation {
    program: usize,
    /// Training samples for the losses, and samples for metrics if there are any.
    train: Samples,
    test: Option<Samples>,
    metrics: Vec<Metric>,
    /// Training samples of each agent, and how many numbers are predicted for a sample.
    of_agents: Vec<usize>,
    outputs: f64,
}

/// A list of samples.
struct Samples {
    data: Arc<DeviceData>,
    list: Buffer,
    count: usize,
    chunks: usize,
}

impl Samples {
    fn new(
        queue: &Queue,
        data: Arc<DeviceData>,
        each: usize,
        mut list: Vec<u32>,
    ) -> Result<Self, DeviceError> {
        let (count, chunks) = (list.len(), list.len().div_ceil(each).max(1));
        list.resize(chunks * each, NONE);
        Ok(Self { data, list: Buffer::of(&queue.device, &list)?, count, chunks })
    }
}

/// Samples in a batch of an agent with `all` samples.
fn used(batch: Batch, all: usize) -> usize {
    match batch {
        Batch::Full => all,
        Batch::Size(size) | Batch::Epoch(size) => size,
    }
}

/// Samples of the agent that has most.
fn largest(form: &NetworkForm) -> usize {
    form.sizes.iter().copied().max().unwrap_or(1)
}

/// A program for models of this network that processes a given number of samples at a time.
fn program<T: Real>(
    (shared, member): (&mut Shared, usize),
    form: &NetworkForm,
    [rows, samples]: [usize; 2],
    gradients: bool,
) -> Result<usize, DeviceError> {
    let (blocks, load) = (form.blocks, load(form.train));
    let key = format!("{blocks:?} {load} {samples} {gradients} {}", size_of::<T>());
    let users = Users { member, rows, together: gradients };
    shared.program(key, users, |queue| -> Result<Box<dyn Program>, DeviceError> {
        Ok(Box::new(Images::<T> {
            network: DeviceNetwork::new::<T>(queue, blocks, samples)?,
            load,
            values: values::<T>(&queue.device)?,
            gradients,
            classes: form.classes,
            bytes_of_row: DeviceNetwork::bytes::<T>(blocks, [1, samples], gradients),
            room: 0,
            summed: Buffer::new::<u64>(&queue.device, 1)?,
            summing: 0,
            marker: std::marker::PhantomData,
        }))
    })
}

/// Samples that are evaluated at a time, chosen so that chunks of these lists are full.
fn chunk(lists: &[usize]) -> usize {
    let cuts =
        |len: &usize| (1..=len.div_ceil(EVALUATED / 2).max(1)).map(|cuts| len.div_ceil(cuts)).collect();
    let all: Vec<Vec<usize>> = lists.iter().map(cuts).collect();
    let padded = |each: &usize| lists.iter().map(|len| len.next_multiple_of(*each)).sum::<usize>();
    let possible = all.into_iter().flatten().filter(|each| (1..=EVALUATED).contains(each));
    possible.min_by_key(|each| (padded(each), EVALUATED - each)).unwrap_or(1)
}

/// As many samples at a time as there are, or as fit into half of the memory.
fn fitting<T: Real>(
    queue: &Queue,
    blocks: &[Block],
    most: usize,
    gradients: bool,
) -> Result<usize, DeviceError> {
    let (available, mut samples) = (queue.device.available()?, most.max(1));
    while samples > 1 && DeviceNetwork::bytes::<T>(blocks, [1, samples], gradients) > available / 2 {
        samples = samples.div_ceil(2);
    }
    Ok(samples)
}

impl<T: Real> DeviceImages<T> {
    pub(crate) fn new(
        shared: &mut Shared,
        queue: &Queue,
        member: usize,
        form: &NetworkForm,
        hosted: &[usize],
    ) -> Result<Self, DeviceError> {
        let largest = largest(form);
        let most = used(form.batch, largest).min(MOST_SAMPLES);
        let samples = fitting::<T>(queue, form.blocks, most, true)?;
        let shape = [hosted.len(), samples];
        Ok(Self {
            program: program::<T>((shared, member), form, shape, true)?,
            samples,
            train: data(shared, form.train)?,
            batch: form.batch,
            hosted: hosted.to_vec(),
            parts: hosted.iter().map(|agent| form.parts[*agent].clone()).collect(),
            largest,
            evaluation: Evaluation::new::<T>(shared, queue, member, form, hosted)?,
            marker: std::marker::PhantomData,
        })
    }
}

/// What a job with this problem needs.
pub(crate) fn needs<T: Real>(form: &NetworkForm) -> Needs {
    let NetworkForm { blocks, train, measured: (_, measured), .. } = *form;
    let hosted = form.parts.iter().filter(|part| !part.is_empty()).count();
    let most = used(form.batch, largest(form)).min(MOST_SAMPLES);
    let gradients = DeviceNetwork::bytes::<T>(blocks, [hosted, most], true);
    let evaluation = DeviceNetwork::bytes::<T>(blocks, [1 + form.parts.len().min(16), EVALUATED], false);
    let apart = if std::ptr::eq(train, measured) { 0 } else { measured.bytes() };
    let shared = (train.bytes() + apart) as u64;
    Needs { own: 0, turn: gradients + evaluation, shared }
}

/// Images on the device, once for all jobs.
fn data(shared: &mut Shared, images: &Data) -> Result<Arc<DeviceData>, DeviceError> {
    let key = ("images", std::ptr::from_ref(images) as usize);
    shared.data(key, |device| DeviceData::new(device, images))
}

impl Evaluation {
    fn new<T: Real>(
        shared: &mut Shared,
        queue: &Queue,
        member: usize,
        form: &NetworkForm,
        hosted: &[usize],
    ) -> Result<Self, DeviceError> {
        let (measured, images) = form.measured;
        let evaluated: Vec<&[u32]> = hosted.iter().map(|agent| &form.evaluated[*agent][..]).collect();
        let of_agents: Vec<usize> = evaluated.iter().map(|list| list.len()).collect();
        let all: usize = of_agents.iter().sum();
        let each = fitting::<T>(queue, form.blocks, chunk(&[all, measured.len()]), false)?;
        // The average model, and at most as many agents' models as a record has by default.
        let rows = 1 + form.parts.len().min(16);
        let program = program::<T>((shared, member), form, [rows, each], false)?;
        let test = if measured.is_empty() || form.metrics.is_empty() {
            None
        } else {
            Some(Samples::new(queue, data(shared, images)?, each, measured.to_vec())?)
        };
        Ok(Self {
            program,
            train: Samples::new(queue, data(shared, form.train)?, each, evaluated.concat())?,
            test,
            metrics: form.metrics.to_vec(),
            of_agents,
            outputs: form.classes as f64,
        })
    }

    /// Adds the descriptor of a model.
    fn row<T: Real>(samples: &Samples, model: &Model, out: u64, rows: &mut Descriptors) {
        rows.address(model.at).address(out).address(samples.list.at().bits());
        rows.addresses(&samples.data.addresses()).long(0).long(0).two(0, 0);
        rows.numbers(&[T::zero(); 2]).end();
    }

    /// Numbers of the training samples of a model.
    fn of_training(&self) -> usize {
        OF_SAMPLE * self.train.count
    }
}

/// Numbers for each sample of a model: its loss, and 1 if its class is predicted.
const OF_SAMPLE: usize = 2;

impl<T: Real> Objective for DeviceImages<T> {
    fn gradients(&self, of: &[usize], x: Place, out: Place, draw: Option<Draw>, work: &mut Work) {
        let batch = if draw.is_some() { self.batch } else { Batch::Full };
        let chunks = used(batch, self.largest).div_ceil(self.samples).max(1);
        let Draw { seed, step } = draw.unwrap_or(Draw { seed: 0, step: 0 });
        let mut rows = Descriptors::default();
        for &row in of {
            let (agent, part) = (&self.hosted[row], &self.parts[row]);
            let mut list = vec![NONE; chunks * self.samples];
            let (size, drawn) =
                (used(batch, part.len()), batch.samples(part.len(), *agent, Draw { seed, step }));
            list.iter_mut().zip(drawn).for_each(|(to, sample)| *to = part[sample]);
            let list = work.data(&list);
            rows.address(x.row(row)).address(out.row(row)).place(list);
            rows.addresses(&self.train.addresses()).address(seed).address(step).two(*agent, size);
            rows.numbers(&[T::one() / T::of(size as f64), T::zero()]).end();
        }
        let task = if draw.is_some() { Task::Gradients } else { Task::Exact };
        work.add(Kind::Rows { program: self.program, task }, rows, chunks, self.parts.len());
    }

    fn numbers(&self) -> usize {
        let test = self.evaluation.test.as_ref().map_or(0, |test| OF_SAMPLE * test.count);
        self.evaluation.of_training() + test
    }

    fn evaluate(&self, models: &[Model], out: u64, work: &mut Work) {
        let Evaluation { program, train, test, .. } = &self.evaluation;
        let kind = Kind::Rows { program: *program, task: Task::Losses };
        let place = |model: usize, number: usize| out + ((model * self.numbers() + number) * 8) as u64;
        let (mut losses, mut metrics) = (Descriptors::default(), Descriptors::default());
        for (k, model) in models.iter().enumerate() {
            Evaluation::row::<T>(train, model, place(k, 0), &mut losses);
            if let (Some(test), true) = (test, model.is_measured) {
                let out = place(k, self.evaluation.of_training());
                Evaluation::row::<T>(test, model, out, &mut metrics);
            }
        }
        work.add(kind, losses, train.chunks, self.parts.len());
        if let (Some(test), true) = (test, models.iter().any(|model| model.is_measured)) {
            work.add(kind, metrics, test.chunks, self.parts.len());
        }
    }

    fn losses(&self, numbers: &[f64]) -> Vec<f64> {
        let mut rest = numbers;
        let mean = |samples: &usize| {
            let (own, after) = rest.split_at(OF_SAMPLE * samples);
            rest = after;
            own.iter().step_by(OF_SAMPLE).fold(0.0, |sum, loss| sum + loss) / *samples as f64
        };
        self.evaluation.of_agents.iter().map(mean).collect()
    }

    fn metrics(&self, numbers: &[f64]) -> Option<Vec<f64>> {
        let Evaluation { ref metrics, outputs, .. } = self.evaluation;
        let measured = numbers[self.evaluation.of_training()..].chunks_exact(OF_SAMPLE);
        let tested = measured.len() as f64;
        let (loss, correct) =
            measured.fold((0.0, 0.0), |(loss, correct), one| (loss + one[0], correct + one[1]));
        let metric = |metric: &Metric| match metric {
            Metric::Accuracy => correct / tested,
            // The loss is half of the squared error, summed over the numbers of a target.
            _ => (2.0 * loss / (tested * outputs)).sqrt(),
        };
        let known = metrics.iter().all(|metric| matches!(metric, Metric::Accuracy | Metric::Rmse));
        known.then(|| metrics.iter().map(metric).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_evaluated_samples_are_full() {
        assert_eq!(chunk(&[3000, 2000]), 1000);
        assert_eq!(chunk(&[2048, 0]), 2048);
        assert_eq!(chunk(&[20_000, 10_000]), 2000);
        assert_eq!((chunk(&[5, 0]), chunk(&[7, 7]), chunk(&[0, 0])), (5, 7, 1));
    }
}
