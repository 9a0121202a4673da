//! The honest agents of a network some of whose agents are malicious, all in one process.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;

use super::{Attack, Heard, Seen};
use crate::agents::{
    Agents, AgentsError, BlockFunction, CompressedPull, OptimiserStep, RobustPull, SteadyPull, Vector,
};
use crate::block::{self, CHUNK};
use crate::engine::parts::{self, Drift, Guard, blocks, matrices, measure_drift, replace};
use crate::engine::{Engine, HostError};
use crate::method::Method;
use crate::network::Network;
use crate::optimiser::MatrixPart;
use crate::problems::Problem;
use crate::ranks::{Alone, Together};
use crate::real::Real;
use crate::robust::Robust;
use crate::verbs::{LocalWork, Rows, Verbs};

/// Hosts the honest agents of a [`Network`]; the others have no vectors, and what they send is made up by an [`Attack`]. Places are those
/// among the honest agents, so what is measured is theirs alone.
pub struct Attacked<'a, T> {
    problem: &'a dyn Problem<T>,
    network: Network,
    attack: Attack,
    /// The honest agents, in increasing order.
    honest: Vec<usize>,
    seed: u64,
    dim: usize,
    blocks: Vec<Vec<T>>,
    matrices: Vec<MatrixPart>,
    own_steps: Vec<u64>,
    noted: Verbs,
    drift: Drift,
    guard: Guard,
}

/// The edges of an honest agent that are up in a round.
struct Edges {
    /// Place and weight of honest neighbours, number and weight of malicious ones, in increasing agent.
    all: Vec<(Neighbour, f64)>,
}

#[derive(Clone, Copy)]
enum Neighbour {
    Honest(usize),
    Malicious(usize),
}

impl<'a, T: Real> Attacked<'a, T> {
    /// The honest agents at their starting points: `start` has one row for each of them, or a single row for all. The problem has the
    /// objectives of all agents of the network.
    pub fn new(
        problem: &'a dyn Problem<T>,
        network: &Network,
        method: &dyn Method,
        start: &[T],
        seed: u64,
        attack: &Attack,
    ) -> Result<Self, HostError> {
        let honest = attack.honest(network.agents());
        let blocks = blocks(problem, network, method, start, honest.len())?;
        Ok(Self {
            problem,
            network: network.clone(),
            attack: attack.clone(),
            honest,
            seed,
            dim: problem.dim(),
            matrices: matrices(problem, method)?,
            own_steps: method.own_steps().unwrap_or_default().to_vec(),
            noted: Verbs::new(blocks.len()),
            blocks,
            drift: Drift::default(),
            guard: Guard::default(),
        })
    }

    /// The honest agents' models, row after row, as they were when the last step or round ended.
    pub fn models(&self) -> &[T] {
        &self.blocks[0]
    }

    fn edges(&self, agent: usize, round: u64) -> Edges {
        let mut row = self.network.mixing().rows().row(agent).to_vec();
        self.network.row_in_round(self.seed, agent, round, &mut row);
        let named = |j: usize| match self.honest.binary_search(&j) {
            Ok(place) => Neighbour::Honest(place),
            Err(_) => Neighbour::Malicious(j),
        };
        let up = row.into_iter().filter(|(j, w)| *j != agent && *w != 0.0);
        Edges { all: up.map(|(j, w)| (named(j), w)).collect() }
    }

    /// What precedes every exchange.
    fn begin_exchange(&mut self, model: Vector) -> Result<(), AgentsError> {
        self.settle()?;
        measure_drift(self, Together::of(&Alone), model)
    }

    /// An exchange of these pairs, by a rule if there is one. Returns the number of messages that honest agents send.
    fn exchange(&mut self, round: u64, pairs: &[(Vector, Vector)], by: Option<Robust>) -> u64 {
        let edges: Vec<Edges> = self.honest.iter().map(|agent| self.edges(*agent, round)).collect();
        for &(from, to) in pairs {
            let mut out = std::mem::take(&mut self.blocks[to.0]);
            self.add_up(round, &edges, from, by, &mut out);
            self.blocks[to.0] = out;
        }
        edges.iter().map(|edges| edges.all.len() as u64).sum()
    }

    fn add_up(&self, round: u64, edges: &[Edges], from: Vector, by: Option<Robust>, out: &mut [T]) {
        let (v, dim) = (&self.blocks[from.0][..], self.dim.max(1));
        let row = |place: usize| &v[place * dim..(place + 1) * dim];
        let seen = Seen::of(&self.attack, (self.seed, round), v, dim);
        let lies: Vec<Option<Vec<T>>> =
            self.attack.agents.iter().map(|attacker| seen.to_all(*attacker)).collect();
        let one = |(place, out): (usize, &mut [T])| {
            let heard = edges[place].heard(row, (place, &self.attack.agents), &lies, &seen);
            let others: Vec<(f64, &[T])> = heard.iter().map(|(w, v)| (*w, &v[..])).collect();
            match by {
                Some(by) => by.pull(row(place), &others, out),
                None => block::pull_row(out, row(place), others.iter().map(|(w, v)| (*w, *v, false))),
            }
        };
        if v.len() <= 2 * CHUNK {
            out.chunks_exact_mut(dim).enumerate().for_each(one);
        } else {
            out.par_chunks_exact_mut(dim).enumerate().for_each(one);
        }
    }

    /// Carries out what was noted once there is much of it.
    fn at_once(&mut self) -> Result<(), AgentsError> {
        if self.noted.are_many() { self.settle() } else { Ok(()) }
    }
}

impl Edges {
    /// What an honest agent hears, from the rows of the honest agents, its place and the attackers, and what those say to all.
    fn heard<'v, T: Real>(
        &self,
        row: impl Fn(usize) -> &'v [T],
        (place, attackers): (usize, &[usize]),
        lies: &'v [Option<Vec<T>>],
        seen: &Seen<'_, T>,
    ) -> Vec<Heard<'v, T>> {
        let honest = self.all.iter().filter_map(|(neighbour, w)| match neighbour {
            Neighbour::Honest(place) => Some((*w, row(*place))),
            Neighbour::Malicious(_) => None,
        });
        let honest: Vec<(f64, &[T])> = honest.collect();
        let malicious: f64 =
            self.all.iter().map(|(_, w)| w).sum::<f64>() - honest.iter().map(|(w, _)| w).sum::<f64>();
        let said = |(neighbour, w): &(Neighbour, f64)| match neighbour {
            Neighbour::Honest(place) => (*w, Cow::Borrowed(row(*place))),
            Neighbour::Malicious(agent) => {
                let lie = attackers.binary_search(agent).ok().and_then(|k| lies[k].as_deref());
                let own = || Cow::Owned(seen.to_one(row(place), &honest, malicious));
                (*w, lie.map_or_else(own, Cow::Borrowed))
            }
        };
        self.all.iter().map(said).collect()
    }
}

impl<T: Real> Agents for Attacked<'_, T> {
    fn hosted(&self) -> Range<usize> {
        0..self.honest.len()
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.gradient(x, g, draw)?;
        self.at_once()
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.combine(y, keep, terms)?;
        self.at_once()
    }

    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.prox(x, step)?;
        self.at_once()
    }

    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.optimise(step)?;
        self.at_once()
    }

    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.clip(g, most)?;
        self.at_once()
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.noted.check_pull(pairs)?;
        self.begin_exchange(pairs[0].0)?;
        let messages = self.exchange(round, pairs, None);
        Ok(messages * (pairs.len() * self.dim * size_of::<T>()) as u64)
    }

    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        let pairs = [(pull.from, pull.to)];
        self.noted.check_pull(&pairs)?;
        self.begin_exchange(pull.from)?;
        let messages = self.exchange(round, &pairs, Some(pull.by));
        Ok(messages * (self.dim * size_of::<T>()) as u64)
    }

    fn pull_steady(&mut self, _: u64, _: &SteadyPull) -> Result<u64, AgentsError> {
        Err(AgentsError::Method(
            "its xi is adaptive, and attacks do not make up summaries; use another xi".into(),
        ))
    }

    fn pull_compressed(&mut self, _: u64, _: &CompressedPull) -> Result<u64, AgentsError> {
        Err(AgentsError::Method(
            "it compresses, and attacks do not make up compressed messages; leave out compression".into(),
        ))
    }

    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        self.noted.only(own);
        Ok(parts::movers(self.honest.iter().copied(), &self.own_steps, own))
    }

    fn apply(&mut self, _: &dyn BlockFunction, _: &[Vector]) -> Result<(), AgentsError> {
        Err(AgentsError::Method(
            "it applies a function to vectors, which attacked agents do not support".into(),
        ))
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        if cfg!(debug_assertions) {
            self.noted.forget(scratch)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), AgentsError> {
        self.guard.check()?;
        if self.noted.is_empty() {
            return Ok(());
        }
        self.guard.begin()?;
        let work = LocalWork {
            problem: self.problem,
            seed: self.seed,
            matrices: &self.matrices,
            own_steps: &self.own_steps,
        };
        let noted = self.noted.stage(0);
        let serve = |rows: &mut Rows<'_, T>| noted.iter().try_for_each(|verb| rows.carry_out(verb, &work));
        let threads = self.honest.len() * self.dim > 2 * CHUNK;
        Rows::each(&self.honest, &mut self.blocks, self.dim, threads, serve)?;
        self.noted.clear();
        self.guard.end();
        Ok(())
    }
}

impl<T: Real> Engine<T> for Attacked<'_, T> {
    /// The honest ones: sums and means are over them.
    fn agents(&self) -> usize {
        self.honest.len()
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn vector(&mut self, v: Vector) -> Result<Cow<'_, [T]>, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        Ok(Cow::Borrowed(&self.blocks[v.0]))
    }

    fn set_vector(&mut self, v: Vector, rows: &[T]) -> Result<(), AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        replace(&mut self.blocks[v.0], rows)
    }

    fn watched(&mut self) -> Option<&mut Drift> {
        Some(&mut self.drift)
    }
}
