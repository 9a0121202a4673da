"""Progress of runs: a bar in notebooks and terminals if tqdm is installed, otherwise a line for each job that ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Callback = Callable[[str, str, int, float, str], None]


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    kernel = shell.get_ipython() if shell is not None else None
    return kernel is not None and "IPKernelApp" in getattr(kernel, "config", {})


def observer(progress: bool | Callback | None) -> Callback:
    """The function that is called with (kind, job, round, loss, text) at each event."""
    if callable(progress):
        return progress
    shown = progress if progress is not None else _in_notebook() or sys.stderr.isatty()
    if not shown:
        return _silent
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _lines
    return _Bar(tqdm)


def _silent(kind: str, name: str, round: int, value: float, text: str) -> None:
    if kind == "stopping":
        print(f"mile: {text}", file=sys.stderr)


def _lines(kind: str, name: str, round: int, value: float, text: str) -> None:
    if kind in ("ended", "stopping", "point"):
        print(text or f"point {round} of {value:.0f}: {name}", file=sys.stderr)


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
        elif kind == "stopping":
            print(f"mile: {text}", file=sys.stderr)
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
    if isinstance(callback, _Bar):
        callback.close()
