"""Names that arguments accept, as types: a type checker then sees a misspelt one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, SupportsFloat, TypedDict, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

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

Mixing = Literal["metropolis", "lazy-metropolis", "max-degree", "best-constant", "fdla", "file", "weight"]
"""A rule for the weights of edges; "weight" takes those of a networkx graph."""

Loss = Literal["least-squares", "logistic", "nonconvex-logistic", "softmax", "poisson", "huber", "welsch"]
"""A loss of rows of a table."""

Precision = Literal["f32", "f64"]


@runtime_checkable
class Objectives(Protocol):
    """Anything that can be used as a problem: objectives of all agents, which `Objective` describes."""

    def loss(self, agent: int, x: NDArray[np.floating], /) -> SupportsFloat: ...

    def grad(self, agent: int, x: NDArray[np.floating], rng: _mile.Random, /) -> ArrayLike | None: ...


@runtime_checkable
class Built(Protocol):
    """A problem that is computed in Rust, such as `Table` and `Quadratic`."""

    def section(self, folder: Path, /) -> tuple[dict[str, object], object | None]: ...


class Stop(TypedDict, total=False):
    """Tolerances at which a job has converged."""

    grad_norm: float
    consensus: float
    loss_change: float
    every: int


Weight = float | Literal["auto"] | Mapping[str, float]
"""A weight of a correction: a number, a word, or a table of numbers."""


class Parameters(TypedDict, total=False):
    """Parameters of methods: the keys of the section `[[algorithm]]`, and the names that other systems have for them."""

    factory: str
    arguments: Mapping[str, object]
    files: Sequence[str]
    local_steps: int | Sequence[int]
    num_local_steps: int | Sequence[int]
    tau: int | Sequence[int]
    xi: Weight | Literal["paper", "adaptive"]
    gamma: float | Literal["auto"]
    beta: float
    rho: float
    eta_s: float
    aux_step_size: float
    communications: int
    probability: float
    chi: float
    gossip: int
    variant: Literal["atc", "cta"]
    momentum: float
    nesterov: bool
    optimizer: Literal["sgd", "adamw", "amsgrad", "muon"] | Mapping[str, object]
    correction: Literal["step", "gradient"] | Mapping[str, object]
    clip: float
    share_moments: int
    outer: Mapping[str, float]
    compression: Literal["none", "bf16", "fp16", "8-bit"] | Mapping[str, float]
    exchange: Literal["rounds", "pairs"] | Mapping[str, str | int | float]
    schedule: Literal["constant", "step", "cosine"] | Mapping[str, object]
    change: Sequence[Mapping[str, object]]


class GraphParameters(TypedDict, total=False):
    """Parameters of graphs: the other keys of the section `[network]`."""

    degree: int
    p: float
    rewire: float
    seed: int
    edges: str | Sequence[tuple[int, int]]
    matrix: str | Sequence[tuple[int, int, float]]
    time_varying: str | Sequence[str] | Mapping[str, Sequence[str] | Sequence[Sequence[tuple[int, int, float]]]]
    bursts: Mapping[str, float]
    absence: Mapping[str, float]


class TableParameters(TypedDict, total=False):
    """Parameters of tables: the other keys of the section `[problem]` of kind "table"."""

    by: str
    c: float
    categorical: Sequence[str] | Mapping[str, Sequence[str]]
    classes: Sequence[str | float]
    columns: Sequence[str]
    comment: str
    delimiter: str
    delta: float
    encoding: str
    exclude: Sequence[str]
    exposure: str
    formats: Mapping[str, str]
    intercept: bool
    l1: float
    l2: float
    missing: Literal["mean", "category", "drop"]
    missing_words: Sequence[str]
    offset: str
    partition: str | Mapping[str, object]
    seed: int
    standardise: bool
    statistics: str
