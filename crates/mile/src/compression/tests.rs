//! What compression leaves out, and that messages lose nothing.

use rand::RngExt;

use super::blocks::{Multiples, two_to};
use super::*;
use crate::random::{Purpose, stream};

const KINDS: [Compression; 7] = [
    Compression::Bf16,
    Compression::Fp16,
    Compression::EightBit,
    Compression::TopK(0.001),
    Compression::TopK(0.02),
    Compression::TopK(0.3),
    Compression::TopK(0.999),
];

/// Elements of very different sizes, some of them zero.
fn vector<T: Real>(dim: usize, index: u64) -> Vec<T> {
    let mut random = stream(1, Purpose::Probe, index, dim as u64);
    let mut element = |_| match random.random_range(0..9) {
        0 => T::of(-0.0),
        k => T::of(random.random_range(-1.0..1.0) * 10f64.powi(k - 5)),
    };
    (0..dim).map(&mut element).collect()
}

fn bits<T: Real>(q: &[T]) -> Vec<u64> {
    q.iter().map(|q| q.wide().to_bits()).collect()
}

fn error_sq<T: Real>(u: &[T], q: &[T]) -> f64 {
    u.iter().zip(q).map(|(u, q)| (u.wide() - q.wide()).powi(2)).sum()
}

fn messages_lose_nothing<T: Real>() {
    for dim in [0, 1, 2, 7, 8, 9, 255, 256, 257, 511, 1_000, 5_003] {
        for kind in KINDS {
            let u = vector::<T>(dim, 3);
            let mut q = u.clone();
            kind.compress(&mut q);
            let norm_sq: f64 = u.iter().map(|u| u.wide().powi(2)).sum();
            let delta = match kind {
                Compression::Bf16 => 1.0 - two_to(-16),
                Compression::Fp16 => 1.0 - two_to(-21),
                Compression::EightBit => 0.98,
                Compression::TopK(_) => kind.kept(dim) as f64 / dim.max(1) as f64,
            };
            assert!(error_sq(&u, &q) <= (1.0 - delta) * norm_sq * (1.0 + 1e-6), "{kind} {dim}");
            let mut again = q.clone();
            kind.compress(&mut again);
            assert_eq!(bits(&again), bits(&q), "{kind} {dim}");
            let mut message = vec![1, 2, 3];
            kind.encode(&q, &mut message);
            assert_eq!(message.len(), 3 + kind.message_bytes::<T>(dim));
            let mut decoded = vec![T::nan(); dim];
            kind.decode(&message[3..], &mut decoded).unwrap();
            assert_eq!(bits(&decoded), bits(&q), "{kind} {dim}");
        }
    }
}

#[test]
fn compressed_vectors_are_close_idempotent_and_encoded_without_loss() {
    messages_lose_nothing::<f32>();
    messages_lose_nothing::<f64>();
}

#[test]
fn a_message_is_that_of_its_stretches() {
    fn check<T: Real>() {
        for (kind, dim) in KINDS.into_iter().flat_map(|kind| [5, 1_024, 1_025, 5_003].map(|dim| (kind, dim)))
        {
            let Some(stretch) = kind.stretch() else { continue };
            let mut q = vector::<T>(dim, 4);
            let mut parts = q.clone();
            kind.compress(&mut q);
            parts.chunks_mut(stretch).for_each(|part| kind.compress(part));
            assert_eq!(bits(&parts), bits(&q), "{kind} {dim}");
            let (mut whole, mut joined) = (Vec::new(), Vec::new());
            kind.encode(&q, &mut whole);
            q.chunks(stretch).for_each(|part| kind.encode(part, &mut joined));
            assert_eq!(joined, whole, "{kind} {dim}");
        }
    }
    check::<f32>();
    check::<f64>();
}

#[test]
fn messages_have_the_bytes_that_the_table_says() {
    let bytes = |kind: Compression, dim| (kind.message_bytes::<f32>(dim), kind.message_bytes::<f64>(dim));
    assert_eq!(bytes(Compression::Bf16, 1_025), (2_052, 2_056));
    assert_eq!(bytes(Compression::Fp16, 1_024), (2_056, 2_056));
    assert_eq!(bytes(Compression::EightBit, 1_024), (1_032, 1_032));
    assert_eq!(bytes(Compression::EightBit, 1_025), (1_036, 1_040));
    assert_eq!(bytes(Compression::TopK(0.01), 100_000), (1_000 * 8, 1_000 * 12));
    assert_eq!(bytes(Compression::TopK(0.5), 80_000), (10_000 + 160_000, 10_000 + 320_000));
    assert_eq!((bytes(Compression::TopK(0.5), 0), bytes(Compression::EightBit, 0)), ((0, 0), (0, 0)));
}

#[test]
fn the_largest_elements_stay_and_the_first_among_equals() {
    let mut u = [1.0, -3.0, 2.0, -2.0, 2.0, 0.5];
    Compression::TopK(0.5).compress(&mut u);
    assert_eq!(u, [0.0, -3.0, 2.0, -2.0, 0.0, 0.0]);
}

#[test]
fn eight_bits_are_multiples_of_the_smallest_power_of_two() {
    for (largest, exponent) in [(127.0, 0), (127.25, 1), (63.5, -1), (1.0, -6), (2.0, -5), (1e-300, -1_003)] {
        let mut u: [f64; 3] = [largest, -0.3 * largest, 0.001 * largest];
        Compression::EightBit.compress(&mut u);
        let step = two_to(exponent);
        assert!((u[0] - largest).abs() <= 0.5 * step && u[1] % step == 0.0, "{largest}: {u:?}");
        assert_eq!(Multiples::Whole.exponent(&[largest]), Some(exponent), "{largest}");
    }
    let mut u = [f64::from_bits(5), 1e308, -1e308];
    Compression::EightBit.compress(&mut u);
    assert!(u[0] == 0.0 && u[1] == -u[2] && (u[1] / 1e308 - 1.0).abs() < 0.01, "{u:?}");
    let mut u = [3e38_f32, 1.0];
    Compression::EightBit.compress(&mut u);
    assert!((u[0] / 3e38 - 1.0).abs() < 0.01 && u[1] == 0.0, "{u:?}");
    assert!((Multiples::Whole.exponent(&[f32::MAX]), Multiples::Whole.exponent(&[f64::MAX])) == (None, None));
}

#[test]
fn sixteen_bits_are_the_nearest_floats_of_any_size() {
    let compressed = |kind: Compression, mut u: [f64; 3]| {
        kind.compress(&mut u);
        u
    };
    // Eight significant bits, ties to even; beyond single precision there is nothing.
    let step = two_to(-7);
    let [down, up, beyond] =
        compressed(Compression::Bf16, [1.0 + 0.5 * step, -1.0 - 1.5 * step, two_to(129)]);
    assert!(down == 1.0 && up == -1.0 - 2.0 * step && beyond.is_nan());
    // Eleven significant bits at every scale, in the block's largest elements.
    for scale in [-900, -60, 0, 60, 900].map(two_to) {
        let step = two_to(-10) * scale;
        let u = [scale + 0.5 * step, -scale - 1.5 * step, 0.9 * step];
        let [down, up, small] = compressed(Compression::Fp16, u);
        assert!(down == scale && up == -scale - 2.0 * step && (small / step - 0.9).abs() < 1e-3, "{scale}");
    }
    let [largest, ..] = compressed(Compression::Fp16, [65_504.0, 65_519.0, 0.0]);
    assert!(largest == 65_504.0 && Multiples::Fp16.exponent(&[65_504.0]) == Some(0));
    assert_eq!(Multiples::Fp16.exponent(&[65_504.1]), Some(1));
}

#[test]
fn what_is_not_finite_is_seen_by_the_neighbours() {
    for kind in KINDS {
        for broken in [f64::NAN, f64::INFINITY] {
            let mut u = vector::<f64>(600, 4);
            u[300] = broken;
            kind.compress(&mut u);
            let mut message = Vec::new();
            kind.encode(&u, &mut message);
            let mut decoded = vec![0.0_f64; 600];
            kind.decode(&message, &mut decoded).unwrap();
            assert!(!decoded[300].is_finite() && decoded[..256].iter().all(|q| q.is_finite()), "{kind}");
        }
    }
}

#[test]
fn arbitrary_messages_are_read_or_refused() {
    let mut random = stream(1, Purpose::Probe, 5, 0);
    let mut refused = [0; KINDS.len()];
    for draw in 0..300 {
        for (kind, refused) in KINDS.into_iter().zip(&mut refused) {
            let dim = 1 + draw % 90;
            let length = kind.message_bytes::<f32>(dim) + usize::from(draw % 7 == 0);
            let message: Vec<u8> = (0..length).map(|_| random.random()).collect();
            *refused += usize::from(kind.decode(&message, &mut vec![0f32; dim]).is_err());
        }
    }
    assert!(refused.iter().all(|refused| *refused >= 43), "{refused:?}");
}
