//! Weights that are split into halves before a forward pass.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use super::layer::{Call, Layer, Weights, long};
use super::memory::Memory;
use crate::device::{Buffer, Device, DeviceError, Grid};
use crate::queue::Kernels;
use crate::script::Script;

/// Threads of the kernel, and blocks that share the weights of a layer.
const THREADS: u32 = 1024;
const BLOCKS: u32 = 8;

/// As `Packed` in the kernels.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Packed {
    offset: u32,
    to: u32,
    numbers: u32,
}

/// Which layers' weights are split, and where the halves are.
pub(super) struct Halves {
    layers: Buffer,
    /// For each block: its number among these layers, and its place.
    places: Vec<Option<(usize, usize)>>,
    count: usize,
    /// Numbers of a model.
    each: usize,
}

impl Halves {
    pub(super) fn new(device: &Arc<dyn Device>, layers: &[Option<Layer>]) -> Result<Self, DeviceError> {
        let (mut all, mut places, mut each) = (Vec::new(), Vec::new(), 0);
        for layer in layers {
            let found = layer.as_ref().and_then(Layer::packed);
            places.push(found.map(|_| (all.len(), each)));
            if let Some((offset, numbers)) = found {
                let [offset, to, count] = [offset, each, numbers].map(|n| n as u32);
                all.push(Packed { offset, to, numbers: count });
                each += numbers;
            }
        }
        Ok(Self { count: all.len(), layers: Buffer::of(device, &all)?, places, each })
    }

    /// Splits the weights of all models. Nothing before the first layer that uses them waits for it.
    ///
    /// # Safety
    /// The models have rows of the model's dimension, and there is memory for all of them.
    pub(super) unsafe fn pack(&self, script: &mut Script, kernels: &Kernels, memory: &Memory, call: Call) {
        if self.count == 0 {
            return;
        }
        let grid = Grid::new([BLOCKS, self.count as u32, call.count as u32], THREADS);
        let arguments =
            [self.layers.at(), call.rows, memory.packed.at(), memory.scales.at(), long(self.each)];
        script.aside(true);
        // SAFETY: the types are those of the kernel; the rest is promised by the caller.
        unsafe { kernels.launch(script, "pack", grid, &arguments) };
        script.aside(false);
    }

    /// Whether block `k` is the first that uses split weights.
    pub(super) fn begins_with(&self, k: usize) -> bool {
        matches!(self.places[k], Some((0, _)))
    }

    /// Those of block `k`.
    pub(super) fn of(&self, k: usize, memory: &Memory, models: usize) -> Option<Weights> {
        let (number, place) = self.places[k]?;
        let packed = memory.packed.from::<f32>(place);
        Some(Weights { packed, scales: memory.scales.from::<f32>(number * models), each: long(self.each) })
    }
}
