"""Directories of runs and sweeps, made by this process or another."""

from __future__ import annotations

import html
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from . import _mile
from ._files import read_records, read_safetensors, read_settings, safe_name
from ._plots import plot as draw
from ._results import Config, Outcome, Record

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from matplotlib.axes import Axes
    from typing_extensions import Unpack

    from ._running import Changes

State = dict[str, NDArray[np.floating]]
"""The vectors of a method by name, each of shape (agents, n)."""


class HasModels(Protocol):
    """A problem whose parameters are those of PyTorch models."""

    def state_dicts(self, x: NDArray[np.floating], state: Path, /) -> list[dict[str, torch.Tensor]]: ...

    def state_dict(self, x: NDArray[np.floating], state: Path, /) -> dict[str, torch.Tensor]: ...


class Stopped(KeyboardInterrupt):
    """A run was interrupted after a round; `run` holds what was done, and `run.resume()` continues it."""

    def __init__(self, message: str, run: Run | Sweep) -> None:
        super().__init__(message)
        self.run = run

    def __reduce__(self) -> tuple[Any, ...]:
        return Stopped, (self.args[0], self.run)


class Run:
    """A run directory: several methods and seeds on one problem."""

    def __init__(self, folder: Path, again: Callable[..., Run] | None = None, problem: object = None) -> None:
        self.folder = Path(folder)
        if not (self.folder / "config.toml").exists():
            raise _mile.ExperimentError(f"{self.folder}: expected a run directory with a config.toml, got none")
        self._again = again
        self._problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        """A run is its folder: a copy in another process reads it, as `mile.load_run` does."""
        return Run, (self.folder.absolute(),)

    @property
    def config(self) -> Config:
        """The resolved experiment."""
        return cast(Config, read_settings(self.folder / "config.toml"))

    @property
    def rows(self) -> list[Record]:
        """The records as dictionaries."""
        return read_records(self.folder)

    @property
    def records(self) -> pd.DataFrame:
        """The records as a DataFrame, with a row for each algorithm, seed and recorded round."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def outcomes(self) -> list[Outcome]:
        """How each algorithm ended with each seed: status ("converged", "last round", "diverged", "stopped" or "failed"), what shows it (`ending`), rounds, last record."""
        path = self.folder / "summary.json"
        found: list[Outcome] = json.loads(path.read_text()) if path.exists() else []
        return found

    @property
    def complete(self) -> bool:
        """Whether all jobs have ended."""
        config, outcomes = self.config, self.outcomes
        over = [one for one in outcomes if one["status"] in ("converged", "last round", "done", "diverged")]
        return len(over) == len(config["algorithm"]) * len(config["seeds"])

    @property
    def converged(self) -> bool:
        """Whether all jobs have converged: `stop` was reached or, without it, gradient and disagreement have vanished.

        >>> import mile
        >>> method = mile.method("led", step_size=0.05)
        >>> mile.run(problem=mile.Quadratic(), algorithms=[method], rounds=20, out=tmp / "short").converged
        False
        """
        return self.complete and all(one["status"] == "converged" for one in self.outcomes)

    @property
    def table(self) -> str:
        """The table of results, as text; below it, what ended far from converged."""
        path = self.folder / "table.txt"
        return path.read_text() if path.exists() else ""

    def _job(self, label: str | None, seed: int | None) -> tuple[str, int]:
        config = self.config
        labels = [str(one["label"]) for one in config["algorithm"]]
        if label is None:
            if len(labels) > 1:
                raise ValueError(f"label: expected one of {', '.join(labels)}, got none")
            label = labels[0]
        names = {str(one["name"]).split("(")[0]: str(one["label"]) for one in config["algorithm"]}
        label = label if label in labels else names.get(label, label)
        if label not in labels:
            raise ValueError(f"label: expected one of {', '.join(labels)}, got {label}")
        return label, config["seeds"][0] if seed is None else seed

    def _state_path(self, label: str | None, seed: int | None) -> Path:
        name, number = self._job(label, seed)
        file = f"{safe_name(name)}-seed{number}.safetensors"
        for folder in ("final", "checkpoints"):
            path = self.folder / folder / file
            if path.exists():
                return path
        raise FileNotFoundError(f"{self.folder}: expected a state of {name} with seed {number}, got none; resume the run first")

    def state(self, label: str | None = None, seed: int | None = None) -> State:
        """The last state of a job: arrays of shape (agents, n), by the names of the method's vectors."""
        found = read_safetensors(self._state_path(label, seed))
        return {name: value for name, value in found.items() if not name.startswith("memory.")}

    def x(self, label: str | None = None, seed: int | None = None) -> NDArray[np.floating]:
        """The agents' models, of shape (agents, n)."""
        return self.state(label, seed)["x"]

    def average(self, label: str | None = None, seed: int | None = None) -> NDArray[np.float64]:
        """The average of the agents' models."""
        mean: NDArray[np.float64] = self.x(label, seed).mean(axis=0, dtype=np.float64)
        return mean

    def state_dicts(self, label: str | None = None, seed: int | None = None) -> list[dict[str, torch.Tensor]]:
        """A PyTorch `state_dict` for each agent, with its own buffers."""
        path = self._state_path(label, seed)
        return self._torch().state_dicts(self.x(label, seed), path)

    def state_dict(self, label: str | None = None, seed: int | None = None) -> dict[str, torch.Tensor]:
        """The PyTorch `state_dict` of the average of all agents, buffers included."""
        path = self._state_path(label, seed)
        return self._torch().state_dict(self.x(label, seed), path)

    def predict(self, data: pd.DataFrame | str | Path, label: str | None = None, seed: int | None = None, agent: int | None = None) -> pd.DataFrame:
        """The predictions of a model for new data, a row for each of theirs, as `mile predict` makes them: a frame or a file with the columns that the model uses, or files as in
        training. The model is the average of all agents' or, with `agent`, that of one.

        >>> import mile, pandas as pd
        >>> frame = pd.DataFrame({"clinic": [0, 0, 0, 1, 1, 1], "dose": [0.0, 1.0, 2.0, 1.0, 2.0, 4.0], "cost": [1.0, 3.0, 5.0, 3.0, 5.0, 9.0]})
        >>> table = mile.Table(frame, target="cost", by="clinic", intercept=True)
        >>> run = mile.run(problem=table, network={"agents": 2, "topology": "path"}, algorithms=[mile.method("led", step_size="auto")], rounds=2000, out=tmp / "costs")
        >>> run.predict(pd.DataFrame({"dose": [3.0, 10.0]}))["prediction"].round(6).tolist()
        [7.0, 21.0]
        """
        import pandas as pd

        name, number = self._job(label, seed)
        with tempfile.TemporaryDirectory() as folder:
            if isinstance(data, pd.DataFrame):
                path = Path(folder) / "new.csv"
                data.to_csv(path, index=False)
            else:
                path = Path(data)
            try:
                found = _mile.predict(self.folder, path, name, number, agent)
            except _mile.ExperimentError as error:
                # The options of the command have the names of the arguments.
                raise _mile.ExperimentError(str(error).removeprefix("--")) from None
        return pd.read_csv(io.StringIO(found))

    def _torch(self) -> HasModels:
        if not hasattr(self._problem, "state_dicts") or not hasattr(self._problem, "state_dict"):
            got, remedy = type(self._problem).__name__, "pass it as mile.load_run(folder, problem=...)"
            raise TypeError(f"problem: expected a mile.torch.Problem for state dicts, got {got}; {remedy}")
        return self._problem

    def resume(self, **changes: Unpack[Changes]) -> Run:
        """Continues a run that was stopped, or extends it: `run.resume(rounds=400)`."""
        if self._again is None:
            raise TypeError("resume: expected a run of this process, got a loaded one; use mile.run(..., out=folder, resume=True)")
        return self._again(**changes)

    def plot(self, quantity: str = "loss", axis: str = "round", ax: Axes | None = None) -> Axes:
        """Draws a quantity of the records with matplotlib, and returns the axes."""
        return draw(self.records, quantity, axis, ax)

    def report(self, path: str | Path | None = None) -> Path:
        """Writes a self-contained page about the run, and returns its path."""
        out = self.folder / "report.html" if path is None else Path(path)
        _mile.write_page([self.folder], out)
        return out

    @property
    def figures(self) -> dict[str, str]:
        """The figures of the report as SVG, by name: the overview, curves of each quantity, the graph."""
        return dict(_mile.pictures(self.folder))

    def __repr__(self) -> str:
        return f"<Run in {self.folder}: {len(self.outcomes)} results{'' if self.complete else ', incomplete'}>\n{self.table}"

    def _repr_html_(self) -> str:
        figures = self.figures
        first = next(iter(figures.values()), "")
        return f"<div>{first}<pre>{html.escape(self.table)}</pre><code>{html.escape(str(self.folder))}</code></div>"


def _points(trial: dict[str, Any]) -> list[str]:
    """The folders of a trial's runs."""
    point: str = trial["point"]
    return [f"{point}/fold-{fold}" for fold in trial.get("folds", [])] or [point]


class Sweep:
    """A folder with a run for each combination of values."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        path = self.folder / "sweep.json"
        if not path.exists():
            raise _mile.ExperimentError(f"{self.folder}: expected a sweep with a sweep.json, got none")
        self._found: dict[str, Any] = json.loads(path.read_text())

    @property
    def trials(self) -> pd.DataFrame:
        """A DataFrame with a row for each algorithm, combination of values, seed and, in a cross-validation, fold: its last record."""
        import pandas as pd

        rows = []
        for trial in self._found["trials"]:
            folds = trial.get("folds", [])
            for k, outcome in enumerate(trial["outcomes"]):
                last = {key: value for key, value in outcome["last"].items() if key not in ("label", "seed")}
                common = {"label": trial["label"], "point": trial["point"], "seed": outcome["seed"], "status": outcome["status"]}
                rows.append(common | ({"fold": folds[k]} if folds else {}) | dict(trial["settings"]) | last)
        return pd.DataFrame(rows)

    @property
    def criterion(self) -> str:
        """The quantity by which the best values are chosen."""
        found: str = self._found["criterion"]
        return found

    @property
    def runs(self) -> dict[str, Run]:
        """The run of each point, by name; in a cross-validation each fold has one."""
        points = {name for trial in self._found["trials"] for name in _points(trial)}
        return {name: Run(self.folder / "points" / name) for name in sorted(points)}

    @property
    def complete(self) -> bool:
        """Whether all points have been run."""
        done: bool = len(self.runs) == self._found["points"]
        return done

    @property
    def summary(self) -> str:
        """The best values of each algorithm, as text."""
        return _mile.sweep_summary(self.folder)

    def report(self, path: str | Path | None = None) -> Path:
        """Writes a self-contained page about the sweep, and returns its path."""
        out = self.folder / "report.html" if path is None else Path(path)
        _mile.write_page([self.folder], out)
        return out

    def __repr__(self) -> str:
        return f"<Sweep in {self.folder}: {len(self.runs)} of {self._found['points']} points>\n{self.summary}"

    def _repr_html_(self) -> str:
        return f"<div><pre>{html.escape(self.summary)}</pre><code>{html.escape(str(self.folder))}</code></div>"
