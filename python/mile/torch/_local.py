"""Any PyTorch optimiser as the local optimiser: what its step does to a model is the gradient that methods see.

An optimiser around the method would not know when it exchanges. An agent's weight is a factor of the step, since AdamW would not see one of the gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from .. import _mile
from ._gradients import Models, copied, trained
from ._random import seeding

if TYPE_CHECKING:
    from ._host import Host

Optimizers = Callable[..., torch.optim.Optimizer]
"""Makes an optimiser from the trained parameters or, if its argument is called model, from the model."""


class Scheduler(Protocol):
    """Changes the learning rates of an optimiser after a step, as those of `torch.optim.lr_scheduler` do."""

    def step(self) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None: ...


Schedulers = Callable[[torch.optim.Optimizer], Scheduler]
"""Makes a scheduler of learning rates from an optimiser."""


def make(optimizer: Optimizers, model: nn.Module) -> torch.optim.Optimizer:
    """The optimiser of one agent's model."""
    names = list(inspect.signature(optimizer).parameters)
    found = optimizer(model if names[:1] == ["model"] else trained(model))
    if not isinstance(found, torch.optim.Optimizer):
        raise TypeError(f"optimizer: expected a function that returns a torch.optim.Optimizer, got one that returns {type(found).__name__}")
    if isinstance(found, torch.optim.LBFGS):
        raise _mile.ExperimentError("optimizer: expected one that takes a step for each gradient, got LBFGS, which evaluates several")
    return found


def make_scheduler(scheduler: Schedulers, optimizer: torch.optim.Optimizer) -> Scheduler:
    """The scheduler of one agent's optimiser."""
    found = scheduler(optimizer)
    if isinstance(found, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise _mile.ExperimentError("scheduler: expected one that depends on the step alone, got ReduceLROnPlateau, which needs a metric")
    return found


class Optimised(Models):
    """A model with its own optimiser for each agent.

    A gradient lets the optimisers step from x to y on copies of the rows, and gives (x - y)/alpha. So x - alpha g is y, a method's correction c is added to it in units of x,
    and a method knows nothing of the optimiser. Its state belongs to the agent. The step size alpha is a factor of the learning rates.
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        assert self.problem.optimizer is not None
        models = self.models if self.room is None else [copied(model).to(self.problem.torch_dtype) for model in self.models]
        self.stepped = [trained(model) for model in models]
        """What optimisers step: the parameters, or the same in the precision of x."""
        self.optimizers = [make(self.problem.optimizer, model) for model in models]
        make_one = self.problem.scheduler
        self.schedulers = [] if make_one is None else [make_scheduler(make_one, optimizer) for optimizer in self.optimizers]
        self.last = [-1] * len(self.models)

    def compute(self, x: int, g: int, draw: int, step_size: float) -> None:
        """A step of each agent's optimiser."""
        moving = self.host.moving()
        if x != 0 or any(draw <= self.last[k] for k in moving):
            expected = "a method that evaluates one gradient in each step, at x, such as mile, led or local-dsgd"
            got = "one that evaluates it elsewhere" if x != 0 else "one that evaluates several"
            raise _mile.ExperimentError(f"optimizer: expected {expected}, got {got}")
        self.bind(self.stepped, g)
        rows, out = self.host.vectors[x], self.host.vectors[g]
        with seeding(self.problem.device) as seed:
            for k in moving:
                self.last[k] = draw
                with torch.no_grad():
                    out[k].copy_(rows[k])
                self.give(k, g)
                optimizer = self.optimizers[k]
                for loss in self.losses(k, draw, seed):
                    loss.backward()  # type: ignore[no-untyped-call]
                if self.room is not None:
                    _hand_on(self.parameters[k], self.stepped[k])
                if self.problem.clip is not None:
                    torch.nn.utils.clip_grad_norm_(self.stepped[k], self.problem.clip)
                with _scaled(optimizer, step_size):
                    optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                if self.schedulers:
                    self.schedulers[k].step()
                with torch.no_grad():
                    torch.sub(rows[k], out[k], out=out[k])
                    if step_size != 1.0:
                        out[k].div_(step_size)

    def state(self) -> list[dict[str, Any]] | None:
        """What optimisers and schedulers remember, for each agent."""
        found: list[dict[str, Any]] = [{"optimizer": one.state_dict()} for one in self.optimizers]
        for one, scheduler in zip(found, self.schedulers, strict=False):
            one["scheduler"] = scheduler.state_dict()
        return found

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Continues with what they remembered."""
        for k, (optimizer, one) in enumerate(zip(self.optimizers, state, strict=True)):
            optimizer.load_state_dict(one["optimizer"])
            if self.schedulers:
                self.schedulers[k].load_state_dict(one["scheduler"])


def _hand_on(given: list[nn.Parameter], to: list[nn.Parameter]) -> None:
    """Hands gradients on to parameters of another precision."""
    for parameter, other in zip(given, to, strict=True):
        other.grad = None if parameter.grad is None else parameter.grad.to(other.dtype)
        parameter.grad = None


@contextmanager
def _scaled(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """Multiplies the learning rates for one step."""
    if factor == 1.0:
        yield
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor
    yield
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
