"""Random numbers of PyTorch, NumPy and Python that models, losses and data sets draw: functions of seeds, and put back as they were."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from .._samples import number

_END = object()


def _of_device(device: torch.device) -> list[torch.Generator]:
    """The generators that computations on a device draw from."""
    if device.type == "cuda":
        return [torch.default_generator, torch.cuda.default_generators[device.index]]
    if device.type == "mps":
        return [torch.default_generator, torch.mps._get_default_mps_generator()]
    return [torch.default_generator]


@contextmanager
def seeding(device: torch.device, own: Iterable[torch.Generator] = ()) -> Iterator[Callable[[int], None]]:
    """Lends the random numbers of PyTorch, NumPy and Python, which `F.dropout`, augmentations and the like draw from, and those of given generators: returns a function that
    seeds them all, and puts them back as they were."""
    generators = [*_of_device(device), *own]
    states = [generator.get_state() for generator in generators]
    of_numpy, of_python = np.random.get_state(legacy=False), random.getstate()

    def seed(value: int) -> None:
        # Not `torch.manual_seed`, which also notes a stack trace for devices that are not in use.
        for generator in generators:
            generator.manual_seed(value)
        # Another seed, because NumPy's generator is PyTorch's and would draw the same bits.
        np.random.seed(number(value) % 2**32)
        random.seed(value)

    try:
        yield seed
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        np.random.set_state(of_numpy)
        random.setstate(of_python)


def passing(loader: Any, device: torch.device, *parts: int) -> Iterator[Any]:
    """The batches of a pass of a loader. What is drawn for the pass is a function of these numbers, and what is drawn for a batch also of its place."""
    found = (getattr(one, "generator", None) for one in (loader, getattr(loader, "sampler", None)))
    own = list({id(one): one for one in found if one is not None}.values())
    with seeding(device, own) as seed:
        seed(number(*parts))
        batches = iter(loader)
    for place in itertools.count():
        with seeding(device, own) as seed:
            seed(number(*parts, place))
            batch = next(batches, _END)
        if batch is _END:
            return
        yield batch
