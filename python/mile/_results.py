"""What runs, agents and experiments say, as types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, overload

Value: TypeAlias = "bool | int | float | str | None | Sequence[Value] | Mapping[str, Value]"
"""A value of a file in JSON or TOML."""


class Record(dict[str, Value]):
    """What is recorded after a round, by name: `round`, `loss`, `consensus_error`, ... Your own metrics are numbers under their names."""

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, key: Literal["algorithm", "label", "point"], /) -> str: ...  # type: ignore[overload-overlap]

        @overload
        def __getitem__(self, key: Literal["seed", "round", "step", "vectors_sent", "bytes_sent", "gradient_evals"], /) -> int: ...  # type: ignore[overload-overlap]

        @overload
        def __getitem__(self, key: Literal["agents"], /) -> Mapping[str, Sequence[float | None]]: ...  # type: ignore[overload-overlap]

        @overload
        def __getitem__(self, key: str, /) -> float: ...

        def __getitem__(self, key: str, /) -> Value: ...


class Ending(TypedDict, total=False):
    """What records show of the end of a job: quantities next to what they were at the start, and where they were going."""

    stop_reached: bool
    gradient_left: float
    gradient: Literal["falling", "rising", "level"]
    disagreement_left: float
    disagreement: Literal["falling", "rising", "level"]
    own_excess: float
    loss: Literal["falling", "rising", "level"]
    settled: int


class _Ended(TypedDict):
    label: str
    algorithm: str
    seed: int
    status: Literal["converged", "last round", "done", "diverged", "stopped", "failed"]
    vectors_stored: int
    vectors_sent_per_round: float
    round: int
    ending: Ending
    last: dict[str, Value]


class Outcome(_Ended, total=False):
    """How a job, that is one algorithm with one seed, ended."""

    error: str


class _Given(TypedDict):
    name: str
    seeds: list[int]
    rounds: int
    precision: Literal["f32", "f64"]
    network: dict[str, Value]
    problem: dict[str, Value]
    start: dict[str, Value]
    algorithm: list[dict[str, Value]]


class Config(_Given, total=False):
    """An experiment with all defaults: the keys of an experiment file."""

    eval_every: int
    eval_agents: int | str
    agent_metrics: bool
    replay: str
    stop: dict[str, Value]
    event: list[dict[str, Value]]
    time: dict[str, Value]
    attack: dict[str, Value]


class Traffic(TypedDict):
    """Bytes in one direction."""

    payload: int
    gossip: int
    protocol: int


class Neighbour(TypedDict):
    """A neighbour, as an agent sees it."""

    id: int
    linked: bool
    since_s: float
    last_heard_s: float | None
    exchange: int
    lag: int
    durable_round: int
    sent: Traffic
    received: Traffic
    waiting: Literal["message", "decision", "confirmation", "farewell"] | None
    waiting_s: float | None
    refusal: str | None
    trouble: str | None
    skipped: int
    refused_messages: int
    refused_why: str | None
    distance: float | None
    relayed: bool | None


class Status(TypedDict):
    """What an agent does."""

    agent: int
    run: str
    incarnation: int
    job: int
    round: int
    rounds: int | None
    exchange: int
    since_start_s: float
    activity: Literal["computing", "waiting", "leaving", "done"]
    activity_s: float
    neighbours: list[Neighbour]
    estimate: dict[str, Value] | None
    refused: dict[str, int]
    saved_round: int | None
    diverged: int | None
    spent: dict[str, float]
    own_loss: float | None
    resident_bytes: int | None
    notices: list[dict[str, Value]]


class _Asked(TypedDict):
    folder: str


class Answer(_Asked, total=False):
    """What an agent answers: its `status`, or the `error` with which it could not be asked and the round of its checkpoint."""

    status: Status
    error: str
    checkpoint_round: int | None
