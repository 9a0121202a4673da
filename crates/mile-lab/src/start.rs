//! The agents' starting points.

use std::path::Path;

use mile::problems::Problem;
use mile::random::{Purpose, stream};
use mile::real::Real;
use rand::RngExt;
use rand_distr::StandardNormal;
use safetensors::{Dtype, SafeTensors};

use crate::error::LabError;
use crate::objectives::failed;
use crate::spec::StartSpec;

/// The starting points of some agents: one row for all agents, or one row for each of these.
pub(crate) fn points<T: Real>(
    start: &StartSpec,
    problem: &dyn Problem<T>,
    agents: &[usize],
    seed: u64,
) -> Result<Vec<T>, LabError> {
    let zeros = || vec![T::zero(); problem.dim()];
    let random = |index: u64| {
        let mut random = stream(seed, Purpose::Start, index, 0);
        (0..problem.dim()).map(move |_| T::of(random.sample::<f64, _>(StandardNormal)))
    };
    Ok(match start {
        StartSpec::Zeros => zeros(),
        StartSpec::Model => match problem.initial(seed).map_err(failed)? {
            Some(points) if points.len() == problem.dim() => points,
            Some(points) => rows_of(&points, problem.dim(), agents),
            None => zeros(),
        },
        StartSpec::Common => random(u64::MAX).collect(),
        StartSpec::Random => agents.iter().flat_map(|agent| random(*agent as u64)).collect(),
        StartSpec::File(path) => from_file(path, problem, agents)?,
    })
}

/// The rows of some agents.
fn rows_of<T: Real>(rows: &[T], dim: usize, agents: &[usize]) -> Vec<T> {
    agents.iter().flat_map(|agent| rows[agent * dim..(agent + 1) * dim].iter().copied()).collect()
}

/// The models in a file: tensor `x` of a state, with one row for each agent, or one model for all.
fn from_file<T: Real>(path: &Path, problem: &dyn Problem<T>, agents: &[usize]) -> Result<Vec<T>, LabError> {
    let (count, dim) = (problem.agents(), problem.dim());
    let refuse = |problem: String| LabError::Directory { path: path.to_owned(), problem };
    let bytes = std::fs::read(path).map_err(|error| refuse(format!("cannot read it: {error}")))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| refuse(format!("not a safetensors file: {error}")))?;
    let expected = format!(
        "expected a state with a tensor x of {count} rows of {dim} numbers, or of one row for all agents"
    );
    let x = file.tensor("x").map_err(|_| refuse(format!("{expected}, got no tensor x")))?;
    let numbers: Vec<T> = match x.dtype() {
        Dtype::F32 => x
            .data()
            .chunks_exact(4)
            .map(|b| T::of(f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()))
            .collect(),
        Dtype::F64 => {
            let wide = |b: &[u8]| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
            x.data().chunks_exact(8).map(|b| T::of(wide(b))).collect()
        }
        other => {
            return Err(refuse(format!("expected F32 or F64 numbers in x, got {other:?}")));
        }
    };
    match numbers.len() {
        one if one == dim => Ok(numbers),
        all if all == count * dim => Ok(rows_of(&numbers, dim, agents)),
        _ => Err(refuse(format!("{expected}, got shape {:?}", x.shape()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mile::problems::Quadratic;
    use safetensors::tensor::TensorView;

    fn write(path: &Path, name: &str, shape: Vec<usize>, numbers: &[f64]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F64, shape, &bytes).unwrap();
        std::fs::write(path, safetensors::serialize([(name, view)], None).unwrap()).unwrap();
    }

    #[test]
    fn agents_start_from_their_rows_of_a_file_or_all_from_one_model() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.safetensors");
        let problem = Quadratic::<f32>::new(3, 2, 10.0, 1.0, 0).unwrap();
        let start = |agents: &[usize]| points(&StartSpec::File(path.clone()), &problem, agents, 0);
        write(&path, "x", vec![3, 2], &[0.5, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(start(&[0, 1, 2]).unwrap(), [0.5, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(start(&[2]).unwrap(), [4.0, 5.0]);
        write(&path, "x", vec![2], &[7.0, 8.0]);
        assert_eq!(start(&[0, 1, 2]).unwrap(), [7.0, 8.0]);
        write(&path, "x", vec![2, 2], &[7.0, 8.0, 9.0, 1.0]);
        assert!(start(&[0]).unwrap_err().to_string().contains("[2, 2]"));
        write(&path, "y", vec![2], &[7.0, 8.0]);
        assert!(start(&[0]).unwrap_err().to_string().contains("x.safetensors"));
        std::fs::write(&path, "no").unwrap();
        assert!(start(&[0]).unwrap_err().to_string().contains("x.safetensors"));
        std::fs::remove_file(&path).unwrap();
        assert!(start(&[0]).unwrap_err().is_usage());
    }

    #[test]
    fn a_problem_may_have_a_starting_point_for_each_agent() {
        struct Apart;
        impl Problem<f64> for Apart {
            fn agents(&self) -> usize {
                3
            }
            fn dim(&self) -> usize {
                2
            }
            fn loss(&self, _: usize, _: &[f64]) -> Result<f64, mile::problems::Failure> {
                Ok(0.0)
            }
            fn gradient(&self, _: usize, _: &[f64], _: &mut [f64]) -> Result<(), mile::problems::Failure> {
                Ok(())
            }
            fn initial(&self, seed: u64) -> Result<Option<Vec<f64>>, mile::problems::Failure> {
                let all: Vec<f64> = (0..6).map(|k| (k + 10 * seed) as f64).collect();
                Ok(Some(if seed == 0 { all[..2].to_vec() } else { all }))
            }
        }
        let start = |agents: &[usize], seed| points(&StartSpec::Model, &Apart, agents, seed).unwrap();
        assert_eq!(start(&[0, 1, 2], 0), [0.0, 1.0], "one point for all");
        assert_eq!(start(&[2, 0], 1), [14.0, 15.0, 10.0, 11.0]);
    }
}
