"""Gradients of agents whose vectors are elsewhere, such as in agents on a network, and what these agents remember besides them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import nn

from ._gradients import bind, in_training, losses, put, shorten, trained, views
from ._random import seeding

if TYPE_CHECKING:
    from ._problem import Problem


class Alone:
    """A copy of the model in training mode for each agent that needs one. Parameters of all copies are in one room, into which x is copied; buffers are an agent's own."""

    def __init__(self, problem: Problem, room: torch.Tensor) -> None:
        self.problem = problem
        self._room = room
        self._models: dict[int, nn.Module] = {}

    def _model(self, agent: int) -> nn.Module:
        if agent not in self._models:
            model = in_training(self.problem.model)
            bind(model, self._room)
            self._models[agent] = model
        return self._models[agent]

    def gradient(self, agent: int, x: NDArray[Any], run: int, draw: int) -> NDArray[Any]:
        """A stochastic gradient at x, in the run of this seed, as a host computes it in a loop."""
        problem, model = self.problem, self._model(agent)
        with torch.no_grad():
            self._room.copy_(torch.from_numpy(x.copy()))
        out = torch.empty(problem.dim, device=problem.device, dtype=problem.torch_dtype)
        parts, parameters = views(model, out), trained(model)
        with seeding(problem.device) as seed:
            for part, loss in enumerate(losses(problem, model, agent, run, draw, seed)):
                share = loss if problem.accumulate == 1 else loss / problem.accumulate
                put(torch.autograd.grad(share, parameters, allow_unused=True), parts, part > 0)
        if problem.clip is not None:
            shorten(out.unsqueeze(0), problem.clip)
        if problem.weights is not None:
            out.mul_(out.new_tensor(problem.factors[agent]))
        found: NDArray[Any] = out.cpu().numpy()
        return found

    def buffers(self, agent: int) -> dict[str, torch.Tensor]:
        """The buffers of an agent's model: before its first gradient those of the given one."""
        return dict(self._models.get(agent, self.problem.model).named_buffers())

    def memory(self, agent: int) -> bytes:
        """What the agent remembers, which is its buffers."""
        room = io.BytesIO()
        torch.save({key: value.detach().cpu().clone() for key, value in self.buffers(agent).items()}, room)
        return room.getvalue()

    def recall(self, agent: int, memory: bytes | None) -> None:
        """Continues with what the agent remembered, or starts from nothing."""
        self._models.pop(agent, None)
        if memory is None:
            return
        found = remembered(memory)
        with torch.no_grad():
            for key, buffer in self._model(agent).named_buffers():
                buffer.copy_(found[key])


def remembered(memory: bytes) -> dict[str, torch.Tensor]:
    """The buffers that an agent remembered."""
    found: dict[str, torch.Tensor] = torch.load(io.BytesIO(memory), map_location="cpu", weights_only=True)
    return found
