//! Samples in memory, with what is to be predicted for them.

/// Numbers of all samples, one after the other, as they were given.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Bytes, which a network sees as byte/255.
    Bytes(Vec<u8>),
    /// In single precision, used as they are.
    Singles(Vec<f32>),
    /// In double precision, used as they are.
    Doubles(Vec<f64>),
}

impl Values {
    /// How many numbers there are.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Values::Bytes(values) => values.len(),
            Values::Singles(values) => values.len(),
            Values::Doubles(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a network has to predict, which also determines its loss.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// A class of each sample; the loss is the cross-entropy.
    Labels(Vec<u8>),
    /// A number of values for each sample; the loss is half the squared distance from them.
    Numbers {
        /// The numbers of all samples.
        values: Vec<f64>,
        /// How many belong to a sample, at least one.
        each: usize,
    },
}

/// Images with what is to be predicted from them, in the order height, width, channel (HWC). A vector is an image of one
/// pixel, whose channels are its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Images {
    /// All pixels, image after image.
    pub pixels: Values,
    /// What is to be predicted.
    pub targets: Targets,
}

impl Images {
    /// Labelled images of one byte per pixel and channel.
    pub fn new(pixels: Vec<u8>, labels: Vec<u8>) -> Self {
        Self { pixels: Values::Bytes(pixels), targets: Targets::Labels(labels) }
    }

    /// Number of images.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.targets {
            Targets::Labels(labels) => labels.len(),
            Targets::Numbers { values, each } => values.len() / each,
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let pixels = match &self.pixels {
            Values::Bytes(bytes) => bytes.len(),
            Values::Singles(values) => size_of_val(&values[..]),
            Values::Doubles(values) => size_of_val(&values[..]),
        };
        pixels
            + match &self.targets {
                Targets::Labels(labels) => labels.len(),
                Targets::Numbers { values, .. } => size_of_val(&values[..]),
            }
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The label of each image; none if numbers are to be predicted.
    pub fn labels(&self) -> &[u8] {
        match &self.targets {
            Targets::Labels(labels) => labels,
            Targets::Numbers { .. } => &[],
        }
    }

    /// The bytes of image `i`, if pixels are bytes.
    pub fn image(&self, i: usize) -> Option<&[u8]> {
        match &self.pixels {
            Values::Bytes(bytes) => Some(&bytes[self.place(i)]),
            _ => None,
        }
    }

    /// Some of the images, in this order.
    pub fn some(&self, chosen: &[u32]) -> Self {
        fn pick<V: Copy>(all: &[V], each: usize, chosen: &[u32]) -> Vec<V> {
            chosen.iter().flat_map(|i| &all[*i as usize * each..(*i as usize + 1) * each]).copied().collect()
        }
        let size = self.pixels.len() / self.len().max(1);
        let pixels = match &self.pixels {
            Values::Bytes(all) => Values::Bytes(pick(all, size, chosen)),
            Values::Singles(all) => Values::Singles(pick(all, size, chosen)),
            Values::Doubles(all) => Values::Doubles(pick(all, size, chosen)),
        };
        let targets = match &self.targets {
            Targets::Labels(all) => Targets::Labels(pick(all, 1, chosen)),
            Targets::Numbers { values, each } => {
                Targets::Numbers { values: pick(values, *each, chosen), each: *each }
            }
        };
        Self { pixels, targets }
    }

    /// Where the pixels of image `i` are.
    #[inline]
    pub fn place(&self, i: usize) -> std::ops::Range<usize> {
        let size = self.pixels.len() / self.len();
        i * size..(i + 1) * size
    }
}
