"""The part of the package that is written in Rust."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__version__: str
RUN_CONTENTS: Sequence[str]
"""The files and folders that a run directory, or the folder of a sweep, may hold."""

class ExperimentError(ValueError):
    """An experiment, its data or its folder cannot be used."""

class RunError(RuntimeError):
    """A run failed; its records and checkpoints are kept."""

@final
class Random(np.random.Generator):
    """The random numbers of one gradient, with the methods of a `numpy.random.Generator`; they are the same for the same seed, agent and step."""

    @property
    def agent(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def draw(self) -> int: ...
    @property
    def generator(self) -> np.random.Generator: ...

@final
class Step:
    """One step of a method: the verbs on named vectors, the time and the step size.

    It is valid until the call it was passed to returns, and for one thread at a time; any other use raises a `RuntimeError`.
    """

    @property
    def t(self) -> int: ...
    @property
    def step_size(self) -> float: ...
    @property
    def round(self) -> int: ...
    def gradient(self, x: str, g: str) -> None: ...
    def apply(self, function: Callable[..., object], *vectors: str) -> None: ...
    def combine(self, y: str, keep: float, terms: Sequence[tuple[float, str]]) -> None: ...
    def pull(self, *pairs: tuple[str, str]) -> None: ...
    def mix(self, *pairs: tuple[str, str]) -> None: ...

_Shard = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None]

@final
class TableData:
    def __init__(
        self,
        training: Sequence[_Shard],
        test: Sequence[_Shard],
    ) -> None: ...
    def __getnewargs__(self) -> tuple[Sequence[_Shard], Sequence[_Shard]]: ...
    @property
    def agents(self) -> int: ...
    @property
    def columns(self) -> int: ...

_Callback = Callable[[str, str, int, float, str], None]
_Path = str | PathLike[str]
_OwnMethod = tuple[object, str, str, Sequence[tuple[str, str]]]

def command(python: str, again: Sequence[str], arguments: Sequence[str]) -> int: ...
def run(
    experiment: dict[str, Any],
    base: _Path,
    out: _Path,
    resume: bool,
    draw: bool,
    tensorboard: bool,
    problem: object | None,
    methods: Sequence[_OwnMethod],
    ranks: object | None,
    device: str | None,
    callback: _Callback,
) -> tuple[bool, bool]: ...
def check(
    experiment: dict[str, Any],
    base: _Path,
    problem: object | None,
    methods: Sequence[_OwnMethod],
    callback: _Callback,
) -> str: ...
def resolve(experiment: dict[str, Any], base: _Path, more: dict[str, Any]) -> str: ...
def reproduce(
    item: str,
    paper: bool,
    dataset: str | None,
    out: _Path,
    set: Sequence[str],
    callback: _Callback,
) -> tuple[str, bool]: ...
def methods() -> str: ...
def method_names() -> list[str]: ...
def graph(network: dict[str, Any]) -> tuple[str, str]: ...
def theory(
    network: dict[str, Any] | None,
    experiment: dict[str, Any] | None,
    base: _Path,
    local_steps: int | None,
    xi: float | str | None,
    gamma: float | str | None,
    momentum: float | None,
    nesterov: bool,
    smoothness: float | None,
    step_size: float | None,
) -> tuple[str, str]: ...
def keys_reference(form: str) -> str: ...
def read_experiment(text: str, set: Sequence[str]) -> str: ...
def replace(experiment: dict[str, Any], set: Sequence[str]) -> str: ...
def write_page(folders: Sequence[_Path], out: _Path) -> None: ...
def pictures(folder: _Path) -> list[tuple[str, str]]: ...
def sweep_summary(folder: _Path) -> str: ...
def predict(folder: _Path, data: _Path, algorithm: str, seed: int, agent: int | None) -> str: ...
def samples(all: int, size: int, epochs: bool, seed: int, agent: int, draw: int) -> NDArray[np.int64]: ...

def take_steps(
    written: list[Any],
    read: list[Any],
    dim: int,
    by: tuple[tuple[float, int, float, float], tuple[tuple[float, float], float, float, bool], tuple[float, bool] | None],
    matrices: list[tuple[int, int, int]],
) -> None: ...
def clip_rows(g: NDArray[Any], dim: int, most: float) -> None: ...
