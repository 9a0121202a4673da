"""Runs experiments: `run`, `sweep`, `check` and `reproduce`."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from . import _mile
from ._graphs import Network
from ._methods import Algorithms
from ._names import Built, Objectives, Precision, Stop
from ._progress import Callback, close, observer
from ._request import PathLike, Request, Resume, hinted
from ._results import Record
from ._runs import Run, Stopped, Sweep
from .loggers import Logger

if TYPE_CHECKING:
    from typing_extensions import Unpack

Problem = Objectives | Built | Mapping[str, object]


class Arguments(TypedDict, total=False):
    """The arguments of `run` that are keys of an experiment file."""

    problem: Problem
    network: Network
    algorithms: Algorithms
    rounds: int
    iterations: int
    seeds: Sequence[int] | int
    eval_every: int
    eval_agents: int | str
    agent_metrics: bool
    precision: Precision
    start: Mapping[str, object] | str
    stop: Stop
    event: Sequence[Mapping[str, object]]
    time: Mapping[str, object]
    name: str
    device: str
    set: Sequence[str]


class Changes(Arguments, total=False):
    """What may change when a run is resumed."""

    report: bool
    tensorboard: bool
    on_record: Callable[[Record], None] | None
    logger: str | Logger | None


def run(
    experiment: PathLike | Mapping[str, object] | None = None,
    *,
    out: PathLike | None = None,
    resume: Resume = False,
    overwrite: bool = False,
    report: bool = False,
    tensorboard: bool = False,
    progress: bool | Callback | None = None,
    on_record: Callable[[Record], None] | None = None,
    logger: str | Logger | None = None,
    **arguments: Unpack[Arguments],
) -> Run:
    """Runs several methods and seeds on one problem, and keeps everything in a run directory.

    All other arguments are keys of an experiment file. `experiment` is the path of such a file, or a dictionary with its sections; other arguments override its keys.

    problem: a section `[problem]`, `Quadratic`, `Table`, `mile.torch.Problem`, or any object with `loss` and `grad` (see `Objective`).
    network: a graph in any form that `graph` accepts.
    algorithms: a list of `method(...)`.
    rounds: communication rounds (`iterations` is an alias).
    seeds: a number, a list or a range.
    stop: tolerances at which a job has converged and ends before its last round, such as {"grad_norm": 1e-6, "consensus": 1e-8}; `run.converged` says whether all have.
    device: where the agents of a built-in problem compute: "cpu" (the default), "cuda", "cuda:K", or "auto" for a GPU if there is one. Objectives in Python choose their own device.
    set: overrides such as "algorithm.mile.xi=0.05", as with `mile run --set`.
    eval_every, eval_agents, agent_metrics, precision, start, event, time, name: as in an experiment file.
    out: the run directory; default: runs/NAME, or the next free runs/NAME-2, ...
    resume: whether to continue the run in `out`; finished work is kept, and rounds, seeds and algorithms may be added. With "auto", the run is continued if there is one and
        started otherwise, so that a script can simply be started again.
    overwrite: whether to replace the run in `out`, so that a notebook can be run twice.
    report: whether to write figures (SVG and PNG) and the page at the end, which takes about a second; `run.report()` writes the page later.
    tensorboard: whether to write the records as event files too, to `tensorboard` in the run directory.
    progress: whether to show a bar (default: in notebooks and terminals), or a function that is called with (kind, job, round, loss, text).
    on_record: a function that is called with each record, a dictionary as in `run.rows`.
    logger: "wandb" or "mlflow", or a `mile.loggers.Logger`, which sets the project too; each job is a run there.

    Ctrl-C stops after the round and raises `Stopped`, and a second Ctrl-C stops at once. An exception raised by an objective is passed on unchanged. In all cases records and
    checkpoints are kept.

    >>> import mile
    >>> run = mile.run(problem=mile.Quadratic(), algorithms=[mile.method("led", step_size=0.05)], rounds=20, out=tmp / "led")
    >>> run.complete, run.rows[-1]["round"]
    (True, 20)
    >>> run.resume(rounds=30).rows[-1]["round"]
    30
    """
    request = Request(experiment, arguments, out, resume)
    ranks, folder, goes_on = request.prepare(out, resume, overwrite)
    request.place(folder)
    if "sweep" in request.table:
        raise _mile.ExperimentError("sweep: expected a single experiment, got a sweep; use mile.sweep, which runs every combination of values")

    def again(**changes: Unpack[Changes]) -> Run:
        given: Changes = {**arguments, "report": report, "tensorboard": tensorboard, "on_record": on_record, "logger": logger, **changes}
        return run(experiment, out=folder, resume=True, progress=progress, **given)

    log = Logger(logger, folder=folder) if isinstance(logger, str) else logger
    try:
        stopped = _execute(request, folder, goes_on, (report, tensorboard), ranks, observer(_shown(progress, ranks), _both(log, on_record)))
    finally:
        if log is not None:
            log.close()
    found = Run(folder, again, request.problem)
    if stopped:
        raise Stopped(f"stopped after a round; continue with resume=True and out={str(folder)!r}", found)
    return found


def _both(log: Logger | None, on_record: Callable[[Record], None] | None) -> Callable[[Record], None] | None:
    """A function for each record: it is logged, and handed to the user's function."""
    if log is None or on_record is None:
        return log.record if log is not None else on_record
    functions = (log.record, on_record)

    def each(record: Record) -> None:
        for function in functions:
            function(record)

    return each


def _shown(progress: bool | Callback | None, ranks: Any) -> bool | Callback | None:
    """Only the first process shows its progress."""
    return progress if ranks is None or ranks.rank == 0 else False


def _execute(request: Request, folder: Path, resume: bool, wishes: tuple[bool, bool], ranks: Any, callback: Callback) -> bool:
    for note in request.notes:
        callback("note", "", 0, math.nan, note)
    try:
        complete, stopped = _mile.run(
            request.table, request.base, folder, resume, *wishes, request.object, request.methods, ranks, request.device, callback
        )
    except _mile.ExperimentError as error:
        hint = hinted(error)
        if hint is None:
            raise
        raise _mile.ExperimentError(f"{error}{' ' if str(error).endswith('?') else '; '}{hint}") from None
    finally:
        close(callback)
        if hasattr(request.problem, "close"):
            request.problem.close()
    return stopped and not complete


def sweep(
    experiment: PathLike | Mapping[str, object] | None = None,
    values: Mapping[str, Sequence[object]] | None = None,
    *,
    mode: str | None = None,
    criterion: str | None = None,
    cv: int | None = None,
    out: PathLike | None = None,
    resume: Resume = False,
    overwrite: bool = False,
    report: bool = False,
    tensorboard: bool = False,
    progress: bool | Callback | None = None,
    on_record: Callable[[Record], None] | None = None,
    logger: str | Logger | None = None,
    **arguments: Unpack[Arguments],
) -> Sweep:
    """Runs every combination of values, and finds the best for each algorithm.

    `values` maps keys to lists: `{"step_size": [0.05, 0.1], "algorithm.mile.xi": [0.05, 0.1]}`; default: the section `[sweep]` of the experiment. `mode` is "cartesian" or
    "zip"; `criterion` is the quantity by which the best values are chosen; `cv` is the number of folds of a cross-validation, for tables in files. All other arguments are
    those of `run`. Records that are handed to `on_record` and to a logger name their `point`.

    >>> import mile
    >>> found = mile.sweep(
    ...     problem=mile.Quadratic(dim=3), algorithms=[mile.method("mile", step_size=0.1, local_steps=3)], rounds=40,
    ...     values={"step_size": [0.01, 0.1]}, out=tmp / "sweep",
    ... )
    >>> sorted(found.trials["step_size"])
    [0.01, 0.1]
    """
    request = Request(experiment, arguments, out, resume, values or ())
    ranks, folder, goes_on = request.prepare(out, resume, overwrite)
    request.place(folder)
    section = dict(request.table.get("sweep", {})) | dict(values or {})
    section |= {key: word for key, word in (("mode", mode), ("criterion", criterion), ("cv", cv)) if word is not None}
    request.table["sweep"] = section
    log = Logger(logger, folder=folder) if isinstance(logger, str) else logger
    if log is not None and request.device not in (None, "cpu"):
        raise ValueError(f"logger: expected none on a GPU, where points compute together, got one with device={request.device!r}; log the runs afterwards, with mile log")
    try:
        stopped = _execute(request, folder, goes_on, (report, tensorboard), ranks, observer(_shown(progress, ranks), _both(log, on_record)))
    finally:
        if log is not None:
            log.close()
    found = Sweep(folder)
    if stopped:
        raise Stopped(f"stopped; continue with resume=True and out={str(folder)!r}", found)
    return found


def check(experiment: PathLike | Mapping[str, object] | None = None, **arguments: Unpack[Arguments]) -> str:
    """Checks an experiment without running it, and returns the resolved file with all defaults.

    >>> import mile
    >>> "rounds = 100" in mile.check(problem=mile.Quadratic(), algorithms=[mile.method("mile", step_size=0.1)])
    True
    """
    request = Request(experiment, arguments, None, False)
    with tempfile.TemporaryDirectory() as folder:
        request.place(Path(folder))
        return _mile.check(request.table, request.base, request.object, request.methods, observer(False))


def load(folder: PathLike, problem: Problem | None = None) -> Run | Sweep:
    """Opens a run directory or a sweep, of this process or another; `problem` is needed only for the state dicts of a PyTorch model.

    `load_run` and `load_sweep` open the one or the other.
    """
    path = Path(folder)
    return Sweep(path) if (path / "sweep.json").exists() else Run(path, problem=problem)


def load_run(folder: PathLike, problem: Problem | None = None) -> Run:
    """Opens a run directory, of this process or another.

    >>> import mile
    >>> _ = mile.run(problem=mile.Quadratic(), algorithms=[mile.method("led", lr=0.05)], rounds=4, out=tmp / "kept")
    >>> mile.load_run(tmp / "kept").rows[-1]["round"]
    4
    """
    return Run(Path(folder), problem=problem)


def load_sweep(folder: PathLike) -> Sweep:
    """Opens the folder of a sweep."""
    return Sweep(Path(folder))


def reproduce(
    item: str,
    *,
    scale: str = "quick",
    dataset: str | None = None,
    out: PathLike | None = None,
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
