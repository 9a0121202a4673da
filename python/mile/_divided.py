"""What is given for all agents together or for each one: data, batch sizes, weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from . import _mile

Size = int | Literal["full"]


def count(data: Any, agents: int | None) -> int:
    """The number of agents that there are data for."""
    if callable(data) and not hasattr(data, "__len__"):
        if agents is None:
            raise TypeError("agents: expected their number, since data is a function of the agent, got none")
        return agents
    if len(data) == 0:
        raise TypeError("data: expected the data of each agent, got none")
    if agents not in (None, len(data)):
        raise ValueError(f"agents: expected {len(data)}, the number of agents with data, got {agents}")
    return len(data)


def is_whole(value: object) -> bool:
    """Whether a value is a positive integer."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and value.__index__() > 0


def sizes(batch: Size | Sequence[Size], agents: int) -> list[int | None]:
    """The number of samples in a gradient of each agent; None for all of them."""
    each: list[Any] = [batch] * agents if isinstance(batch, str) or not isinstance(batch, Iterable) else list(batch)
    if len(each) != agents:
        raise ValueError(f"batch: expected one for each of {agents} agents, got {len(each)}")
    wrong = [one for one in each if one != "full" and not is_whole(one)]
    if wrong:
        raise ValueError(f"batch: expected a positive integer or 'full', got {wrong[0]!r}")
    return [None if one == "full" else int(one) for one in each]


def described(sizes: Sequence[int | None]) -> str:
    """Batch sizes as a text: one if they are the same."""
    words = ["full" if size is None else str(size) for size in sizes]
    return words[0] if len(set(words)) == 1 else ", ".join(words)


def weights(given: Any, agents: int, rows: Sequence[int] | None = None) -> list[float] | None:
    """The weights of the agents, if they are not all the same."""
    if isinstance(given, str) and given == "agents":
        return None
    if isinstance(given, str) and given == "rows" and rows is not None:
        return [float(one) for one in rows]
    expected = f"agents, rows, or a positive number for each of {agents} agents"
    try:
        found = [float(one) for one in given] if not isinstance(given, str) else []
    except (TypeError, ValueError):
        found = []
    if len(found) != agents or not all(0 < one < float("inf") for one in found):
        raise _mile.ExperimentError(f"weights: expected {expected}, got {given!r}")
    return found


def factors(weights: Sequence[float] | None, agents: int) -> list[float]:
    """What each agent's loss is multiplied by, so that the plain mean over the agents is the weighted one."""
    if weights is None:
        return [1.0] * agents
    total = sum(weights)
    return [agents * one / total for one in weights]
