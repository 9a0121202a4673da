//! Images that are divided among agents, with a network: the objectives of all agents of a job.

use std::sync::Arc;

use mile::problems::{Batch, Draw, Metric, Problem};
use mile::real::Real;
use mile_nn::data::Images as Data;
use mile_nn::model::Model as Network;
use mile_nn::problem::ImageProblem;

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
/// The sample of an agent that has no more.
const NONE: u32 = u32::MAX;

/// The objectives of all agents.
pub(crate) struct DeviceImages<T> {
    program: usize,
    /// Samples that are processed at a time.
    samples: usize,
    train: Arc<DeviceData>,
    batch: Batch,
    parts: Vec<Vec<u32>>,
    evaluation: Evaluation,
    marker: std::marker::PhantomData<T>,
}

/// What models are evaluated on.
struct Evaluation {
    program: usize,
    /// Training samples for the loss, and samples for metrics if there are any.
    train: Samples,
    test: Option<Samples>,
    metrics: &'static [Metric],
    /// Samples that metrics are measured on, and numbers that are predicted for each.
    tested: f64,
    outputs: f64,
}

/// A list of samples with their weights.
struct Samples {
    data: Arc<DeviceData>,
    list: Buffer,
    weights: Buffer,
    chunks: usize,
}

impl Samples {
    fn new(
        queue: &Queue,
        data: Arc<DeviceData>,
        each: usize,
        samples: impl Iterator<Item = (u32, f64)>,
    ) -> Result<Self, DeviceError> {
        let (mut list, mut weights): (Vec<u32>, Vec<f64>) = samples.unzip();
        let chunks = list.len().div_ceil(each).max(1);
        list.resize(chunks * each, NONE);
        weights.resize(chunks * each, 0.0);
        let (list, weights) = (Buffer::of(&queue.device, &list)?, Buffer::of(&queue.device, &weights)?);
        Ok(Self { data, list, weights, chunks })
    }
}

/// Samples of each agent in a batch.
fn sizes(batch: Batch, parts: &[Vec<u32>]) -> Vec<usize> {
    let size = |part: &Vec<u32>| match batch {
        Batch::Full => part.len(),
        Batch::Size(size) | Batch::Epoch(size) => size,
    };
    parts.iter().map(size).collect()
}

/// A program for models of this network, of whose samples so many are processed at a time.
fn program<T: Real>(
    (shared, member): (&mut Shared, usize),
    model: &Network,
    load: &'static str,
    [rows, samples]: [usize; 2],
    gradients: bool,
) -> Result<usize, DeviceError> {
    let key = format!("{:?} {load} {samples} {gradients} {}", model.blocks(), size_of::<T>());
    let users = Users { member, rows, together: gradients };
    shared.program(key, users, |queue| -> Result<Box<dyn Program>, DeviceError> {
        Ok(Box::new(Images::<T> {
            network: DeviceNetwork::new::<T>(queue, model.blocks(), samples)?,
            load,
            values: values::<T>(&queue.device)?,
            gradients,
            classes: model.classes(),
            bytes_of_row: DeviceNetwork::bytes::<T>(model, [1, samples], gradients),
            room: 0,
            summed: Buffer::new::<u64>(&queue.device, 1)?,
            summing: 0,
            marker: std::marker::PhantomData,
        }))
    })
}

/// Samples that are evaluated at a time, so that chunks of these lists are full.
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
    model: &Network,
    most: usize,
    gradients: bool,
) -> Result<usize, DeviceError> {
    let (available, mut samples) = (queue.device.available()?, most.max(1));
    while samples > 1 && DeviceNetwork::bytes::<T>(model, [1, samples], gradients) > available / 2 {
        samples = samples.div_ceil(2);
    }
    Ok(samples)
}

impl<T: Real + mile_nn::Scalar> DeviceImages<T> {
    pub(crate) fn new(
        shared: &mut Shared,
        queue: &Queue,
        member: usize,
        problem: &ImageProblem<T>,
    ) -> Result<Self, DeviceError> {
        let (model, parts, train) = (problem.model(), problem.parts(), &problem.data().train);
        let most = sizes(problem.batch(), parts).into_iter().max().unwrap_or(1).min(MOST_SAMPLES);
        let samples = fitting::<T>(queue, model, most, true)?;
        let shape = [parts.len(), samples];
        Ok(Self {
            program: program::<T>((shared, member), model, load(train), shape, true)?,
            samples,
            train: data(shared, train)?,
            batch: problem.batch(),
            parts: parts.to_vec(),
            evaluation: Evaluation::new(shared, queue, member, problem)?,
            marker: std::marker::PhantomData,
        })
    }
}

/// What a job with this problem needs.
pub(crate) fn needs<T: Real + mile_nn::Scalar>(problem: &ImageProblem<T>) -> Needs {
    let (model, parts, data) = (problem.model(), problem.parts(), problem.data());
    let most = sizes(problem.batch(), parts).into_iter().max().unwrap_or(1).min(MOST_SAMPLES);
    let gradients = DeviceNetwork::bytes::<T>(model, [parts.len(), most], true);
    let evaluation = DeviceNetwork::bytes::<T>(model, [1 + parts.len().min(16), EVALUATED], false);
    let shared = (data.train.bytes() + data.test.bytes()) as u64;
    Needs { own: 0, turn: gradients + evaluation, shared }
}

/// Images on the device, once for all jobs.
fn data(shared: &mut Shared, images: &Data) -> Result<Arc<DeviceData>, DeviceError> {
    let key = ("images", std::ptr::from_ref(images) as usize);
    shared.data(key, |device| DeviceData::new(device, images))
}

impl Evaluation {
    fn new<T: Real + mile_nn::Scalar>(
        shared: &mut Shared,
        queue: &Queue,
        member: usize,
        problem: &ImageProblem<T>,
    ) -> Result<Self, DeviceError> {
        let (model, evaluated, train) = (problem.model(), problem.evaluated(), &problem.data().train);
        let (measured, images) = problem.measured();
        let all: usize = evaluated.iter().map(Vec::len).sum();
        let each = fitting::<T>(queue, model, chunk(&[all, measured.len()]), false)?;
        // The average model, and at most as many of agents as a record has by default.
        let rows = 1 + problem.agents().min(16);
        let program = program::<T>((shared, member), model, load(train), [rows, each], false)?;
        let agents = evaluated.len() as f64;
        let of = |part: &Vec<u32>| 1.0 / (agents * part.len() as f64);
        let weighted = evaluated.iter().flat_map(|part| part.iter().map(move |sample| (*sample, of(part))));
        let test = if measured.is_empty() || problem.metrics().is_empty() {
            None
        } else {
            let samples = measured.iter().map(|sample| (*sample, 1.0));
            Some(Samples::new(queue, data(shared, images)?, each, samples)?)
        };
        Ok(Self {
            program,
            train: Samples::new(queue, data(shared, train)?, each, weighted)?,
            test,
            metrics: problem.metrics(),
            tested: measured.len() as f64,
            outputs: model.classes() as f64,
        })
    }

    /// One descriptor for each model.
    fn rows<T: Real>(samples: &Samples, models: &[Model], out: u64) -> Descriptors {
        let mut rows = Descriptors::default();
        for (k, model) in models.iter().enumerate() {
            rows.address(model.at).address(out + (k * NUMBERS * 8) as u64).address(samples.list.at().bits());
            rows.addresses(&samples.data.addresses())
                .address(samples.weights.at().bits())
                .long(0)
                .long(0)
                .two(0, 0);
            rows.numbers(&[T::zero(); 2]).end();
        }
        rows
    }
}

/// Numbers for each model: a loss with the number of correct predictions, of training samples and of test samples.
const NUMBERS: usize = 4;

impl<T: Real> Objective for DeviceImages<T> {
    fn gradients(&self, x: Place, out: Place, draw: Option<Draw>, work: &mut Work) {
        let batch = if draw.is_some() { self.batch } else { Batch::Full };
        let sizes = sizes(batch, &self.parts);
        let chunks = sizes.iter().copied().max().unwrap_or(0).div_ceil(self.samples).max(1);
        let Draw { seed, step } = draw.unwrap_or(Draw { seed: 0, step: 0 });
        let mut rows = Descriptors::default();
        for (agent, part) in self.parts.iter().enumerate() {
            let mut list = vec![NONE; chunks * self.samples];
            let drawn = batch.samples(part.len(), agent, Draw { seed, step });
            list.iter_mut().zip(drawn).for_each(|(to, sample)| *to = part[sample]);
            let list = work.data(&list);
            rows.address(x.row(agent)).address(out.row(agent)).place(list);
            rows.addresses(&self.train.addresses())
                .address(0)
                .address(seed)
                .address(step)
                .two(agent, sizes[agent]);
            rows.numbers(&[T::one() / T::of(sizes[agent] as f64), T::zero()]).end();
        }
        let task = if draw.is_some() { Task::Gradients } else { Task::Exact };
        work.add(Kind::Rows { program: self.program, task }, rows, chunks, self.parts.len());
    }

    fn numbers(&self) -> usize {
        NUMBERS
    }

    fn evaluate(&self, models: &[Model], out: u64, work: &mut Work) {
        let kind = Kind::Rows { program: self.evaluation.program, task: Task::Losses };
        let places = [Some(&self.evaluation.train), self.evaluation.test.as_ref()];
        for (samples, place) in places.into_iter().zip([0, 16]).filter_map(|(s, place)| Some((s?, place))) {
            let rows = Evaluation::rows::<T>(samples, models, out + place);
            work.add(kind, rows, samples.chunks, self.parts.len());
        }
    }

    fn worth(&self, numbers: &[f64]) -> (f64, Option<Vec<f64>>) {
        let [loss, _, test_loss, correct] = *numbers else { return (f64::NAN, None) };
        let Evaluation { metrics, tested, outputs, .. } = self.evaluation;
        let metric = |metric: &Metric| match metric {
            Metric::Accuracy => correct / tested,
            // The loss is half of the squared error, summed over the numbers of a target.
            _ => (2.0 * test_loss / (tested * outputs)).sqrt(),
        };
        let known = metrics.iter().all(|metric| matches!(metric, Metric::Accuracy | Metric::Rmse));
        (loss, known.then(|| metrics.iter().map(metric).collect()))
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
