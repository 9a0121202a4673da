//! Sources of the kernels, compiled when they are first used.

use mile::real::{Precision, Real};

use crate::device::Argument;

/// What every source begins with.
pub(crate) const PRELUDE: &str = include_str!("kernels/prelude.cuh");
const VERBS: &str = include_str!("kernels/verbs.cu");
const OPTIMISER: &str = include_str!("kernels/optimiser.cu");
const GEMM: &str = include_str!("kernels/gemm.cuh");
const LAYERS: &str = include_str!("kernels/layers.cuh");
const SPLIT: &str = include_str!("kernels/split.cuh");
const CONVOLUTIONS: &str = include_str!("kernels/convolutions.cuh");
const NETWORK: &str = include_str!("kernels/network.cu");
const OBJECTIVES: &str = include_str!("kernels/objectives.cu");

/// The C++ name of a number type.
pub(crate) fn type_name<T: Real>() -> &'static str {
    match T::PRECISION {
        Precision::F32 => "float",
        Precision::F64 => "double",
    }
}

/// The verbs, in one precision.
pub(crate) fn verbs<T: Real>() -> String {
    format!("typedef {} T;\n{VERBS}\n{OPTIMISER}", type_name::<T>())
}

/// Quadratics and tables, in one precision.
pub(crate) fn objectives<T: Real>() -> String {
    format!("typedef {} T;\n{OBJECTIVES}", type_name::<T>())
}

/// The layers of networks, in one precision; kernels for a network's particular shapes are added to it.
pub(crate) fn network<T: Real>() -> String {
    let own = match T::PRECISION {
        Precision::F32 => format!("{SPLIT}\n{CONVOLUTIONS}"),
        Precision::F64 => String::new(),
    };
    format!("typedef {} T;\n{GEMM}\n{LAYERS}\n{own}\n{NETWORK}", type_name::<T>())
}

/// A number as a kernel argument of its precision.
pub(crate) fn number<T: Real>(value: T) -> Argument {
    match T::PRECISION {
        Precision::F32 => Argument::Single(value.wide() as f32),
        Precision::F64 => Argument::Double(value.wide()),
    }
}
