//! A program with objectives in Rust and all commands of `mile`: robots that look for a beacon.
//!
//! Each robot has measured its distance to the beacon from a few places of its own. Together they find out where it is, without telling
//! each other where they have been:
//!
//! ```text
//! cargo run --release --package mile-cli --example robots -- swarm crates/mile-cli/examples/robots.toml
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use mile::problems::{Failure, Problem};
use mile_cli::CommandLine;
use mile_lab::objectives::{FixedProblem, Objectives};

/// Where the beacon is, which no robot knows.
const BEACON: [f64; 2] = [3.0, -1.0];

/// A measurement: a robot's place, and its distance to the beacon.
struct Measured {
    place: [f64; 2],
    distance: f64,
}

/// `f_i(x) = mean over k of (|x - p_ik| - d_ik)^2/2`, for a point x of the plane; it is not convex.
struct Robots(Vec<Vec<Measured>>);

impl Robots {
    /// Robots with measurements of their own, which are wrong by up to this much.
    fn new(robots: usize, measurements: usize, error: f64) -> Self {
        let measure = |robot: usize, k: usize| {
            let angle = 2.4 * (robot * measurements + k) as f64;
            let place = [4.0 * angle.cos(), 4.0 * angle.sin() + robot as f64];
            let wrong_by = error * (7.0 * angle).sin();
            Measured { place, distance: distance(&BEACON, &place) + wrong_by }
        };
        Self((0..robots).map(|robot| (0..measurements).map(|k| measure(robot, k)).collect()).collect())
    }
}

fn distance(x: &[f64], place: &[f64; 2]) -> f64 {
    (x[0] - place[0]).hypot(x[1] - place[1])
}

impl Problem<f64> for Robots {
    fn agents(&self) -> usize {
        self.0.len()
    }

    fn dim(&self) -> usize {
        2
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        let own = &self.0[agent];
        let sum: f64 = own.iter().map(|one| (distance(x, &one.place) - one.distance).powi(2)).sum();
        Ok(sum / (2.0 * own.len() as f64))
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        let own = &self.0[agent];
        gradient.fill(0.0);
        for one in own {
            let found = distance(x, &one.place);
            // At the place itself every direction is as good.
            let pull = if found > 0.0 { (found - one.distance) / found / own.len() as f64 } else { 0.0 };
            for (k, g) in gradient.iter_mut().enumerate() {
                *g += pull * (x[k] - one.place[k]);
            }
        }
        Ok(())
    }
}

/// The command `mile`, for experiments with `kind = "robots"` too.
pub(crate) fn command_line() -> CommandLine {
    CommandLine::default().with_kind("robots", |section, setting| {
        let measurements = section.whole_or("measurements", "a whole number of at least 1", 5)?.max(1);
        let error = section.number_or("error", "a number", 0.1)?;
        let problem: Arc<dyn Problem<f64>> =
            Arc::new(Robots::new(setting.agents, measurements as usize, error));
        Ok(Arc::new(FixedProblem::new("robots", problem)) as Arc<dyn Objectives>)
    })
}

fn main() -> ExitCode {
    command_line().main()
}
