"""Losses of pytrees in JAX: each agent's gradient is one call of a compiled function.

The methods are those of the library, with the agents' vectors in its own memory. A gradient reads and returns arrays without a copy where JAX computes on the CPU.
On a GPU vectors cross the bus in every gradient; `mile.torch` has an engine that keeps them there.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, SupportsFloat, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from . import _divided as divided
from . import _mile
from ._defaults import complete
from ._facts import shown
from ._methods import Algorithm, Algorithms
from ._problems import own_names
from ._samples import Counts, evaluated, number

Tree: TypeAlias = Any
"""A pytree of arrays: the arrays themselves, or lists, tuples and dictionaries of them."""

Parameters = TypeVar("Parameters")
"""The pytree of parameters, in which they come back."""

Data = TypeVar("Data")
"""The pytree of the data of an agent."""

_HALVES = ("bfloat16", "float16")


class Problem(Generic[Parameters, Data]):
    """f_i(x) is the loss of the parameters x on the data of agent i.

    loss: a function of (parameters, batch) that returns the mean over the batch, a scalar. If it has a third argument it gets a random key, a function of the seed, the agent and the step,
        for dropout and the like, and None where losses are measured. It is compiled with `jax.jit`.
    parameters: a pytree of floating-point arrays, the starting point. Where they are `bfloat16` or `float16`, the loss gets them in this precision, while x, gradients and
        corrections are `float32`.
    data: for each agent, a pytree of arrays with a row for each sample, such as (inputs, targets); or a function that returns the data of an agent, together with `agents`. Arrays may be those of NumPy,
        of JAX, or of any library with DLPack, such as PyTorch.
    agent: the only agent whose data are here, for one that runs on its own machine; default: those of all are.
    test: data in this form, on which the test loss is measured.
    metrics: functions of (parameters, test data) that return a number, by name; they are called as they are, without `jax.jit`. Records have them of the average model, and of the agents' own models as local_NAME.
    batch: the number of samples in a gradient, or "full"; or a list with one of these for each agent.
    weights: numbers, one for each agent, or "rows" for the numbers of their samples: f is then the weighted mean of all f_i.
    gradient_norm: whether to compute exact gradients in order to record the gradient norm.
    eval_rows: the number of samples of each agent that losses are measured on, "all", or "off" for the losses of the mini-batches alone; default: as many as take a fifth of the run.
    version: a string that identifies the problem when a run is resumed; default: its data, its code, and losses and gradients at the start.

    >>> import jax.numpy as jnp, numpy as np, mile, mile.jax
    >>> rng = np.random.default_rng(0)
    >>> data = [(rng.normal(size=(50, 3)), rng.normal(size=50)) for _ in range(4)]
    >>> def loss(parameters, batch):
    ...     inputs, targets = batch
    ...     return jnp.mean((inputs @ parameters["w"] + parameters["b"] - targets) ** 2)
    >>> problem = mile.jax.Problem(loss, {"w": jnp.zeros(3), "b": jnp.zeros(())}, data, batch=10)
    >>> run = mile.run(problem=problem, algorithms=[mile.method("mile", step_size=0.02, local_steps=5)], rounds=10, out=tmp / "jax", progress=False)
    >>> sorted(problem.unravel(run.average()))
    ['b', 'w']
    """

    def __init__(
        self,
        loss: Callable[..., jax.Array],
        parameters: Parameters,
        data: Sequence[Data] | Callable[[int], Data],
        *,
        agents: int | None = None,
        agent: int | None = None,
        test: Data | None = None,
        metrics: Mapping[str, Callable[[Parameters, Data], SupportsFloat]] | None = None,
        batch: int | Literal["full"] | Sequence[int | Literal["full"]] = 32,
        weights: Literal["agents", "rows"] | Sequence[float] = "agents",
        gradient_norm: bool = False,
        eval_batch: int = 1024,
        eval_rows: int | Literal["all", "off"] | None = None,
        name: str = "jax",
        version: str | None = None,
    ) -> None:
        self._take(parameters)
        self.agents = divided.count(data, agents)
        if agent is not None and not 0 <= agent < self.agents:
            raise ValueError(f"agent: expected a number below {self.agents}, got {agent}")
        if agent is not None and isinstance(weights, str) and weights == "rows":
            raise _mile.ExperimentError("weights: expected numbers, since only one agent's data are here, got rows")
        self._hosted = range(self.agents) if agent is None else range(agent, agent + 1)
        self._data = {k: _arrays(data(k) if callable(data) else data[k], f"data, agent {k}") for k in self._hosted}
        rows = [_rows(one, f"data, agent {k}") for k, one in self._data.items()]
        # The data of the others are elsewhere, and are taken to be as many.
        self._all_rows = rows if agent is None else rows * self.agents
        self._sizes = divided.sizes(batch, self.agents)
        self.agent_weights = divided.weights(weights, self.agents, self._all_rows)
        self._test: Any = None if test is None else _arrays(test, "test")
        self.name, self.version, self.eval_batch = name, version, eval_batch
        if eval_rows not in (None, "all", "off") and not divided.is_whole(eval_rows):
            raise ValueError(f"eval_rows: expected a positive integer, 'all' or 'off', got {eval_rows!r}")
        self.eval_rows = eval_rows if eval_rows in (None, "all", "off") else int(eval_rows)
        self._losses = {k: (0.0, 0) for k in self._hosted}
        self._take_metrics(metrics)
        self._compile(loss)
        self.stochastic = any(size is not None for size in self._sizes) or self._takes_key
        self.records_gradient_norm = gradient_norm
        self.versions = {"jax": jax.__version__}
        self._facts: dict[str, str] | None = None
        self._count_rows()

    def _take(self, parameters: Tree) -> None:
        """What x consists of."""
        named, self._structure = jax.tree_util.tree_flatten_with_path(parameters)
        given = [(jax.tree_util.keystr(path, simple=True, separator="."), jnp.asarray(leaf)) for path, leaf in named]
        kinds = {str(leaf.dtype) for _, leaf in given}
        wide = {"float32" if kind in _HALVES else kind for kind in kinds}
        if len(wide) != 1 or not wide <= {"float32", "float64"}:
            expected = "arrays of one precision: bfloat16, float16 or float32, or all float64"
            raise TypeError(f"parameters: expected {expected}, got {', '.join(sorted(kinds)) or 'none'}")
        self.dtype = wide.pop()
        # A single array has no path.
        self.parts = [(key or "parameters", list(leaf.shape)) for key, leaf in given]
        self._dtypes = [leaf.dtype for _, leaf in given]
        flat, self._unravel = ravel_pytree([leaf.astype(self.dtype) for _, leaf in given])
        self._start: NDArray[Any] = np.array(flat)
        self.dim = self._start.size
        if self.dim == 0:
            raise _mile.ExperimentError("parameters: expected at least one number, got none")

    def _take_metrics(self, metrics: Mapping[str, Callable[[Parameters, Data], SupportsFloat]] | None) -> None:
        if metrics and self._test is None:
            raise TypeError("test: expected test data with metrics, got none")
        self._own = dict(metrics or {})
        self.metrics = [] if self._test is None else ["test_loss"]
        self.own_metrics = own_names(self._own)

    def _compile(self, loss: Callable[..., jax.Array]) -> None:
        plain = getattr(loss, "__wrapped__", loss)
        self._takes_key = len(inspect.signature(plain).parameters) > 2
        self._code = plain

        def value(x: jax.Array, batch: Tree, words: jax.Array | None) -> jax.Array:
            key = None if words is None else jax.random.fold_in(jax.random.key(words[0]), words[1])
            found = loss(self._tree(x), batch, key) if self._takes_key else loss(self._tree(x), batch)
            if jnp.shape(found) != ():
                raise TypeError(f"loss: expected a scalar, the mean over the batch, got shape {jnp.shape(found)}")
            return jnp.asarray(found, self.dtype)

        self._value = jax.jit(value)
        self._both = jax.jit(jax.value_and_grad(value))

    def _count_rows(self) -> None:
        """How many samples gradients and evaluations read."""
        rows, test = tuple(self._all_rows), 0 if self._test is None else _rows(self._test, "test")
        run = sum(min(size or count, count) for size, count in zip(self._sizes, rows, strict=True))
        most = 1 if self.eval_rows == "off" else self.eval_rows if isinstance(self.eval_rows, int) else max(rows)
        self._measure_on(Counts(rows, test, -(-run // self.agents), min(most, max(rows)), test))
        self.evaluated_on: str | None = None

    def _measure_on(self, counts: Counts) -> None:
        self._counts, self.row_counts = counts, counts.for_library

    # The protocol of objectives

    def evaluating(self, per_agent: int, test: int) -> Problem[Parameters, Data]:
        """The same problem, measured on this many samples of each agent. Called by the library."""
        found = copy.copy(self)
        found._measure_on(self._counts.limited(per_agent, test))
        if found._counts.tested < found._counts.test:
            found._test = _chosen(self._test, np.array(evaluated(found._counts.test, test, 0)))
        found.evaluated_on = found._counts.described
        return found

    def complete_algorithms(self, algorithms: Algorithms, changed: set[str]) -> tuple[list[Algorithm], list[str]]:
        """Algorithms with what is recommended for networks where they, and the keys that are changed later, say nothing; and what was chosen."""
        return complete(algorithms, changed)

    def initial(self, seed: int) -> NDArray[np.floating]:
        """The given parameters."""
        return self._start

    def loss(self, agent: int, x: NDArray[np.floating]) -> float:
        """f_agent(x) on data of the agent."""
        if self.eval_rows == "off":
            return self._batch_loss(agent, x)
        return self._mean(x, self._data[agent], evaluated(self._all_rows[agent], self._counts.of(agent), agent))

    def grad(self, agent: int, x: NDArray[np.floating], rng: _mile.Random) -> NDArray[np.floating]:
        """A stochastic gradient."""
        loss, found = self._both(x, self._batch(agent, rng.seed, rng.draw), self._words(rng.seed, agent, rng.draw))
        total, count = self._losses[agent]
        self._losses[agent] = total + float(loss), count + 1
        return np.asarray(found)

    def full_grad(self, agent: int, x: NDArray[np.floating]) -> NDArray[np.floating]:
        """The exact gradient of f_agent, without a random key."""
        rows = self._all_rows[agent]
        sums = np.zeros(self.dim)
        for count, batch in self._parts_of(self._data[agent], range(rows)):
            sums += np.asarray(self._both(x, batch, None)[1], float) * (count / rows)
        return sums.astype(self.dtype)

    def measure(self, x: NDArray[np.floating]) -> list[float]:
        """The loss on the test data, then the user's own metrics."""
        found = [] if self._test is None else [self._mean(x, self._test, range(self._counts.tested))]
        return found + [float(function(self.unravel(x), self._test)) for function in self._own.values()]

    def facts(self) -> dict[str, str]:
        """What identifies the problem when a run is resumed. Losses and gradients at the start, on a mini-batch of each agent, have few digits, so that a run may move to another device."""
        if self._facts is None:
            self._facts = {
                "model": f"{self.dim} parameters from {hashlib.sha256(self._start.tobytes()).hexdigest()[:16]}",
                "data": _digest(list(self._data.values())),
                "batch": divided.described(self._sizes),
                "weights": shown(self.agent_weights),
                "loss": shown(self._code),
            }
            found = [self._both(self._start, self._batch(agent, 0, 0), None) for agent in self._hosted]
            loss = np.mean([value for value, _ in found])
            norm = np.mean([np.linalg.norm(np.asarray(gradient, float)) for _, gradient in found])
            if math.isfinite(loss):
                self._facts["start"] = f"loss {loss:.2g}, gradients of norm {norm:.2g}"
            if self._test is not None:
                self._facts["test"] = _digest(self._test)
            if self._own:
                self._facts["metrics"] = shown(self._own)
        return self._facts

    def data_of(self, agent: int) -> str:
        """What identifies an agent's data."""
        return _digest(self._data[agent])

    # Losses of mini-batches

    def _batch_loss(self, agent: int, x: NDArray[np.floating]) -> float:
        """The mean loss of the agent's mini-batches since the last record; before the first, that of one mini-batch at x."""
        total, count = self._losses[agent]
        return total / count if count > 0 else float(self._value(x, self._batch(agent, 0, 0), None))

    def batch_losses(self) -> list[float]:
        """The mean loss of each agent's mini-batches since the last record, of the agents that had some. Called by the library at each record."""
        factors = divided.factors(self.agent_weights, self.agents)
        found = [factors[agent] * total / count for agent, (total, count) in self._losses.items() if count > 0]
        self._losses.update(dict.fromkeys(self._hosted, (0.0, 0)))
        return found

    def memory(self, agent: int) -> bytes:
        """What an agent remembers: losses that are not yet recorded."""
        return json.dumps(self._losses[agent]).encode()

    def recall(self, agent: int, memory: bytes | None) -> None:
        """Continues with what an agent remembered, or begins without."""
        total, count = (0.0, 0) if memory is None else json.loads(memory)
        self._losses[agent] = total, count

    @property
    def needs_host(self) -> str | None:
        """What only `mile.run` with this object does."""
        return 'eval_rows="off"; give a number of samples, or leave it out' if self.eval_rows == "off" else None

    # Parameters

    def unravel(self, x: NDArray[np.floating]) -> Parameters:
        """The parameters in their own shapes and precisions, such as those of `run.average()`."""
        if np.shape(x) != (self.dim,):
            raise ValueError(f"x: expected shape ({self.dim},), got {np.shape(x)}")
        return self._tree(jnp.asarray(x, self.dtype))

    def _tree(self, x: jax.Array) -> Parameters:
        leaves = [leaf.astype(dtype) for leaf, dtype in zip(self._unravel(x), self._dtypes, strict=True)]
        found: Parameters = jax.tree_util.tree_unflatten(self._structure, leaves)
        return found

    # Data

    def _batch(self, agent: int, seed: int, draw: int) -> Tree:
        size = self._sizes[agent]
        return self._data[agent] if size is None else _chosen(self._data[agent], _mile.samples(self._all_rows[agent], size, True, seed, agent, draw))

    def _words(self, seed: int, agent: int, draw: int) -> NDArray[np.uint32] | None:
        """What a random key is made of, if the loss takes one."""
        if not self._takes_key:
            return None
        mixed = number(seed, agent, draw)
        return np.array([mixed & 0xFFFFFFFF, mixed >> 32], np.uint32)

    def _parts_of(self, data: Tree, places: range | list[int]) -> Iterator[tuple[int, Tree]]:
        for begin in range(0, len(places), self.eval_batch):
            some = places[begin : begin + self.eval_batch]
            yield len(some), _chosen(data, slice(some.start, some.stop) if isinstance(some, range) else np.array(some))

    def _mean(self, x: NDArray[np.floating], data: Tree, places: range | list[int]) -> float:
        parts = ((count, self._value(x, batch, None)) for count, batch in self._parts_of(data, places))
        return sum(count * float(value) for count, value in parts) / len(places)


def _arrays(data: Tree, what: str) -> Tree:
    """The data in memory where mini-batches are chosen; those of other libraries through DLPack."""
    def array(leaf: Any) -> NDArray[Any]:
        if not isinstance(leaf, (np.ndarray, jax.Array)) and hasattr(leaf, "__dlpack__"):
            leaf = jax.dlpack.from_dlpack(leaf)
        found = np.asarray(leaf)
        # Double precision only where JAX computes in it.
        return found.astype(jax.dtypes.canonicalize_dtype(found.dtype), copy=False)

    leaves = jax.tree_util.tree_leaves(data)
    if not leaves or any(not hasattr(leaf, "shape") for leaf in leaves):
        raise TypeError(f"{what}: expected arrays, or a pytree of arrays, got {type(data).__name__}")
    return jax.tree_util.tree_map(array, data)


def _digest(data: Tree) -> str:
    found = hashlib.sha256()
    for leaf in jax.tree_util.tree_leaves(data):
        found.update(f"{leaf.dtype} {leaf.shape}".encode() + np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()[:16]


def _rows(data: Tree, what: str) -> int:
    rows = {len(leaf) if leaf.ndim else 0 for leaf in jax.tree_util.tree_leaves(data)}
    if len(rows) != 1 or rows == {0}:
        raise _mile.ExperimentError(f"{what}: expected arrays with the same number of rows, at least one, got {sorted(rows)}")
    return rows.pop()


def _chosen(data: Tree, places: Any) -> Tree:
    return jax.tree_util.tree_map(lambda array: array[places], data)
