"""Names that arguments accept, as types: a type checker then sees a misspelt one."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

from . import _mile

MethodName = Literal[
    "mile", "led", "k-gt", "periodical-gt", "dec-fedtrack", "gta-1", "gta-2", "gta-3", "diging", "push-pull", "extra", "ed", "nids", "d2",
    "proxskip", "mg-skip", "local-dsgd", "dsgd", "gradient-tracking", "scaffold", "momentum-tracking", "edm", "qg-dsgdm", "decentlam",
    "lt-admm", "dinno", "fspda", "motef", "diloco", "noloco", "gasloc",
]
"""A built-in method."""

Topology = Literal[
    "ring", "path", "star", "complete", "grid", "torus", "hypercube", "exponential", "erdos-renyi", "random-regular", "small-world", "file",
]
"""A graph that is made from its name."""

Precision = Literal["f32", "f64"]


@runtime_checkable
class Objectives(Protocol):
    """Anything that can be used as a problem: objectives of all agents, which `Objective` describes."""

    def loss(self, agent: int, x: Any, /) -> Any: ...

    def grad(self, agent: int, x: Any, rng: _mile.Random, /) -> Any: ...


@runtime_checkable
class Built(Protocol):
    """A problem that is computed in Rust, such as `Table` and `Quadratic`."""

    def section(self, folder: Any, /) -> tuple[dict[str, Any], object | None]: ...


class Stop(TypedDict, total=False):
    """Tolerances at which a job has converged."""

    grad_norm: float
    consensus: float
    loss_change: float
    every: int
