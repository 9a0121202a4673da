"""The laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ._agents import Agents, Spent, Step
from ._problems import Array, Classification, Problem, Quadratics
from ._report import Finding, Report

_AGENTS, _DIM = 8, 5
# Where an exact method ends, in double precision, and how far from there one that is not exact ends at least.
_CLOSE, _APART = 1e-9, 1e-4
# Sums of numbers of size one, rounded in any order.
_ROUNDED = 1e-12
# Rounds in which sums and costs are looked at; and those before a state is saved, and before runs are compared.
_WATCHED, _SAVED, _COMPARED = 60, 23, 60
_NOISE = 0.1


def check(
    step: Step,
    *,
    start: Step | None = None,
    exact: bool = True,
    zero_sum: Sequence[str] = (),
    tracks: str | None = None,
    step_size: float | None = None,
    sent: float | None = None,
    gradients: int | None = None,
    stored: float | None = None,
    rounds: int = 2000,
    weights: ArrayLike | None = None,
    drop_rate: float = 0.0,
    lost_messages: float = 0.0,
    seed: int = 0,
) -> Report:
    """Runs a method, a function of one round, and compares what it does with what is expected of it.

    step: changes the state of the agents that it is given, `Agents`, by one round. Everything that it remembers is in this state.
    start: is called once before the first round; the models are there, different for each agent. Default: the models are all that is remembered.
    exact: whether every agent ends at a common stationary point. If not, the agents are expected to end elsewhere.
    zero_sum: the names of vectors whose sum over the agents is zero after every round.
    tracks: the name of a vector whose mean is the mean of the agents' gradients at their models after every round.
    step_size: the average model is expected to move by -step_size times the mean of the gradients that a round evaluates.
    sent: vectors that every agent sends to every neighbour in a round.
    gradients: gradients that every agent evaluates in a round.
    stored: vectors that every agent remembers between rounds, its model among them.
    rounds: how many it may take to get to 1e-9. Objectives have gradients with the Lipschitz constant 1, so a step size is a multiple of 1/L.
    weights: the mixing matrix; default: a ring of eight agents, where a neighbour has the weight 1/4, so that no eigenvalue is negative.
    drop_rate: also runs it where each edge fails with this probability in each round, for both ends.
    lost_messages: also runs it where each message is lost with this probability: one end of an edge may get what the other does not.
    seed: of the problems and of what is lost.

    >>> from mile import contract
    >>> def tracking(s):
    ...     g = s.gradient(s.x)
    ...     y = s.mix(s["y"]) + g - s["g"]
    ...     s["y"], s["g"], s.x = y, g, s.mix(s.x) - 0.1 * y
    >>> def begin(s):
    ...     s["y"] = s["g"] = 0 * s.x
    >>> report = contract.check(tracking, start=begin, sent=2, gradients=1, stored=2, rounds=1500)
    >>> [one.law for one in report.broken]          # it remembers g too
    ['vectors stored']
    """
    matrix = _matrix(weights)
    for name, rate in (("drop_rate", drop_rate), ("lost_messages", lost_messages)):
        if not 0 <= rate < 1:
            raise ValueError(f"{name}: expected a probability below 1, got {rate}")
    if rounds < 1:
        raise ValueError(f"rounds: expected at least 1, got {rounds}")
    subject = _Subject(step, start, matrix, rounds, seed)
    expected = _Expected(exact, zero_sum, tracks, step_size, sent, gradients, stored)
    # A method that does not settle overflows; that is a finding, and no warning.
    with np.errstate(over="ignore", invalid="ignore"):
        findings = [*_ends(subject, expected), *_watched(subject, expected), *_continues(subject)]
        under_edges, under_messages = replace(subject, drop_rate=drop_rate), replace(subject, lost_messages=lost_messages)
        for words, rate, under in (("edges down", drop_rate, under_edges), ("messages lost", lost_messages, under_messages)):
            if rate:
                findings += [replace(one, law=f"{one.law}, {words}") for one in [*_ends(under, expected), *_sums(under, expected)]]
    return Report(findings)


@dataclass(frozen=True)
class _Expected:
    exact: bool
    zero_sum: Sequence[str]
    tracks: str | None
    step_size: float | None
    sent: float | None
    gradients: int | None
    stored: float | None


@dataclass(frozen=True)
class _Subject:
    """A method and where it runs."""

    step: Step
    start: Step | None
    weights: Array
    rounds: int
    seed: int
    drop_rate: float = 0.0
    lost_messages: float = 0.0

    def quadratics(self) -> Quadratics:
        return Quadratics(len(self.weights), _DIM, self.seed)

    def classification(self) -> Classification:
        return Classification(len(self.weights), _DIM, self.seed)

    def first(self) -> Array:
        """A starting point for each agent."""
        return np.random.default_rng([self.seed, 5]).normal(size=(len(self.weights), _DIM))

    def begun(self, problem: Problem, x: Array | None = None, noise: float = 0.0) -> Agents:
        """Agents before their first round."""
        first = self.first() if x is None else x
        agents = Agents(problem, self.weights, first, noise=noise, drop_rate=self.drop_rate, lost_messages=self.lost_messages, seed=self.seed)
        if self.start is not None:
            self.start(agents)
        return agents

    def ended(self, problem: Problem) -> Array:
        """The models at the end."""
        agents = self.begun(problem)
        for _ in range(self.rounds):
            agents.play(self.step)
        return agents.x


def _ends(subject: _Subject, expected: _Expected) -> list[Finding]:
    """Every agent ends at the minimum of the mean, and at a common stationary point of a mean that is not convex."""
    quadratics, classification = subject.quadratics(), subject.classification()
    away = _largest(subject.ended(quadratics) - quadratics.minimum)
    x = subject.ended(classification)
    gradient = _largest(np.array([_mean_gradient(classification, np.broadcast_to(row, x.shape)) for row in x]))
    compare = _below if expected.exact else _above
    limit = _CLOSE if expected.exact else _APART
    findings = [compare("minimum of quadratics", away, limit), compare("stationary point", gradient, limit)]
    if expected.exact:
        findings.append(_below("agreement", _largest(x - x.mean(axis=0)), limit))
    return findings


def _watched(subject: _Subject, expected: _Expected) -> list[Finding]:
    """What holds in every round, and what each round costs."""
    findings = _sums(subject, expected)
    problem = subject.classification()
    agents, uneven, spent = subject.begun(problem), 0.0, []
    for _ in range(_WATCHED):
        before = agents.x.mean(axis=0)
        spent.append(agents.play(subject.step))
        if expected.step_size is not None:
            along = before - expected.step_size * spent[-1].total / agents.agents
            uneven = _worst(uneven, agents.x.mean(axis=0) - along)
    if expected.step_size is not None:
        findings.append(_below("average descends", uneven, _ROUNDED))
    return [*findings, *_costs(agents, spent, expected), _reach(subject)]


def _sums(subject: _Subject, expected: _Expected) -> list[Finding]:
    """Corrections sum to zero, and a tracker has the mean gradient."""
    problem = subject.classification()
    agents = subject.begun(problem)
    sums, tracked = dict.fromkeys(expected.zero_sum, 0.0), 0.0
    for _ in range(_WATCHED):
        agents.play(subject.step)
        for name in sums:
            sums[name] = _worst(sums[name], _named(agents, name).mean(axis=0))
        if expected.tracks is not None:
            tracked = _worst(tracked, _named(agents, expected.tracks).mean(axis=0) - _mean_gradient(problem, agents.x))
    findings = [_below(f"sum of {name}", worst, _ROUNDED) for name, worst in sums.items()]
    if expected.tracks is not None:
        findings.append(_below(f"mean of {expected.tracks}", tracked, _ROUNDED))
    return findings


def _costs(agents: Agents, spent: Sequence[Spent], expected: _Expected) -> list[Finding]:
    """Counted at the exchange, at the oracle and in the state: the same for all agents in all rounds, if something is expected; otherwise the most."""
    edges = np.array([[j in agents.neighbours[i] for j in range(agents.agents)] for i in range(agents.agents)])
    sent = np.array([one.numbers[edges] for one in spent]) / agents.dim
    gradients = np.array([one.gradients for one in spent], float)
    stored = np.array([sum(value[0].size for value in agents.state.values()) / agents.dim])
    return [
        _equal("vectors sent", sent, expected.sent),
        _equal("gradients", gradients, expected.gradients),
        _equal("vectors stored", stored, expected.stored),
    ]


def _reach(subject: _Subject) -> Finding:
    """Agents learn of each other by messages only: what agent 0 begins with reaches those at most as far away as vectors were sent."""
    first = subject.first()
    other = first.copy()
    other[0] += 1.0
    ends = []
    for x in (first, other):
        # Before the start, which may look at all models.
        agents = subject.begun(subject.classification(), first)
        agents.x = agents.x + (x - first)
        spent = agents.play(subject.step)
        ends.append(agents.x)
    # Rounding aside, which the law of repeated runs is about.
    changed = np.flatnonzero((np.abs(ends[0] - ends[1]) > _ROUNDED).any(axis=1))
    distances = _distances(agents)
    most = int(np.ceil(spent.numbers.max() / agents.dim))
    furthest = max((distances[agent] for agent in changed), default=0)
    return _below("hops in a round", furthest, most)


def _distances(agents: Agents) -> list[float]:
    """How many edges lie between agent 0 and each agent."""
    found = [np.inf] * agents.agents
    found[0], edge = 0, [0]
    while edge:
        beyond = sorted({j for i in edge for j in agents.neighbours[i] if found[j] == np.inf})
        for j in beyond:
            found[j] = found[edge[0]] + 1
        edge = beyond
    return found


def _continues(subject: _Subject) -> list[Finding]:
    """With stochastic gradients, a run has the same bits a second time, and when other agents continue from its state. Measured: vectors that differ."""
    problem = subject.classification()

    def run(agents: Agents, until: int) -> Agents:
        while agents.round < until:
            agents.play(subject.step)
        return agents

    whole = run(subject.begun(problem, noise=_NOISE), _SAVED)
    saved = whole.saved()
    end = run(whole, _COMPARED).saved()
    again = run(subject.begun(problem, noise=_NOISE), _COMPARED).saved()
    second = Agents(problem, subject.weights, subject.first(), noise=_NOISE, seed=subject.seed)
    second.restore(saved)
    resumed = run(second, _COMPARED).saved()
    return [_equal(law, np.array([_differing(end[1], other[1])]), 0) for law, other in (("repeated", again), ("resumed", resumed))]


# Measuring and comparing


def _matrix(weights: ArrayLike | None) -> Array:
    if weights is None:
        ring = np.roll(np.eye(_AGENTS), 1, axis=1) / 4
        return ring + ring.T + np.eye(_AGENTS) / 2
    found = np.array(weights, np.float64)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or len(found) < 2:
        raise ValueError(f"weights: expected a square matrix for at least two agents, got shape {found.shape}")
    if not np.allclose(found, found.T, rtol=0, atol=1e-12) or not np.allclose(found.sum(axis=1), 1, rtol=0, atol=1e-12):
        raise ValueError("weights: expected a symmetric matrix with rows that sum to one, got another one; a Metropolis matrix is")
    return found


def _named(agents: Agents, name: str) -> Array:
    if name not in agents.state:
        raise ValueError(f"zero_sum or tracks: expected one of {', '.join(agents.state)}, got {name}")
    return agents.state[name]


def _mean_gradient(problem: Problem, x: Array) -> Array:
    mean: Array = np.mean([problem.gradient(agent, row) for agent, row in enumerate(x)], axis=0)
    return mean


def _largest(x: Array) -> float:
    """The largest absolute value; NaN if there is one."""
    return float(np.abs(x).max())


def _worst(so_far: float, x: Array) -> float:
    return float(np.maximum(so_far, _largest(x)))


def _differing(a: dict[str, Array], b: dict[str, Array]) -> int:
    """The number of vectors whose bits differ."""
    missing = np.zeros(0)
    return sum(a.get(name, missing).tobytes() != b.get(name, missing).tobytes() for name in a.keys() | b.keys())


# NaN is in no comparison.


def _below(law: str, measured: float, limit: float) -> Finding:
    return Finding(law, f"<= {limit:g}", measured, measured <= limit)


def _above(law: str, measured: float, limit: float) -> Finding:
    return Finding(law, f"> {limit:g}", measured, measured > limit)


def _equal(law: str, measured: Array, expected: float | None) -> Finding:
    if expected is None:
        return Finding(law, "", float(measured.max()), None)
    furthest = float(measured.flat[np.abs(measured - expected).argmax()])
    return Finding(law, f"{expected:g}", furthest, furthest == expected)
