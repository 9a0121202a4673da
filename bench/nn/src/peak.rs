//! How many multiply-adds a core can do: a loop that touches nothing but registers.

use std::hint::black_box;
use std::time::Instant;

use mile_nn::Isa;

/// Turns of the loop: some milliseconds. A multiply-add counts as two operations.
const ROUNDS: usize = 2_000_000;

/// GFLOP/s of this thread, once.
pub fn gflops() -> f64 {
    let start = Instant::now();
    let flops = match Isa::best() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `best` has asked the machine for AVX-512.
        Isa::Avx512 => unsafe { x86::spin_avx512() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `best` has asked the machine for AVX2 and FMA.
        Isa::Avx2 => unsafe { x86::spin_avx2() },
        _ => spin(),
    };
    flops / start.elapsed().as_secs_f64() / 1e9
}

/// The same without special instructions: a lower bound of the peak.
fn spin() -> f64 {
    let (a, b) = (black_box(0.999f32), black_box(0.001f32));
    let mut sums = [[black_box(1.0f32); 4]; 12];
    for _ in 0..ROUNDS {
        for sum in sums.iter_mut().flatten() {
            *sum = *sum * a + b;
        }
    }
    black_box(sums);
    (ROUNDS * 12 * 4 * 2) as f64
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::ROUNDS;

    #[target_feature(enable = "avx512f")]
    pub(super) fn spin_avx512() -> f64 {
        let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
        let mut sums = [_mm512_set1_ps(black_box(1.0)); 24];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, a, b);
            }
        }
        black_box(sums);
        (ROUNDS * 24 * 16 * 2) as f64
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn spin_avx2() -> f64 {
        let (a, b) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
        let mut sums = [_mm256_set1_ps(black_box(1.0)); 12];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, a, b);
            }
        }
        black_box(sums);
        (ROUNDS * 12 * 8 * 2) as f64
    }
}
