"""Measures models: losses on the data of agents, and what is measured on test data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _mile
from .._problems import own_names
from .._samples import number
from ._alone import Alone
from ._data import Batch, Source
from ._gradients import bind, copied, trained
from ._host import Host
from ._random import seeding

if TYPE_CHECKING:
    from ._problem import Problem

OwnMetrics = Mapping[str, Callable[..., SupportsFloat]]
"""Functions of the model and of the batches of the test data, by name."""

Local: TypeAlias = str | Sequence[str] | Callable[[str], bool]
"""Parameters that stay with their agent: names, beginnings of names, or a predicate of names."""


class Evaluator:
    """A copy of the model in evaluation mode, which is given parameters and buffers."""

    def __init__(self, problem: Problem, test: Source | None, own: OwnMetrics | None) -> None:
        self.problem, self.test = problem, test
        self.host: Host | None = None
        """The host of the job that is being run."""
        self._probe = copied(problem.model).eval()
        self._room = torch.zeros(problem.dim, device=problem.device, dtype=problem.torch_dtype)
        self._given = self._room.to(problem.model_dtype)
        """The same numbers in the precision of the model."""
        self.alone = Alone(problem, self._given)
        """The agents of runs without a host."""
        bind(self._probe, self._given)
        self.own = dict(own or {})
        self.own_metrics = own_names(self.own)
        self.note: str | None = None
        """Why no accuracy is recorded, if one may be expected."""
        self.metrics = [] if test is None else ["accuracy", "test_loss"] if self._classifies(test) else ["test_loss"]

    def _classifies(self, test: Source) -> bool:
        """Whether types and shapes say what an accuracy is. If not, it is noted down why, but for targets that are plain numbers."""
        got = "a loss that is a function of the model and the batch"
        if self.problem.has_targets:
            inputs, target = split(next(test.some(_SEEN, _SEEN))[1])
            if _are_numbers(target):
                return False
            with torch.no_grad(), seeding(self.problem.device):
                output = self._probe(*inputs)
            if _are_classes(output, target):
                return True
            got = f"{_described(output)} for targets {_described(target)}"
        if not self.own:
            expected = "outputs of shape [samples, classes] for integer targets of shape [samples]"
            self.note = f'no accuracy is recorded: expected {expected}, got {got}; give your own as metrics={{"accuracy": function}}'
        return False

    # Models

    def buffers_of(self, agent: int) -> dict[str, torch.Tensor]:
        """The buffers of an agent."""
        if self.host is None or not self.problem.buffers or agent not in self.host.hosted:
            return self.alone.buffers(agent)
        return self.host.gradients.buffers()[agent - self.host.hosted.start]

    def mean_buffers(self) -> dict[str, torch.Tensor]:
        """The mean of all agents' buffers."""
        if self.host is not None and self.host.mean_buffers is not None:
            return self.host.mean_buffers
        return mean_of([self.alone.buffers(agent) for agent in self.problem.hosted()])

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

    def gradient(self, agent: int, x: NDArray[Any], batches: Iterator[tuple[float, Batch]], seed_of: int) -> tuple[NDArray[Any], float]:
        """The sum of the gradients on these batches, each times its factor, and the sum of the factors."""
        self._load(x, self.buffers_of(agent), agent)
        sums, factors = torch.zeros_like(self._room), 0.0
        with seeding(self.problem.device) as seed:
            seed(seed_of)
            for share, batch in batches:
                found = torch.autograd.grad(self.problem.objective(self._probe, batch), trained(self._probe), allow_unused=True)
                sums += self._packed(found) * share
                factors += share
        packed: NDArray[Any] = sums.cpu().numpy()
        return packed, factors

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
            for function in self.own.values():
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
                if classifies and isinstance(output, torch.Tensor):
                    right += int((output.argmax(1) == split(batch)[1]).sum())
                total += value.double().cpu() * count
                seen += count
        return float(total) / seen, right / seen


# Test samples that types and shapes are looked up in.
_SEEN = 16


def _are_numbers(target: Any) -> bool:
    """Whether targets are numbers, and not classes that are written as 0.0 and 1.0."""
    return isinstance(target, torch.Tensor) and target.is_floating_point() and set(target.flatten().tolist()) != {0.0, 1.0}


def _are_classes(output: Any, target: Any) -> bool:
    if not isinstance(output, torch.Tensor) or not isinstance(target, torch.Tensor) or target.is_floating_point():
        return False
    return output.ndim == 2 and output.shape[1] > 1 and target.ndim == 1


def _described(value: Any) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__


def mean_of(buffers: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The mean of floating-point buffers, as the host forms it, and all other buffers of the first agent."""
    found = dict(buffers[0])
    for key, first in buffers[0].items():
        if first.is_floating_point():
            total = torch.zeros(first.shape, dtype=torch.float64)
            for one in buffers:
                total += one[key].detach().cpu()
            found[key] = (total / len(buffers)).to(first.dtype)
    return found


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


def local_names(local: Local, named: list[tuple[str, int]]) -> list[str]:
    """The parameters that stay with their agent, chosen by name, beginning of names, or a predicate."""
    def chosen(name: str) -> bool:
        if callable(local):
            return bool(local(name))
        return any(name == one or name.startswith(f"{one}.") for one in ((local,) if isinstance(local, str) else local))

    found = [name for name, _ in named if chosen(name)]
    if not found or len(found) == len(named):
        got = "all of them" if found else "none"
        raise _mile.ExperimentError(f"local: expected some of the trained parameters ({', '.join(name for name, _ in named)}), got {got}")
    return found


def columns_of(names: list[str], named: list[tuple[str, int]]) -> NDArray[np.int64]:
    """The places of parameters in x."""
    ends = np.cumsum([count for _, count in named])
    return np.concatenate([np.arange(end - count, end, dtype=np.int64) for (name, count), end in zip(named, ends, strict=True) if name in names])
