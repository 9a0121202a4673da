"""What a method of the library does on networks where its section says nothing: what the documentation recommends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import _mile
from ._methods import Algorithm

# Parameters that say how MILE weighs its correction and moves its models. If none is given, neither is the paper's method meant.
_DECIDE = ("xi", "gamma", "momentum", "nesterov", "optimizer", "correction", "compression", "outer")
_STEPS = ("local_steps", "num_local_steps", "tau")
_USUAL_STEPS = 10
# What is run where nothing is said: the usual start for networks.
_USUAL: Algorithm = {"name": "mile", "step_size": 1e-3, "local_steps": _USUAL_STEPS, "optimizer": "adamw"}
# tau xi of a correction around an optimiser, safe in all settings that were tried.
_WEIGHT = 0.4


def complete(algorithms: Any, changed: set[str], has_optimizer: bool = False, has_local: bool = False) -> tuple[list[Any], list[str]]:
    """Algorithms with defaults for networks, unless keys that decide are changed later, and what was chosen, as sentences; what does not go with a PyTorch optimizer, or with parameters
    that stay with their agent, is refused."""
    given = [algorithms] if isinstance(algorithms, (Mapping, str)) or not isinstance(algorithms, Iterable) else list(algorithms)
    found: list[Any] = []
    notes: list[str] = []
    if not given:
        given = [{"name": "mile"} if has_optimizer else _USUAL]
        notes += [] if has_optimizer else [f"mile runs with {_words(_USUAL)}, a start for networks, because no algorithms are given"]
    for k, section in enumerate(given):
        if isinstance(section, Mapping):
            section = dict(section)
            if has_optimizer:
                _check_optimised(section, k)
            if has_local and section.get("compression", "none") != "none":
                expected = "none where parameters stay with their agent (local of the problem), because whole vectors are compressed"
                raise _mile.ExperimentError(f"algorithms[{k}].compression: expected {expected}, got {section['compression']!r}; leave one of the two out")
            if not changed.intersection(_DECIDE):
                notes += _chosen(section, has_optimizer)
        found.append(section)
    return found, notes


def _chosen(section: Algorithm, has_optimizer: bool) -> list[str]:
    """Adds what is missing to the section of `mile`, and says so."""
    if section.get("name") != "mile" or any(key in section for key in _DECIDE):
        return []
    given = next((section[key] for key in _STEPS if key in section), _USUAL_STEPS)
    each = given if isinstance(given, (list, tuple)) else [given]
    # What is not a number of steps is refused by the library.
    steps = max((one for one in each if isinstance(one, int) and one > 0), default=_USUAL_STEPS)
    if has_optimizer:
        added: Algorithm = {"gamma": 1.0, "xi": _WEIGHT / steps}
        why = "as recommended around an optimizer"
    else:
        added = {"momentum": 0.9, "xi": "adaptive"}
        why = "as recommended for networks"
    section.update(added)
    return [f"{section.get('label', 'mile')} runs with {_words(added)}, {why}; xi=\"paper\" is the paper's method"]


def _words(section: Algorithm) -> str:
    """Parameters as one types them."""
    *first, last = (f"{key}={value!r}" for key, value in section.items() if key != "name")
    return f"{', '.join(first)} and {last}"


def _check_optimised(section: Algorithm, k: int) -> None:
    """With an optimizer, the step size is a factor of its learning rates, and nothing can be estimated from gradients."""
    if section.get("step_size", section.get("lr")) is None:
        section["step_size"] = 1.0
    for key in ("optimizer", "share_moments"):
        if key in section:
            raise _mile.ExperimentError(f"algorithms[{k}].{key}: expected none, because the problem has a PyTorch optimizer, got {section[key]!r}; give one of the two")
    for key in ("step_size", "lr", "xi", "gamma"):
        if section.get(key) == "auto":
            expected = "a factor of the optimizer's learning rates, usually 1" if key in ("step_size", "lr") else 'a number, or "adaptive" for xi'
            raise _mile.ExperimentError(f'algorithms[{k}].{key}: expected {expected}, got "auto", which is estimated from gradients')
