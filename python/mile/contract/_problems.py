"""The problems that methods are checked on: agents whose objectives differ strongly, with gradients whose Lipschitz constant is at most 1."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Problem(Protocol):
    """f = (1/N) sum_i f_i, by the gradients of the f_i."""

    dim: int

    def gradient(self, agent: int, x: Array) -> Array: ...


class Quadratics:
    """f_i(x) = (x - b_i)' A_i (x - b_i) / 2, where A_i has eigenvalues from 0.1 to 1, each in its own rotation."""

    def __init__(self, agents: int, dim: int, seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        self.dim = dim
        rotations = np.linalg.qr(rng.normal(size=(agents, dim, dim)))[0]
        self._a = (rotations * np.linspace(0.1, 1.0, dim)) @ rotations.transpose(0, 2, 1)
        self._b = 3 * rng.normal(size=(agents, dim))
        self.minimum: Array = np.linalg.solve(self._a.sum(axis=0), np.einsum("ijk,ik->j", self._a, self._b))

    def gradient(self, agent: int, x: Array) -> Array:
        found: Array = self._a[agent] @ (x - self._b[agent])
        return found


class Classification:
    """Logistic regression with the penalty 0.1 sum_k x_k^2 / (1 + x_k^2), which is not convex. Each agent has rows around its own centre, with its own rule."""

    _ROWS, _PENALTY = 12, 0.1

    def __init__(self, agents: int, dim: int, seed: int) -> None:
        rng = np.random.default_rng([seed, 2])
        self.dim = dim
        centres = 0.8 * rng.normal(size=(agents, 1, dim))
        self._a = centres + rng.normal(size=(agents, self._ROWS, dim))
        rules = np.where(np.add.outer(np.arange(agents), np.arange(dim)) % 2 == 0, 1.0, -0.6)
        scores = np.einsum("ijk,ik->ij", self._a, rules) + 0.5 * rng.normal(size=(agents, self._ROWS))
        self._a *= -np.sign(scores)[:, :, None]
        curvature = np.linalg.norm(self._a, ord=2, axis=(1, 2)) ** 2 / (4 * self._ROWS) + 2 * self._PENALTY
        self._scale = 1 / curvature.max()

    def gradient(self, agent: int, x: Array) -> Array:
        a = self._a[agent]
        shares = 0.5 * (1 + np.tanh(0.5 * (a @ x)))
        found: Array = self._scale * (shares @ a / self._ROWS + 2 * self._PENALTY * x / (1 + x * x) ** 2)
        return found
