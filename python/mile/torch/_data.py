"""The data of one agent, in any form that PyTorch knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

from .. import _mile

Batch = tuple[Any, ...]


def number(*parts: int) -> int:
    """A seed from several numbers."""
    mixed = 0x9E3779B97F4A7C15
    for part in parts:
        mixed = ((mixed ^ (part + 0x7F4A7C15)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        mixed ^= mixed >> 31
    return mixed & (2**63 - 1)


class Source(Protocol):
    """Mini-batches of one agent, as a function of the seed and the draw."""

    rows: int

    def batch(self, seed: int, draw: int) -> Batch: ...

    def all(self, at_once: int) -> Iterator[tuple[int, Batch]]: ...


def to_device(value: Any, device: torch.device) -> Any:
    """A batch, however nested, on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {key: to_device(one, device) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(to_device(one, device) for one in value)
    return value


def as_batch(value: Any) -> Batch:
    """A batch as a tuple."""
    return value if isinstance(value, tuple) else (value,)


class Tensors:
    """Tensors with a row for each sample, which stay on the device."""

    def __init__(self, tensors: tuple[torch.Tensor, ...], agent: int, size: int | None, device: torch.device) -> None:
        self.rows = len(tensors[0])
        if any(len(tensor) != self.rows for tensor in tensors):
            lengths = [len(tensor) for tensor in tensors]
            raise _mile.ExperimentError(f"data, agent {agent}: expected tensors with the same number of rows, got {lengths}")
        self.tensors = tuple(tensor.to(device) for tensor in tensors)
        self.agent, self.size, self.device = agent, size, device

    def indices(self, seed: int, draw: int) -> torch.Tensor:
        assert self.size is not None
        return torch.from_numpy(_mile.samples(self.rows, self.size, True, seed, self.agent, draw))

    def batch(self, seed: int, draw: int) -> Batch:
        if self.size is None:
            return self.tensors
        chosen = self.indices(seed, draw).to(self.device, non_blocking=True)
        return tuple(tensor.index_select(0, chosen) for tensor in self.tensors)

    def all(self, at_once: int) -> Iterator[tuple[int, Batch]]:
        for begin in range(0, self.rows, at_once):
            part = tuple(tensor[begin : begin + at_once] for tensor in self.tensors)
            yield len(part[0]), part


class Indexed:
    """A data set with `len` and indexing, whose samples are collated batch by batch."""

    def __init__(self, dataset: Any, agent: int, size: int | None, device: torch.device) -> None:
        self.dataset, self.rows = dataset, len(dataset)
        self.agent, self.size, self.device = agent, size, device

    def _collect(self, indices: Any) -> Batch:
        return as_batch(to_device(tuple(default_collate([self.dataset[int(k)] for k in indices])), self.device))

    def batch(self, seed: int, draw: int) -> Batch:
        if self.size is None:
            return self._collect(range(self.rows))
        return self._collect(_mile.samples(self.rows, self.size, True, seed, self.agent, draw))

    def all(self, at_once: int) -> Iterator[tuple[int, Batch]]:
        for begin in range(0, self.rows, at_once):
            chosen = range(begin, min(begin + at_once, self.rows))
            yield len(chosen), self._collect(chosen)


class Loaded:
    """A `DataLoader`, with its own sampler, batches and workers. Its passes are seeded by the run's seed, the agent and the number of the pass, so that a run can be resumed."""

    def __init__(self, loader: Any, agent: int, device: torch.device) -> None:
        self.loader, self.agent, self.device = loader, agent, device
        self.batches = len(loader)
        self.rows = len(loader.dataset)
        self.place: tuple[int, int] | None = None
        self.passing: Iterator[Any] | None = None
        self.current: Batch = ()

    def batch(self, seed: int, draw: int) -> Batch:
        if self.place == (seed, draw):
            return self.current
        passes, offset = divmod(draw, self.batches)
        goes_on = self.place == (seed, draw - 1) and offset > 0 and self.passing is not None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number(seed, self.agent, passes, offset))
            if not goes_on:
                torch.manual_seed(number(seed, self.agent, passes))
                self.passing = iter(self.loader)
                for _ in range(offset):
                    next(self.passing)
            assert self.passing is not None
            found = next(self.passing)
        self.current = as_batch(to_device(tuple(found) if isinstance(found, list) else found, self.device))
        self.place = (seed, draw)
        return self.current

    def close(self) -> None:
        """Ends the pass, and with it its workers."""
        self.place, self.passing, self.current = None, None, ()

    def all(self, at_once: int) -> Iterator[tuple[int, Batch]]:
        """Every sample once, in order, whatever the loader's sampler does."""
        plain = DataLoader(self.loader.dataset, batch_size=at_once, collate_fn=self.loader.collate_fn)
        for found in plain:
            batch = as_batch(to_device(tuple(found) if isinstance(found, list) else found, self.device))
            first = batch[0]
            yield (len(first) if hasattr(first, "__len__") else 1), batch


def source(data: Any, agent: int, size: int | None, device: torch.device) -> Source:
    """The data of an agent in any form."""
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, (tuple, list)) and data and all(isinstance(one, torch.Tensor) for one in data):
        found: Source = Tensors(tuple(data), agent, size, device)
    elif isinstance(data, DataLoader):
        found = Loaded(data, agent, device)
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        found = Indexed(data, agent, size, device)
    else:
        expected = "tensors (inputs, targets), a Dataset with len, or a DataLoader"
        raise TypeError(f"data, agent {agent}: expected {expected}, got {type(data).__name__}")
    if found.rows == 0:
        raise _mile.ExperimentError(f"data, agent {agent}: expected at least one sample, got none")
    return found
