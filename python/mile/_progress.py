"""Progress of runs: a bar in notebooks and terminals if tqdm is installed, otherwise a line for each job that ends."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from ._files import read_record
from ._results import Record

Callback = Callable[[str, str, int, float, str], None]


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    kernel = shell.get_ipython() if shell is not None else None
    return kernel is not None and "IPKernelApp" in getattr(kernel, "config", {})


def is_watched() -> bool:
    """Whether somebody looks at what is printed: in a notebook or a terminal."""
    return _in_notebook() or sys.stderr.isatty()


def observer(progress: bool | Callback | None, on_record: Callable[[Record], None] | None = None) -> Callback:
    """The function that is called with (kind, job, round, loss, text) at each event."""
    shown = _observer(progress)
    return shown if on_record is None else _Recording(shown, on_record)


def _observer(progress: bool | Callback | None) -> Callback:
    if callable(progress):
        return progress
    if progress is False:
        return _silent
    if progress is None and not is_watched():
        return _notes
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _lines
    return _Bar(tqdm)


def _silent(kind: str, name: str, round: int, value: float, text: str) -> None:
    if kind == "stopping":
        print(f"mile: {text}", file=sys.stderr)


def _notes(kind: str, name: str, round: int, value: float, text: str) -> None:
    """What was chosen before the first step, for programs without a terminal."""
    if kind in ("note", "stopping"):
        print(_said(value, text), file=sys.stderr)


def _said(share: float, text: str) -> str:
    """A note, with the share of evaluations in the work of the run if it is about them."""
    return f"mile: {text}" if math.isnan(share) else f"mile: {text}; they are {share:.0%} of the work"


def _lines(kind: str, name: str, round: int, value: float, text: str) -> None:
    _notes(kind, name, round, value, text)
    if kind in ("ended", "point"):
        print(text or f"point {round} of {value:.0f}: {name}", file=sys.stderr)


class _Recording:
    """An observer that also hands records to a function; those of a sweep name their point, unless several points compute together."""

    def __init__(self, shown: Callback, on_record: Callable[[Record], None]) -> None:
        self.shown, self.on_record = shown, on_record
        self.point: str | None = None
        self.jobs, self.done = 0, set[str]()

    def __call__(self, kind: str, name: str, round: int, value: float, text: str) -> None:
        self.shown(kind, name, round, value, text)
        if kind == "point":
            self.point = name if len(self.done) == self.jobs else None
        elif kind == "planned":
            self.jobs, self.done = int(value), set()
        elif kind in ("ended", "kept"):
            self.done.add(name)
        elif kind == "recorded":
            record = read_record(text)
            self.on_record(record if self.point is None else Record(point=self.point, **record))


class _Bar:
    """One bar for all jobs of a run, or of one point of a sweep; it counts rounds."""

    def __init__(self, tqdm: Any) -> None:
        self.tqdm = tqdm
        self.bar: Any = None
        self.title = "mile"
        self.rounds = 0
        self.done: dict[str, int] = {}

    def __call__(self, kind: str, name: str, round: int, value: float, text: str) -> None:
        if kind == "point":
            self.title = f"point {round} of {value:.0f}"
        elif kind == "planned":
            self.close()
            self.rounds, self.done = round, {}
            self.bar = self.tqdm(total=round * int(value), desc=self.title, unit="round")
        elif kind in ("note", "stopping"):
            self.tqdm.write(_said(value, text), file=sys.stderr)
        elif self.bar is not None:
            if kind in ("advanced", "recorded", "kept"):
                self.done[name] = max(self.done.get(name, 0), round)
            if kind == "ended":
                self.done[name] = self.rounds
            self.bar.update(sum(self.done.values()) - self.bar.n)
            if kind == "recorded":
                self.bar.set_postfix_str(f"{name}: loss {value:.4g}", refresh=False)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def close(callback: Callback) -> None:
    """Closes the bar, if there is one."""
    if isinstance(callback, _Recording):
        callback = callback.shown
    if isinstance(callback, _Bar):
        callback.close()
