"""What identifies a problem when a run is resumed: its data, its loss, its optimiser, and values at the start."""

from __future__ import annotations

import copy
import hashlib
import math
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from .._facts import shown
from ._data import Batch, Loaded, Source, Streamed
from ._random import seeding

if TYPE_CHECKING:
    from ._problem import Problem


def facts(problem: Problem) -> dict[str, str]:
    """Facts by key, which differ if a run with this problem cannot continue another.

    Data are compared by the first mini-batch of each agent, code by its source and by the loss at the start. That has few digits, so that a run may move to another device.
    Of data that are not the same twice, such as images that are changed at random, only shapes are compared.
    """
    initial, ranks = problem.initial(0), problem.ranks()
    own = "\n".join(_of_agent(problem, agent) for agent in problem.hosted())
    parts = [own] if ranks is None else [part.decode() for part in ranks.all_gather(own.encode())]
    lines = [line.split(" ") for part in parts for line in part.splitlines()]
    found = {
        "model": f"{problem.name}, {problem.dim} parameters from {_digest(initial.tobytes())}",
        "data": _digest("".join(line[0] for line in lines).encode()),
        "batch": problem.batch_text,
        "loss": shown(problem.code),
    }
    if problem.weights is not None:
        found["weights"] = shown(problem.weights)
    start = sum(float(line[1]) for line in lines) / len(lines)
    if math.isfinite(start):
        found["loss_at_start"] = f"{start:.2g}"
    for key, value in (("optimizer", problem.optimizer), ("scheduler", problem.scheduler), ("clip", problem.clip), ("autocast", problem.autocast)):
        if value is not None:
            found[key] = shown(value)
    return found


def _of_agent(problem: Problem, agent: int) -> str:
    """A digest of the agent's first mini-batch, and its loss at the start."""
    source = problem.source(agent)
    first, again = _first(source), _first(source)
    if _leaves(first) != _leaves(again):
        shapes = [(one.dtype, tuple(one.shape)) for one in pytree.tree_leaves(first) if isinstance(one, torch.Tensor)]
        return f"{_digest(repr((source.rows, shapes)).encode())} nan"
    with torch.no_grad(), seeding(problem.device) as seed:
        seed(0)
        loss = float(problem.objective(copy.deepcopy(problem.model).eval(), first))
    return f"{_digest(repr((source.rows, _leaves(first))).encode())} {loss!r}"


def _first(source: Source) -> Batch:
    found = source.batch(0, 0)
    if isinstance(source, (Loaded, Streamed)):
        source.close()
    return found


def _leaves(batch: Batch) -> list[str]:
    """What a batch consists of, however nested."""
    def of(leaf: Any) -> str:
        if not isinstance(leaf, torch.Tensor):
            return repr(leaf)
        value = leaf.detach().cpu().contiguous()
        return f"{value.dtype} {tuple(value.shape)} {_digest(value.reshape(-1).view(torch.uint8).numpy().tobytes())}"

    return [of(leaf) for leaf in pytree.tree_leaves(batch)]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
