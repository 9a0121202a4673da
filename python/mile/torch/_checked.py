"""What a problem is made from, checked: models, functions and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .. import _divided as divided
from .. import _mile
from ._gradients import trained

# The precision of x by that of the parameters.
TYPES = {torch.float32: torch.float32, torch.float64: torch.float64, torch.bfloat16: torch.float32}
AUTOCAST = {None: None, "bfloat16": torch.bfloat16}


def scalar(loss: Any) -> torch.Tensor:
    """A loss that is one number."""
    if not isinstance(loss, torch.Tensor) or loss.ndim > 0:
        got = f"shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise TypeError(f"loss: expected a scalar tensor, the mean over the batch, got {got}")
    return loss


def check_values(**given: Any) -> None:
    """Refuses what arguments cannot be."""
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "gradient": (lambda value: value in ("auto", "vmap", "loop"), "auto, vmap or loop"),
        "accumulate": (divided.is_whole, "a positive integer"),
        "clip": (lambda value: value is None or value > 0, "a positive number"),
        "autocast": (lambda value: value in AUTOCAST, "'bfloat16'"),
        "eval_rows": (lambda value: value in (None, "all", "off") or divided.is_whole(value), "a positive integer, 'all' or 'off'"),
    }
    for key, value in given.items():
        accepts, expected = rules[key]
        if not accepts(value):
            raise ValueError(f"{key}: expected {expected}, got {value!r}")


def check_functions(model: Any, loss: Any, closure: Any, optimizer: Any, scheduler: Any) -> None:
    """Refuses what is not a model or a function, and losses that are not means."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if loss is not None and closure is not None:
        raise TypeError("loss: expected either loss(output, target) or closure(model, batch), got both")
    made = "pass the class, or a function that makes one, because each agent has its own"
    for key, value, expected, remedy in (
        ("loss", loss, "a function of (output, target)", "pass one such as nn.CrossEntropyLoss()"),
        ("closure", closure, "a function of (model, batch)", "pass one that returns the loss"),
        ("optimizer", optimizer, "a function of parameters", made),
        ("scheduler", scheduler, "a function of an optimizer", made),
    ):
        if value is not None and not callable(value):
            raise TypeError(f"{key}: expected {expected}, got {value if isinstance(value, str) else type(value).__name__}; {remedy}")
    reduction = getattr(loss, "reduction", "mean")
    if reduction != "mean":
        raise _mile.ExperimentError(f"loss: expected the mean over a batch, got reduction={reduction!r}; leave reduction out")


def check_model(model: nn.Module) -> list[nn.Parameter]:
    """The trained parameters of a model that can be copied for each agent."""
    parameters = trained(model)
    if not parameters:
        raise _mile.ExperimentError("model: expected trained parameters, got none; set requires_grad on those to be trained")
    hooked = [key for key, parameter in model.named_parameters() if parameter._backward_hooks or parameter._post_accumulate_grad_hooks]
    if hooked:
        expected = "parameters without hooks, which the agents' copies of the model would not have"
        raise _mile.ExperimentError(f"model: expected {expected}, got hooks on {', '.join(hooked)}; use hooks of modules instead")
    kinds = {parameter.dtype for parameter in parameters}
    if len(kinds) > 1 or parameters[0].dtype not in TYPES:
        got = ", ".join(sorted(str(kind) for kind in kinds))
        remedy = "" if got.count(",") else '; pass model.bfloat16(), or model.float() with autocast="bfloat16" for forward passes in half precision'
        raise TypeError(f"model: expected all parameters to be torch.float32, torch.bfloat16 or torch.float64, and all the same, got {got}{remedy}")
    return parameters
