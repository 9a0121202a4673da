"""The data of one agent, in any form that PyTorch knows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate

from .. import _mile
from .._samples import DATA, EVALUATION, evaluated, number
from ._random import passing, seeding

Batch: TypeAlias = object
"""What a loader or a data set gives: tensors in a tuple, a dictionary, or a single tensor."""

AgentData: TypeAlias = Sequence[object] | Dataset[object] | DataLoader[object]
"""The data of one agent: tensors or arrays, a data set (or a list of samples), or a loader."""

EvalRows: TypeAlias = int | Literal["all", "off"] | None
"""The samples of each agent that losses are measured on."""


class Source(Protocol):
    """Mini-batches of one agent, as a function of the seed and the draw, and samples in order, each with their number.

    So are the random numbers that a data set draws for them: those for losses are the same in all records.
    """

    rows: int
    batch_rows: int
    """Samples of a mini-batch."""

    def batch(self, seed: int, draw: int) -> Batch: ...

    def some(self, count: int | None, at_once: int) -> Iterator[tuple[int, Batch]]: ...


def to_device(value: Any, device: torch.device) -> Any:
    """A batch, however nested, on the device; lists become tuples, and other mappings and objects stay what they are."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if callable(getattr(value, "to", None)):
        return value.to(device)
    if isinstance(value, MutableMapping):
        found = copy.copy(value)
        found.update({key: to_device(one, device) for key, one in value.items()})
        return found
    if isinstance(value, Mapping):
        return {key: to_device(one, device) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(one, device) for one in value))
    if isinstance(value, (list, tuple)):
        return tuple(to_device(one, device) for one in value)
    return value


def leaves(batch: Any) -> Iterator[Any]:
    """What a batch consists of, however nested."""
    if isinstance(batch, (list, tuple)):
        for one in batch:
            yield from leaves(one)
    elif isinstance(batch, Mapping):
        for key, one in batch.items():
            yield key
            yield from leaves(one)
    else:
        yield batch


def rows_of(batch: Batch, usual: int) -> int:
    """The samples of a batch: the rows of its first tensor, or as many as usual if it has none."""
    return next((len(one) for one in leaves(batch) if isinstance(one, torch.Tensor) and one.ndim), usual)


class Tensors:
    """Tensors with a row for each sample, which stay on the device."""

    def __init__(self, tensors: tuple[torch.Tensor, ...], agent: int, size: int | None, device: torch.device) -> None:
        self.rows = len(tensors[0])
        if any(len(tensor) != self.rows for tensor in tensors):
            lengths = [len(tensor) for tensor in tensors]
            raise _mile.ExperimentError(f"data, agent {agent}: expected tensors with the same number of rows, got {lengths}")
        self.tensors = tuple(tensor.to(device) for tensor in tensors)
        self.agent, self.size, self.device = agent, size, device
        self.batch_rows = min(size or self.rows, self.rows)

    def indices(self, seed: int, draw: int) -> torch.Tensor:
        assert self.size is not None
        return torch.from_numpy(_mile.samples(self.rows, self.size, True, seed, self.agent, draw))

    def batch(self, seed: int, draw: int) -> Batch:
        if self.size is None:
            return self.tensors
        chosen = self.indices(seed, draw).to(self.device, non_blocking=True)
        return tuple(tensor.index_select(0, chosen) for tensor in self.tensors)

    def some(self, count: int | None, at_once: int) -> Iterator[tuple[int, Batch]]:
        chosen = evaluated(self.rows, count, self.agent)
        for begin in range(0, len(chosen), at_once):
            places = chosen[begin : begin + at_once]
            at: Any = slice(places.start, places.stop) if isinstance(places, range) else torch.tensor(places, device=self.device)
            yield len(places), tuple(tensor[at] for tensor in self.tensors)


class Indexed:
    """A data set with `len` and indexing, whose samples are collated batch by batch."""

    def __init__(self, dataset: Any, agent: int, size: int | None, device: torch.device) -> None:
        self.dataset, self.rows = dataset, len(dataset)
        self.agent, self.size, self.device = agent, size, device
        self.batch_rows = min(size or self.rows, self.rows)

    def _collect(self, indices: Any, *parts: int) -> Batch:
        with seeding(self.device) as seed:
            seed(number(DATA, *parts))
            return to_device(default_collate([self.dataset[int(k)] for k in indices]), self.device)

    def batch(self, seed: int, draw: int) -> Batch:
        chosen = range(self.rows) if self.size is None else _mile.samples(self.rows, self.size, True, seed, self.agent, draw)
        return self._collect(chosen, seed, self.agent, draw)

    def some(self, count: int | None, at_once: int) -> Iterator[tuple[int, Batch]]:
        chosen = evaluated(self.rows, count, self.agent)
        for begin in range(0, len(chosen), at_once):
            places = chosen[begin : begin + at_once]
            yield len(places), self._collect(places, EVALUATION, self.agent, begin)


class Loaded:
    """A `DataLoader`, with its own sampler, batches and workers. Its passes are seeded by the run's seed, the agent and the number of the pass, so that a run can be resumed."""

    def __init__(self, loader: Any, agent: int, device: torch.device) -> None:
        self.loader, self.agent, self.device = loader, agent, device
        self.batches = len(loader)
        if self.batches == 0:
            raise _mile.ExperimentError(f"data, agent {agent}: expected at least one batch, got none; with drop_last a loader needs batch_size samples")
        self.rows = len(loader.dataset)
        self.batch_rows: int = loader.batch_size or -(-self.rows // self.batches)
        self.place: tuple[int, int] | None = None
        self.passing: Iterator[Any] | None = None
        self.current: Batch = None

    def batch(self, seed: int, draw: int) -> Batch:
        if self.place == (seed, draw):
            return self.current
        passes, offset = divmod(draw, self.batches)
        before = self.place
        if self.passing is not None and before is not None and (seed, passes * self.batches) <= before < (seed, draw):
            skipped = draw - before[1] - 1
        else:
            self.passing, skipped = passing(self.loader, self.device, DATA, seed, self.agent, passes), offset
        for _ in range(skipped):
            next(self.passing)
        self.current = to_device(next(self.passing), self.device)
        self.place = (seed, draw)
        return self.current

    def close(self) -> None:
        """Ends the pass, and with it its workers."""
        self.place, self.passing, self.current = None, None, None

    def some(self, count: int | None, at_once: int) -> Iterator[tuple[int, Batch]]:
        """Each of these samples once, in order, whatever the loader's sampler does."""
        chosen = evaluated(self.rows, count, self.agent)
        plain = DataLoader(Subset(self.loader.dataset, chosen), batch_size=at_once, collate_fn=self.loader.collate_fn)
        for begin, found in zip(range(0, len(chosen), at_once), passing(plain, self.device, DATA, EVALUATION, self.agent), strict=True):
            yield min(at_once, len(chosen) - begin), to_device(found, self.device)


class Streamed:
    """A `DataLoader` of an `IterableDataset`, which has no length. A resumed run reads again what it had read. Losses are measured on its first samples, in whole batches, or on all if it ends."""

    # Batches that losses are measured on, unless it is said on how many samples.
    _BATCHES = 8

    def __init__(self, loader: Any, agent: int, device: torch.device, eval_rows: EvalRows) -> None:
        self.loader, self.agent, self.device, self.whole = loader, agent, device, eval_rows == "all"
        self.place: tuple[int, int] | None = None
        self.passing: Iterator[Any] | None = None
        self.passes = 0
        self.current: Batch = None
        self.batch_rows: int = loader.batch_size or 1
        self.rows = eval_rows if isinstance(eval_rows, int) else self._BATCHES * self.batch_rows

    def _next(self, seed: int) -> Any:
        for _ in range(2):
            if self.passing is not None:
                found = next(self.passing, None)
                if found is not None:
                    return found
                self.passes += 1
            self.passing = passing(self.loader, self.device, DATA, seed, self.agent, self.passes)
        raise self._empty()

    def _empty(self) -> _mile.ExperimentError:
        return _mile.ExperimentError(f"data, agent {self.agent}: expected at least one batch, got none")

    def batch(self, seed: int, draw: int) -> Batch:
        if self.place == (seed, draw):
            return self.current
        if self.place is None or self.place[0] != seed or self.place[1] > draw:
            self.passing, self.passes, begin = None, 0, 0
        else:
            begin = self.place[1] + 1
        for _ in range(begin, draw):
            self._next(seed)
        self.current, self.place = to_device(self._next(seed), self.device), (seed, draw)
        return self.current

    def close(self) -> None:
        """Ends the pass, and with it its workers."""
        self.place, self.passing, self.current = None, None, None

    def some(self, count: int | None, at_once: int) -> Iterator[tuple[int, Batch]]:
        wanted, seen = self.rows if count is None else count, 0
        for found in passing(self.loader, self.device, DATA, EVALUATION, self.agent):
            rows = rows_of(found, self.batch_rows)
            yield rows, to_device(found, self.device)
            seen += rows
            if seen >= wanted and not self.whole:
                return
        if seen == 0:
            raise self._empty()


def source(data: Any, agent: int, size: int | None, device: torch.device, dtype: torch.dtype, eval_rows: EvalRows = None) -> Source:
    """The data of an agent in any form. Floating-point NumPy arrays, which are double unless one asks for less, get the model's precision."""
    arrays = isinstance(data, (tuple, list)) and len(data) > 0 and all(isinstance(one, (np.ndarray, torch.Tensor)) for one in data)
    if arrays and isinstance(data, list):
        expected = "a tuple (inputs, targets) of arrays, or a list of samples that are tuples or dictionaries"
        remedy = "pass tuple(...) if these are columns, or (torch.stack(...),) if each is a sample"
        raise TypeError(f"data, agent {agent}: expected {expected}, got a list of {len(data)} arrays; {remedy}")
    if arrays:
        data = tuple(one if isinstance(one, torch.Tensor) else _tensor(one, dtype) for one in data)
    if isinstance(data, TensorDataset):
        data, arrays = data.tensors, True
    if arrays:
        found: Source = Tensors(data, agent, size, device)
    elif isinstance(data, DataLoader):
        found = Streamed(data, agent, device, eval_rows) if isinstance(data.dataset, IterableDataset) else Loaded(data, agent, device)
    elif isinstance(data, IterableDataset):
        if size is None:
            raise _mile.ExperimentError(f"batch: expected a number for the stream of agent {agent}, which may have no end, got full")
        found = Streamed(DataLoader(data, batch_size=size), agent, device, eval_rows)
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        found = Indexed(data, agent, size, device)
    else:
        expected = "tensors (inputs, targets), a Dataset with len, or a DataLoader"
        raise TypeError(f"data, agent {agent}: expected {expected}, got {type(data).__name__}")
    if found.rows == 0:
        raise _mile.ExperimentError(f"data, agent {agent}: expected at least one sample, got none")
    return found


def _tensor(array: Any, dtype: torch.dtype) -> torch.Tensor:
    found = torch.from_numpy(np.ascontiguousarray(array))
    return found.to(dtype) if found.is_floating_point() else found
