"""Problems that several tests use."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Quadratics:
    """f_i(x) = 1/2 (x - c_i)' A_i (x - c_i), written out in NumPy."""

    name = "quadratics"

    def __init__(self, agents: int = 6, dim: int = 4, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.agents, self.dim = agents, dim
        raw = rng.normal(size=(agents, dim, dim))
        self.A = raw @ raw.transpose(0, 2, 1) / dim + 0.5 * np.eye(dim)
        self.c = rng.normal(size=(agents, dim))

    def loss(self, agent: int, x: NDArray[np.float64]) -> float:
        d = x - self.c[agent]
        return float(0.5 * d @ self.A[agent] @ d)

    def grad(self, agent: int, x: NDArray[np.float64], rng: Any) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.A[agent] @ (x - self.c[agent])
        return found

    @property
    def minimiser(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.linalg.solve(self.A.sum(0), np.einsum("aij,aj->i", self.A, self.c))
        return found
