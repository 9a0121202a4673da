//! Instruction sets that kernels are compiled for, chosen at run time.

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isa {
    /// x86-64 with AVX-512F, BW and VL.
    Avx512,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// Portable code for any machine.
    Portable,
}

impl Isa {
    /// All of them, fastest first.
    pub const ALL: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Portable];

    /// Whether this machine can run it.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("fma")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx512 | Isa::Avx2 => false,
            Isa::Portable => true,
        }
    }

    /// The fastest this machine can run.
    pub fn best() -> Isa {
        Self::ALL.into_iter().find(|isa| isa.is_available()).unwrap_or(Isa::Portable)
    }
}
