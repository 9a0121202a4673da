//! Classification or regression with a neural network as N local objectives: a data set partitioned among agents.
//!
//! ```text
//! f = (1/N) sum_i f_i,    f_i(x) = mean loss over agent i's samples of the network with parameters x + (w/2) |x|^2
//! ```
//!
//! The weight decay w, 0 unless given, is a part of every f_i: its gradient w x is added to that of the loss, so that every method
//! has it and exact methods stay exact. It applies to all parameters, as PyTorch's `weight_decay` does.
//!
//! The loss of a sample with a label is the cross-entropy, that of a sample with numbers half the squared distance.
//!
//! All agents have the same weight, whatever their number of samples: f is not the mean over all samples.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use mile::block;
use mile::problems::device::NetworkForm;
use mile::problems::{
    Batch, DeviceForm, Draw, Failure, HeldOut, Metric, NamedTensors, Problem, Tensor, TensorPart,
};
use mile::random::{Purpose, stream};
use rand::seq::SliceRandom;
use rayon::prelude::*;

use crate::data::{Dataset, Images, Targets};
use crate::kernel::{Isa, KernelScalar};
use crate::model::{Model, ModelError, ModelSpec};
use crate::network::{CHUNK, Dropout, NeuralNetwork, Score, Workspace};
use crate::partition::{Partition, PartitionError, label_counts};

/// The norm of the exact gradient is recorded during a run if it takes at most this many operations: about a tenth
/// of a second on one core.
const MAX_RECORDED_FLOPS: u64 = 2_000_000_000;

/// Index of the random stream for the test set; agents have theirs by number.
const TEST: u64 = u64::MAX;

/// The training samples on which the loss is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluation {
    /// All samples.
    All,
    /// At most this many samples per agent: a random subset of its part, the same at every evaluation.
    PerAgent(usize),
}

/// The configuration of an [`ImageProblem`].
#[derive(Clone, Debug, PartialEq)]
pub struct ImageSpec {
    /// The neural network.
    pub model: ModelSpec,
    /// The partition of the training set.
    pub partition: Partition,
    /// Number of agents.
    pub agents: usize,
    /// Seed of the partition and of the evaluation subsets.
    pub seed: u64,
    /// Mini-batch of a stochastic gradient.
    pub batch: Batch,
    /// The training samples on which the loss is evaluated.
    pub evaluation: Evaluation,
    /// Number of test samples for the accuracy, a random subset that is the same at every evaluation; none for all.
    pub test_samples: Option<usize>,
}

/// Why a configuration is not valid for a data set.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// The network does not fit the data.
    #[error("the model does not fit the data: {0}")]
    Model(#[from] ModelError),
    /// The data cannot be partitioned in this way.
    #[error("the data cannot be partitioned: {0}")]
    Partition(#[from] PartitionError),
    /// The mini-batch size is 0.
    #[error("batch: expected a whole number of at least 1, got 0")]
    EmptyBatch,
    /// The number of evaluated samples per agent is 0.
    #[error("evaluation: expected at least 1 sample per agent, got 0")]
    EmptyEvaluation,
    /// An agent has no samples, or one that is not in the data set.
    #[error(
        "agent {agent} has no samples, or one that is not in the data set; give it samples of the data set, or use fewer agents"
    )]
    Parts {
        /// The agent.
        agent: usize,
    },
    /// The weight decay is negative or not a number.
    #[error("weight_decay: expected a number of at least 0, got {got}")]
    WeightDecay {
        /// The number given.
        got: f64,
    },
    /// The number of test samples is 0, or larger than the test set.
    #[error("test_samples: expected a whole number from 1 to {most}, the size of the test set, got {got}")]
    TestSamples {
        /// The number given.
        got: usize,
        /// Size of the test set.
        most: usize,
    },
}

/// Which samples belong to which agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// The indices of the training samples of each agent.
    pub train: Vec<Vec<u32>>,
    /// The indices of training samples on which the accuracy is measured; `None`: on the test set.
    pub held_out: Option<Vec<u32>>,
}

/// A neural network with the training set partitioned among agents; see the [module](self).
///
/// ```
/// use std::sync::Arc;
/// use mile::problems::{Batch, Draw, Problem};
/// use mile_nn::data::glyphs;
/// use mile_nn::model::{ModelSpec, Preset};
/// use mile_nn::partition::Partition;
/// use mile_nn::problem::{Evaluation, ImageSpec, ImageProblem};
///
/// let spec = ImageSpec {
///     model: ModelSpec::Preset(Preset::Linear),
///     partition: Partition::Dirichlet { alpha: 1.0 },
///     agents: 4,
///     seed: 0,
///     batch: Batch::Size(8),
///     evaluation: Evaluation::All,
///     test_samples: None,
/// };
/// let problem = ImageProblem::<f32>::try_new(Arc::new(glyphs::generate(0, 200, 50)), &spec)?;
/// let x = problem.initial(0)?.unwrap();
/// let mut gradient = vec![0.0; problem.dim()];
/// problem.sample_gradient(2, &x, Draw { seed: 0, step: 1 }, &mut gradient)?;
/// # Ok::<(), mile::problems::Failure>(())
/// ```
#[derive(Debug)]
pub struct ImageProblem<T> {
    data: Arc<Dataset>,
    network: NeuralNetwork<T>,
    parts: Vec<Vec<u32>>,
    batch: Batch,
    weight_decay: f64,
    /// Samples of each agent on which the loss is evaluated.
    evaluated: Vec<Vec<u32>>,
    /// Test samples on which the accuracy is evaluated.
    test: Vec<u32>,
    /// Whether these are samples of the training set.
    is_held_out: bool,
    /// Training samples of all agents together, and those of each class at each agent, wherever they are.
    samples: usize,
    counts: Vec<Vec<usize>>,
    /// Training samples of each agent, wherever they are.
    sizes: Vec<usize>,
    idle: Mutex<Vec<Scratch<T>>>,
}

/// The memory one thread needs for a gradient. It is taken from `idle` and put back, so that nothing is allocated
/// once there is one per thread.
#[derive(Debug)]
struct Scratch<T> {
    workspace: Workspace<T>,
    samples: Vec<u32>,
}

impl<T: KernelScalar> ImageProblem<T> {
    /// Partitions the training set and builds the neural network.
    pub fn try_new(data: Arc<Dataset>, config: &ImageSpec) -> Result<Self, ProblemError> {
        Self::with_isa(data, config, Isa::best())
    }

    /// As [`try_new`](Self::try_new), with the kernels of `isa`, or the portable ones if the machine cannot run those.
    pub fn with_isa(data: Arc<Dataset>, config: &ImageSpec, isa: Isa) -> Result<Self, ProblemError> {
        let train = config.partition.split(data.train.labels(), data.classes, config.agents, config.seed)?;
        Self::build(data, config, Parts { train, held_out: None }, isa)
    }

    /// As [`try_new`](Self::try_new), with the samples of each agent given; `partition` and `agents` of the configuration
    /// are not used.
    pub fn with_parts(data: Arc<Dataset>, config: &ImageSpec, parts: Parts) -> Result<Self, ProblemError> {
        Self::build(data, config, parts, Isa::best())
    }

    fn build(data: Arc<Dataset>, config: &ImageSpec, parts: Parts, isa: Isa) -> Result<Self, ProblemError> {
        if !config.batch.is_valid() {
            return Err(ProblemError::EmptyBatch);
        }
        if config.evaluation == Evaluation::PerAgent(0) {
            return Err(ProblemError::EmptyEvaluation);
        }
        let Parts { train: parts, held_out } = parts;
        let is_wrong = |part: &Vec<u32>| part.iter().max().is_none_or(|&i| i as usize >= data.train.len());
        if let Some(agent) = parts.iter().position(is_wrong) {
            return Err(ProblemError::Parts { agent });
        }
        let is_held_out = held_out.is_some();
        let test = held_out.unwrap_or_else(|| (0..data.test.len() as u32).collect());
        let most = test.len();
        if let Some(got) = config.test_samples.filter(|n| !(1..=most).contains(n)) {
            return Err(ProblemError::TestSamples { got, most });
        }
        let model = Model::try_new(&config.model, data.shape, data.classes)?;
        let per_agent = match config.evaluation {
            Evaluation::All => None,
            Evaluation::PerAgent(most) => Some(most),
        };
        let subset = |all: Vec<u32>, most, of| subset(all, most, config.seed, of);
        let evaluated =
            parts.iter().zip(0..).map(|(part, agent)| subset(part.clone(), per_agent, agent)).collect();
        let test = subset(test, config.test_samples, TEST);
        let network = NeuralNetwork::with_isa(model, isa);
        let idle = Mutex::new(Vec::new());
        let samples = data.train.len();
        let counts = match &data.train.targets {
            Targets::Labels(labels) => label_counts(&parts, labels, data.classes),
            Targets::Numbers { .. } => Vec::new(),
        };
        let sizes = parts.iter().map(Vec::len).collect();
        let batch = config.batch;
        let weight_decay = 0.0;
        Ok(Self {
            data,
            network,
            parts,
            batch,
            weight_decay,
            evaluated,
            test,
            is_held_out,
            samples,
            counts,
            sizes,
            idle,
        })
    }

    /// The same with the training samples of some agents only, in separate memory; the others cannot be evaluated. Test samples
    /// are all kept.
    pub fn hosting(self, agents: &[usize]) -> Self {
        let data = self.data.clone();
        let Ok(problem) = self.hosting_from(agents, |kept| Ok::<_, Infallible>(data.train.some(kept)));
        problem
    }

    /// As [`hosting`](Self::hosting), with the samples of these numbers, which increase, from `samples`: the data set then needs
    /// only the targets of the training set, and as many of them as it has samples.
    pub fn hosting_from<E>(
        mut self,
        agents: &[usize],
        samples: impl FnOnce(&[u32]) -> Result<Images, E>,
    ) -> Result<Self, E> {
        let held_out = if self.is_held_out { &self.test[..] } else { &[] };
        let mut kept: Vec<u32> = agents.iter().flat_map(|agent| &self.parts[*agent]).copied().collect();
        kept.extend(held_out);
        kept.sort_unstable();
        kept.dedup();
        let renumbered = |all: &[u32]| {
            all.iter().map(|i| kept.partition_point(|kept| kept < i) as u32).collect::<Vec<u32>>()
        };
        for agent in 0..self.parts.len() {
            let is_here = agents.contains(&agent);
            for part in [&mut self.parts[agent], &mut self.evaluated[agent]] {
                *part = if is_here { renumbered(part) } else { Vec::new() };
            }
        }
        if self.is_held_out {
            self.test = renumbered(&self.test);
        }
        let Dataset { name, test, classes, shape, .. } = &*self.data;
        self.data = Arc::new(Dataset {
            name: name.clone(),
            train: samples(&kept)?,
            test: test.clone(),
            classes: *classes,
            shape: *shape,
        });
        Ok(self)
    }

    /// Refuses an agent whose samples are elsewhere.
    fn check(&self, agent: usize) -> Result<(), Failure> {
        match self.parts[agent].is_empty() {
            true => Err(format!("the samples of agent {agent} are on another rank").into()),
            false => Ok(()),
        }
    }

    /// With a weight decay, a finite number of at least 0: the penalty `(weight/2) |x|^2` in every f_i.
    pub fn with_weight_decay(self, weight: f64) -> Result<Self, ProblemError> {
        if !(weight >= 0.0 && weight.is_finite()) {
            return Err(ProblemError::WeightDecay { got: weight });
        }
        Ok(Self { weight_decay: weight, ..self })
    }

    /// What the weight decay adds to every loss, `(w/2) |x|^2`.
    fn decay_loss(&self, x: &[T]) -> f64 {
        if self.weight_decay == 0.0 { 0.0 } else { 0.5 * self.weight_decay * block::norm_sq(x) }
    }

    /// Adds w x to a gradient.
    fn add_decay(&self, x: &[T], gradient: &mut [T]) {
        if self.weight_decay != 0.0 {
            block::combine(gradient, 1.0, &[(self.weight_decay, x)]);
        }
    }

    /// The neural network: its size, initialisation and export to PyTorch.
    pub fn model(&self) -> &Model {
        self.network.model()
    }

    /// The data set.
    pub fn data(&self) -> &Dataset {
        &self.data
    }

    /// The indices of the training samples of each agent; none for those of other ranks.
    pub fn parts(&self) -> &[Vec<u32>] {
        &self.parts
    }

    /// The samples on which metrics are measured, and the images they belong to.
    fn measured(&self) -> (&[u32], &Images) {
        (&self.test, if self.is_held_out { &self.data.train } else { &self.data.test })
    }

    fn with_scratch<R>(&self, work: impl FnOnce(&mut Scratch<T>) -> R) -> R {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut scratch =
            taken.unwrap_or_else(|| Scratch { workspace: self.network.workspace(), samples: Vec::new() });
        let result = work(&mut scratch);
        idle().push(scratch);
        result
    }

    /// The score on each of `sets` of samples, with all threads. The result does not depend on the number of threads:
    /// the sets are cut into chunks of fixed size, whose scores are added in order.
    fn scores(&self, x: &[T], images: &Images, sets: &[Vec<u32>]) -> Vec<Score> {
        let chunks: Vec<(usize, &[u32])> = sets
            .iter()
            .enumerate()
            .flat_map(|(i, set)| set.chunks(CHUNK).map(move |chunk| (i, chunk)))
            .collect();
        let score = |&(set, chunk): &(usize, &[u32])| {
            (set, self.with_scratch(|scratch| self.network.score(x, images, chunk, &mut scratch.workspace)))
        };
        let partial: Vec<(usize, Score)> = chunks.par_iter().map(score).collect();
        let mut scores = vec![Score::default(); sets.len()];
        for (set, score) in partial {
            scores[set].loss += score.loss;
            scores[set].correct += score.correct;
        }
        scores
    }
}

/// A random subset of at most `most` samples, in order; `of` is the agent, or [`TEST`].
fn subset(mut samples: Vec<u32>, most: Option<usize>, seed: u64, of: u64) -> Vec<u32> {
    if let Some(most) = most {
        samples.shuffle(&mut stream(seed, Purpose::Probe, of, 0));
        samples.truncate(most);
        samples.sort_unstable();
    }
    samples
}

impl<T: KernelScalar> Problem<T> for ImageProblem<T> {
    fn agents(&self) -> usize {
        self.parts.len()
    }

    fn dim(&self) -> usize {
        self.model().dim()
    }

    /// The mean over the agent's evaluated samples.
    fn loss(&self, agent: usize, x: &[T]) -> Result<f64, Failure> {
        self.check(agent)?;
        let set = std::slice::from_ref(&self.evaluated[agent]);
        Ok(self.scores(x, &self.data.train, set)[0].loss / set[0].len() as f64 + self.decay_loss(x))
    }

    /// The gradient over all samples of the agent, without dropout.
    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure> {
        self.check(agent)?;
        self.with_scratch(|scratch| {
            let workspace = &mut scratch.workspace;
            self.network.gradient(x, &self.data.train, &self.parts[agent], None, workspace, gradient);
        });
        self.add_decay(x, gradient);
        Ok(())
    }

    fn sample_gradient(&self, agent: usize, x: &[T], draw: Draw, gradient: &mut [T]) -> Result<(), Failure> {
        self.check(agent)?;
        let Draw { seed, step } = draw;
        let dropout = self.model().has_dropout().then_some(Dropout { seed, agent: agent as u64, step });
        self.with_scratch(|scratch| {
            let Scratch { workspace, samples } = scratch;
            let shard = &self.parts[agent];
            samples.clear();
            samples.extend(self.batch.samples(shard.len(), agent, draw).map(|k| shard[k]));
            self.network.gradient(x, &self.data.train, samples, dropout, workspace, gradient);
        });
        self.add_decay(x, gradient);
        Ok(())
    }

    fn objective(&self, x: &[T]) -> Result<f64, Failure> {
        let scores = self.scores(x, &self.data.train, &self.evaluated);
        let means = scores.iter().zip(&self.evaluated).map(|(score, set)| score.loss / set.len() as f64);
        Ok(means.sum::<f64>() / self.agents() as f64 + self.decay_loss(x))
    }

    fn records_gradient_norm(&self) -> bool {
        self.model().flops().saturating_mul(self.samples as u64) <= MAX_RECORDED_FLOPS
    }

    fn held_out(&self) -> Option<&dyn HeldOut<T>> {
        (!self.test.is_empty()).then_some(self)
    }

    fn initial(&self, seed: u64) -> Result<Option<Vec<T>>, Failure> {
        Ok(Some(self.model().initial(seed).into_iter().map(|x| T::of(f64::from(x))).collect()))
    }

    fn tensors(&self) -> Option<&dyn NamedTensors<T>> {
        Some(self)
    }

    fn class_counts(&self) -> Option<Vec<Vec<usize>>> {
        (!self.counts.is_empty()).then(|| self.counts.clone())
    }

    fn device_form(&self) -> Option<DeviceForm<'_, T>> {
        Some(DeviceForm::Network(NetworkForm {
            blocks: self.model().blocks(),
            classes: self.model().classes(),
            train: &self.data.train,
            parts: &self.parts,
            sizes: &self.sizes,
            batch: self.batch,
            evaluated: &self.evaluated,
            measured: self.measured(),
            metrics: self.held_out().map_or(&[], HeldOut::metrics),
            weight_decay: self.weight_decay,
        }))
    }
}

impl<T: KernelScalar> HeldOut<T> for ImageProblem<T> {
    /// The accuracy or, for numbers, the root mean square of the errors.
    fn metrics(&self) -> &'static [Metric] {
        match &self.data.train.targets {
            Targets::Labels(_) => &[Metric::Accuracy],
            Targets::Numbers { .. } => &[Metric::Rmse],
        }
    }

    fn measure(&self, x: &[T]) -> Result<Vec<f64>, Failure> {
        let images = self.measured().1;
        let metric = |metric: &Metric| {
            let score = self.scores(x, images, std::slice::from_ref(&self.test))[0];
            let samples = self.test.len() as f64;
            match metric {
                Metric::Accuracy => score.correct as f64 / samples,
                // The loss is half of the squared error, summed over the numbers of a target.
                _ => (2.0 * score.loss / (samples * self.model().classes() as f64)).sqrt(),
            }
        };
        Ok(self.metrics().iter().map(metric).collect())
    }
}

impl<T: KernelScalar> NamedTensors<T> for ImageProblem<T> {
    fn parts(&self) -> Vec<TensorPart> {
        self.model().parts()
    }

    /// The parameters as in PyTorch's `state_dict`.
    fn export(&self, x: &[T]) -> Vec<Tensor> {
        let single: Vec<f32> = x.iter().map(|value| value.wide() as f32).collect();
        self.model().state_dict(&single)
    }
}
