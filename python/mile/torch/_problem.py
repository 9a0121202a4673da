"""A PyTorch model with a loss and data for each agent, as the objectives of the agents."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .. import _mile
from ._data import Batch, Loaded, Source, source
from ._gradients import Gradients, bind, choose, trained, views
from ._host import Host, read_buffers
from ._ranks import Ranks, own_gpu, started_by_torchrun

_TYPES = {torch.float32: "float32", torch.float64: "float64"}


class Problem:
    """f_i(x) is the loss of the model with parameters x on the data of agent i.

    model: a module; its trained parameters are x, and their values are the starting point. Frozen parameters, and buffers such as the statistics of batch norms, are
        not part of x: buffers stay with each agent and are never sent.
    loss: a function of (output, target) that returns the mean over a batch, such as `nn.CrossEntropyLoss()`. For batches that are not (inputs, target), pass a function
        of (model, batch) as `closure` instead.
    data: for each agent, tensors (inputs, targets), a Dataset or a DataLoader; or a function that returns the data of an agent, together with `agents`.
    test: data in one of these forms, on which the test loss and, for classification, the accuracy are measured.
    batch: the number of samples in a gradient, or "full". A DataLoader has its own batches.
    device: where the agents compute; default: the device of the model.
    gradient: "loop" (one model per agent), "vmap" (all agents at once), or "auto": vmap on a GPU if the model allows it, otherwise a loop.
    gradient_norm: whether to compute exact gradients in order to record the gradient norm.

    >>> import torch, mile, mile.torch
    >>> torch.manual_seed(0)
    <torch...>
    >>> data = [(torch.randn(50, 4), torch.randn(50, 1)) for _ in range(4)]
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> problem = mile.torch.Problem(model, torch.nn.MSELoss(), data, batch=10)
    >>> run = mile.run(problem=problem, algorithms=[mile.method("mile", step_size=0.02, local_steps=5)], rounds=10, out=tmp / "torch")
    >>> sorted(run.state_dict())
    ['0.bias', '0.weight', '2.bias', '2.weight']
    """

    stochastic: bool

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., torch.Tensor] | None = None,
        data: Sequence[Any] | Callable[[int], Any] = (),
        *,
        agents: int | None = None,
        test: Any = None,
        closure: Callable[[Any, Batch], torch.Tensor] | None = None,
        batch: int | str = 32,
        device: str | torch.device | None = None,
        gradient: str = "auto",
        gradient_norm: bool = False,
        eval_batch: int = 1024,
        name: str | None = None,
    ) -> None:
        if (loss is None) == (closure is None):
            got = "neither" if loss is None else "both"
            raise TypeError(f"loss: expected either loss(output, target) or closure(model, batch), got {got}")
        if gradient not in ("auto", "vmap", "loop"):
            raise ValueError(f"gradient: expected auto, vmap or loop, got {gradient}")
        if batch != "full" and not (isinstance(batch, int) and batch > 0):
            raise ValueError(f"batch: expected a positive integer or 'full', got {batch!r}")
        parameters = trained(model)
        if not parameters:
            raise _mile.ExperimentError("model: expected trained parameters, got none; set requires_grad on those to be trained")
        kinds = {parameter.dtype for parameter in parameters}
        if len(kinds) > 1 or parameters[0].dtype not in _TYPES:
            got = ", ".join(sorted(str(kind) for kind in kinds))
            raise TypeError(f"model: expected all parameters to be torch.float32, or all torch.float64, got {got}")
        self.device = torch.device(device) if device is not None else parameters[0].device
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", own_gpu())
        self.torch_dtype = parameters[0].dtype
        self.dtype = _TYPES[self.torch_dtype]
        self.model = copy.deepcopy(model).to(self.device)
        self.dim = sum(parameter.numel() for parameter in parameters)
        self.parts = [(key, list(value.shape)) for key, value in model.named_parameters() if value.requires_grad]
        self.buffers = [key for key, _ in model.named_buffers()]
        self.agents = _count(data, agents)
        self.name = name or type(model).__name__
        self.gradient, self.eval_batch = gradient, eval_batch
        self._size = None if batch == "full" else int(batch)
        self._loss, self._closure, self._data = loss, closure, data
        self._sources: dict[int, Source] = {}
        self._test = None if test is None else source(test, 0, None, self.device)
        self._host: Host | None = None
        self._probe = copy.deepcopy(self.model).eval()
        self._room = torch.zeros(self.dim, device=self.device, dtype=self.torch_dtype)
        bind(self._probe, self._room)
        self._distributed: Ranks | None = Ranks(self.device) if started_by_torchrun() else None
        self.stochastic = self._size is not None
        self.records_gradient_norm = gradient_norm
        self.metrics = self._metrics()
        first = self.source(self._hosted()[0]).rows
        if self._distributed is not None:
            # All processes must agree on how often models are evaluated.
            first = int(self._distributed.broadcast(0, str(first).encode()))
        test_rows = 0 if self._test is None else self._test.rows
        self.row_counts = (first, min(first, self._size or first), first * self.agents, test_rows)
        start = hashlib.sha256(self.initial(0).tobytes()).hexdigest()[:16]
        self.version = f"{self.name}, {self.dim} parameters from {start}, {first} samples at the first agent, batch {batch}"

    # The protocol of objectives

    def loss(self, agent: int, x: NDArray[Any]) -> float:
        """f_agent(x) on all data of the agent, evaluated with the agent's own buffers."""
        return self._evaluate(x, self.source(agent), self._buffers_of(agent))[0]

    def grad(self, agent: int, x: NDArray[Any], rng: _mile.Random) -> NDArray[Any]:
        """A stochastic gradient, computed outside a host."""
        batch = self.source(agent).batch(rng.seed, rng.draw)
        self._load(x, self._buffers_of(agent))
        total = self.objective(self._probe, batch)
        return self._pack(torch.autograd.grad(total, trained(self._probe), allow_unused=True))

    def full_grad(self, agent: int, x: NDArray[Any]) -> NDArray[Any]:
        """The exact gradient of f_agent."""
        self._load(x, self._buffers_of(agent))
        data = self.source(agent)
        sums = torch.zeros_like(self._room)
        for count, batch in data.all(self.eval_batch):
            found = torch.autograd.grad(self.objective(self._probe, batch), trained(self._probe), allow_unused=True)
            sums += torch.from_numpy(self._pack(found)).to(self.device) * (count / data.rows)
        packed: NDArray[Any] = sums.cpu().numpy()
        return packed

    def measure(self, x: NDArray[Any]) -> list[float]:
        """The metrics of the average model on the test data, with the mean of all agents' buffers."""
        return self._measure(x, self._mean_buffers())

    def measure_of(self, agent: int, x: NDArray[Any]) -> list[float]:
        """The metrics of an agent's model on the test data, with its own buffers."""
        return self._measure(x, self._buffers_of(agent))

    def _measure(self, x: NDArray[Any], buffers: dict[str, torch.Tensor]) -> list[float]:
        assert self._test is not None
        loss, accuracy = self._evaluate(x, self._test, buffers)
        return [accuracy, loss] if "accuracy" in self.metrics else [loss]

    def initial(self, seed: int) -> NDArray[Any]:
        """The parameters of the given model."""
        flat = torch.cat([parameter.detach().reshape(-1) for parameter in trained(self.model)])
        found: NDArray[Any] = flat.cpu().numpy()
        return found

    def host(
        self,
        agents: int,
        hosted: tuple[int, int],
        edges: list[tuple[int, int, float]],
        vectors: int,
        start: NDArray[Any],
        seed: int,
        peers: int | None,
    ) -> Host:
        """Creates the host of a job's agents. Called by the library."""
        self._host = Host(self, agents, hosted, edges, vectors, start, seed, self._distributed if peers else None)
        return self._host

    def close(self) -> None:
        """Stops the workers of data loaders. Called by the library after a run."""
        for one in self._sources.values():
            if isinstance(one, Loaded):
                one.close()

    def ranks(self) -> Ranks | None:
        """The processes that share the agents, if `torchrun` started several."""
        return self._distributed

    # Models

    def state_dicts(self, x: NDArray[Any], state: Path) -> list[dict[str, torch.Tensor]]:
        """A state dict for each row of x, with the buffers that are stored next to the state."""
        buffers = read_buffers(state)
        return [self._state_dict(row, None if buffers is None else buffers[k]) for k, row in enumerate(x)]

    def state_dict(self, x: NDArray[Any], state: Path) -> dict[str, torch.Tensor]:
        """The state dict of the average of the rows of x, with the mean of the buffers."""
        buffers = read_buffers(state)
        mean = x.mean(axis=0, dtype=np.float64).astype(x.dtype)
        return self._state_dict(mean, None if buffers is None else _mean(buffers))

    def _state_dict(self, row: NDArray[Any], buffers: dict[str, torch.Tensor] | None) -> dict[str, torch.Tensor]:
        found = {key: value.detach().cpu().clone() for key, value in self.model.state_dict().items()}
        names = [key for key, _ in self.parts]
        parts = views(self.model, torch.from_numpy(row.copy()))
        found.update(zip(names, parts, strict=True))
        found.update({key: value for key, value in (buffers or {}).items() if key in found})
        return found

    # What hosts need

    def source(self, agent: int) -> Source:
        """The data of an agent, looked up when they are first needed."""
        if agent not in self._sources:
            given = self._data(agent) if callable(self._data) else self._data[agent]
            self._sources[agent] = source(given, agent, self._size, self.device)
        return self._sources[agent]

    def objective(self, model: Any, batch: Batch) -> torch.Tensor:
        """The loss of a model on a batch."""
        if self._closure is not None:
            return self._closure(model, batch)
        assert self._loss is not None
        return self._loss(model(*batch[:-1]), batch[-1])

    def objective_of(self, model: nn.Module, parameters: dict[str, torch.Tensor], batch: Batch) -> torch.Tensor:
        """The loss of a model with other parameters."""
        def call(*inputs: Any) -> Any:
            return torch.func.functional_call(model, parameters, inputs)

        return self.objective(call, batch)

    def gradients(self, host: Host) -> Gradients:
        """How a host computes gradients."""
        return choose(host)

    # Evaluation

    def _hosted(self) -> range:
        return range(self.agents) if self._distributed is None else self._distributed.block(self.agents)

    def _metrics(self) -> list[str]:
        if self._test is None:
            return []
        target = next(iter(self._test.all(1)))[1][-1]
        classes = isinstance(target, torch.Tensor) and not target.is_floating_point() and self._closure is None
        return ["accuracy", "test_loss"] if classes else ["test_loss"]

    def _buffers_of(self, agent: int) -> dict[str, torch.Tensor]:
        if self._host is None or not self.buffers or agent not in self._host.hosted:
            return dict(self.model.named_buffers())
        return self._host.gradients.buffers()[agent - self._host.hosted.start]

    def _mean_buffers(self) -> dict[str, torch.Tensor]:
        if self._host is None or self._host.mean_buffers is None:
            return dict(self.model.named_buffers())
        return self._host.mean_buffers

    @torch.no_grad()
    def _load(self, x: NDArray[Any], buffers: dict[str, torch.Tensor]) -> None:
        self._room.copy_(torch.from_numpy(x.copy()))
        for key, buffer in self._probe.named_buffers():
            buffer.copy_(buffers[key])

    @torch.no_grad()
    def _evaluate(self, x: NDArray[Any], data: Source, buffers: dict[str, torch.Tensor]) -> tuple[float, float]:
        self._load(x, buffers)
        total, right, seen = torch.zeros((), dtype=torch.float64), 0, 0
        for count, batch in data.all(self.eval_batch):
            if self._closure is not None:
                value = self._closure(self._probe, batch)
            else:
                assert self._loss is not None
                output = self._probe(*batch[:-1])
                value = self._loss(output, batch[-1])
                if "accuracy" in getattr(self, "metrics", ()) and data is self._test:
                    right += int((output.argmax(1) == batch[-1]).sum())
            total += value.double().cpu() * count
            seen += count
        return float(total) / seen, right / seen

    def _pack(self, found: tuple[torch.Tensor | None, ...]) -> NDArray[Any]:
        parameters = trained(self._probe)
        full = [torch.zeros_like(p) if f is None else f for f, p in zip(found, parameters, strict=True)]
        packed: NDArray[Any] = torch.cat([part.reshape(-1) for part in full]).cpu().numpy()
        return packed


def _count(data: Any, agents: int | None) -> int:
    if callable(data) and not hasattr(data, "__len__"):
        if agents is None:
            raise TypeError("agents: expected their number, since data is a function of the agent, got none")
        return agents
    if len(data) == 0:
        raise TypeError("data: expected the data of each agent, got none")
    if agents not in (None, len(data)):
        raise ValueError(f"agents: expected {len(data)}, the number of agents with data, got {agents}")
    return len(data)


def _mean(buffers: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The mean of floating-point buffers, as the host forms it, and all other buffers of the first agent."""
    found = dict(buffers[0])
    for key, first in buffers[0].items():
        if first.is_floating_point():
            total = torch.zeros(first.shape, dtype=torch.float64)
            for one in buffers:
                total += one[key]
            found[key] = (total / len(buffers)).to(first.dtype)
    return found
