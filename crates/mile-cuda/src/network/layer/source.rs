//! The kernels of a layer: calls to what `kernels/layers.cuh` and `kernels/convolutions.cuh` provide, with its shapes and tiles.

use super::Layer;
use crate::network::convolution::{Fitted, Split};
use crate::network::tiles::Product;

impl Layer {
    /// The kernels of this layer, and their names.
    pub(in crate::network) fn source(&self) -> (String, [String; 3]) {
        let text = self.forward_source() + &self.back_source() + &self.weights_source();
        (text, ["forward", "back", "weights"].map(|name| format!("{name}_{}", self.number)))
    }

    /// The layer in the kernels, which reads `at_once` of its weights at a time.
    fn layer(&self, at_once: usize) -> String {
        let Self { block, kernel, padding, stride, height, width, channels, .. } = self;
        let (out, pool, relu) = (block.out, block.pool, block.relu);
        format!(
            "Layer<{height}, {width}, {channels}, {kernel}, {padding}, {stride}, {out}, {pool}, {relu}, {at_once}>"
        )
    }

    /// A kernel of this layer that calls a function with its arguments.
    fn kernel(&self, name: &str, bounds: &str, arguments: &[&str], call: &str) -> String {
        let name = format!("{name}_{}", self.number);
        let last = |argument: &&str| argument.rsplit(' ').next().unwrap_or_default().to_owned();
        let passed: Vec<String> = arguments.iter().map(last).collect();
        let (arguments, passed) = (arguments.join(", "), passed.join(", "));
        format!(
            "extern \"C\" __global__ void __launch_bounds__({bounds}) {name}({arguments}) {{\n    \
             {call}({passed});\n}}\nEXPORT_WAITING({name})\n"
        )
    }

    fn forward_source(&self) -> String {
        if let Some(Split { forward: Fitted { tile, blocks, .. }, .. }) = self.split {
            let arguments = [
                "const T* x",
                "const Row* rows",
                "const T* packed",
                "const T* scales",
                "T* out",
                "uint8_t* largest",
                "int samples",
                "int offset",
                "Count each",
            ];
            let bounds = format!("{}, {blocks}", tile.threads());
            let call = format!("split_forward<{}, {tile}>", self.layer(4));
            return self.kernel("forward", &bounds, &arguments, &call);
        }
        let (product, layer) = (self.product(), self.layer(self.weights_at_once()));
        let (tile, _, window) = self.tile(product);
        let bounds = tile.threads().to_string();
        if self.is_dense() {
            let arguments =
                ["const T* x", "const Row* rows", "T* out", "int samples", "int offset", "int depth"];
            return self.kernel("forward", &bounds, &arguments, &format!("dense<{layer}, {tile}>"));
        }
        let arguments =
            ["const T* x", "const Row* rows", "T* out", "uint8_t* largest", "int samples", "int offset"];
        self.kernel("forward", &bounds, &arguments, &format!("convolve<{layer}, {tile}, {window}>"))
    }

    fn back_source(&self) -> String {
        if let Some(Split { back: Fitted { tile, blocks, .. }, .. }) = self.split {
            let arguments = [
                "const T* delta",
                "const uint8_t* largest",
                "const T* packed",
                "const T* scales",
                "T* out",
                "int samples",
                "Count each",
            ];
            let bounds = format!("{}, {blocks}", tile.threads());
            let call = format!("split_back<{}, {tile}, {}>", self.layer(4), self.reads_pooled());
            return self.kernel("back", &bounds, &arguments, &call);
        }
        let (tile, _, window) = self.tile(Product::Back);
        let arguments = ["const T* delta", "const Row* rows", "T* out", "int samples", "int offset"];
        let call = format!("convolve_back<{}, {tile}, {window}>", self.layer(self.weights_at_once()));
        self.kernel("back", &tile.threads().to_string(), &arguments, &call)
    }

    fn weights_source(&self) -> String {
        if let Some(strip) = self.strip {
            let arguments = [
                "const T* x",
                "const T* delta",
                "const uint8_t* largest",
                "T* out",
                "int samples",
                "int strips",
                "Count numbers",
            ];
            let bounds = format!("{}, {}", strip.threads(), strip.blocks);
            let name = if self.split.is_some() { "split_weights" } else { "few_weights" };
            let call = format!("{name}<{}, {strip}, {}>", self.layer(4), self.reads_pooled());
            return self.kernel("weights", &bounds, &arguments, &call);
        }
        let (tile, ..) = self.tile(Product::Weights);
        let arguments =
            ["const T* x", "const T* delta", "T* out", "int samples", "int depth", "Count numbers"];
        let call = format!("weight_gradient<{}, {tile}>", self.layer(self.weights_at_once()));
        self.kernel("weights", &tile.threads().to_string(), &arguments, &call)
    }
}
