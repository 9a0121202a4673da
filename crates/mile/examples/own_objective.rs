//! Your own objective: every sensor has its own noisy measurements of distances to a source, and all
//! of them together find it. Nonconvex, no data leaves a sensor, one vector is sent a round.
//!
//! Run it with `cargo run --release -p mile --example own_objective`.

use mile::graph::Topology;
use mile::methods::Mile;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::Problem;
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;

/// f_i(x) = (|x - a_i|^2 - d_i^2)^2 / 4 for a sensor at a_i that measured the distance d_i.
struct Sensors {
    places: Vec<[f64; 2]>,
    distances: Vec<f64>,
}

impl Problem<f64> for Sensors {
    fn agents(&self) -> usize {
        self.places.len()
    }

    fn dim(&self) -> usize {
        2
    }

    fn loss(&self, agent: usize, x: &[f64]) -> f64 {
        self.misfit(agent, x).powi(2) / 4.0
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) {
        let misfit = self.misfit(agent, x);
        for k in 0..2 {
            gradient[k] = misfit * (x[k] - self.places[agent][k]);
        }
    }
}

impl Sensors {
    fn misfit(&self, agent: usize, x: &[f64]) -> f64 {
        let a = self.places[agent];
        (x[0] - a[0]).powi(2) + (x[1] - a[1]).powi(2) - self.distances[agent].powi(2)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = [0.4, -0.3];
    let places: Vec<[f64; 2]> = (0..8).map(|i| [(i as f64).cos(), (1.7 * i as f64).sin()]).collect();
    let distance = |(i, a): (usize, &[f64; 2])| {
        let noise = 0.02 * (12.9 * i as f64).sin();
        (source[0] - a[0]).hypot(source[1] - a[1]) + noise
    };
    let distances = places.iter().enumerate().map(distance).collect();
    let problem = Sensors { places, distances };

    let network = Network::new(Topology::Ring.build(8, 0)?, Rule::Metropolis)?;
    let method = Mile::new(5, Mile::paper_xi(5))?;
    let mut agents = Simulator::new(&problem, &network, &method, &[0.0, 0.0], 0);
    let mut run = Run::start(&method, Schedule::constant(0.05), &mut agents)?;
    for _ in 0..400 {
        run.round(&mut agents)?;
    }
    for agent in 0..8 {
        let x = agents.model(agent);
        println!("sensor {agent} says the source is at ({:.4}, {:.4})", x[0], x[1]);
    }
    println!("it is at ({}, {}); bytes sent: {}", source[0], source[1], run.progress().costs.bytes_sent);
    Ok(())
}
