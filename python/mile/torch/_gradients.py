"""Gradients of all hosted agents: one model per agent in a loop, or one model for all agents with `torch.func.vmap`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .._samples import number
from ._data import Tensors
from ._random import seeding

if TYPE_CHECKING:
    from ._host import Host
    from ._problem import Problem


class Gradients(Protocol):
    """Computes the gradients of a host, in a step with this step size, and adds the losses of mini-batches to those of the host."""

    def compute(self, x: int, g: int, draw: int, step_size: float) -> None: ...

    def buffers(self) -> list[dict[str, torch.Tensor]]: ...

    def state(self) -> list[dict[str, Any]] | None: ...

    def restore(self, state: list[dict[str, Any]]) -> None: ...


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


def copied(module: nn.Module) -> nn.Module:
    """A copy of a module, whose parameters also have the attributes of the original ones, such as marks that an optimizer's groups are made from: PyTorch leaves them out."""
    found = copy.deepcopy(module)
    for parameter, own in zip(found.parameters(), module.parameters(), strict=True):
        parameter.__dict__.update(own.__dict__)
    return found


def in_training(model: nn.Module) -> nn.Module:
    """A copy of a model, in training mode. If it is in that mode already, its modules keep their own, such as batch norms that are frozen by `eval()`."""
    found = copied(model)
    return found if found.training else found.train()


def losses(problem: Problem, model: nn.Module, agent: int, run: int, draw: int, seed: Callable[[int], None]) -> Iterator[torch.Tensor]:
    """The losses of an agent's model on the mini-batches of one gradient, in the run of this seed."""
    for part, batch in enumerate(problem.batches(agent, run, draw)):
        seed(number(run, agent, draw, part) if part else number(run, agent, draw))
        yield problem.objective(model, batch)


@torch.no_grad()
def put(found: Sequence[torch.Tensor | None], out: list[torch.Tensor], adds: bool) -> None:
    """Copies gradients, or adds them; those of parameters without one are zero."""
    full = [torch.zeros_like(o) if f is None else f for f, o in zip(found, out, strict=True)]
    (torch._foreach_add_ if adds else torch._foreach_copy_)(out, full)


class Models:
    """A copy of the model for each agent, whose parameters are views of the agent's row. Those of another precision are views of one room, into which the row of the agent
    whose turn it is is copied."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.problem: Problem = host.problem
        self.models = [in_training(self.problem.model) for _ in host.hosted]
        self.parameters = [trained(model) for model in self.models]
        self.bound = -1
        self.room: torch.Tensor | None = None
        if self.problem.model_dtype != self.problem.torch_dtype:
            self.room = torch.empty(host.dim, device=self.problem.device, dtype=self.problem.model_dtype)
            for model in self.models:
                bind(model, self.room)
        self._views: dict[int, list[list[torch.Tensor]]] = {}

    def rows(self, v: int) -> list[list[torch.Tensor]]:
        """The rows of a vector, each in the shapes of the parameters."""
        if v not in self._views:
            rows = self.host.vectors[v]
            self._views[v] = [views(model, row) for model, row in zip(self.models, rows, strict=True)]
        return self._views[v]

    def bind(self, parameters: list[list[nn.Parameter]], v: int) -> None:
        """Makes the parameters of each agent views of this vector."""
        if v != self.bound:
            for own, row in zip(parameters, self.rows(v), strict=True):
                for parameter, view in zip(own, row, strict=True):
                    parameter.data = view
            self.bound = v

    def give(self, k: int, v: int) -> None:
        """Gives the k-th model the numbers of this vector."""
        if self.room is None:
            self.bind(self.parameters, v)
        else:
            self.room.copy_(self.host.vectors[v][k])

    def losses(self, k: int, draw: int, seed: Callable[[int], None]) -> Iterator[torch.Tensor]:
        """The losses of the mini-batches of one gradient, each divided by their number, at the model of the k-th hosted agent."""
        agent, parts = self.host.hosted[k], self.problem.accumulate
        for loss in losses(self.problem, self.models[k], agent, self.host.seed, draw, seed):
            self.host.losses.add(k, loss, 1 / parts)
            yield loss if parts == 1 else loss / parts

    def buffers(self) -> list[dict[str, torch.Tensor]]:
        """The buffers of each agent's model."""
        return [dict(model.named_buffers()) for model in self.models]

    def state(self) -> list[dict[str, Any]] | None:
        """Nothing but buffers."""
        return None

    def restore(self, state: list[dict[str, Any]]) -> None:
        """There is nothing to restore."""


@torch.no_grad()
def shorten(rows: torch.Tensor, most: float) -> None:
    """Makes each row at most this long."""
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    rows.mul_((most / (norms + 1e-6)).clamp_(max=1.0))


class Loop(Models):
    """Gradients agent by agent."""

    def compute(self, x: int, g: int, draw: int, step_size: float) -> None:
        """Forward and backward passes, agent by agent."""
        with seeding(self.problem.device) as seed:
            for k in self.host.moving():
                self.give(k, x)
                out = self.rows(g)[k]
                for part, loss in enumerate(self.losses(k, draw, seed)):
                    put(torch.autograd.grad(loss, self.parameters[k], allow_unused=True), out, part > 0)


class Vmapped:
    """One model, and a function that is mapped over the agents."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.problem: Problem = host.problem
        model = self.model = in_training(self.problem.model)
        self.names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.shapes = [parameter.shape for parameter in trained(model)]
        self.sources = [self.problem.source(agent) for agent in host.hosted]
        self._join()

        def loss(parameters: dict[str, torch.Tensor], batch: Any) -> torch.Tensor:
            return self.problem.objective_of(model, {name: one.to(self.problem.model_dtype) for name, one in parameters.items()}, batch)

        self.single: Any = torch.func.grad_and_value(loss)
        self.mapped: Any = torch.func.vmap(self.single, randomness="different")

    def _join(self) -> None:
        """Joins the tensors of all agents, so that one selection gives the batches of all."""
        self.joined: tuple[torch.Tensor, ...] | None = None
        if all(isinstance(one, Tensors) and one.size is not None for one in self.sources) and len({one.batch_rows for one in self.sources}) == 1:
            columns = zip(*(one.tensors for one in self.sources), strict=True)  # type: ignore[attr-defined]
            self.joined = tuple(torch.cat(list(column)) for column in columns)
            sizes = torch.tensor([one.rows for one in self.sources])
            self.begins = torch.cumsum(sizes, 0) - sizes

    def _joined(self, moving: list[int], draw: int) -> Any:
        """The batches of agents as one."""
        assert self.joined is not None
        each = [self.sources[k].indices(self.host.seed, draw) for k in moving]  # type: ignore[attr-defined]
        chosen = (torch.stack(each) + self.begins[moving].unsqueeze(1)).view(-1).to(self.problem.device, non_blocking=True)
        return tuple(tensor.index_select(0, chosen).view(len(each), -1, *tensor.shape[1:]) for tensor in self.joined)

    def _gradients(self, named: dict[str, torch.Tensor], moving: list[int], draw: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Gradients and losses on the batches of one draw: of all agents at once, or one by one if their batches have different sizes."""
        batches = [] if self.joined is not None else [self.sources[k].batch(self.host.seed, draw) for k in moving]
        stacked = _stacked(batches) if batches else self._joined(moving, draw)
        with seeding(self.problem.device) as seed:
            if stacked is not None:
                # The agents of a process draw together, and those of another process other numbers.
                seed(number(self.host.seed, self.host.hosted.start, draw))
                found: tuple[dict[str, torch.Tensor], torch.Tensor] = self.mapped(named, stacked)
                return found
            each = []
            for row, (k, batch) in enumerate(zip(moving, batches, strict=True)):
                seed(number(self.host.seed, self.host.hosted[k], draw))
                each.append(self.single({name: one[row] for name, one in named.items()}, batch))
        return {name: torch.stack([one[name] for one, _ in each]) for name in named}, torch.stack([loss for _, loss in each])

    def compute(self, x: int, g: int, draw: int, step_size: float) -> None:
        """Forward and backward passes of all agents at once."""
        rows, out, moving = self.host.vectors[x], self.host.vectors[g], self.host.moving()
        some, agents = self.host.chosen, len(moving)
        if some is not None:
            rows, out = rows[some], torch.empty_like(out[some])
        parts = torch.split(rows, [shape.numel() for shape in self.shapes], dim=1)
        named = {n: p.view(agents, *s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}
        share = 1 / self.problem.accumulate
        for part, place in enumerate(self.problem.draws(draw)):
            found, losses = self._gradients(named, moving, place)
            self.host.losses.add_all(moving, losses, share)
            with torch.no_grad():
                if part == 0:
                    torch.cat([found[name].reshape(agents, -1) for name in self.names], dim=1, out=out)
                else:
                    out.add_(torch.cat([found[name].reshape(agents, -1) for name in self.names], dim=1))
        with torch.no_grad():
            if share != 1:
                out.mul_(share)
            if some is not None:
                self.host.vectors[g][some] = out

    def buffers(self) -> list[dict[str, torch.Tensor]]:
        """The model's buffers, the same for all agents: models whose buffers change are not mapped."""
        return [dict(self.model.named_buffers()) for _ in self.host.hosted]

    def state(self) -> list[dict[str, Any]] | None:
        """Nothing."""
        return None

    def restore(self, state: list[dict[str, Any]]) -> None:
        """There is nothing to restore."""


def _stacked(batches: list[Any]) -> Any:
    """Batches of several agents as one; nothing if they have different sizes, as the last ones of loaders may."""
    flat = [pytree.tree_flatten(one) for one in batches]
    other = next((one for parts, _ in flat for one in parts if not isinstance(one, torch.Tensor)), None)
    if other is not None:
        raise TypeError(f'gradient: expected batches of tensors for vmap, got {type(other).__name__} in them; use gradient="loop"')
    kinds = [(spec, [one.shape for one in parts]) for parts, spec in flat]
    if any(kind != kinds[0] for kind in kinds):
        return None
    return pytree.tree_unflatten([torch.stack(each) for each in zip(*(parts for parts, _ in flat), strict=True)], flat[0][1])


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
        found.compute(0, len(host.vectors) - 1, 0, 1.0)
    except (RuntimeError, ValueError, TypeError) as error:
        warnings.warn(f"model: cannot be mapped over agents, so gradients are computed agent by agent: {error}", stacklevel=2)
        return Loop(host)
    finally:
        host.vectors[-1].zero_()
        host.batch_losses()
    return found
