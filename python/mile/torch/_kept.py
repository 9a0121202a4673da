"""What stays with the agents besides their vectors, in files next to those of states; and models that were exported.

Such a file has the round of its state in its name. It is written before the state replaces the earlier one, whose file is removed after: a process that is killed at any
moment leaves a state and what belongs to it.
"""

from __future__ import annotations

import glob
import io
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._files import read_safetensors, round_of_state
from ._alone import remembered
from ._ranks import Ranks

Own = dict[str, list[Any] | None]
"""What is kept of each agent, by what it is."""


def beside(state: Path, round: int) -> Path:
    """The file of what belongs to the state of a round. States have one name in all rounds, and these files do not, so a state that could not be replaced has its own left."""
    return state.with_suffix(f".round-{round}.agents.pt")


def keep(state: Path, round: int, own: Own, ranks: Ranks | None) -> None:
    """Stores what is kept of the hosted agents for the agents of all processes, whole or not at all; if there is nothing, no file is left."""
    parts = [own]
    if ranks is not None:
        room = io.BytesIO()
        torch.save(own, room)
        parts = [_loaded(io.BytesIO(part)) for part in ranks.all_gather(room.getvalue())]
        if ranks.rank > 0:
            return
    found = {what: [one for part in parts for one in part[what] or ()] for what in own}
    path = beside(state, round)
    if not any(found.values()):
        path.unlink(missing_ok=True)
        return
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        torch.save(found, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def forget(state: Path, round: int) -> None:
    """Removes what belonged to earlier states of a job: to those that this one has replaced, and for a final state also to its checkpoint."""
    folders = [state.parent, *([state.parent.parent / "checkpoints"] if state.parent.name == "final" else [])]
    for folder in folders:
        for path in folder.glob(f"{glob.escape(state.stem)}.round-*.agents.pt*"):
            if path != beside(state, round):
                path.unlink(missing_ok=True)


def kept(state: Path, round: int) -> dict[str, list[Any]]:
    """What is stored of all agents with the state of a round, by what it is."""
    path = beside(state, round)
    return _loaded(path) if path.exists() else {}


def kept_buffers(state: Path) -> list[dict[str, torch.Tensor]] | None:
    """The buffers of all agents in a state: stored beside it, or in it if the agents had no host."""
    beside_it = kept(state, round_of_state(state)).get("buffers")
    if beside_it:
        return beside_it
    packed = {int(key.removeprefix("memory.")): value.tobytes() for key, value in read_safetensors(state).items() if key.startswith("memory.")}
    # Before the bytes stands their number.
    memories = [packed[agent][8 : 8 + int.from_bytes(packed[agent][:8], "little")] for agent in sorted(packed)]
    return [remembered(memory) for memory in memories] or None


def _loaded(file: Any) -> Any:
    # Schedulers of milestones remember a counter.
    with torch.serialization.safe_globals([Counter]):
        return torch.load(file, map_location="cpu", weights_only=True)


def load_file(path: str | Path) -> dict[str, torch.Tensor]:
    """The state dict in an exported model, `final/*.average.safetensors` or `final/*.agent-0.safetensors` of a run directory, as `safetensors.torch.load_file` reads it.

    >>> import torch, mile, mile.torch
    >>> model = torch.nn.Linear(2, 1)
    >>> problem = mile.torch.Problem(model, torch.nn.MSELoss(), [(torch.ones(4, 2), torch.ones(4, 1))] * 3)
    >>> run = mile.run(problem=problem, algorithms=[mile.method("mile", lr=0.1)], rounds=3, out=tmp / "exported", progress=False)
    >>> model.load_state_dict(mile.torch.load_file(run.folder / "final" / "mile-seed0.agent-2.safetensors"))
    <All keys matched successfully>
    """
    return {key: torch.from_numpy(value.copy()) for key, value in read_safetensors(Path(path)).items()}


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
