//! Finite-time graphs: sequences of small exchanges, weighted so that their product over a period is the exact average.
//!
//! *One-peer hypercube* (N = 2^p): in round k agent i takes the mean with agent i xor 2^k. After p rounds everybody has the average.
//!
//! *Base-(k+1)* (any N; Takezawa, Sato, Bao, Niwa, Yamada, "Beyond Exponential Graph: Communication-Efficient Topologies for Decentralized
//! Learning via Finite-time Convergence", 2023): nobody has more than k neighbours in a round. If N is a product of factors up to k + 1, agents
//! are numbered in these mixed digits, and in each round those who differ in one digit take their mean. Any other N is written in base k + 1, and
//! each nonzero digit gives a group V_1, V_2, ... with as many agents as the digit stands for, large groups first:
//!
//! ```text
//! 1.  every group takes its mean, by its digits
//! 2.  V_1 is joined with all later groups: each of their agents with j <= k agents of V_1, each edge with the weight |V_1|/(j M),
//!     where M is the number of agents in V_1 and all later groups
//! 3.  V_1 takes its mean again, while the later groups do 2. and 3. among themselves
//! ```
//!
//! An agent of V_l gets the share |V_1|/M of its difference from V_1, so in 2. V_1 gains `|V_1|/M sum_l |V_l| (v_l - v_1)`, and its mean becomes that of all
//! M agents. So does the mean of the later groups, of which each is still uniform. The last group needs no mean. The construction is the paper's Simple Base-(k+1)
//! graph up to the numbering of agents and the order of rounds: at most 2 log N + 2 rounds, with the logarithm to base k + 1 rounded up.

use super::WeightedGraph;

/// The rounds of a one-peer hypercube; none unless the number of agents is a power of two.
pub fn one_peer_hypercube(agents: usize) -> Option<Vec<WeightedGraph>> {
    if !agents.is_power_of_two() {
        return None;
    }
    let turn = |k: u32| {
        let pairs = (0..agents).map(|i| (i, i ^ (1 << k))).filter(|(i, j)| i < j);
        WeightedGraph::new(agents, pairs.map(|(i, j)| (i, j, 0.5)))
    };
    (0..agents.trailing_zeros()).map(|k| turn(k).ok()).collect()
}

/// The rounds of a Base-(k+1) graph, in which nobody has more than `most` = k neighbours.
pub fn base_k(agents: usize, most: usize) -> Vec<WeightedGraph> {
    let (all, most) = ((0..agents).collect::<Vec<_>>(), most.max(1));
    let turns = match factors(agents, most + 1) {
        Some(factors) => by_digits(&all, &factors),
        None => {
            let groups = groups(&all, most + 1);
            let alone = groups.iter().map(|group| mean(group, most)).reduce(together).unwrap_or_default();
            alone.into_iter().chain(join(&groups, most)).collect()
        }
    };
    turns.into_iter().filter_map(|edges| WeightedGraph::new(agents, edges).ok()).collect()
}

type Edges = Vec<(usize, usize, f64)>;

/// Agents in groups, one for each digit of their number that is not zero.
fn groups(mut agents: &[usize], base: usize) -> Vec<&[usize]> {
    let mut found = Vec::new();
    while !agents.is_empty() {
        let mut power = 1;
        while power <= agents.len() / base {
            power *= base;
        }
        let (group, rest) = agents.split_at(agents.len() / power * power);
        found.push(group);
        agents = rest;
    }
    found
}

/// Steps 2 and 3.
fn join(groups: &[&[usize]], most: usize) -> Vec<Edges> {
    let [first, later @ ..] = groups else { return Vec::new() };
    if later.is_empty() {
        return Vec::new();
    }
    let later_agents: Vec<usize> = later.concat();
    let each = most.min(first.len() / later_agents.len()).max(1);
    let weight = first.len() as f64 / (each * (first.len() + later_agents.len())) as f64;
    let joined = later_agents.iter().zip(first.chunks_exact(each));
    let edges = joined.flat_map(|(v, of_first)| of_first.iter().map(|u| (*u, *v, weight))).collect();
    [edges].into_iter().chain(together(mean(first, most), join(later, most))).collect()
}

/// Rounds of agents who have nothing to do with each other, at the same time.
fn together(mut one: Vec<Edges>, other: Vec<Edges>) -> Vec<Edges> {
    one.resize_with(one.len().max(other.len()), Vec::new);
    one.iter_mut().zip(other).for_each(|(turn, edges)| turn.extend(edges));
    one
}

/// The mean of a group.
fn mean(group: &[usize], most: usize) -> Vec<Edges> {
    by_digits(group, &factors(group.len(), most + 1).unwrap_or_default())
}

/// Rounds in which agents who differ in one of their mixed digits take the mean.
fn by_digits(agents: &[usize], factors: &[usize]) -> Vec<Edges> {
    let mut stride = 1;
    let mut turns = Vec::new();
    for &factor in factors {
        let digit = |place: usize| place / stride % factor;
        let mut edges = Vec::new();
        for place in 0..agents.len() {
            for more in 1..factor - digit(place) {
                edges.push((agents[place], agents[place + more * stride], 1.0 / factor as f64));
            }
        }
        stride *= factor;
        turns.push(edges);
    }
    turns
}

/// A number as a product of factors up to `base`, large ones first; none if it has a larger prime factor.
fn factors(mut number: usize, base: usize) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for factor in (2..=base).rev() {
        while number.is_multiple_of(factor) {
            found.push(factor);
            number /= factor;
        }
    }
    (number == 1).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;

    /// How far every agent is from the average after one period, from a different number at each agent.
    fn left(turns: &[WeightedGraph], agents: usize) -> f64 {
        let mut x: Vec<f64> = (0..agents).map(|i| ((i * 7919 + 31) % 2003) as f64).collect();
        let mean = x.iter().sum::<f64>() / agents as f64;
        for turn in turns {
            let old = x.clone();
            for (i, j, w) in turn.edges() {
                x[i] += w * (old[j] - old[i]);
                x[j] += w * (old[i] - old[j]);
            }
        }
        x.iter().map(|x| (x - mean).abs() / mean).fold(0.0, f64::max)
    }

    #[test]
    fn one_period_is_the_average_for_any_number_of_agents() {
        for agents in 1..=130usize {
            for most in 1..=5usize {
                let turns = base_k(agents, most);
                assert!(left(&turns, agents) < 1e-12, "{agents} agents, base {}", most + 1);
                assert!(turns.iter().all(|turn| turn.graph().max_degree() <= most), "{agents} {most}");
                let digits = (1..).find(|digits| (most + 1).pow(*digits) >= agents).unwrap() as usize;
                assert!(turns.len() <= 2 * digits + 2, "{agents} {most}: {} rounds", turns.len());
            }
        }
    }

    #[test]
    fn a_one_peer_hypercube_is_a_matching_in_every_round() {
        for power in 0..8 {
            let agents = 1 << power;
            let turns = one_peer_hypercube(agents).unwrap();
            assert_eq!((turns.len(), left(&turns, agents) < 1e-12), (power, true));
            assert!(turns.iter().all(|turn| turn.graph().max_degree() == 1));
        }
        assert!(one_peer_hypercube(6).is_none());
    }

    #[test]
    fn their_networks_have_the_union_of_the_edges_and_the_mean_of_the_weights() {
        let turns = base_k(6, 1);
        let network = Network::in_turn(turns.clone()).unwrap();
        let sum: f64 = turns.iter().flat_map(WeightedGraph::edges).map(|(.., w)| w).sum();
        let mean: f64 = network.graph().edges().map(|(i, j)| network.mixing().weight(i, j)).sum();
        assert!((mean - sum / turns.len() as f64).abs() < 1e-12);
        let (mut rows, mut row) = (network.rows(), network.rows().row(2).to_vec());
        for round in 0..20 {
            let messages = network.rows_in_round(3, round, &mut rows);
            network.row_in_round(3, 2, round, &mut row);
            assert_eq!(rows.row(2), row);
            let turn = &turns[round as usize % turns.len()];
            assert_eq!(messages, 2 * turn.edges().count() as u64);
            for (i, j, w) in turn.edges() {
                assert_eq!(network.weight_in_round(3, (i, j), round), Some(w));
                assert_eq!(network.weight_in_round(3, (j, i), round), Some(w));
            }
        }
    }
}
