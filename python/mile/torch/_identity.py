"""What identifies a problem when a run is resumed: its model, its data, its code, and values at the start."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from .._facts import code_of, shown
from ._data import Batch, Indexed, Loaded, Source, Streamed, Tensors, leaves
from ._gradients import copied, trained
from ._random import seeding

if TYPE_CHECKING:
    from ._problem import Problem


def facts(problem: Problem) -> dict[str, str]:
    """Facts by key, which differ if a run with this problem cannot continue another.

    Tensors are compared as a whole, also those of data sets, subsets and lists; of other data the first mini-batch of each agent and the number of samples. Code is compared by its source, and by losses and
    gradients at the start. These have few digits, so that a run may move to another device. Of data that are not the same twice, such as images that are changed at random, only shapes are compared.
    """
    initial, ranks, digests = problem.initial(0), problem.ranks(), _Digests()
    own = "\n".join(_of_agent(problem, agent, digests) for agent in problem.hosted())
    parts = [own] if ranks is None else [part.decode() for part in ranks.all_gather(own.encode())]
    lines = [line.split(" ") for part in parts for line in part.splitlines()]
    found = {
        "model": f"{problem.name}, {problem.dim} parameters from {_digest(initial.tobytes())}",
        "model_code": code_of(problem.model),
        "data": _digest("".join(line[0] for line in lines).encode()),
        "batch": problem.batch_text,
        "loss": shown(problem.code),
    }
    model = problem.model
    fixed = [*((key, one) for key, one in model.named_parameters() if not one.requires_grad), *model.named_buffers()]
    if fixed:
        found["frozen"] = _digest(repr([(key, digests.of(one)) for key, one in fixed]).encode())
    loss, norm = (sum(float(line[k]) for line in lines) / len(lines) for k in (1, 2))
    if math.isfinite(loss):
        found["start"] = f"loss {loss:.2g}, gradients of norm {norm:.2g}"
    test = problem.test
    if test is not None:
        found["test"] = _of_data(test, digests, *(next(test.some(problem.eval_batch, problem.eval_batch))[1] for _ in range(2)))
    for key, value in (
        ("weights", problem.weights), ("local", problem.local and ", ".join(problem.local)), ("optimizer", problem.optimizer), ("scheduler", problem.scheduler), ("clip", problem.clip),
        ("autocast", problem.autocast), ("metrics", problem.own or None),
    ):  # fmt: skip
        if value is not None:
            found[key] = shown(value)
    return found


def data_of(problem: Problem, agent: int) -> str:
    """A digest of an agent's data."""
    source = problem.source(agent)
    return _of_data(source, _Digests(), _first(source), _first(source))


def _of_agent(problem: Problem, agent: int, digests: _Digests) -> str:
    """A digest of the agent's data; the loss at the start on its first mini-batch, and the norm of the gradient there, if that is the same twice."""
    source = problem.source(agent)
    first, again = _first(source), _first(source)
    data = _of_data(source, digests, first, again)
    if digests.of_all(first) != digests.of_all(again):
        return f"{data} nan nan"
    model = copied(problem.model).eval()
    # Recurrent networks in evaluation mode have no gradients in cuDNN.
    with seeding(problem.device) as seed, torch.backends.cudnn.flags(enabled=False):
        seed(0)
        loss = problem.objective(model, first)
        gradients = torch.autograd.grad(loss, trained(model), allow_unused=True) if loss.requires_grad else ()
    norm = math.sqrt(sum(float(one.double().square().sum()) for one in gradients if one is not None))
    return f"{data} {loss.item()!r} {norm!r}"


def _of_data(source: Source, digests: _Digests, first: Batch, again: Batch) -> str:
    """A digest of what is in memory, and of the first mini-batch, or of its shapes if it is not the same twice."""
    values = digests.of_all(first)
    seen = values if values == digests.of_all(again) else [(str(one.dtype), list(one.shape)) for one in leaves(first) if isinstance(one, torch.Tensor)]
    return _digest(repr((source.rows, digests.whole(source), seen)).encode())


def _first(source: Source) -> Batch:
    found = source.batch(0, 0)
    if isinstance(source, (Loaded, Streamed)):
        source.close()
    return found


class _Digests:
    """Digests of tensors, each formed once: agents may have parts of one data set, and full batches are all of it."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[torch.Tensor, str]] = {}

    def of(self, tensor: torch.Tensor) -> str:
        if id(tensor) not in self._known:
            value = tensor.detach().cpu().contiguous()
            text = f"{value.dtype} {tuple(value.shape)} {_digest(value.reshape(-1).view(torch.uint8).numpy())}"
            self._known[id(tensor)] = (tensor, text)
        return self._known[id(tensor)][1]

    def of_all(self, batch: Batch) -> list[str]:
        """What a batch consists of, however nested."""
        return [self.of(one) if isinstance(one, torch.Tensor) else shown(one) for one in leaves(batch)]

    def whole(self, data: Any) -> list[str] | None:
        """The parts of data that are in memory; nothing of others, which would have to be read."""
        if isinstance(data, (Tensors, TensorDataset)):
            return [self.of(one) for one in data.tensors]
        if isinstance(data, Indexed):
            return self.whole(data.dataset)
        if isinstance(data, Loaded):
            return self.whole(data.loader.dataset)
        if isinstance(data, Subset):
            inner = self.whole(data.dataset)
            return None if inner is None else [*inner, repr([int(k) for k in data.indices])]
        if isinstance(data, ConcatDataset):
            parts = [self.whole(one) for one in data.datasets]
            return None if None in parts else [text for part in parts for text in part or ()]
        return self.of_all(data) if isinstance(data, (list, tuple)) else None


def _digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
