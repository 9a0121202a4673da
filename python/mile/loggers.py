"""Records of runs in Weights & Biases and in MLflow, while a run goes on or afterwards.

`mile.run(..., logger="wandb")` logs each record when it is made, and so does `mile.sweep`. `mile log RUN --to wandb` does the same with the records of a run directory, or of
a sweep's, of any process: it reads `metrics.jsonl`, and with `--follow` goes on until all jobs have ended. Each job, a method with a seed, is a run of the
logger (in a sweep with the point it belongs to), and the steps are rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from ._files import read_record, read_settings
from ._results import Record

NAMES = ("wandb", "mlflow")
_OF_JOB = ("algorithm", "label", "seed", "agents", "point")
_INTERVAL = 0.5


class _Job(Protocol):
    """A run of a logger."""

    def log(self, values: dict[str, float], round: int) -> None: ...
    def close(self) -> None: ...


class _Wandb:
    def __init__(self, project: str, name: str, config: dict[str, Any], folder: Path, offline: bool) -> None:
        import wandb

        # A separate folder below the one that is given, which must exist.
        folder.mkdir(parents=True, exist_ok=True)
        self.run = wandb.init(
            project=project, name=name, group=folder.name, config=config, dir=str(folder), mode="offline" if offline else None, reinit="create_new"
        )

    def log(self, values: dict[str, float], round: int) -> None:
        self.run.log(values, step=round)

    def close(self) -> None:
        self.run.finish()


class _MLflow:
    def __init__(self, project: str, name: str, config: dict[str, Any], folder: Path, offline: bool) -> None:
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        self.metric = Metric
        folder.mkdir(parents=True, exist_ok=True)
        self.client = MlflowClient(tracking_uri=f"sqlite:///{folder.resolve() / 'mlflow.db'}" if offline else None)
        found = self.client.get_experiment_by_name(project)
        experiment = found.experiment_id if found else self.client.create_experiment(project)
        self.run = self.client.create_run(experiment, run_name=name).info.run_id
        for key, value in config.items():
            self.client.log_param(self.run, key, value)

    def log(self, values: dict[str, float], round: int) -> None:
        now = int(1000 * time.time())
        self.client.log_batch(self.run, metrics=[self.metric(key, value, now, round) for key, value in values.items()])

    def close(self) -> None:
        self.client.set_terminated(self.run)


class Logger:
    """Hands records to Weights & Biases or MLflow.

    to: "wandb" or "mlflow", which must be installed.
    project: the project or experiment there; default: mile.
    folder: the run directory, where an offline logger writes.
    offline: whether nothing is sent. Weights & Biases then writes `wandb/` (`wandb sync` sends it later), and MLflow `mlflow.db`.
    """

    def __init__(self, to: str, *, project: str = "mile", folder: str | Path = ".", offline: bool = False) -> None:
        if to not in NAMES:
            raise ValueError(f"logger: expected one of {', '.join(NAMES)}, got {to}")
        try:
            __import__(to)
        except ModuleNotFoundError:
            raise ValueError(f"logger: expected an installed package, got {to}; pip install {to}") from None
        self._kind = _Wandb if to == "wandb" else _MLflow
        self._project, self._folder, self._offline = project, Path(folder), offline
        self._jobs: dict[tuple[str, ...], _Job] = {}

    def record(self, record: Record) -> None:
        """Logs a record: its numbers, at its round."""
        config: dict[str, Any] = {key: record[key] for key in ("algorithm", "label", "seed", "point") if key in record}
        job = (str(record["label"]), f"seed {record['seed']}", *([str(record["point"])] if "point" in record else []))
        if job not in self._jobs:
            self._jobs[job] = self._kind(self._project, ", ".join(job), config, self._folder, self._offline)
        values = {key: float(value) for key, value in record.items() if key not in _OF_JOB and isinstance(value, (int, float))}
        self._jobs[job].log(values, int(record["round"]))

    def close(self) -> None:
        """Ends what was begun; to be called once, when no more records come."""
        for job in self._jobs.values():
            job.close()
        self._jobs.clear()


def _runs(folder: Path) -> dict[str, Path]:
    """The run directories in a folder by the names of their points: all that a sweep has begun, or the folder itself, without a name."""
    if not (folder / "sweep.toml").exists():
        return {"": folder}
    points = folder / "points"
    found = [*points.glob("*/config.toml"), *points.glob("*/fold-*/config.toml")]
    return {path.parent.relative_to(points).as_posix(): path.parent for path in sorted(found)}


def _is_complete(folder: Path) -> bool:
    """Whether all jobs of a run, or of all points of a sweep, have ended."""
    try:
        if (folder / "sweep.toml").exists():
            points: int = json.loads((folder / "sweep.json").read_text())["points"]
            return points <= sum(1 for run in _runs(folder).values() if _is_complete(run))
        outcomes = json.loads((folder / "summary.json").read_text())
        experiment = read_settings(folder / "config.toml")
    except (OSError, ValueError):
        return False
    jobs: int = len(experiment["algorithm"]) * len(experiment["seeds"])
    return jobs <= sum(1 for outcome in outcomes if outcome["status"] != "stopped")


class _Records:
    """The records in a file that grows, each of them once. When a run begins or ends it sorts them: then another file takes the place of this one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode, self._place = 0, 0
        self._seen: set[tuple[object, ...]] = set()

    def new(self, from_the_start: bool) -> Iterator[Record]:
        """Those in whole lines that have not been read; the beginning of a line is read when the line is whole."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            inode = os.fstat(file.fileno()).st_ino
            file.seek(max(self._place - 1, 0))
            # Another file, which may have got the number of the old one.
            if from_the_start or inode != self._inode or (self._place and file.read(1) != b"\n"):
                self._inode, self._place = inode, 0
                file.seek(0)
            text = file.read()
        lines = text[: text.rfind(b"\n") + 1]
        self._place += len(lines)
        for line in lines.splitlines():
            record = read_record(line.decode())
            key = (record["label"], record["seed"], record["round"])
            if key not in self._seen:
                self._seen.add(key)
                yield record


def records(folder: str | Path, follow: bool = False) -> Iterator[Record]:
    """The records of a run directory, in the order in which they were made; with `follow`, also those still to come. Those of a sweep name their `point`.

    >>> import mile
    >>> from mile.loggers import records
    >>> _ = mile.run(problem=mile.Quadratic(), algorithms=[mile.method("led", lr=0.05)], rounds=4, eval_every=2, out=tmp / "logged")
    >>> [record["round"] for record in records(tmp / "logged", follow=True)]
    [0, 2, 4]
    """
    folder = Path(folder)
    read: dict[str, _Records] = {}
    while True:
        # Before reading: what was made before the end is in the files.
        ended = not follow or _is_complete(folder)
        for point, run in _runs(folder).items():
            for record in read.setdefault(point, _Records(run / "metrics.jsonl")).new(from_the_start=ended):
                yield Record(point=point, **record) if point else record
        if ended:
            return
        time.sleep(_INTERVAL)


def main(arguments: list[str] | None = None) -> int:
    """`mile log`: returns its exit code."""
    parser = argparse.ArgumentParser(prog="mile log")
    parser.add_argument("run", type=Path)
    parser.add_argument("--to", choices=NAMES, required=True)
    parser.add_argument("--project", default="mile")
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--follow", action="store_true")
    given = parser.parse_args(arguments)
    try:
        if not any((given.run / name).exists() for name in ("config.toml", "sweep.toml")):
            raise ValueError(f"{given.run}: expected a run directory, got no config.toml there; give the folder of a run or of a sweep")
        logger = Logger(given.to, project=given.project, folder=given.run, offline=given.offline)
    except ValueError as error:
        print(f"mile: {error}", file=sys.stderr)
        return 2
    try:
        for record in records(given.run, given.follow):
            logger.record(record)
    except KeyboardInterrupt:
        return 130
    finally:
        logger.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
