"""A PyTorch model with a loss and data for each agent, as the objectives of the agents."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from .. import _divided as divided
from .. import _mile
from .._defaults import complete
from .._methods import Algorithm, Algorithms
from .._samples import Counts, number
from ._checked import AUTOCAST, TYPES, check_functions, check_model, check_values, scalar
from ._data import AgentData, Batch, EvalRows, Loaded, Source, Streamed, source
from ._evaluation import Evaluator, Local, OwnMetrics, columns_of, local_names, mean_of, own_loss, split
from ._gradients import Gradients, choose, copied, trained, views
from ._host import Host
from ._identity import data_of, facts
from ._kept import kept_buffers
from ._local import Optimised, Optimizers, Schedulers, make, make_scheduler
from ._ranks import Ranks, own_gpu, started_by_torchrun


class Problem:
    """f_i(x) is the loss of the model with parameters x on the data of agent i.

    model: a module; its trained parameters are x, and their values are the starting point. Frozen parameters, and buffers such as the statistics of batch norms, are
        not part of x: buffers stay with each agent and are never sent. Modules in evaluation mode stay in it, such as frozen batch norms, unless all of the model is. If its
        parameters are `bfloat16`, models compute in that precision, while x, gradients and corrections are `float32`, so that small steps add up.
    loss: a function of (output, target) that returns the mean over a batch, such as `nn.CrossEntropyLoss()`. For batches that are not (inputs, target), such as dictionaries,
        pass a function of (model, batch) as `closure` instead. It gets batches as the data set or the loader gives them, on the device, with lists as tuples. With neither, the
        model computes its own loss, as those of `transformers` do: its output is the loss, or has it as `loss`.
    data: for each agent, a tuple of tensors or NumPy arrays (inputs, targets), a Dataset (or a list of samples) or a DataLoader; or a function that returns the data of an agent, together with `agents`.
    agent: the only agent whose data are here, for one that runs on its own machine; default: those of all are.
    test: data in one of these forms, on which the test loss is measured, and the accuracy if each sample has an output for each of several classes and one integer target.
    metrics: functions of (model, batches of the test data) that return a number, by name. Records have them of the average model, and of the agents' own models as local_NAME.
    batch: the number of samples in a gradient, or "full"; or a list with one of these for each agent. A DataLoader has its own batches. accumulate: mini-batches in a gradient.
    weights: numbers, one for each agent, or "rows" for the numbers of their samples: f is then the weighted mean of all f_i. They multiply gradients and the steps of an optimizer.
    optimizer: a function that makes a `torch.optim.Optimizer` from the trained parameters or, if its argument is called `model`, from the model. Its steps are then the local
        steps of the method, whose step size (1 unless it is given) is a factor of the learning rates.
    scheduler: a function that makes a scheduler from an optimizer; it is stepped after each local step.
    clip: the largest norm of a gradient; longer ones are shortened.
    autocast: "bfloat16" for forward passes in mixed precision.
    local: parameters that stay with their agent and are never sent, such as a personal head: names, beginnings of names, or a predicate of names.
    device: where the agents compute; default: the device of the model.
    gradient: "loop" (one model per agent), "vmap" (all agents at once), or "auto": vmap on a GPU if the model allows it, otherwise a loop. An optimizer steps in a loop.
    gradient_norm: whether to compute exact gradients in order to record the gradient norm; not with `local`.
    eval_rows: the number of samples of each agent that losses are measured on, "all", or "off" for the losses of the mini-batches alone; default: as many as take a
        fifth of the run, and of streams at most the first eight mini-batches. The loss of an agent with more samples is estimated from these, and enters f with the agent's weight, whatever their number.
    version: a string that identifies the problem when a run is resumed; default: its data, its code, and losses and gradients at the start.

    >>> import torch, mile, mile.torch
    >>> torch.manual_seed(0)
    <torch...>
    >>> data = [(torch.randn(50, 4), torch.randn(50, 1)) for _ in range(4)]
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> problem = mile.torch.Problem(model, torch.nn.MSELoss(), data, batch=10)
    >>> run = mile.run(problem=problem, algorithms=[mile.method("mile", step_size=0.02, local_steps=5)], rounds=10, out=tmp / "torch", progress=False)
    >>> sorted(run.state_dict())
    ['0.bias', '0.weight', '2.bias', '2.weight']
    >>> own = mile.torch.Problem(model, torch.nn.MSELoss(), data, batch=10, optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01), clip=1.0)
    >>> run = mile.run(problem=own, algorithms=[mile.method("mile", local_steps=5)], rounds=10, out=tmp / "adamw", progress=False)
    >>> run.rows[-1]["loss"] < run.rows[0]["loss"]
    True
    """

    stochastic: bool

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., torch.Tensor] | None = None,
        data: Sequence[AgentData] | Callable[[int], AgentData] = (),
        *,
        agents: int | None = None,
        agent: int | None = None,
        test: AgentData | None = None,
        metrics: OwnMetrics | None = None,
        closure: Callable[..., torch.Tensor] | None = None,
        batch: int | Literal["full"] | Sequence[int | Literal["full"]] = 32,
        accumulate: int = 1,
        weights: Literal["agents", "rows"] | Sequence[float] = "agents",
        optimizer: Optimizers | None = None,
        scheduler: Schedulers | None = None,
        clip: float | None = None,
        autocast: Literal["bfloat16"] | None = None,
        local: Local | None = None,
        device: str | torch.device | None = None,
        gradient: Literal["auto", "loop", "vmap"] = "auto",
        gradient_norm: bool = False,
        eval_batch: int = 1024,
        eval_rows: EvalRows = None,
        name: str | None = None,
        version: str | None = None,
    ) -> None:
        check_functions(model, loss, closure, optimizer, scheduler)
        check_values(gradient=gradient, accumulate=accumulate, clip=clip, autocast=autocast, eval_rows=eval_rows)
        if optimizer is None and scheduler is not None:
            raise TypeError("scheduler: expected an optimizer too, got none; without one give the method a schedule")
        if optimizer is not None and gradient == "vmap":
            raise ValueError('gradient: expected "loop" with an optimizer, which steps one model after the other, got "vmap"; leave it out')
        if local is not None and gradient_norm:
            expected = "none with local, since the mean over the agents would cancel what is an agent's own"
            raise _mile.ExperimentError(f"gradient_norm: expected {expected}, got True; leave it out")
        self._take(model, device)
        named = [(key, math.prod(shape)) for key, shape in self.parts]
        self.local = None if local is None else local_names(local, named)
        self.local_columns = None if self.local is None else columns_of(self.local, named)
        self.shared_dim = self.dim - (0 if self.local_columns is None else len(self.local_columns))
        if isinstance(data, (Dataset, DataLoader, torch.Tensor, np.ndarray)):
            raise TypeError(f"data: expected a list with the data of each agent, got one {type(data).__name__}; split it among the agents")
        self.agents = divided.count(data, agents)
        if agent is not None and not 0 <= agent < self.agents:
            raise ValueError(f"agent: expected a number below {self.agents}, got {agent}")
        self._only = agent
        self.name = name or type(model).__name__
        self.gradient, self.eval_batch, self.version = gradient, eval_batch, version
        self.eval_rows = eval_rows if eval_rows in (None, "all", "off") else int(eval_rows)
        self.optimizer, self.scheduler, self.clip, self.autocast, self.accumulate = optimizer, scheduler, clip, autocast, accumulate
        self._sizes = divided.sizes(batch, self.agents)
        self.batch_text = divided.described(self._sizes) if accumulate == 1 else f"{accumulate} times {divided.described(self._sizes)}"
        if gradient == "vmap" and len(set(self._sizes)) > 1:
            raise ValueError(f"gradient: expected loop where agents have different batches, got vmap and {self.batch_text}")
        self._loss, self._data = loss, data
        self._closure = own_loss if loss is None and closure is None else closure
        self.code: object = loss if closure is None else closure
        self._sources: dict[int, Source] = {}
        self._distributed: Ranks | None = Ranks(self.device) if started_by_torchrun() else None
        if optimizer is not None:
            probe = make(optimizer, copied(self.model).to(self.torch_dtype))
            if scheduler is not None:
                make_scheduler(scheduler, probe)
        size = eval_batch if isinstance(test, IterableDataset) else None
        found = None if test is None else source(test, 0, size, self.device, self.model_dtype, self.eval_rows)
        self._evaluator = Evaluator(self, found, metrics)
        self.metrics, self.own_metrics = self._evaluator.metrics, self._evaluator.own_metrics
        self.stochastic = any(size is not None for size in self._sizes)
        self._count_rows()
        if gradient_norm and self.eval_rows != "all" and self._streams():
            raise _mile.ExperimentError('gradient_norm: expected eval_rows="all" for streams, which are then read to their end, got none')
        self.weights = self._weights(weights)
        self.factors = divided.factors(self.weights, self.agents)
        self.records_gradient_norm = gradient_norm
        self.versions = {"torch": str(torch.__version__)}
        self._facts: dict[str, str] | None = None

    def _take(self, model: nn.Module, device: str | torch.device | None) -> None:
        """Copies the model to its device, and notes what x consists of."""
        parameters = check_model(model)
        self.device = torch.device(device) if device is not None else parameters[0].device
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", own_gpu())
        self.model_dtype = parameters[0].dtype
        self.torch_dtype = TYPES[self.model_dtype]
        self.dtype = str(self.torch_dtype).removeprefix("torch.")
        self.model = copied(model).to(self.device)
        self.dim = sum(parameter.numel() for parameter in parameters)
        self.parts = [(key, list(value.shape)) for key, value in model.named_parameters() if value.requires_grad]
        self.tied = _tied(model)
        self.buffers = [key for key, _ in model.named_buffers()]

    def _count_rows(self) -> None:
        """How many samples there are, and how many of them gradients and evaluations read. All processes agree, so that models are evaluated equally often."""
        own = [(one.rows, one.batch_rows) for one in map(self.source, self.hosted())]
        parts = [own] if self._distributed is None else [json.loads(part) for part in self._distributed.all_gather(json.dumps(own).encode())]
        rows, batches = zip(*(each for part in parts for each in part), strict=True)
        if self._only is not None:
            # The data of the others are elsewhere, and are taken to be as many.
            rows, batches = rows * self.agents, batches * self.agents
        test = 0 if self._evaluator.test is None else self._evaluator.test.rows
        run = -(-sum(batches) * self.accumulate // self.agents)
        most = 1 if self.eval_rows == "off" else self.eval_rows if isinstance(self.eval_rows, int) else max(rows)
        self._measure_on(Counts(rows, test, run, min(most, max(rows)), test))
        self.evaluated_on = self._described() if self.eval_rows is None else None

    def _streams(self) -> bool:
        """Whether the number of training samples is unknown."""
        return any(isinstance(self.source(agent), Streamed) for agent in self.hosted())

    def _described(self) -> str | None:
        """What losses and metrics are measured on, as a sentence; nothing if that is everything."""
        counts = self._counts
        streams = [f"losses are measured on the first {counts.most:,} samples of each agent"] if self._streams() else []
        if isinstance(self.test, Streamed):
            streams.append(f"metrics on the first {counts.tested:,} test samples")
        if not streams:
            return counts.described
        return f'{", ".join(streams)}, because streams may have no end (eval_rows="all" measures on all)'

    def _measure_on(self, counts: Counts) -> None:
        self._counts, self.row_counts = counts, counts.for_library

    def _weights(self, given: Any) -> list[float] | None:
        """The weights of all agents."""
        if not isinstance(given, str) or given != "rows":
            return divided.weights(given, self.agents)
        if self._only is not None:
            raise _mile.ExperimentError("weights: expected numbers, since only one agent's data are here, got rows")
        if self._streams():
            raise _mile.ExperimentError("weights: expected numbers, since streams have no number of rows, got rows")
        return divided.weights(given, self.agents, self._counts.rows)

    # The protocol of objectives

    def evaluating(self, per_agent: int, test: int) -> Problem:
        """The same problem, measured on this many samples of each agent and of the test data. Called by the library."""
        found = copy.copy(self)
        found._measure_on(self._counts.limited(per_agent, test))
        found.evaluated_on = found._described()
        return found

    def facts(self) -> dict[str, str]:
        """What identifies the problem when a run is resumed."""
        if self._facts is None:
            self._facts = facts(self)
        return self._facts

    def data_of(self, agent: int) -> str:
        """What identifies an agent's data."""
        return data_of(self, agent)

    def complete_algorithms(self, algorithms: Algorithms, changed: set[str]) -> tuple[list[Algorithm], list[str]]:
        """Algorithms with what is recommended for networks where they, and the keys that are changed later, say nothing; and what was chosen."""
        found, notes = complete(algorithms, changed, has_optimizer=self.optimizer is not None, has_local=self.local is not None)
        return found, notes if self._evaluator.note is None else [*notes, self._evaluator.note]

    def loss(self, agent: int, x: NDArray[np.floating]) -> float:
        """f_agent(x) on data of the agent, evaluated with the agent's own buffers."""
        if self.eval_rows == "off":
            return self.factors[agent] * self._evaluator.batch_loss(agent, x)
        return self.factors[agent] * self._evaluator.loss(agent, x, self._counts.of(agent))

    def grad(self, agent: int, x: NDArray[np.floating], rng: _mile.Random) -> NDArray[np.floating]:
        """A stochastic gradient, computed outside a host: of a model in training mode, whose buffers it changes."""
        return self._evaluator.alone.gradient(agent, x, rng.seed, rng.draw)

    def full_grad(self, agent: int, x: NDArray[np.floating]) -> NDArray[np.floating]:
        """The exact gradient of f_agent."""
        found, rows = self._evaluator.gradient(agent, x, self.source(agent).some(None, self.eval_batch), number(agent))
        found *= self.factors[agent] / rows
        return found

    def measure(self, x: NDArray[np.floating]) -> list[float]:
        """The metrics of the average model on the test data, with the mean of all agents' buffers."""
        return self._evaluator.measure(x, self._evaluator.mean_buffers(), self._counts.tested)

    def measure_of(self, agent: int, x: NDArray[np.floating]) -> list[float]:
        """The metrics of an agent's model on the test data, with its own buffers."""
        return self._evaluator.measure(x, self._evaluator.buffers_of(agent), self._counts.tested)

    def initial(self, seed: int) -> NDArray[np.floating]:
        """The parameters of the given model."""
        flat = torch.cat([parameter.detach().reshape(-1) for parameter in trained(self.model)])
        found: NDArray[Any] = flat.to(self.torch_dtype).cpu().numpy()
        return found

    def host(
        self,
        agents: int,
        hosted: tuple[int, int],
        edges: list[tuple[int, int, float]],
        vectors: int,
        start: NDArray[np.floating],
        seed: int,
        peers: int | None,
    ) -> Host:
        """Creates the host of a job's agents. Called by the library."""
        found = Host(self, agents, hosted, edges, vectors, start, seed, self._distributed if peers else None)
        self._evaluator.host = found
        return found

    @property
    def needs_host(self) -> str | None:
        """What only the engine of `mile.run` does for this problem: elsewhere agents have x, gradients, and buffers."""
        if self.optimizer is not None:
            return "a PyTorch optimizer; give the method optimizer = \"adamw\" or another of the method's own optimizers instead"
        if self.local_columns is not None:
            return "parameters that stay with their agent (local)"
        return 'eval_rows="off"; give a number of samples, or leave it out' if self.eval_rows == "off" else None

    @property
    def remembers(self) -> bool:
        """Whether an agent without a host has more to remember than its vectors."""
        return bool(self.buffers)

    def memory(self, agent: int) -> bytes:
        """What an agent without a host remembers besides its vectors."""
        return self._evaluator.alone.memory(agent)

    def recall(self, agent: int, memory: bytes | None) -> None:
        """Continues with what an agent remembered, or starts from nothing."""
        self._evaluator.alone.recall(agent, memory)

    def close(self) -> None:
        """Stops the workers of data loaders. Called by the library after a run."""
        for one in self._sources.values():
            if isinstance(one, (Loaded, Streamed)):
                one.close()

    def ranks(self) -> Ranks | None:
        """The processes that share the agents, if `torchrun` started several."""
        return self._distributed

    # Models

    def state_dicts(self, x: NDArray[np.floating], state: Path) -> list[dict[str, torch.Tensor]]:
        """A state dict for each row of x, with the buffers that are stored next to the state."""
        buffers = kept_buffers(state)
        return [self._state_dict(row, buffers[k] if buffers else None) for k, row in enumerate(x)]

    def state_dict(self, x: NDArray[np.floating], state: Path) -> dict[str, torch.Tensor]:
        """The state dict of the average of the rows of x, with the mean of the buffers."""
        buffers = kept_buffers(state)
        mean = x.mean(axis=0, dtype=np.float64).astype(x.dtype)
        return self._state_dict(mean, mean_of(buffers) if buffers else None)

    def export_model(self, agent: int | None, x: NDArray[np.floating]) -> dict[str, NDArray[np.float32]]:
        """The state dict of an agent's model, or of the average of all, whose trained parameters are x. Called by the library when a job has ended."""
        host, evaluator = self._evaluator.host, self._evaluator
        if host is None:
            own = evaluator.mean_buffers() if agent is None else evaluator.buffers_of(agent)
        else:
            buffers = host.kept_buffers()
            own = {} if not buffers else mean_of(buffers) if agent is None else buffers[agent]
        return {key: value.contiguous().float().numpy() for key, value in self._state_dict(x, own).items() if isinstance(value, torch.Tensor)}

    def _state_dict(self, row: NDArray[np.floating], buffers: dict[str, torch.Tensor] | None) -> dict[str, torch.Tensor]:
        found = {key: value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value for key, value in self.model.state_dict().items()}
        names = [key for key, _ in self.parts]
        parts = views(self.model, torch.from_numpy(row.copy()))
        found.update(zip(names, parts, strict=True))
        found.update({key: value for key, value in (buffers or {}).items() if key in found})
        found.update({key: found[first].clone() for key, first in self.tied if first in found})
        return found

    # What hosts need

    @property
    def test(self) -> Source | None:
        """The test data."""
        return self._evaluator.test

    @property
    def own(self) -> OwnMetrics:
        """The user's own metrics."""
        return self._evaluator.own

    @property
    def has_targets(self) -> bool:
        """Whether batches are (inputs, target)."""
        return self._closure is None

    def hosted(self) -> range:
        """The agents of this process."""
        if self._only is not None:
            return range(self._only, self._only + 1)
        return range(self.agents) if self._distributed is None else self._distributed.block(self.agents)

    def source(self, agent: int) -> Source:
        """The data of an agent, looked up when they are first needed."""
        if agent not in self._sources:
            given = self._data(agent) if callable(self._data) else self._data[agent]
            self._sources[agent] = source(given, agent, self._sizes[agent], self.device, self.model_dtype, self.eval_rows)
        return self._sources[agent]

    def draws(self, draw: int) -> range:
        """The numbers of the mini-batches of one gradient."""
        return range(draw * self.accumulate, (draw + 1) * self.accumulate)

    def batches(self, agent: int, seed: int, draw: int) -> Iterator[Batch]:
        """The mini-batches of one gradient."""
        return (self.source(agent).batch(seed, place) for place in self.draws(draw))

    def objective(self, model: Callable[..., object], batch: Batch) -> torch.Tensor:
        """The loss of a model on a batch."""
        return self.objective_and_output(model, batch)[0]

    def objective_and_output(self, model: Callable[..., object], batch: Batch) -> tuple[torch.Tensor, object]:
        """The loss of a model on a batch, and its output if the loss is a function of it."""
        kind = AUTOCAST[self.autocast]
        with nullcontext() if kind is None else torch.autocast(self.device.type, kind):
            if self._closure is not None:
                return scalar(self._closure(model, batch)), None
            assert self._loss is not None
            inputs, target = split(batch)
            output = model(*inputs)
            return scalar(self._loss(output, target)), output

    def objective_of(self, model: nn.Module, parameters: dict[str, torch.Tensor], batch: Batch) -> torch.Tensor:
        """The loss of a model with other parameters."""
        def call(*inputs: Any, **named: Any) -> Any:
            return torch.func.functional_call(model, parameters, inputs, named)

        return self.objective(call, batch)

    def gradients(self, host: Host) -> Gradients:
        """How a host computes gradients."""
        return choose(host) if self.optimizer is None else Optimised(host)


def _tied(model: nn.Module) -> list[tuple[str, str]]:
    """Further names of trained parameters and of buffers that have several, each with the name under which a parameter is part of x, or a buffer is kept."""
    first = {id(one): key for key, one in (*model.named_parameters(), *model.named_buffers())}
    named = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return [(key, first[id(one)]) for key, one in named if (one.requires_grad or not isinstance(one, nn.Parameter)) and first[id(one)] != key]
