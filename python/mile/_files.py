"""Files of a run directory: records, states and settings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _mile
from ._results import Record

_TYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "U8": np.uint8}


def read_records(folder: Path) -> list[Record]:
    """The records of a run."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    return [read_record(line) for line in path.read_text().splitlines() if line.strip()]


def read_record(line: str) -> Record:
    """A record, with all its numbers side by side; values that are not finite are NaN."""
    found = json.loads(line)
    found.update(found.pop("more", {}))
    return Record({key: math.nan if value is None else value for key, value in found.items()})


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run or a sweep."""
    return any((folder / file).exists() for file in ("config.toml", "sweep.json"))


def read_settings(path: Path) -> dict[str, Any]:
    """An experiment file, or the settings of a run."""
    try:
        text = path.read_text()
    except OSError as error:
        raise _mile.ExperimentError(f"{path}: cannot read the experiment: {error.strerror}") from None
    settings: dict[str, Any] = json.loads(_mile.read_experiment(text, []))
    return settings


def read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a saved state."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + size])
    found: dict[str, NDArray[Any]] = {}
    for name, entry in head.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            data = raw[8 + size + first : 8 + size + last]
            found[name] = np.frombuffer(data, dtype=_TYPES[entry["dtype"]]).reshape(entry["shape"])
    return found


def round_of_state(path: Path) -> int:
    """The round of a saved state."""
    with path.open("rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    round: int = json.loads(head["__metadata__"]["mile"])["state"]["header"]["round"]
    return round


def free_folder(name: str, resume: bool) -> Path:
    """The first unused folder of runs/NAME, runs/NAME-2, ..., or the last used one when resuming."""
    def folder(k: int) -> Path:
        return Path("runs") / (name if k == 1 else f"{name}-{k}")

    free = 1
    while folder(free).exists():
        free += 1
    return folder(max(free - 1, 1) if resume else free)


def safe_name(label: str) -> str:
    """The label, with characters that are unsafe in file names replaced."""
    return "".join(c if c.isalnum() or c in "-_.,+= " else "_" for c in label)
