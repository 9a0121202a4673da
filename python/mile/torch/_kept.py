"""What stays with the agents besides their vectors, and files of it next to those of states."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ._ranks import Ranks


def keep(state: Path, what: str, own: list[Any] | None, ranks: Ranks | None) -> None:
    """Stores something of each hosted agent next to a state, for the agents of all processes; if there is nothing, no file is left."""
    path = _beside(state, what)
    is_first = ranks is None or ranks.rank == 0
    if is_first and path.parent.name == "final":
        (path.parent.parent / "checkpoints" / path.name).unlink(missing_ok=True)
    if own is None:
        if is_first:
            path.unlink(missing_ok=True)
        return
    room = io.BytesIO()
    torch.save(own, room)
    parts = [room.getvalue()] if ranks is None else ranks.all_gather(room.getvalue())
    if is_first:
        torch.save([one for part in parts for one in _loaded(io.BytesIO(part))], path)


def kept(state: Path, what: str) -> list[Any] | None:
    """What is stored of all agents next to a state."""
    path = _beside(state, what)
    return _loaded(path) if path.exists() else None


def _beside(state: Path, what: str) -> Path:
    return state.with_suffix(f".{what}.pt")


def _loaded(file: Any) -> list[Any]:
    # Schedulers of milestones remember a counter.
    with torch.serialization.safe_globals([Counter]):
        found: list[Any] = torch.load(file, map_location="cpu", weights_only=True)
    return found


class Losses:
    """Sums of the losses of mini-batches, for each hosted agent; they stay on the device until they are asked for."""

    def __init__(self, rows: torch.Tensor) -> None:
        self._sums = rows.new_zeros(len(rows))
        self._batches = np.zeros(len(rows))

    def add(self, k: int, loss: torch.Tensor, share: float) -> None:
        """Adds the loss of a mini-batch of the k-th hosted agent, which is this share of a gradient."""
        self._sums[k] += loss.detach() if share == 1 else loss.detach() * share
        self._batches[k] += share

    def add_all(self, rows: list[int], losses: torch.Tensor, share: float) -> None:
        """The same for these rows at once."""
        self._sums[rows] += losses.detach() if share == 1 else losses.detach() * share
        self._batches[rows] += share

    def mean(self) -> NDArray[np.float64] | None:
        """The mean of each hosted agent, if there were mini-batches."""
        if not (self._batches > 0.5).any():
            return None
        found: NDArray[np.float64] = self._sums.cpu().double().numpy() / np.maximum(np.round(self._batches), 1.0)
        return found

    def forget(self) -> None:
        """Begins again."""
        self._sums.zero_()
        self._batches[:] = 0.0

    def state(self) -> list[Any] | None:
        """The sum and the number of each hosted agent's losses, if there are some."""
        return [(float(one), float(count)) for one, count in zip(self._sums, self._batches, strict=True)] if self._batches.any() else None

    def restore(self, state: list[Any]) -> None:
        """Continues with these."""
        self._sums.copy_(torch.tensor([one for one, _ in state], dtype=torch.float64))
        self._batches[:] = [count for _, count in state]
