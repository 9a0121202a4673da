"""Objectives and methods that a file defines: `factory` in experiment files."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from . import _mile
from ._facts import FILES, exchanges
from ._methods import HasStep, Method


def make(file: Path, name: str, arguments: str, agents: int, agent: int | None) -> Any:
    """Calls the function. It is told the number of agents, and the agent whose data are needed, if it has parameters for that.

    Global random numbers are seeded before, so that the same model is made in every process.
    """
    function = _function(file, name)
    given = json.loads(arguments)
    known = _parameters(function)
    taken = {key: value for key, value in (("agents", agents), ("agent", agent)) if key in known and key not in given}
    found = _call(function, name, given, taken)
    if hasattr(found, "section"):
        raise _mile.ExperimentError(f'{name}: expected objectives with loss and grad, got {type(found).__name__}; give its section with kind = "table" or "quadratic" instead')
    needed = getattr(found, "needs_host", None)
    if needed:
        raise _mile.ExperimentError(f"{name}: expected a problem that agents can have by themselves, got one with {needed}; or run it with mile.run in Python")
    return found


def make_method(file: Path, name: str, arguments: str) -> object:
    """Calls the class of a method, or a function that makes one."""
    found = _call(_function(file, name), name, json.loads(arguments), {})
    if isinstance(found, type) or not isinstance(found, HasStep):
        raise _mile.ExperimentError(f"{name}: expected a method with state and step(self, s), got {type(found).__name__}")
    if not exchanges(found, Method):
        raise _mile.ExperimentError(f"{name}: expected a method that exchanges vectors: its step calls s.pull or s.mix, got one that calls neither")
    return found


def _call(function: Callable[..., Any], name: str, given: dict[str, Any], taken: dict[str, Any]) -> Any:
    """Calls a function of a file with what is given in the experiment, and with what it takes besides."""
    try:
        inspect.signature(function).bind(**given, **taken)
    except TypeError:
        expected = f"the parameters of {name}{inspect.signature(function)}"
        raise _mile.ExperimentError(f"arguments: expected {expected}, got {', '.join(given) or 'none'}") from None
    with _seeded():
        return function(**given, **taken)


@contextmanager
def _seeded() -> Iterator[None]:
    """Seeds the random numbers of Python, NumPy and PyTorch, and restores them."""
    torch: Any = sys.modules.get("torch")
    before = random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state()
    random.seed(0)
    np.random.seed(0)
    if torch is not None:
        torch.manual_seed(0)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        if torch is not None:
            torch.set_rng_state(before[2])


def takes_agent(file: Path, name: str, arguments: str, agents: int, agent: int | None) -> bool:
    """Whether the function can be asked for the data of one agent."""
    return "agent" in _parameters(_function(file, name))


def _parameters(function: Callable[..., Any]) -> set[str]:
    return {key for key, one in inspect.signature(function).parameters.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}


def _function(file: Path, name: str) -> Callable[..., Any]:
    """A function of a file, which may import modules beside it."""
    path = Path(file).absolute()
    if not path.is_file():
        raise _mile.ExperimentError(f"{file}: expected a file with {name}, got no such file")
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # Two files of one name, in two folders, are two modules, and so is a file before and after a change.
    module_name = f"{path.stem}_{hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:8]}"
    FILES[module_name] = path.stem
    module = sys.modules.get(module_name)
    if module is None:
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            raise _mile.ExperimentError(f"{file}: expected a Python file, got one that Python cannot import")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
    found = getattr(module, name, None)
    if not callable(found):
        got = "none of that name" if found is None else type(found).__name__
        raise _mile.ExperimentError(f"{file}: expected a function or class {name}, got {got}")
    return found  # type: ignore[no-any-return]
