//! Exchanges of pairs: the weight with which the two ends of an edge take their mean.

use crate::network::Network;
use crate::varying::TimeVarying;

/// 1; if the edges of every round form pairs, such that the ends of the edge with the largest weight take their mean, whatever the
/// weight of the edge in W.
pub(in crate::methods) fn pair_weight(network: &Network) -> f64 {
    let are_pairs = network.time_varying().is_some_and(|varying| match varying {
        TimeVarying::RandomMatching => true,
        TimeVarying::InTurn(graphs) => graphs.iter().all(|graph| graph.max_degree() <= 1),
        TimeVarying::WeightedInTurn(_) => false, // their weights are those they mean
    });
    let weight = |(i, j)| network.mixing().weight(i, j);
    let largest = network.graph().edges().map(weight).fold(0.0, f64::max);
    if are_pairs && largest > 0.0 { 0.5 / largest } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Topology;
    use crate::mixing::Rule;

    #[test]
    fn pairs_take_their_mean_and_other_networks_mix_as_they_are() {
        let ring = Network::new(Topology::Ring.build(6, 0).unwrap(), Rule::Metropolis).unwrap();
        assert_eq!(pair_weight(&ring), 1.0);
        assert_eq!(pair_weight(&ring.clone().with_drop_rate(0.5).unwrap()), 1.0);
        for varying in [TimeVarying::RandomMatching, TimeVarying::matchings(ring.graph())] {
            assert_eq!(pair_weight(&ring.clone().with_time_varying(varying).unwrap()), 1.5);
        }
        let in_turn = TimeVarying::InTurn(vec![ring.graph().clone()]);
        assert_eq!(pair_weight(&ring.with_time_varying(in_turn).unwrap()), 1.0);
        let alone = Network::new(Topology::Ring.build(1, 0).unwrap(), Rule::Metropolis).unwrap();
        assert_eq!(pair_weight(&alone.with_time_varying(TimeVarying::RandomMatching).unwrap()), 1.0);
    }
}
