//! Agents and the wires between them; one event at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::thread::Scope;

use mile_net::agent::State;
use mile_net::frame::{HEAD, Head, Kind, control};
use mile_net::protocol::{Arrival, Fault, NeighbourStatus, Outgoing};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use crate::node::{Alive, Node, Scene, Script};

/// A connection between two agents, the first of which dialled.
struct Wire {
    ends: [usize; 2],
    /// Whether an end still believes in it.
    open: [bool; 2],
    /// Frames on their way to an end.
    queues: [VecDeque<Vec<u8>>; 2],
}

/// An agent that sends other numbers than those it has computed.
pub(crate) struct Liar {
    pub(crate) agent: usize,
    pub(crate) exchanges: Range<u64>,
    pub(crate) says: Says,
    /// How many frames are still to be falsified.
    pub(crate) frames: u32,
}

/// What a liar sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Says {
    /// This number in place of the first of each frame.
    One(f32),
    /// This number everywhere.
    All(f32),
    /// Its first message, for ever.
    Old,
    /// What it should, with noise of this size.
    Noise(f32),
}

/// How many disturbances are left.
#[derive(Clone, Copy)]
pub(crate) struct Trouble {
    pub(crate) kills: u32,
    pub(crate) cuts: u32,
    pub(crate) scrambles: u32,
}

pub(crate) struct World<'scope, 'env> {
    scene: &'env Scene<'env>,
    scope: &'scope Scope<'scope, 'env>,
    nodes: Vec<Node>,
    wires: BTreeMap<u64, Wire>,
    next_wire: u64,
    pub(crate) random: ChaCha8Rng,
    pub(crate) now: u64,
    pub(crate) trouble: Trouble,
    /// An agent that stays down while this lasts, until this time.
    pub(crate) outage: Option<(usize, u64)>,
    /// Agents that will not be started again.
    gone: BTreeSet<usize>,
    pub(crate) liar: Option<Liar>,
    /// The liar's first message.
    old: Option<Vec<f32>>,
}

impl<'scope, 'env> World<'scope, 'env> {
    pub(crate) fn new(
        scene: &'env Scene<'env>,
        scope: &'scope Scope<'scope, 'env>,
        random: ChaCha8Rng,
        trouble: Trouble,
    ) -> Self {
        let mut world = Self {
            scene,
            scope,
            nodes: (0..scene.membership().numbers()).map(|_| Node::default()).collect(),
            wires: BTreeMap::new(),
            next_wire: 0,
            random,
            now: 0,
            trouble,
            outage: None,
            gone: BTreeSet::new(),
            liar: None,
            old: None,
        };
        (0..world.nodes.len()).for_each(|agent| world.start(agent));
        world
    }

    fn start(&mut self, agent: usize) {
        self.nodes[agent].start(agent, self.scene, self.scope, self.now);
    }

    fn kill(&mut self, agent: usize) {
        self.nodes[agent].alive = None;
        for wire in self.wires.values_mut() {
            for end in 0..2 {
                if wire.ends[end] == agent {
                    wire.open[end] = false;
                    wire.queues[end].clear();
                }
            }
        }
    }

    fn dial(&mut self, from: usize, to: usize) {
        if self.nodes[from].alive.is_none() || self.nodes[to].alive.is_none() {
            return;
        }
        let name = self.next_wire;
        self.next_wire += 1;
        self.wires.insert(
            name,
            Wire { ends: [from, to], open: [true; 2], queues: [VecDeque::new(), VecDeque::new()] },
        );
        for (end, (me, other)) in [(from, to), (to, from)].into_iter().enumerate() {
            if let Some(alive) = &mut self.nodes[me].alive {
                alive.session.opened(name, other, end == 0);
            }
        }
    }

    /// An end gives up a wire; the other end will find out.
    fn close(&mut self, name: u64, agent: usize, fault: &Fault) {
        let Some(wire) = self.wires.get_mut(&name) else { return };
        let end = usize::from(wire.ends[1] == agent);
        if !wire.open[end] {
            return;
        }
        if let Fault::RefusedByUs(text) | Fault::Ended(text) = fault {
            wire.queues[1 - end].push_back(control(Kind::Refuse, 0, 0, text.as_bytes()));
        }
        wire.open[end] = false;
        if let Some(alive) = &mut self.nodes[agent].alive {
            alive.session.closed(name, self.now);
        }
    }

    fn close_what_sessions_gave_up(&mut self, agent: usize) {
        let Some(alive) = &mut self.nodes[agent].alive else { return };
        for (link, fault) in alive.session.closing() {
            self.close(link, agent, &fault);
        }
    }

    /// One event. Returns whether it changed anything.
    pub(crate) fn event(&mut self) -> bool {
        self.now += self.random.random_range(0..5);
        let agents = self.nodes.len();
        match self.random.random_range(0..100) {
            0..35 => self.write(),
            35..75 => self.deliver(),
            75..88 => {
                let agent = self.random.random_range(0..agents);
                self.serve(agent)
            }
            88..93 => self.redial(),
            93..95 => self.notice_a_closed_wire(),
            95 => self.kill_somebody(),
            96 => self.cut_something(),
            97 => self.scramble_something(),
            _ => self.restart_somebody(),
        }
    }

    fn some_wire(&mut self) -> Option<(u64, usize)> {
        let count = self.wires.len();
        let name = *self.wires.keys().nth(if count > 0 { self.random.random_range(0..count) } else { 0 })?;
        Some((name, self.random.random_range(0..2)))
    }

    fn write(&mut self) -> bool {
        let Some((name, end)) = self.some_wire() else { return false };
        let wire = &self.wires[&name];
        let agent = wire.ends[end];
        if !wire.open[end] || wire.queues[1 - end].len() >= 4 {
            return false;
        }
        let Some(alive) = &mut self.nodes[agent].alive else { return false };
        let Some(frame) = alive.session.next_frame(name) else { return false };
        let bytes = match frame {
            Outgoing::Control(bytes) => bytes,
            Outgoing::Data { head, message, from, to } => {
                let mut bytes = head.encode().to_vec();
                let whole = message.read(0..message.elements()).expect("readable");
                let elements = self.falsified(agent, head.a, &whole, from..to);
                bytes.extend_from_slice(bytemuck::cast_slice(&elements));
                bytes
            }
        };
        if let Some(wire) = self.wires.get_mut(&name).filter(|wire| wire.open[1 - end]) {
            wire.queues[1 - end].push_back(bytes);
        }
        true
    }

    /// The elements that an agent sends: those of its message, unless it is the liar.
    fn falsified(&mut self, agent: usize, exchange: u64, message: &[f32], which: Range<usize>) -> Vec<f32> {
        let mut elements = message[which.clone()].to_vec();
        let lies =
            |liar: &&mut Liar| liar.agent == agent && liar.exchanges.contains(&exchange) && liar.frames > 0;
        let Some(liar) = self.liar.as_mut().filter(lies) else { return elements };
        liar.frames -= 1;
        match liar.says {
            Says::One(number) => elements[0] = number,
            Says::All(number) => elements.fill(number),
            Says::Old => elements.copy_from_slice(&self.old.get_or_insert_with(|| message.to_vec())[which]),
            Says::Noise(size) => elements.iter_mut().for_each(|element| {
                *element += size * self.random.sample::<f32, _>(StandardNormal);
            }),
        }
        elements
    }

    /// How many messages of an agent the others have refused.
    pub(crate) fn refused_messages(&self, of: usize) -> u64 {
        let statuses =
            self.nodes.iter().filter_map(|node| Some(node.alive.as_ref()?.session.neighbour_statuses()));
        statuses.flatten().filter(|status| status.id == of).map(|status| status.refused_messages).sum()
    }

    fn deliver(&mut self) -> bool {
        let Some((name, end)) = self.some_wire() else { return false };
        let Some(wire) = self.wires.get_mut(&name) else { return false };
        let agent = wire.ends[end];
        let Some(alive) = self.nodes[agent].alive.as_mut().filter(|_| wire.open[end]) else { return false };
        if !alive.session.may_read(name) {
            return false;
        }
        let Some(bytes) = wire.queues[end].pop_front() else { return false };
        let outcome = match arrival(&bytes) {
            Ok(arrival) => alive.session.received(name, arrival, self.now),
            Err(text) => Err(Fault::RefusedByUs(text)),
        };
        if let Err(fault) = outcome {
            self.close(name, agent, &fault);
        }
        self.close_what_sessions_gave_up(agent);
        true
    }

    fn serve(&mut self, agent: usize) -> bool {
        let served = self.nodes[agent].serve(agent, self.scene, self.now);
        if self.nodes[agent].left.is_some() && self.gone.insert(agent) {
            self.kill(agent);
        }
        self.close_what_sessions_gave_up(agent);
        served
    }

    fn redial(&mut self) -> bool {
        let membership = self.scene.membership();
        let of = |i: usize| membership.edges_of(i).into_keys().map(move |j| (i, j));
        let needs = |(i, j): &(usize, usize)| {
            self.nodes[*i].alive.as_ref().is_some_and(|alive| alive.session.needs(*j))
        };
        let edges: Vec<(usize, usize)> = (0..self.nodes.len()).flat_map(of).filter(needs).collect();
        if edges.is_empty() {
            return false;
        }
        let (i, j) = edges[self.random.random_range(0..edges.len())];
        let linked = |me: usize, other: usize| {
            self.nodes[me].alive.as_ref().is_some_and(|alive| alive.session.linked(other))
        };
        let both = linked(i, j) && linked(j, i);
        let tries = self.wires.values().filter(|wire| wire.ends == [i, j] || wire.ends == [j, i]).count();
        if both || tries >= 4 {
            return false;
        }
        if self.random.random_bool(0.5) {
            self.dial(i, j);
        } else {
            self.dial(j, i);
        }
        true
    }

    /// An end finds out that the other has closed, with or without having read what was on its way.
    fn notice_a_closed_wire(&mut self) -> bool {
        let Some((name, end)) = self.some_wire() else { return false };
        let wire = &self.wires[&name];
        let over = !wire.open[1 - end] && (wire.queues[end].is_empty() || self.random.random_bool(0.5));
        if over && wire.open[end] {
            let agent = wire.ends[end];
            self.close(name, agent, &Fault::Superseded("the other end is gone"));
        }
        self.wires.retain(|_, wire| wire.open != [false; 2]);
        over
    }

    fn kill_somebody(&mut self) -> bool {
        if self.trouble.kills == 0 {
            return false;
        }
        self.trouble.kills -= 1;
        let agents = self.nodes.len();
        let victim = self.random.random_range(0..agents);
        self.kill(victim);
        if self.random.random_bool(0.5) {
            self.nodes[victim].restore_a_copy(self.scene);
        }
        if self.random.random_bool(0.3) {
            self.kill((victim + 1) % agents);
        }
        true
    }

    fn cut_something(&mut self) -> bool {
        let Some((name, end)) = self.some_wire().filter(|_| self.trouble.cuts > 0) else { return false };
        self.trouble.cuts -= 1;
        if let Some(wire) = self.wires.get_mut(&name) {
            wire.queues.iter_mut().for_each(VecDeque::clear);
            let agent = wire.ends[end];
            self.close(name, agent, &Fault::Superseded("cut"));
        }
        true
    }

    /// A frame is repeated, swapped with the next one, or has its head corrupted: nothing that could go unnoticed, such as a
    /// frame that is lost while its link continues, or a number that is changed to another valid one.
    fn scramble_something(&mut self) -> bool {
        let Some((name, end)) = self.some_wire().filter(|_| self.trouble.scrambles > 0) else { return false };
        let kind = self.random.random_range(0..3);
        let spoilt = (self.random.next_u64(), self.random.next_u64());
        let Some(queue) = self.wires.get_mut(&name).map(|wire| &mut wire.queues[end]) else { return false };
        let Some(first) = queue.front().filter(|frame| frame.len() >= HEAD).cloned() else { return false };
        match kind {
            0 => queue.push_front(first),
            1 if queue.iter().take(2).filter(|frame| frame.first() == Some(&(Kind::Data as u8))).count()
                == 2 =>
            {
                queue.swap(0, 1)
            }
            _ => queue[0][1 + spoilt.0 as usize % 7] ^= (spoilt.1 as u8).max(1),
        }
        self.trouble.scrambles -= 1;
        true
    }

    fn restart_somebody(&mut self) -> bool {
        let down = |world: &Self, agent: usize| {
            world.nodes[agent].alive.is_none()
                && !world.gone.contains(&agent)
                && world.outage.is_none_or(|(out, until)| out != agent || world.now >= until)
        };
        let Some(agent) = (0..self.nodes.len()).find(|agent| down(self, *agent)) else { return false };
        self.start(agent);
        true
    }

    /// An agent's disk is lost. All agents are stopped; returns the range of rounds that the others have reached.
    pub(crate) fn lose(&mut self, agent: usize) -> (u64, u64) {
        (0..self.nodes.len()).for_each(|agent| self.kill(agent));
        self.nodes[agent].lose_the_disk();
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != agent);
        let rounds: Vec<u64> = others.map(|(_, node)| node.round()).collect();
        (rounds.iter().copied().min().unwrap_or(0), rounds.iter().copied().max().unwrap_or(0))
    }

    /// All agents, which are stopped, are told what happens and started again, except for those that are `gone`.
    pub(crate) fn tell(&mut self, script: Script, gone: &[usize]) {
        self.gone.extend(gone);
        self.nodes.resize_with(script.membership.numbers(), Node::default);
        assert!(self.scene.told.set(script).is_ok(), "agents are told once");
        // Edges used before may be used differently when rounds are repeated without an agent.
        self.nodes.iter_mut().for_each(|node| node.used.clear());
    }

    pub(crate) fn take_down(&mut self, agent: usize, until: u64) {
        self.kill(agent);
        self.outage = Some((agent, until));
    }

    /// Whether all agents are done and may leave.
    pub(crate) fn over(&self) -> bool {
        let over = |(agent, node): (usize, &Node)| {
            // One that has left may not have told everybody that it needs nothing more: nobody waits for it any longer.
            let settled = |status: NeighbourStatus| !status.unconfirmed || self.gone.contains(&status.id);
            let may_leave = |alive: &Alive| {
                alive.done.is_some() && alive.session.neighbour_statuses().into_iter().all(settled)
            };
            self.gone.contains(&agent) || node.alive.as_ref().is_some_and(may_leave)
        };
        self.nodes.iter().enumerate().all(over)
    }

    /// The furthest round any agent has on disk.
    pub(crate) fn furthest(&self) -> u64 {
        let round = |node: &Node| node.disk.state.as_ref().map_or(0, |state| state.mark.round);
        self.nodes.iter().map(round).max().unwrap_or(0)
    }

    /// Runs to the end, or panics with the current state.
    pub(crate) fn run(&mut self) {
        for _ in 0..600_000 * self.nodes.len().max(5) {
            if self.over() {
                return;
            }
            self.event();
        }
        for (agent, node) in self.nodes.iter().enumerate() {
            let session = node.alive.as_ref().map(|alive| {
                (
                    alive.exchanging,
                    alive.pending.is_some(),
                    alive.done.is_some(),
                    alive.session.neighbour_statuses(),
                )
            });
            eprintln!("agent {agent}: {session:?}");
        }
        for (name, wire) in &self.wires {
            eprintln!(
                "wire {name}: {:?} open {:?}, on their way {:?}",
                wire.ends,
                wire.open,
                wire.queues.each_ref().map(VecDeque::len)
            );
        }
        panic!("stuck");
    }

    /// Final vectors of those who took part to the end, row after row, and bytes sent by all.
    pub(crate) fn results(&self) -> (Vec<Vec<f32>>, u64) {
        let done = |node: &'_ Node| -> Option<State<f32>> {
            let alive = node.alive.as_ref().and_then(|alive| alive.done.as_deref());
            alive.or(node.left.as_deref()).cloned()
        };
        let done: BTreeMap<usize, State<f32>> =
            self.nodes.iter().enumerate().filter_map(|(agent, node)| Some((agent, done(node)?))).collect();
        let membership = self.scene.membership();
        let members = &membership.epochs()[membership.at(self.scene.rounds)].members;
        let rows = |k: usize| members.iter().flat_map(|agent| done[agent].vectors[k].clone()).collect();
        let vectors = (0..done[&members[0]].vectors.len()).map(rows).collect();
        (vectors, done.values().map(|state| state.progress.costs.bytes_sent).sum())
    }

    /// Round by round, who used the edge to whom.
    pub(crate) fn used(&self) -> Vec<&BTreeMap<u64, Vec<usize>>> {
        self.nodes.iter().map(|node| &node.used).collect()
    }

    /// An arbitrary frame arrives at an agent over one of its links.
    pub(crate) fn inject(&mut self, bytes: Vec<u8>) {
        if let Some((name, end)) = self.some_wire()
            && let Some(wire) = self.wires.get_mut(&name)
        {
            wire.queues[end].push_front(bytes);
        }
    }
}

fn arrival(bytes: &[u8]) -> Result<Arrival<f32>, String> {
    let (head, payload) = bytes.split_first_chunk::<HEAD>().ok_or("a short frame")?;
    let head = Head::decode::<f32>(head).map_err(|error| error.to_string())?;
    if head.length != payload.len() {
        return Err("a ragged frame".into());
    }
    Ok(match head.kind {
        Kind::Data => {
            let mut piece = vec![0.0; payload.len() / 4];
            bytemuck::cast_slice_mut(&mut piece).copy_from_slice(payload);
            Arrival::Data { exchange: head.a, offset: head.b, piece }
        }
        _ => Arrival::Control(head, payload.to_vec()),
    })
}
