#!/usr/bin/env python3
"""LED and K-GT of decent-bench, checked by `mile.contract`; LED and K-GT as printed, beside them.

    python3.13 bench/contract/check.py        with decent-bench 0.3 and the package mile installed

decent-bench's own classes run: its networks, agents and steps. Gradients come from the contract, and messages pass through it, so that they are counted and can be lost. An agent remembers
its model and what is named here; everything else is forgotten after each round. Ends with exit code 1 if other laws are broken than those that are named here.
"""

import sys
from collections.abc import Callable

import networkx
import numpy as np
from decent_array import Array
from decent_array import interoperability as iop
from decent_bench.agents import Agent
from decent_bench.algorithms.p2p import KGT, LED, P2PAlgorithm
from decent_bench.costs import Cost
from decent_bench.networks import P2PNetwork

from mile import contract

iop.set_backend("numpy")
STEP_SIZE, LOCAL_STEPS, ROUNDS, RATE = 0.2, 5, 2000, 0.2


class Objective(Cost):
    """The objective of one agent of the contract."""

    m_smooth, m_cvx = 1.0, 0.0

    def __init__(self, agents: contract.Agents, number: int) -> None:
        self.agents, self.number = agents, number

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.agents.dim,)

    def gradient(self, x: Array) -> Array:
        return iop.from_numpy(self.agents.gradient_of(self.number, iop.to_numpy(x)))

    def function(self, x: Array) -> float:
        raise NotImplementedError("the contract has gradients only")

    def hessian(self, x: Array) -> Array:
        raise NotImplementedError("the contract has gradients only")

    def proximal(self, x: Array, penalty: float) -> Array:
        raise NotImplementedError("the contract has gradients only")


class Network(P2PNetwork):
    """A network of decent-bench whose messages pass through the contract."""

    def __init__(self, agents: contract.Agents) -> None:
        edges = [(i, j) for i, others in enumerate(agents.neighbours) for j in others if i < j]
        graph = networkx.Graph()
        graph.add_nodes_from(range(agents.agents))
        graph.add_edges_from(edges)
        super().__init__(graph, [Agent(Objective(agents, number), state_snapshot_period=10**9) for number in range(agents.agents)])
        self.weights = iop.from_numpy(agents.weights)
        self.of = agents

    def send(self, sender: Agent, receiver: Agent | None = None, msg: Array | None = None, channel: str = "default") -> None:
        receivers = self.neighbors(sender) if receiver is None else [receiver]
        arrived = [one for one in receivers if self.of.send(sender.index, one.index, iop.to_numpy(msg))]
        super().send(sender, arrived, msg, channel)


class Theirs:
    """A method of decent-bench as a function of one round; `remembered` are the auxiliary variables that agents keep."""

    def __init__(self, algorithm: P2PAlgorithm, remembered: list[str]) -> None:
        self.algorithm, self.remembered = algorithm, remembered
        self.network: Network | None = None

    def start(self, s: contract.Agents) -> None:
        for name in self.remembered:
            s[name] = np.zeros_like(s.x)

    def __call__(self, s: contract.Agents) -> None:
        if self.network is None or self.network.of is not s:
            self.network = Network(s)
            self.algorithm.initialize(self.network)
        network = self.network
        for agent in network.agents():
            agent.initialize(x=iop.from_numpy(s.x[agent.index]), aux_vars={name: iop.from_numpy(s[name][agent.index]) for name in self.remembered})
        network._step(s.round)
        self.algorithm.step(network, s.round)
        s.x = np.stack([iop.to_numpy(agent.x) for agent in network.agents()])
        for name in self.remembered:
            s[name] = np.stack([iop.to_numpy(agent.aux_vars[name]) for agent in network.agents()])


def zeros(name: str) -> Callable[[contract.Agents], None]:
    def start(s: contract.Agents) -> None:
        s[name] = np.zeros_like(s.x)

    return start


def led(s: contract.Agents) -> None:
    """LED as printed, where `mix` leaves the weight of a lost message with the receiver."""
    phi = s.x
    for _ in range(LOCAL_STEPS):
        phi = phi - STEP_SIZE * s.gradient(phi) - s["y"] / LOCAL_STEPS
    x = s.mix(phi)
    s["y"], s.x = s["y"] + phi - x, x


def k_gt(s: contract.Agents) -> None:
    """K-GT as printed, in the same way."""
    u = s.x
    for _ in range(LOCAL_STEPS):
        u = u - STEP_SIZE * (s.gradient(u) + s["c"])
    z = (s.x - u) / (LOCAL_STEPS * STEP_SIZE)
    s["c"], s.x = s["c"] - z + s.mix(z), s.mix(u)


def main() -> int:
    their_led = Theirs(LED(num_local_steps=LOCAL_STEPS, step_size=STEP_SIZE, aux_step_size=1 / LOCAL_STEPS), ["y"])
    their_k_gt = Theirs(KGT(num_local_steps=LOCAL_STEPS, step_size=STEP_SIZE, aux_step_size=1.0), ["c"])
    # What is remembered, vectors sent, and the laws that are broken without losses and where both ends skip an edge. Where only one end gets a message, some are broken everywhere.
    fades = {"minimum of quadratics", "stationary point"}
    subjects = [
        ("LED of decent-bench", their_led, their_led.start, "y", 1, set(), fades | {"sum of y"}),
        ("LED, as printed", led, zeros("y"), "y", 1, set(), set()),
        ("K-GT of decent-bench", their_k_gt, their_k_gt.start, "c", 2, {"repeated", "resumed"}, fades | {"sum of c"}),
        ("K-GT, as printed", k_gt, zeros("c"), "c", 2, set(), set()),
    ]
    right = True
    for title, step, start, correction, sent, broken, broken_by_edges in subjects:
        report = contract.check(
            step,
            start=start,
            zero_sum=[correction],
            step_size=STEP_SIZE,
            sent=sent,
            gradients=LOCAL_STEPS,
            stored=2,
            rounds=ROUNDS,
            drop_rate=RATE,
            lost_messages=RATE,
        )
        print(f"## {title}\n\n```text\n{report}\n```\n", flush=True)
        laws = {one.law for one in report.broken}
        by_messages = {law for law in laws if law.endswith(", messages lost")}
        right &= bool(by_messages) and laws - by_messages == broken | {f"{law}, edges down" for law in broken_by_edges}
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
