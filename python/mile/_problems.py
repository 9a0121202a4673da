"""Problems: the objectives of the agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _mile

Vector = NDArray[Any]


class Objective:
    """Objectives from functions of NumPy arrays: `loss(agent, x)` and `grad(agent, x, rng)`.

    Any object with these two methods and `dim` works as well; this class only bundles functions. `x` is a read-only view of the agent's model, without a copy:
    return new arrays, and keep only copies of it. `rng` has the methods of a `numpy.random.Generator` and is the same for the same seed, agent and step.
    If `grad` has a parameter `out`, it writes the gradient there instead of returning it, which saves another copy.

    agents: number of agents; default: that of the network.
    dim: length of x.
    dtype: "float64" or "float32".
    initial: starting point, an array or a function of the seed; default: zeros.
    stochastic: whether `grad` draws from `rng`. If so, gradient norms are recorded only if `full_grad` is given.
    full_grad: the exact gradient, `full_grad(agent, x)`.
    metrics, measure: what to measure on held-out data: names such as "accuracy", "rmse" or "test_loss", and a function of x that returns one number for each.
    version: a string that identifies the objectives when a run is resumed; default: their values at the starting point.

    >>> import numpy as np, mile
    >>> targets = np.arange(5.0)
    >>> problem = mile.Objective(
    ...     lambda agent, x: 0.5 * np.sum((x - targets[agent]) ** 2),
    ...     lambda agent, x, rng: x - targets[agent],
    ...     agents=5, dim=3,
    ... )
    >>> run = mile.run(problem=problem, algorithms=[mile.method("mile", step_size=0.2, local_steps=4)], rounds=200, out=tmp / "mean")
    >>> run.average().round(6).tolist()
    [2.0, 2.0, 2.0]
    """

    def __init__(
        self,
        loss: Callable[[int, Vector], float],
        grad: Callable[..., Vector | None],
        *,
        dim: int,
        agents: int | None = None,
        dtype: str = "float64",
        initial: Callable[[int], Vector] | Vector | None = None,
        stochastic: bool = False,
        full_grad: Callable[[int, Vector], Vector] | None = None,
        metrics: Sequence[str] = (),
        measure: Callable[[Vector], Sequence[float]] | None = None,
        name: str = "objective",
        version: str | None = None,
    ) -> None:
        self.loss, self.grad, self.full_grad = loss, grad, full_grad
        self.dim, self.agents, self.dtype = dim, agents, dtype
        self.initial, self.stochastic = initial, stochastic
        self.metrics, self.measure = list(metrics), measure
        self.name, self.version = name, version


class Quadratic:
    """Generated quadratics, computed in Rust: the length of x, the condition number, and how much the agents' minimisers differ."""

    def __init__(self, dim: int = 10, condition: float = 10.0, heterogeneity: float = 1.0) -> None:
        self.name = "quadratic"
        self.agents: int | None = None
        self.parameters: dict[str, Any] = {
            "kind": "quadratic",
            "dim": dim,
            "condition": condition,
            "heterogeneity": heterogeneity,
        }

    def section(self, folder: Path) -> tuple[dict[str, Any], object | None]:
        """The section `[problem]`, and the data that go with it."""
        return dict(self.parameters), None


class Table:
    """Regression and classification on tables, computed in Rust.

    `data` is

    - a list with a pair (features, targets) of arrays for each agent, or one pair together with `agents`, whose rows are split into one block per agent; targets are
      numbers, the classes -1 and 1, or class numbers from 0 (softmax, with `classes`);
    - a pandas DataFrame or the path of a CSV, Parquet or Arrow file, with `target`, the name of a column, and any keys of the section `[problem]` of kind "table": `by` or `partition`,
      `standardise`, `test`, ...

    loss: "least-squares", "logistic", "nonconvex-logistic", "softmax", "poisson", "huber" or "welsch". batch: a number of rows, or "full".

    >>> import numpy as np, mile
    >>> rng = np.random.default_rng(0)
    >>> shards = [(rng.normal(size=(20, 3)), rng.normal(size=20)) for _ in range(4)]
    >>> run = mile.run(problem=mile.Table(shards, l2=0.1), algorithms=[mile.method("mile", step_size="auto")], rounds=300, out=tmp / "table")
    >>> A, b = np.concatenate([a for a, _ in shards]), np.concatenate([b for _, b in shards])
    >>> exact = np.linalg.solve(A.T @ A / 80 + 0.1 * np.eye(3), A.T @ b / 80)
    >>> bool(np.abs(run.average() - exact).max() < 1e-6)
    True
    """

    def __init__(
        self,
        data: Any,
        target: str | None = None,
        *,
        agents: int | None = None,
        test: Any = None,
        loss: str = "least-squares",
        batch: int | str | None = None,
        **parameters: Any,
    ) -> None:
        self.name = "table"
        self.agents = agents
        given = {"target": target, "loss": loss, "batch": batch, **parameters}
        self.parameters = {key: value for key, value in given.items() if value is not None}
        self._file: Any = None
        self._data: _mile.TableData | None = None
        if isinstance(data, (str, Path)) or hasattr(data, "to_csv"):
            self._file = data
            if target is None:
                raise _mile.ExperimentError("target: expected the name of the column to predict, got none")
            if test is not None:
                self.parameters["test"] = test
            return
        training = _shards(data, agents, "data")
        self.agents = len(training)
        self._data = _mile.TableData(training, [] if test is None else _shards(test, self.agents, "test"))

    def section(self, folder: Path) -> tuple[dict[str, Any], object | None]:
        """The section `[problem]`, and the data that go with it. A DataFrame is written to the run directory."""
        if self._data is not None:
            return {"kind": "given", **self.parameters}, self._data
        path = self._file
        if hasattr(path, "to_csv"):
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / "data.csv"
            self._file.to_csv(path, index=False)
        return {"kind": "table", "data": str(Path(path).absolute()), **self.parameters}, None


Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


def _shards(data: Any, agents: int | None, what: str) -> list[Pair]:
    def pair(features: ArrayLike, targets: ArrayLike) -> Pair:
        return np.ascontiguousarray(features, dtype=np.float64), np.ascontiguousarray(targets, dtype=np.float64)

    if isinstance(data, tuple) and len(data) == 2 and np.ndim(data[1]) == 1:
        if agents is None:
            raise _mile.ExperimentError("agents: expected the number of agents to split the rows among, got none")
        features, targets = pair(*data)
        split = zip(np.array_split(features, agents), np.array_split(targets, agents), strict=True)
        return [pair(*one) for one in split]
    try:
        found = [pair(*one) for one in data]
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what}: expected a pair (features, targets) for each agent: {error}") from None
    if agents is not None and agents != len(found):
        raise _mile.ExperimentError(f"{what}: expected arrays for {agents} agents, got {len(found)}")
    return found
