"""Gradients of all hosted agents: one model per agent in a loop, or one model for all agents with `torch.func.vmap`."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from ._data import Tensors, number

if TYPE_CHECKING:
    from ._host import Host
    from ._problem import Problem


class Gradients(Protocol):
    """Computes the gradients of a host."""

    def compute(self, x: int, g: int, draw: int) -> None: ...

    def buffers(self) -> list[dict[str, torch.Tensor]]: ...


def bind(module: nn.Module, row: torch.Tensor) -> None:
    """Makes the trained parameters of a module views of a row."""
    for parameter, view in zip(trained(module), views(module, row), strict=True):
        parameter.data = view


def trained(module: nn.Module) -> list[nn.Parameter]:
    """The trained parameters, in order."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def views(module: nn.Module, row: torch.Tensor) -> list[torch.Tensor]:
    """The parts of a row, in the shapes of the trained parameters."""
    parameters = trained(module)
    parts = torch.split(row, [parameter.numel() for parameter in parameters])
    return [part.view(parameter.shape) for part, parameter in zip(parts, parameters, strict=True)]


def draws_numbers(module: nn.Module) -> bool:
    """Whether a forward pass in training mode draws random numbers."""
    return any("Dropout" in type(part).__name__ or "Noise" in type(part).__name__ for part in module.modules())


class Loop:
    """A copy of the model for each agent, whose parameters are views of the agent's row."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.problem: Problem = host.problem
        self.models = [copy.deepcopy(self.problem.model).train() for _ in host.hosted]
        self.parameters = [trained(model) for model in self.models]
        self.random = draws_numbers(self.problem.model)
        self.bound = -1
        self._views: dict[int, list[list[torch.Tensor]]] = {}

    def _rows(self, v: int) -> list[list[torch.Tensor]]:
        if v not in self._views:
            rows = self.host.vectors[v]
            self._views[v] = [views(model, row) for model, row in zip(self.models, rows, strict=True)]
        return self._views[v]

    def compute(self, x: int, g: int, draw: int) -> None:
        """Forward and backward passes, agent by agent."""
        if x != self.bound:
            for parameters, row in zip(self.parameters, self._rows(x), strict=True):
                for parameter, view in zip(parameters, row, strict=True):
                    parameter.data = view
            self.bound = x
        for k, (agent, out) in enumerate(zip(self.host.hosted, self._rows(g), strict=True)):
            batch = self.problem.source(agent).batch(self.host.seed, draw)
            if self.random:
                torch.manual_seed(number(self.host.seed, agent, draw))
            loss = self.problem.objective(self.models[k], batch)
            found = torch.autograd.grad(loss, self.parameters[k], allow_unused=True)
            with torch.no_grad():
                if any(one is None for one in found):
                    found = tuple(torch.zeros_like(o) if f is None else f for f, o in zip(found, out, strict=True))
                torch._foreach_copy_(out, list(found))

    def buffers(self) -> list[dict[str, torch.Tensor]]:
        """The buffers of each agent's model."""
        return [dict(model.named_buffers()) for model in self.models]


class Vmapped:
    """One model, and a function that is mapped over the agents."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.problem: Problem = host.problem
        model = copy.deepcopy(self.problem.model).train()
        self.model = model
        self.names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.shapes = [parameter.shape for parameter in trained(model)]
        self.random = draws_numbers(model)
        self.sources = [self.problem.source(agent) for agent in host.hosted]
        self._join()

        def loss(parameters: dict[str, torch.Tensor], *batch: Any) -> torch.Tensor:
            return self.problem.objective_of(model, parameters, batch)

        mapped = torch.func.vmap(torch.func.grad(loss), randomness="different")
        self.mapped: Any = mapped

    def _join(self) -> None:
        """Joins the tensors of all agents, so that one selection gives the batches of all."""
        self.joined: tuple[torch.Tensor, ...] | None = None
        if all(isinstance(one, Tensors) and one.size is not None for one in self.sources):
            columns = zip(*(one.tensors for one in self.sources), strict=True)  # type: ignore[attr-defined]
            self.joined = tuple(torch.cat(list(column)) for column in columns)
            sizes = torch.tensor([one.rows for one in self.sources])
            self.begins = torch.cumsum(sizes, 0) - sizes

    def _batch(self, draw: int) -> tuple[Any, ...]:
        if self.joined is None:
            batches = [one.batch(self.host.seed, draw) for one in self.sources]
            return tuple(torch.stack(list(column)) for column in zip(*batches, strict=True))
        each = [one.indices(self.host.seed, draw) for one in self.sources]  # type: ignore[attr-defined]
        chosen = (torch.stack(each) + self.begins.unsqueeze(1)).view(-1).to(self.problem.device, non_blocking=True)
        return tuple(tensor.index_select(0, chosen).view(len(each), -1, *tensor.shape[1:]) for tensor in self.joined)

    def compute(self, x: int, g: int, draw: int) -> None:
        """Forward and backward passes of all agents at once."""
        rows, agents = self.host.vectors[x], len(self.host.hosted)
        parts = torch.split(rows, [shape.numel() for shape in self.shapes], dim=1)
        named = {n: p.view(agents, *s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}
        if self.random:
            torch.manual_seed(number(self.host.seed, draw))
        found = self.mapped(named, *self._batch(draw))
        with torch.no_grad():
            torch.cat([found[name].reshape(agents, -1) for name in self.names], dim=1, out=self.host.vectors[g])

    def buffers(self) -> list[dict[str, torch.Tensor]]:
        """The model's buffers, the same for all agents: models whose buffers change are not mapped."""
        return [dict(self.model.named_buffers()) for _ in self.host.hosted]


def choose(host: Host) -> Gradients:
    """How a host computes gradients: as the problem says, or mapped if the model allows it and the device makes it worthwhile."""
    problem = host.problem
    if problem.gradient == "loop":
        return Loop(host)
    if problem.gradient == "vmap":
        return Vmapped(host)
    if problem.device.type == "cpu" or problem.buffers:
        return Loop(host)
    found = Vmapped(host)
    try:
        found.compute(0, len(host.vectors) - 1, 0)
    except (RuntimeError, ValueError, TypeError) as error:
        warnings.warn(f"model: cannot be mapped over agents, so gradients are computed agent by agent: {error}", stacklevel=2)
        return Loop(host)
    finally:
        host.vectors[-1].zero_()
    return found
