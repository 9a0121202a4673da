use super::*;
use crate::agents::Vector;
use crate::graph::Topology;
use crate::methods::catalogue::{self, Parameters};
use crate::problems::{Problem, Quadratic};
use crate::run::Run;
use crate::schedule::Schedule;
use crate::simulator::Simulator;
use crate::varying::TimeVarying;

fn ring(agents: usize) -> Network {
    Network::new(Topology::Ring.build(agents, 0).unwrap(), Rule::Metropolis).unwrap()
}

fn leave(round: u64, agent: usize, edges: &[(usize, usize)]) -> Event {
    Event { round, change: Change::Leave { agent, edges: edges.to_vec() }, lost: None }
}

fn join(round: u64, agent: usize, neighbours: &[usize]) -> Event {
    Event { round, change: Change::Join { agent, neighbours: neighbours.to_vec() }, lost: None }
}

fn replace(round: u64, agent: usize, lost: Option<u64>) -> Event {
    Event { round, change: Change::Replace(agent), lost }
}

#[test]
fn weights_are_metropolis_weights_of_those_who_take_part() {
    let events = [leave(5, 3, &[]), join(9, 6, &[0, 2]), replace(12, 4, None), leave(20, 0, &[(1, 5)])];
    let membership = Membership::new(ring(6), Some(Rule::Metropolis), &events).unwrap();
    let members: Vec<&[usize]> = membership.epochs().iter().map(|epoch| &epoch.members[..]).collect();
    assert_eq!(members[1..3], [&[0, 1, 2, 4, 5][..], &[0, 1, 2, 4, 5, 6]]);
    assert_eq!(members[3..], [&[0, 1, 2, 4, 5, 6][..], &[1, 2, 4, 5, 6]]);
    // By hand: 0-1, 1-2, 4-5, 5-0, then 6-0 and 6-2, then without 0 and with 1-5.
    let lists = [
        &[(0, 1), (1, 2), (4, 5), (0, 5)][..],
        &[(0, 1), (1, 2), (4, 5), (0, 5), (0, 6), (2, 6)],
        &[(0, 1), (1, 2), (4, 5), (0, 5), (0, 6), (2, 6)],
        &[(1, 2), (4, 5), (2, 6), (1, 5)],
    ];
    for (epoch, edges) in membership.epochs()[1..].iter().zip(lists) {
        let degree = |i: usize| edges.iter().filter(|(a, b)| *a == i || *b == i).count();
        for i in 0..7 {
            let joined = |j: usize| edges.contains(&(i, j)) || edges.contains(&(j, i));
            let expected: Vec<(usize, f64)> = (0..7)
                .filter(|j| joined(*j))
                .map(|j| (j, 1.0 / (1 + degree(i).max(degree(j))) as f64))
                .collect();
            assert_eq!(
                epoch.neighbours(i).collect::<Vec<_>>(),
                expected,
                "agent {i} in round {}",
                epoch.round
            );
        }
    }
    assert_eq!(
        membership.epochs().iter().map(|epoch| epoch.newcomer).collect::<Vec<_>>()[1..],
        [None, Some(6), Some(4), None]
    );
    let edges = membership.edges_of(0);
    assert_eq!(edges.keys().copied().collect::<Vec<_>>(), [1, 5, 6]);
    assert_eq!((edges[&1].rounds.clone(), edges[&6].rounds.clone()), (0..20, 9..20));
    assert_eq!(membership.edges_of(1)[&5], Edge { rounds: 20..u64::MAX, ..Edge::lasting(1.0 / 3.0) });
    assert_eq!((membership.numbers(), membership.leaves(3), membership.leaves(4)), (7, Some(5), None));
    assert_eq!([0, 5, 6, 9, 10, 20, 21].map(|round| membership.at(round)), [0, 0, 1, 1, 2, 3, 4]);
    assert_eq!([4, 5, 12, 20].map(|round| membership.beginning_at(round)), [None, Some(1), Some(3), Some(4)]);
}

#[test]
fn an_agent_is_absent_from_when_it_was_lost_until_it_has_left_or_is_replaced() {
    let lost = Event { lost: Some(4), ..leave(7, 3, &[]) };
    let membership =
        Membership::new(ring(6), Some(Rule::Metropolis), &[lost, replace(9, 1, Some(8))]).unwrap();
    let absent =
        |agent: usize| (0..10).filter(|round| membership.is_absent(agent, *round)).collect::<Vec<u64>>();
    assert_eq!((absent(3), absent(1), absent(2)), (vec![4, 5, 6], vec![8], vec![]));
    let events = [replace(2, 1, Some(1)), join(3, 6, &[0, 1]), replace(4, 1, None), replace(5, 6, Some(4))];
    let comes = Membership::new(ring(6), Some(Rule::Metropolis), &events).unwrap();
    assert_eq!([1, 6, 0].map(|agent| comes.comes_with(agent)), [Some(0), Some(3), None]);
    assert_eq!(membership.edges_of(2)[&3], Edge { weight: 1.0 / 3.0, rounds: 0..4, is_lost: true });
    let newcomer = membership.epochs()[2].newcomer_with(|id| id != 0);
    assert_eq!(newcomer, Some((1, membership.epochs()[2].network.mixing().weight(1, 2))));
}

#[test]
fn what_does_not_fit_is_refused_by_event_and_key() {
    let refused = |network: Network, rule: Option<Rule>, events: &[Event]| {
        let refused = Membership::new(network, rule, events).unwrap_err();
        (refused.event, refused.key)
    };
    let on_ring = |events: &[Event]| refused(ring(6), Some(Rule::Metropolis), events);
    assert_eq!(on_ring(&[leave(0, 3, &[])]), (0, "round"));
    assert_eq!(on_ring(&[leave(5, 3, &[]), join(5, 6, &[0])]), (1, "round"));
    assert_eq!(on_ring(&[leave(5, 3, &[]), leave(7, 3, &[])]), (1, "leave"));
    assert_eq!(on_ring(&[leave(5, 3, &[]), leave(7, 0, &[])]), (1, "edges"));
    assert_eq!(on_ring(&[leave(5, 3, &[(2, 3)])]), (0, "edges"));
    assert_eq!(on_ring(&[leave(5, 3, &[(2, 2)])]), (0, "edges"));
    assert_eq!(on_ring(&[join(5, 8, &[0])]), (0, "join"));
    assert_eq!(on_ring(&[leave(5, 3, &[]), join(7, 3, &[2, 4])]), (1, "join"));
    assert_eq!(on_ring(&[join(5, 6, &[])]), (0, "neighbours"));
    assert_eq!(on_ring(&[leave(4, 3, &[]), join(5, 6, &[3])]), (1, "neighbours"));
    assert_eq!(on_ring(&[replace(5, 6, None)]), (0, "replace"));
    assert_eq!(on_ring(&[replace(5, 1, Some(6))]), (0, "lost"));
    assert_eq!(refused(ring(6), None, &[leave(5, 3, &[])]), (0, "leave"));
    assert!(Membership::new(ring(6), None, &[replace(5, 3, None)]).is_ok());
    let varying = ring(6).with_time_varying(TimeVarying::RandomMatching).unwrap();
    for (event, name) in [(leave(5, 3, &[]), "leave"), (replace(5, 3, None), "replace")] {
        assert_eq!(refused(varying.clone(), Some(Rule::Metropolis), &[event]), (0, name));
    }
    let shaky = ring(6).with_drop_rate(0.1).unwrap();
    assert_eq!(refused(shaky, Some(Rule::Metropolis), &[replace(5, 3, None)]), (0, "replace"));
    assert_eq!(refused(ring(1), Some(Rule::Metropolis), &[leave(5, 0, &[])]), (0, "leave"));
}

/// Runs a method through all epochs; returns the models when each began, and at the end.
fn play(name: &str, problem: &Quadratic<f64>, membership: &Membership, rounds: u64) -> Vec<Vec<f64>> {
    let entry = catalogue::find(name).unwrap();
    let mut models = vec![0.5; membership.epochs()[0].members.len() * problem.dim()];
    let (mut begun, mut progress) = (Vec::new(), None);
    for (k, epoch) in membership.epochs().iter().enumerate() {
        let parameters =
            Parameters { local_steps: entry.has_local_steps().then_some(3), ..Parameters::default() };
        let method = entry.build(&parameters, &epoch.network, 0).unwrap();
        let view = Present::new(problem, &epoch.members);
        let mut agents = Simulator::new(&view, &epoch.network, &*method, &models, 0).unwrap();
        let mut run = match progress {
            None => Run::start(&*method, Schedule::constant(0.1), &mut agents).unwrap(),
            Some(progress) => {
                let mut run = Run::resume(&*method, Schedule::constant(0.1), progress);
                run.renew(epoch.newcomer_with(|_| true), &mut agents).unwrap();
                run
            }
        };
        let end = membership.epochs().get(k + 1).map_or(rounds, |next| next.round);
        while run.progress().round < end {
            run.round(&mut agents).unwrap();
        }
        progress = Some(*run.progress());
        models = match membership.epochs().get(k + 1) {
            Some(next) => next.rows_from(epoch, agents.models()),
            None => agents.models().to_vec(),
        };
        begun.push(models.clone());
    }
    begun
}

#[test]
fn after_an_event_the_run_restarts_from_its_models_on_the_new_network() {
    let problem = Quadratic::<f64>::new(6, 4, 10.0, 1.0, 3).unwrap();
    let events = [leave(7, 2, &[(1, 3)]), join(11, 5, &[0, 4])];
    let network = Network::new(Topology::Star.build(5, 0).unwrap(), Rule::LazyMetropolis).unwrap();
    for name in ["mile", "k-gt", "ed", "gradient-tracking"] {
        let membership = Membership::new(network.clone(), Some(Rule::LazyMetropolis), &events).unwrap();
        let begun = play(name, &problem, &membership, 15);
        let epoch = &membership.epochs()[2];
        let mut start = begun[1].clone();
        // The newcomer's place is the last, and its neighbours 0 and 4 have places 0 and 3.
        let [a, b] = [epoch.network.mixing().weight(4, 0), epoch.network.mixing().weight(4, 3)];
        for k in 0..4 {
            assert_eq!(start[16 + k], 0.0);
            start[16 + k] = (a * start[k] + b * start[12 + k]) / (a + b);
        }
        let entry = catalogue::find(name).unwrap();
        let parameters =
            Parameters { local_steps: entry.has_local_steps().then_some(3), ..Parameters::default() };
        let method = entry.build(&parameters, &epoch.network, 0).unwrap();
        let view = Present::new(&problem, &epoch.members);
        let mut agents = Simulator::new(&view, &epoch.network, &*method, &start, 0).unwrap();
        let mut run = Run::start(&*method, Schedule::constant(0.1), &mut agents).unwrap();
        (0..4).for_each(|_| run.round(&mut agents).unwrap());
        assert_eq!(agents.vector(Vector(0)), begun[2], "{name}");
    }
}

#[test]
fn those_who_remain_find_the_minimiser_of_their_own_mean() {
    let problem = Quadratic::<f64>::new(8, 3, 5.0, 1.0, 1).unwrap();
    let events = [leave(40, 2, &[]), join(80, 7, &[1, 4]), leave(120, 0, &[(1, 6)])];
    let membership = Membership::new(ring(7), Some(Rule::Metropolis), &events).unwrap();
    for name in ["mile", "led", "k-gt", "gradient-tracking"] {
        let models = play(name, &problem, &membership, 1500).pop().unwrap();
        let members = &membership.epochs()[3].members;
        assert_eq!(members, &[1, 3, 4, 5, 6, 7]);
        let (mut sum, mut own) = ([0.0; 3], [0.0; 3]);
        for agent in members {
            problem.gradient(*agent, &models[..3], &mut own).unwrap();
            sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        assert!(sum.iter().all(|g| g.abs() < 1e-9), "{name}: {sum:?}");
        assert!(
            models.chunks(3).all(|row| row.iter().zip(&models).all(|(a, b)| (a - b).abs() < 1e-9)),
            "{name}"
        );
    }
}
