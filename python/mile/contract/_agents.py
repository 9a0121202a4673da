"""What a method sees of its agents, and the counters of what it uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._problems import Array, Problem

Step = Callable[["Agents"], object]


@dataclass
class Spent:
    """What one round has used."""

    numbers: NDArray[np.int64]
    """Sent from one agent (row) to another (column)."""
    gradients: NDArray[np.int64]
    """Evaluated by each agent."""
    total: Array
    """The sum of these gradients."""


class Agents:
    """All agents, as the function of a round sees them: their vectors, their gradients, and the messages between neighbours.

    state: what is remembered from round to round, by name: arrays of floats with a row for each agent. `"x"` are the models.
    weights: the mixing matrix W, symmetric with rows that sum to one. Neighbours have a weight that is not zero.
    neighbours: for each agent, the numbers of its neighbours in increasing order.
    round: the number of rounds that are done.

    `s["y"]` is short for `s.state["y"]`, and `s.x` for `s.state["x"]`.

    >>> import numpy as np
    >>> from mile import contract
    >>> def dsgd(s):
    ...     s.x = s.mix(s.x - 0.1 * s.gradient(s.x))
    >>> report = contract.check(dsgd, exact=False, sent=1, gradients=1, stored=1, rounds=600)
    >>> report.holds
    True
    """

    def __init__(
        self, problem: Problem, weights: Array, x: Array, *, noise: float = 0.0, drop_rate: float = 0.0, lost_messages: float = 0.0, seed: int = 0
    ) -> None:
        self.weights = weights
        self.agents, self.dim = x.shape
        self.neighbours = [[j for j in range(self.agents) if j != i and weights[i, j] != 0] for i in range(self.agents)]
        self.round = 0
        self.state: dict[str, Array] = {"x": x.copy()}
        self._problem, self._noise, self._seed = problem, noise, seed
        self._drop_rate, self._lost_messages = drop_rate, lost_messages
        self._begin()

    @property
    def x(self) -> Array:
        """The models, a row for each agent."""
        return self.state["x"]

    @x.setter
    def x(self, value: Array) -> None:
        self.state["x"] = value

    def __getitem__(self, name: str) -> Array:
        return self.state[name]

    def __setitem__(self, name: str, value: Array) -> None:
        self.state[name] = value

    def gradient_of(self, agent: int, x: ArrayLike) -> Array:
        """The gradient of the objective of one agent at the vector x."""
        place = self._vector(x, "x")
        found = self._problem.gradient(agent, place)
        if self._noise:
            # A function of the seed, the round, the agent and the number of the gradient in the round.
            rng = np.random.default_rng([self._seed, 3, self.round, agent, int(self._spent.gradients[agent])])
            found = found + self._noise * rng.normal(size=self.dim)
        self._spent.gradients[agent] += 1
        self._spent.total += found
        return found

    def gradient(self, x: ArrayLike) -> Array:
        """The gradients of all agents, each of its own objective at its own row of x."""
        rows = self._rows(x, "x")
        return np.stack([self.gradient_of(agent, row) for agent, row in enumerate(rows)])

    def send(self, sender: int, receiver: int, message: ArrayLike) -> bool:
        """Counts a message between neighbours; whether it arrives. For implementations that carry messages themselves."""
        if receiver not in self.neighbours[sender]:
            raise ValueError(f"receiver: expected a neighbour of agent {sender}, one of {self.neighbours[sender]}, got {receiver}")
        self._spent.numbers[sender, receiver] += np.size(message)
        return bool(self._arrives[sender, receiver])

    def exchange(self, vectors: ArrayLike) -> list[dict[int, Array]]:
        """Sends the row of each agent to its neighbours. What each agent has received, by sender; lost messages are missing."""
        rows = self._rows(vectors, "vectors")
        received: list[dict[int, Array]] = [{} for _ in range(self.agents)]
        for sender, row in enumerate(rows):
            for receiver in self.neighbours[sender]:
                if self.send(sender, receiver, row):
                    received[receiver][sender] = row.copy()
        return received

    def mix(self, vectors: ArrayLike) -> Array:
        """W v, by an exchange: v_i + sum_j w_ij (v_j - v_i) over what has arrived, so that the weight of lost messages stays with agent i."""
        rows = self._rows(vectors, "vectors")
        mixed = rows.copy()
        for agent, messages in enumerate(self.exchange(rows)):
            for sender, theirs in messages.items():
                mixed[agent] += self.weights[agent, sender] * (theirs - rows[agent])
        return mixed

    # For the laws

    def play(self, step: Step) -> Spent:
        """One round, and what it has used."""
        self._begin()
        step(self)
        for name, value in self.state.items():
            if np.ndim(value) == 0 or len(value) != self.agents:
                raise ValueError(f"state[{name!r}]: expected an array with a row for each of {self.agents} agents, got shape {np.shape(value)}")
        self._rows(self.x, "x")
        self.round += 1
        return self._spent

    def saved(self) -> tuple[int, dict[str, Array]]:
        """The state after the rounds that are done, as a file would have it."""
        return self.round, {name: np.array(value) for name, value in self.state.items()}

    def restore(self, saved: tuple[int, dict[str, Array]]) -> None:
        self.round, self.state = saved[0], {name: value.copy() for name, value in saved[1].items()}

    def _begin(self) -> None:
        agents = self.agents
        self._spent = Spent(np.zeros((agents, agents), np.int64), np.zeros(agents, np.int64), np.zeros(self.dim))
        edge, message = np.random.default_rng([self._seed, 4, self.round]).random((2, agents, agents))
        stays = np.triu(edge >= self._drop_rate, 1)
        self._arrives = (stays | stays.T) & (message >= self._lost_messages)

    def _vector(self, x: ArrayLike, name: str) -> Array:
        return _shaped(x, (self.dim,), name)

    def _rows(self, x: ArrayLike, name: str) -> Array:
        return _shaped(x, (self.agents, self.dim), name)


def _shaped(x: ArrayLike, shape: tuple[int, ...], name: str) -> Array:
    found = np.asarray(x, np.float64)
    if found.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {found.shape}")
    return found
