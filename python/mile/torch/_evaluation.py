"""Measures models: losses on the data of agents, and what is measured on test data."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _mile
from .._problems import own_names
from .._samples import number
from ._data import Batch, Source
from ._gradients import bind, trained
from ._host import Host
from ._random import seeding

if TYPE_CHECKING:
    from ._problem import Problem

OwnMetrics = Mapping[str, Callable[[Any, Iterator[Batch]], SupportsFloat]]
"""Functions of the model and of the batches of the test data, by name."""


class Evaluator:
    """A copy of the model in evaluation mode, which is given parameters and buffers."""

    def __init__(self, problem: Problem, test: Source | None, own: OwnMetrics | None) -> None:
        self.problem, self.test = problem, test
        self.host: Host | None = None
        """The host of the job that is being run."""
        self._probe = copy.deepcopy(problem.model).eval()
        self._room = torch.zeros(problem.dim, device=problem.device, dtype=problem.torch_dtype)
        self._given = self._room.to(problem.model_dtype)
        """The same numbers in the precision of the model."""
        bind(self._probe, self._given)
        self._own = dict(own or {})
        self.own_metrics = own_names(self._own)
        self.metrics = self._metrics()

    def _metrics(self) -> list[str]:
        """The test loss, and the accuracy if the shapes say what it is."""
        if self.test is None:
            return []
        if not self.problem.has_targets:
            return ["test_loss"]
        inputs, target = split(next(iter(self.test.some(1, 1)))[1])
        if not isinstance(target, torch.Tensor) or target.is_floating_point():
            return ["test_loss"]
        with torch.no_grad(), seeding(self.problem.device):
            output = self._probe(*inputs)
        if isinstance(output, torch.Tensor) and output.ndim == 2 and output.shape[1] > 1 and target.ndim == 1:
            return ["accuracy", "test_loss"]
        got = f"{list(output.shape)} for targets of shape {list(target.shape)}" if isinstance(output, torch.Tensor) else type(output).__name__
        expected = "an output of shape [samples, classes] for targets of shape [samples]"
        warnings.warn(f"test: no accuracy is recorded: expected {expected}, got {got}; give your own as metrics", stacklevel=4)
        return ["test_loss"]

    # Models

    def buffers_of(self, agent: int) -> dict[str, torch.Tensor]:
        """The buffers of an agent, or those of the given model outside a run."""
        if self.host is None or not self.problem.buffers or agent not in self.host.hosted:
            return dict(self.problem.model.named_buffers())
        return self.host.gradients.buffers()[agent - self.host.hosted.start]

    def mean_buffers(self) -> dict[str, torch.Tensor]:
        """The mean of all agents' buffers."""
        if self.host is None or self.host.mean_buffers is None:
            return dict(self.problem.model.named_buffers())
        return self.host.mean_buffers

    @torch.no_grad()
    def _load(self, x: NDArray[Any], buffers: dict[str, torch.Tensor], agent: int | None = None) -> None:
        """Gives the model these parameters; those that stay with their agent are the agent's."""
        self._room.copy_(torch.from_numpy(x.copy()))
        local = self.problem.local_columns
        if local is not None and agent is not None and self.host is not None and agent in self.host.hosted:
            columns = torch.from_numpy(local).to(self._room.device)
            self._room[columns] = self.host.vectors[0][agent - self.host.hosted.start, columns]
        if self._given is not self._room:
            self._given.copy_(self._room)
        for key, buffer in self._probe.named_buffers():
            buffer.copy_(buffers[key])

    # Losses and gradients

    def loss(self, agent: int, x: NDArray[Any], rows: int | None) -> float:
        """f_agent(x), on this many of the agent's samples."""
        self._load(x, self.buffers_of(agent), agent)
        return self._mean(self.problem.source(agent), rows)[0]

    def batch_loss(self, agent: int, x: NDArray[Any]) -> float:
        """The mean loss of the agent's mini-batches since the last record; before the first, that of one mini-batch at x."""
        found = None if self.host is None or agent not in self.host.hosted else self.host.losses.mean()
        if found is not None and self.host is not None:
            return float(found[agent - self.host.hosted.start])
        self._load(x, self.buffers_of(agent), agent)
        with torch.no_grad(), seeding(self.problem.device) as seed:
            seed(number(agent))
            return float(self.problem.objective(self._probe, self.problem.source(agent).batch(0, 0)))

    def gradient(self, agent: int, x: NDArray[Any], batches: Iterator[tuple[float, Batch]], seed_of: int) -> NDArray[Any]:
        """The sum of the gradients on these batches, each times its factor."""
        self._load(x, self.buffers_of(agent), agent)
        sums = torch.zeros_like(self._room)
        with seeding(self.problem.device) as seed:
            seed(seed_of)
            for share, batch in batches:
                found = torch.autograd.grad(self.problem.objective(self._probe, batch), trained(self._probe), allow_unused=True)
                sums += self._packed(found) * share
        packed: NDArray[Any] = sums.cpu().numpy()
        return packed

    def _packed(self, found: tuple[torch.Tensor | None, ...]) -> torch.Tensor:
        parameters = trained(self._probe)
        full = [torch.zeros_like(p) if f is None else f for f, p in zip(found, parameters, strict=True)]
        return torch.cat([part.reshape(-1) for part in full])

    # Test data

    def measure(self, x: NDArray[Any], buffers: dict[str, torch.Tensor], rows: int | None) -> list[float]:
        """The metrics of a model, then the user's own."""
        self._load(x, buffers)
        found: list[float] = []
        if self.test is not None:
            loss, accuracy = self._mean(self.test, rows)
            found = [accuracy, loss] if "accuracy" in self.metrics else [loss]
        with torch.no_grad(), seeding(self.problem.device) as seed:
            for function in self._own.values():
                seed(number(0))
                found.append(float(function(self._probe, self._test_batches(rows))))
        return found

    def _test_batches(self, rows: int | None) -> Iterator[Batch]:
        if self.test is not None:
            yield from (batch for _, batch in self.test.some(rows, self.problem.eval_batch))

    @torch.no_grad()
    def _mean(self, data: Source, rows: int | None) -> tuple[float, float]:
        """The mean loss of the model, and its accuracy on test data with classes."""
        total, right, seen = torch.zeros((), dtype=torch.float64), 0, 0
        classifies = data is self.test and "accuracy" in self.metrics
        with seeding(self.problem.device) as seed:
            seed(number(0))
            for count, batch in data.some(rows, self.problem.eval_batch):
                value, output = self.problem.objective_and_output(self._probe, batch)
                if classifies:
                    right += int((output.argmax(1) == split(batch)[1]).sum())
                total += value.double().cpu() * count
                seen += count
        return float(total) / seen, right / seen


def split(batch: Batch) -> tuple[tuple[Any, ...], Any]:
    """Inputs and target."""
    if not isinstance(batch, tuple) or len(batch) < 2:
        got = f"{len(batch)} tensor" if isinstance(batch, tuple) else type(batch).__name__
        raise TypeError(f"data: expected batches (inputs, target), got {got}; for other batches, pass closure(model, batch) instead of loss")
    return batch[:-1], batch[-1]


def own_loss(model: Any, batch: Batch) -> torch.Tensor:
    """The loss that a model computes itself from a batch, as those of `transformers` do."""
    if isinstance(batch, Mapping):
        output = model(**batch)
    else:
        output = model(*batch) if isinstance(batch, tuple) else model(batch)
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", output)
    if not isinstance(found, torch.Tensor) or found.ndim > 0:
        expected = "a model whose output is its loss, or has it as loss"
        raise _mile.ExperimentError(f"loss: expected {expected}, got {type(output).__name__}; pass loss(output, target) or closure(model, batch)")
    return found


def columns_of(local: Any, named: list[tuple[str, int]]) -> NDArray[np.int64] | None:
    """The places in x of the parameters that stay with their agent, chosen by name, beginning of names, or a predicate."""
    if local is None:
        return None
    names = (local,) if isinstance(local, str) else local
    def chosen(name: str) -> bool:
        return bool(local(name)) if callable(local) else any(name == one or name.startswith(f"{one}.") for one in names)

    found, begin = [], 0
    for name, count in named:
        if chosen(name):
            found.append(np.arange(begin, begin + count, dtype=np.int64))
        begin += count
    if not found or len(found) == len(named):
        got = "all of them" if found else "none"
        raise _mile.ExperimentError(f"local: expected some of the trained parameters ({', '.join(name for name, _ in named)}), got {got}")
    return np.concatenate(found)
