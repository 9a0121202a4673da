//! Your own objective in the lab: sensors that each measured their distance to a source locate it together. It is nonconvex,
//! and no measurement leaves its sensor.
//!
//! `cargo run --release -p mile-lab --example own_objective` runs four methods with three seeds and leaves records,
//! figures and a report in `runs/sensors`. Run it again and it continues from what is there.

use mile::{Failure, Problem};
use mile_lab::Lab;

/// f_i(x) = (|x - a_i|^2 - d_i^2)^2 / 4 for a sensor at a_i that measured the distance d_i.
struct Sensors(Vec<([f64; 2], f64)>);

impl Sensors {
    fn misfit(&self, agent: usize, x: &[f64]) -> f64 {
        let (a, d) = self.0[agent];
        (x[0] - a[0]).powi(2) + (x[1] - a[1]).powi(2) - d.powi(2)
    }
}

impl Problem<f64> for Sensors {
    fn agents(&self) -> usize {
        self.0.len()
    }

    fn dim(&self) -> usize {
        2
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        Ok(self.misfit(agent, x).powi(2) / 4.0)
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        let misfit = self.misfit(agent, x);
        (0..2).for_each(|k| gradient[k] = misfit * (x[k] - self.0[agent].0[k]));
        Ok(())
    }
}

const EXPERIMENT: &str = r#"
name = "sensors"
seeds = [0, 1, 2]              # other starting points
rounds = 150
eval_every = 2
network = { agents = 8, topology = "ring" }
start = { value = "random" }   # each agent at a point of its own
algorithm = [
    { name = "mile", step_size = 0.05, local_steps = 5 },
    { name = "led", step_size = 0.05, local_steps = 5 },
    { name = "k-gt", step_size = 0.05, local_steps = 5 },
    { name = "local-dsgd", step_size = 0.05, local_steps = 5 },
]
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = [0.4f64, -0.3];
    let sensor = |i: usize| {
        let place = [(i as f64).cos(), (1.7 * i as f64).sin()];
        let noise = 0.02 * (12.9 * i as f64).sin();
        (place, (source[0] - place[0]).hypot(source[1] - place[1]) + noise)
    };
    let results =
        Lab::of("sensors", Sensors((0..8).map(sensor).collect())).run(EXPERIMENT, "runs/sensors")?;
    println!("{results}");
    Ok(())
}
