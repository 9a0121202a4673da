//! Losses and accuracies of a model on sets of samples.

use std::sync::{Mutex, PoisonError};

use mile::real::Real;
use mile_nn::Scalar;
use mile_nn::problem::ImageProblem;

use super::data::DeviceData;
use super::layer::{Call, long, whole};
use super::{DeviceNetwork, THREADS};
use crate::device::{Buffer, DeviceError, Grid};
use crate::queue::Queue;

/// Samples that are processed at a time.
const SAMPLES: usize = 2048;

/// Loss and number of correct predictions on a set of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    pub(crate) loss: f64,
    pub(crate) correct: usize,
}

/// Evaluates models on the device, one after the other.
pub(crate) struct Scorer<T> {
    network: Mutex<DeviceNetwork>,
    train: DeviceData,
    test: Option<DeviceData>,
    parameters: Buffer,
    list: Buffer,
    losses: Buffer,
    correct: Buffer,
    classes: usize,
    marker: std::marker::PhantomData<T>,
}

/// The images of a set of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// The training set.
    Train,
    /// What metrics are measured on.
    Test,
}

impl<T: Real + Scalar> Scorer<T> {
    pub(crate) fn new(queue: &Queue, problem: &ImageProblem<T>) -> Result<Self, DeviceError> {
        let (device, model) = (&queue.device, problem.model());
        let (_, measured) = problem.measured();
        let is_other = !std::ptr::eq(measured, &problem.data().train) && !measured.is_empty();
        Ok(Self {
            network: Mutex::new(DeviceNetwork::new::<T>(queue, model, [1, SAMPLES], false)?),
            train: DeviceData::new::<T>(device, &problem.data().train)?,
            test: is_other.then(|| DeviceData::new::<T>(device, measured)).transpose()?,
            parameters: Buffer::new::<T>(device, model.dim())?,
            list: Buffer::new::<u32>(device, SAMPLES)?,
            losses: Buffer::new::<f64>(device, SAMPLES)?,
            correct: Buffer::new::<u8>(device, SAMPLES)?,
            classes: model.classes(),
            marker: std::marker::PhantomData,
        })
    }

    /// The score on each set of samples. Losses are summed in the order of the samples.
    pub(crate) fn scores(&self, x: &[T], of: Of, sets: &[&[u32]]) -> Result<Vec<Score>, DeviceError> {
        let network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        let data = match (of, &self.test) {
            (Of::Test, Some(test)) => test,
            _ => &self.train,
        };
        self.parameters.write(0, x)?;
        let all: Vec<(usize, u32)> =
            sets.iter().enumerate().flat_map(|(k, set)| set.iter().map(move |sample| (k, *sample))).collect();
        let mut scores = vec![Score::default(); sets.len()];
        let (mut losses, mut correct) = (vec![0.0f64; SAMPLES], vec![0u8; SAMPLES]);
        for chunk in all.chunks(SAMPLES) {
            let mut list: Vec<u32> = chunk.iter().map(|(_, sample)| *sample).collect();
            list.resize(SAMPLES, u32::MAX);
            self.list.write(0, &list)?;
            // SAFETY: samples are those of the images; the buffers have room for so many samples.
            unsafe { self.launch(&network, data)? };
            self.losses.read(0, &mut losses)?;
            self.correct.read(0, &mut correct)?;
            for ((set, _), (loss, correct)) in chunk.iter().zip(losses.iter().zip(&correct)) {
                scores[*set].loss += loss;
                scores[*set].correct += usize::from(*correct);
            }
        }
        Ok(scores)
    }

    /// # Safety
    /// The list has samples of the images, or none.
    unsafe fn launch(&self, network: &DeviceNetwork, data: &DeviceData) -> Result<(), DeviceError> {
        let call = Call { rows: 1, samples: SAMPLES, parameters: self.parameters.at(), stride: 0 };
        let input = network.blocks.first().map_or(0, |block| block.input.len());
        let ([pixels, values], [labels, targets]) = (data.pixels(), data.targets());
        let (list, first, outputs) =
            (self.list.at(), network.memory.kept[0].input.at(), network.memory.outputs.at());
        // SAFETY: the types are those of the kernels; the rest is promised by the caller.
        unsafe {
            let arguments = [pixels, values, list, first, whole(input)];
            network.kernels.launch(data.load, Grid::new([SAMPLES as u32, 1, 1], THREADS), &arguments)?;
            network.forward::<T>(call, None)?;
            let (losses, correct) = (self.losses.at(), self.correct.at());
            let arguments =
                [outputs, losses, correct, labels, targets, list, whole(self.classes), long(SAMPLES)];
            network.each("score", SAMPLES, &arguments)
        }
    }
}
