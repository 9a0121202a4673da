"""Runs experiments: `run`, `sweep`, `check` and `reproduce`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _mile
from ._files import free_folder, read_settings
from ._graphs import section as network_section
from ._methods import resolve
from ._progress import Callback, close, observer
from ._runs import Run, Stopped, Sweep

_PathLike = str | Path


class _Request:
    """All parts of an experiment, from the arguments of `run`."""

    def __init__(self, experiment: Any, arguments: dict[str, Any], out: _PathLike | None, resume: bool) -> None:
        self.table, self.base = _table(experiment, out, resume)
        given = {key: value for key, value in arguments.items() if value is not None}
        self.set: Sequence[str] = given.pop("set", ())
        self.device: str | None = given.pop("device", None)
        problem = given.pop("problem", None)
        network = given.pop("network", None)
        algorithms = given.pop("algorithms", given.pop("algorithm", None))
        if algorithms is None:
            algorithms = self.table.get("algorithm", [])
            if experiment is None:
                _check_built_in(algorithms, out)
        if "iterations" in given:
            given["rounds"] = given.pop("iterations")
        if isinstance(given.get("seeds"), int):
            given["seeds"] = [given["seeds"]]
        if isinstance(given.get("start"), str):
            given["start"] = {"value": given["start"]}
        self.table.update(given)
        self.table["algorithm"], self.methods = resolve(algorithms)
        agents = getattr(problem, "agents", None)
        own = {} if agents is None else {"agents": agents}
        if network is not None:
            self.table["network"] = own | network_section(network, {})
        else:
            self.table["network"] = own | self.table.get("network", {})
        if "name" not in self.table and hasattr(problem, "name"):
            self.table["name"] = str(problem.name)
        self.problem = problem
        self.object: object | None = None

    def place(self, folder: Path) -> None:
        """Puts the problem into the table; a DataFrame is written to the folder."""
        if self.problem is None:
            pass
        elif isinstance(self.problem, Mapping):
            self.table["problem"] = dict(self.problem)
        elif hasattr(self.problem, "section"):
            self.table["problem"], self.object = self.problem.section(folder)
        else:
            self.table["problem"], self.object = {"kind": "given"}, self.problem
        if self.set:
            self.table = json.loads(_mile.replace(self.table, list(self.set)))

    @property
    def name(self) -> str:
        return str(self.table.get("name", "experiment"))


def _table(experiment: Any, out: _PathLike | None, resume: bool) -> tuple[dict[str, Any], Path]:
    if experiment is None:
        if resume and out is not None and (Path(out) / "config.toml").exists():
            return read_settings(Path(out) / "config.toml"), Path()
        return {}, Path()
    if isinstance(experiment, Mapping):
        return dict(experiment), Path()
    if isinstance(experiment, (str, Path)):
        path = Path(experiment)
        return read_settings(path), path.parent
    raise TypeError(f"experiment: expected a path or a dictionary, got {type(experiment).__name__}")


def _check_built_in(algorithms: Sequence[Mapping[str, Any]], out: _PathLike | None) -> None:
    """Refuses custom methods: a run directory holds the name of a method, but not the method."""
    for k, section in enumerate(algorithms):
        name = section.get("name")
        if name not in _mile.method_names():
            got, remedy = f"the custom method {name} of the run in {out}", "pass it again, as algorithms=[mile.method(...)]"
            raise _mile.ExperimentError(f"algorithm[{k}].name: expected a built-in method, got {got}; {remedy}")


def run(
    experiment: _PathLike | Mapping[str, Any] | None = None,
    *,
    problem: Any = None,
    network: Any = None,
    algorithms: Any = None,
    rounds: int | None = None,
    seeds: Sequence[int] | int | None = None,
    eval_every: int | None = None,
    precision: str | None = None,
    start: Mapping[str, Any] | str | None = None,
    stop: Mapping[str, float] | None = None,
    name: str | None = None,
    device: str | None = None,
    out: _PathLike | None = None,
    resume: bool = False,
    report: bool = False,
    set: Sequence[str] = (),
    progress: bool | Callback | None = None,
    **more: Any,
) -> Run:
    """Runs several methods and seeds on one problem, and keeps everything in a run directory.

    All arguments are keys of an experiment file. `experiment` is the path of such a file, or a dictionary with its sections; other arguments override its keys.

    problem: a section `[problem]`, `Quadratic`, `Table`, `mile.torch.Problem`, or any object with `loss` and `grad` (see `Objective`).
    network: a graph in any form that `graph` accepts.
    algorithms: a list of `method(...)`.
    rounds: communication rounds (`iterations` is an alias).
    stop: tolerances at which a job has converged and ends before its last round, such as {"grad_norm": 1e-6, "consensus": 1e-8}; `run.converged` says whether all have.
    device: where the agents of a built-in problem compute: "cpu" (the default), "cuda", "cuda:K", or "auto" for a GPU if there is one. Objectives in Python choose their own device.
    out: the run directory; default: runs/NAME, or the next free runs/NAME-2, ...
    resume: whether to continue the run in `out`; finished work is kept, and rounds, seeds and algorithms may be added.
    report: whether to write figures (SVG and PNG) and the page at the end, which takes about a second; `run.report()` writes the page later.
    set: overrides such as "algorithm.mile.xi=0.05", as with `mile run --set`.
    progress: whether to show a bar (default: in notebooks and terminals), or a function that is called with (kind, job, round, loss, text).

    Ctrl-C stops after the round and raises `Stopped`. An exception raised by an objective is passed on unchanged. In both cases records and checkpoints are kept.

    >>> import mile
    >>> run = mile.run(problem=mile.Quadratic(), algorithms=[mile.method("led", step_size=0.05)], rounds=20, out=tmp / "led")
    >>> run.complete, run.rows[-1]["round"]
    (True, 20)
    >>> run.resume(rounds=30).rows[-1]["round"]
    30
    """
    arguments: dict[str, Any] = {
        "problem": problem, "network": network, "algorithms": algorithms, "rounds": rounds, "seeds": seeds, "eval_every": eval_every,
        "precision": precision, "start": start, "stop": stop, "name": name, "device": device, "set": set or None, **more,
    }  # fmt: skip
    request = _Request(experiment, arguments, out, resume)
    ranks, folder = _shared(request, out, resume)
    request.place(folder)
    if "sweep" in request.table:
        raise _mile.ExperimentError("sweep: expected a single experiment, got a sweep; use mile.sweep, which runs every combination of values")

    def again(**changes: Any) -> Run:
        given = arguments | {"set": set, "report": report} | changes
        return run(experiment, **given, out=folder, resume=True, progress=progress)

    stopped = _execute(request, folder, resume, report, ranks, progress)
    found = Run(folder, again, problem)
    if stopped:
        raise Stopped(f"stopped after a round; continue with resume=True and out={str(folder)!r}", found)
    return found


def _shared(request: _Request, out: _PathLike | None, resume: bool) -> tuple[Any, Path]:
    """The processes that share the agents, if there are several, and the folder, which is the same for all."""
    ranks = request.problem.ranks() if hasattr(request.problem, "ranks") else None
    folder = Path(out) if out is not None else free_folder(request.name, resume)
    if ranks is not None:
        folder = Path(ranks.broadcast(0, str(folder).encode()).decode())
    return ranks, folder


def _execute(
    request: _Request, folder: Path, resume: bool, report: bool, ranks: Any, progress: bool | Callback | None
) -> bool:
    callback = observer(progress if ranks is None or ranks.rank == 0 else False)
    try:
        complete, stopped = _mile.run(
            request.table, request.base, folder, resume, report, request.object, request.methods, ranks, request.device, callback
        )
    finally:
        close(callback)
        if hasattr(request.problem, "close"):
            request.problem.close()
    return stopped and not complete


def sweep(
    experiment: _PathLike | Mapping[str, Any] | None = None,
    values: Mapping[str, Sequence[Any]] | None = None,
    *,
    mode: str | None = None,
    criterion: str | None = None,
    cv: int | None = None,
    out: _PathLike | None = None,
    resume: bool = False,
    report: bool = False,
    progress: bool | Callback | None = None,
    **arguments: Any,
) -> Sweep:
    """Runs every combination of values, and finds the best for each algorithm.

    `values` maps keys to lists: `{"step_size": [0.05, 0.1], "algorithm.mile.xi": [0.05, 0.1]}`; default: the section `[sweep]` of the experiment. `mode` is "cartesian" or
    "zip"; `criterion` is the quantity by which the best values are chosen; `cv` is the number of folds of a cross-validation, for tables in files. All other arguments are
    those of `run`.

    >>> import mile
    >>> found = mile.sweep(
    ...     problem=mile.Quadratic(dim=3), algorithms=[mile.method("mile", step_size=0.1, local_steps=3)], rounds=40,
    ...     values={"step_size": [0.01, 0.1]}, out=tmp / "sweep",
    ... )
    >>> sorted(found.trials["step_size"])
    [0.01, 0.1]
    """
    request = _Request(experiment, arguments, out, resume)
    ranks, folder = _shared(request, out, resume)
    request.place(folder)
    section = dict(request.table.get("sweep", {})) | dict(values or {})
    section |= {key: word for key, word in (("mode", mode), ("criterion", criterion), ("cv", cv)) if word is not None}
    request.table["sweep"] = section
    stopped = _execute(request, folder, resume, report, ranks, progress)
    found = Sweep(folder)
    if stopped:
        raise Stopped(f"stopped; continue with resume=True and out={str(folder)!r}", found)
    return found


def check(experiment: _PathLike | Mapping[str, Any] | None = None, **arguments: Any) -> str:
    """Checks an experiment without running it, and returns the resolved file with all defaults.

    >>> import mile
    >>> "rounds = 100" in mile.check(problem=mile.Quadratic(), algorithms=[mile.method("mile", step_size=0.1)])
    True
    """
    request = _Request(experiment, arguments, None, False)
    with tempfile.TemporaryDirectory() as folder:
        request.place(Path(folder))
        return _mile.check(request.table, request.base, request.object, request.methods, observer(False))


def load(folder: _PathLike, problem: Any = None) -> Run | Sweep:
    """Opens a run directory or a sweep, of this process or another; `problem` is needed only for the state dicts of a PyTorch model."""
    path = Path(folder)
    return Sweep(path) if (path / "sweep.json").exists() else Run(path, problem=problem)


def reproduce(
    item: str,
    *,
    scale: str = "quick",
    dataset: str | None = None,
    out: _PathLike | None = None,
    set: Sequence[str] = (),
    progress: bool | Callback | None = None,
) -> str:
    """Reproduces the paper's results: "table1", "fig1", "fig2" or "theorems", and "when" (which method needs least in which setting), at scale "quick" or "paper"; returns what was found.

    Results that are already in `out` (default: runs/reproduce-SCALE) are kept, so an interrupted call can be repeated.
    """
    if scale not in ("quick", "paper"):
        raise ValueError(f"scale: expected quick or paper, got {scale}")
    folder = Path(out if out is not None else f"runs/reproduce-{scale}") / item
    callback = observer(progress)
    try:
        text, stopped = _mile.reproduce(item, scale == "paper", dataset, folder, list(set), callback)
    finally:
        close(callback)
    if stopped:
        raise KeyboardInterrupt(f"stopped; call mile.reproduce again to continue in {folder}")
    return text
