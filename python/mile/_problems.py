"""Problems: the objectives of the agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _mile
from ._names import Loss, TableParameters

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Unpack

Vector = NDArray[np.floating]

Pair: TypeAlias = tuple[ArrayLike, ArrayLike]
"""Features and targets."""


class Objective:
    """Objectives from functions of NumPy arrays: `loss(agent, x)` and `grad(agent, x, rng)`.

    Any object with these two methods and `dim` works as well; this class only bundles functions. `x` is a read-only view of the agent's model, without a copy:
    return new arrays, and keep only copies of it. `rng` has the methods of a `numpy.random.Generator` and is the same for the same seed, agent and step.
    If `grad` has a parameter `out`, it writes the gradient there instead of returning it, which saves another copy.

    agents: number of agents; default: that of the network.
    dim: length of x.
    dtype: "float64" or "float32".
    initial: starting point, an array of shape (dim,) or, with a row for each agent, (agents, dim); or a function of the seed that returns one; default: zeros.
    stochastic: whether `grad` draws from `rng`. If so, gradient norms are recorded only if `full_grad` is given.
    full_grad: the exact gradient, `full_grad(agent, x)`.
    metrics: what to measure on held-out data: a function of x for each name, such as {"accuracy": ..., "sparsity": ...}. Records then have the metric of the average model
        under its name, and the mean over the agents' own models under local_NAME. Or names among "accuracy", "auc", "rmse", "r2" and "test_loss", together with `measure`.
    measure: a function of x that returns one number for each of the names in `metrics`.
    weights: a positive number for each agent; f is then the weighted mean of all f_i.
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
        metrics: Sequence[str] | Mapping[str, Callable[[Vector], SupportsFloat]] = (),
        measure: Callable[[Vector], Sequence[SupportsFloat]] | None = None,
        weights: Sequence[float] | None = None,
        name: str = "objective",
        version: str | None = None,
    ) -> None:
        self.loss, self.grad, self.full_grad = loss, grad, full_grad
        self.dim, self.agents, self.dtype = dim, agents, dtype
        self.initial, self.stochastic = initial, stochastic
        self.metrics, self.own_metrics = list(metrics), []
        self.measure: Callable[[Vector], Sequence[SupportsFloat]] | None = measure
        if isinstance(metrics, Mapping):
            if measure is not None:
                raise TypeError("measure: expected none with functions in metrics, got one")
            self.metrics = [key for key in metrics if key in _KNOWN]
            self.own_metrics = own_names(key for key in metrics if key not in _KNOWN)
            self.measure = _Measure([metrics[key] for key in self.metrics + self.own_metrics])
        self.agent_weights = weights
        self.name, self.version = name, version


class Quadratic:
    """Generated quadratics, computed in Rust: the length of x, the condition number, and how much the agents' minimisers differ."""

    def __init__(self, dim: int = 10, condition: float = 10.0, heterogeneity: float = 1.0) -> None:
        self.name = "quadratic"
        self.agents: int | None = None
        self.parameters: dict[str, object] = {
            "kind": "quadratic",
            "dim": dim,
            "condition": condition,
            "heterogeneity": heterogeneity,
        }

    def section(self, folder: Path) -> tuple[dict[str, object], object | None]:
        """The section `[problem]`, and the data that go with it."""
        return dict(self.parameters), None


class Table:
    """Regression and classification on tables, computed in Rust.

    `data` is

    - a list with a pair (features, targets) of arrays for each agent, or one pair together with `agents`, whose rows are split into one block per agent; targets are
      numbers, the classes -1 and 1, or class numbers from 0 (softmax, with `classes`);
    - a pandas DataFrame or the path of a CSV, Parquet or Arrow file, with `target`, the name of a column, and any keys of the section `[problem]` of kind "table": `by` or `partition`,
      `standardise`, `test`, ...

    weights: "agents" (the default: f is the mean of the agents' means), "rows" (the mean over all rows), or weights of the rows, numbers of at least 0: an array for each
        agent, or one for all rows that are split; for a frame or a file the name of a column. f is then the weighted mean over all rows of all agents.
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
        data: pd.DataFrame | str | Path | Pair | Sequence[Pair],
        target: str | None = None,
        *,
        agents: int | None = None,
        test: float | str | Mapping[str, object] | Pair | Sequence[Pair] | None = None,
        loss: Loss = "least-squares",
        batch: int | str | None = None,
        weights: str | ArrayLike | Sequence[ArrayLike] | None = None,
        **parameters: Unpack[TableParameters],
    ) -> None:
        self.name = "table"
        self.agents = agents
        of_rows = None if weights is None or isinstance(weights, str) else weights
        given: dict[str, Any] = {"target": target, "loss": loss, "batch": batch, "weights": weights if of_rows is None else None, **parameters}
        self.parameters = {key: value for key, value in given.items() if value is not None}
        self._file: Any = None
        self._data: _mile.TableData | None = None
        if isinstance(data, (str, Path)) or hasattr(data, "to_csv"):
            self._file = data
            if target is None:
                raise _mile.ExperimentError("target: expected the name of the column to predict, got none")
            if of_rows is not None:
                raise TypeError(f"weights: expected the name of a column, or \"agents\" or \"rows\", for a table with columns, got {type(of_rows).__name__}")
            if test is not None:
                self.parameters["test"] = test
            return
        training = _shards(data, agents, "data", of_rows)
        self.agents = len(training)
        self._data = _mile.TableData(training, [] if test is None else _shards(test, self.agents, "test"))

    def section(self, folder: Path) -> tuple[dict[str, object], object | None]:
        """The section `[problem]`, and the data that go with it. A DataFrame is written to the run directory."""
        if self._data is not None:
            return {"kind": "given", **self.parameters}, self._data
        path = self._file
        if hasattr(path, "to_csv"):
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / "data.csv"
            self._file.to_csv(path, index=False)
        return {"kind": "table", "data": str(Path(path).absolute()), **self.parameters}, None


Shard = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None]
"""Features, targets and, perhaps, weights of an agent's rows."""


def _shards(data: Any, agents: int | None, what: str, weights: Any = None) -> list[Shard]:
    def numbers(values: ArrayLike) -> NDArray[np.float64]:
        return np.ascontiguousarray(values, dtype=np.float64)

    if isinstance(data, tuple) and len(data) == 2 and np.ndim(data[1]) == 1:
        if agents is None:
            raise _mile.ExperimentError("agents: expected the number of agents to split the rows among, got none")
        features, targets = (np.array_split(numbers(one), agents) for one in data)
        of_rows = [None] * agents if weights is None else np.array_split(numbers(weights), agents)
        return [(numbers(a), numbers(b), w) for a, b, w in zip(features, targets, of_rows, strict=True)]
    try:
        found: list[Shard] = [(numbers(features), numbers(targets), None) for features, targets in data]
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what}: expected a pair (features, targets) for each agent: {error}") from None
    if agents is not None and agents != len(found):
        raise _mile.ExperimentError(f"{what}: expected arrays for {agents} agents, got {len(found)}")
    if weights is None:
        return found
    if len(weights) != len(found):
        raise _mile.ExperimentError(f"weights: expected an array for each of {len(found)} agents, got {len(weights)}")
    return [(features, targets, numbers(one)) for (features, targets, _), one in zip(found, weights, strict=True)]


# What the library knows by name; other metrics are the user's own.
_KNOWN = ("accuracy", "auc", "rmse", "r2", "test_loss")
# Names that records give to other numbers.
_TAKEN = frozenset(
    "agent agents algorithm label seed round step loss local_loss worst_loss batch_loss grad_norm_sq consensus_error consensus_error_before more vectors_sent bytes_sent "
    "gradient_evals wall_s modelled_s".split()
)


def own_names(names: Iterable[str]) -> list[str]:
    """Names of the user's own metrics, checked."""
    found = list(names)
    for name in found:
        plain = name.removeprefix("local_").removeprefix("worst_")
        if not name.isidentifier() or name in _TAKEN or (name != plain and plain in _KNOWN):
            raise _mile.ExperimentError(f"metrics: expected a name that no other number of a record has, such as perplexity, got {name}")
    return found


class _Measure:
    """Several functions of x as one that returns all their numbers."""

    def __init__(self, functions: Sequence[Callable[[Vector], SupportsFloat]]) -> None:
        self.functions = list(functions)

    def __call__(self, x: Vector) -> list[float]:
        return [float(function(x)) for function in self.functions]
