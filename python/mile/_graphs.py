"""Graphs and their mixing matrices, from names, edge lists, networkx graphs and matrices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from . import _mile
from ._names import GraphParameters, Mixing, Topology

if TYPE_CHECKING:
    import networkx as nx
    from typing_extensions import Unpack

Section = dict[str, object]


_TOLERANCE = 1e-9


class Graph:
    """A connected graph of agents with its mixing matrix W.

    >>> import mile
    >>> ring = mile.graph("ring", agents=4)
    >>> ring.matrix[0].round(3).tolist()
    [0.333, 0.333, 0.0, 0.333]
    >>> round(ring.spectral_gap, 3)
    0.667
    """

    def __init__(self, section: Section) -> None:
        text, self._svg = _mile.graph(section)
        found = json.loads(text)
        self.section: Section = dict(section)
        """The section `[network]` of an experiment file that describes it."""
        self.agents: int = found["agents"]
        self.edges: list[tuple[int, int]] = [(i, j) for i, j, _ in found["edges"]]
        self.weights: list[float] = [w for _, _, w in found["edges"]]
        self.self_weights: list[float] = found["self_weights"]
        self.eigenvalues: NDArray[np.float64] = np.array(found["lambda"])
        """All eigenvalues of W, from the largest to the smallest."""
        gap = found["spectral_gap"]
        self.spectral_gap: float = 1.0 if gap is None else gap
        """1 minus the largest modulus of all eigenvalues but the first."""

    @property
    def matrix(self) -> NDArray[np.float64]:
        """W as a dense array."""
        dense = np.diag(np.array(self.self_weights))
        for (i, j), w in zip(self.edges, self.weights, strict=True):
            dense[i, j] = dense[j, i] = w
        return dense

    def to_networkx(self) -> nx.Graph:
        """The graph as a `networkx.Graph`, with the weights of W on its edges."""
        import networkx as nx

        found = nx.Graph()
        found.add_nodes_from(range(self.agents))
        found.add_weighted_edges_from((i, j, w) for (i, j), w in zip(self.edges, self.weights, strict=True))
        return found

    def __repr__(self) -> str:
        return f"<Graph of {self.agents} agents, {len(self.edges)} edges, spectral gap {self.spectral_gap:.4g}>"

    def _repr_svg_(self) -> str:
        return self._svg


class _NetworkX(Protocol):
    """A graph of networkx."""

    def is_directed(self) -> bool: ...


class _Sparse(Protocol):
    """A sparse matrix of scipy."""

    def tocoo(self) -> object: ...


Network = Topology | Graph | Mapping[str, object] | Iterable[tuple[int, int]] | NDArray[np.generic] | _NetworkX | _Sparse
"""A graph in any form."""


def graph(
    of: Network | None = None,
    *,
    agents: int | None = None,
    topology: Topology | None = None,
    mixing: Mixing | None = None,
    drop_rate: float | None = None,
    **parameters: Unpack[GraphParameters],
) -> Graph:
    """A graph with its mixing matrix.

    `of` is the name of a topology, a networkx graph, a list of edges, a matrix (NumPy or scipy: a mixing matrix, or an adjacency matrix with entries
    0 and 1), or a dictionary with the keys of the section `[network]`. `mixing` is a rule; `mixing="weight"` uses the edge weights of a networkx graph.

    >>> import mile
    >>> mile.graph([(0, 1), (1, 2), (2, 0)], mixing="lazy-metropolis")
    <Graph of 3 agents, 3 edges, spectral gap 0.5>
    """
    given = {"agents": agents, "topology": topology, "mixing": mixing, "drop_rate": drop_rate, **parameters}
    return Graph(section(of, {key: value for key, value in given.items() if value is not None}))


def section(of: Any, given: Mapping[str, Any]) -> Section:
    """The section `[network]` for anything that describes a graph, updated with the given keys."""
    if isinstance(of, Graph):
        found = dict(of.section)
    elif of is None:
        found = {}
    elif isinstance(of, str):
        found = {"topology": of}
    elif isinstance(of, Mapping):
        found = dict(of)
    elif hasattr(of, "nodes") and hasattr(of, "edges"):
        found = _of_networkx(of, given.get("mixing"))
        given = {key: value for key, value in given.items() if (key, value) != ("mixing", "weight")}
    elif hasattr(of, "tocoo") or (isinstance(of, np.ndarray) and of.ndim == 2 and of.shape[0] == of.shape[1] != 2):
        found = _of_matrix(of)
    else:
        found = _of_edges(of)
    found.update(given)
    return found


def _of_edges(edges: Any) -> Section:
    try:
        pairs = [[int(i), int(j)] for i, j in edges]
    except (TypeError, ValueError):
        expected = "a name, edges (i, j), a networkx graph, a square matrix or a dictionary"
        raise TypeError(f"network: expected {expected}, got {type(edges).__name__}") from None
    return {"agents": 1 + max((max(pair) for pair in pairs), default=0), "topology": "file", "edges": pairs}


def _of_networkx(of: Any, mixing: str | None) -> Section:
    if of.is_directed():
        raise _mile.ExperimentError("network: expected an undirected graph, got a directed one; convert it with to_undirected()")
    numbers = {node: k for k, node in enumerate(of.nodes)}
    edges = [(numbers[a], numbers[b], data) for a, b, data in of.edges(data=True) if a != b]
    found: Section = {"agents": len(numbers), "topology": "file", "edges": [[i, j] for i, j, _ in edges]}
    if mixing == "weight":
        missing = [(i, j) for i, j, data in edges if "weight" not in data]
        if missing:
            raise _mile.ExperimentError(f"network: expected the attribute weight on every edge, got none on {missing[0]}; set it, or choose another mixing")
        found |= {"mixing": "file", "matrix": [[i, j, float(data["weight"])] for i, j, data in edges]}
    return found


def _of_matrix(of: Any) -> Section:
    coo = of.tocoo() if hasattr(of, "tocoo") else None
    if coo is None:
        rows, columns = np.nonzero(of)
        values = np.asarray(of, dtype=float)[rows, columns]
    else:
        rows, columns, values = coo.row, coo.col, np.asarray(coo.data, dtype=float)
    agents = int(of.shape[0])
    entries = {(int(i), int(j)): float(v) for i, j, v in zip(rows, columns, values, strict=True) if v != 0.0}
    for (i, j), value in entries.items():
        other = entries.get((j, i), 0.0)
        if abs(value - other) > _TOLERANCE:
            raise _mile.ExperimentError(f"network: expected a symmetric matrix, got {value} at ({i}, {j}) and {other} at ({j}, {i})")
    edges = [(i, j) for i, j in entries if i < j]
    found: Section = {"agents": agents, "topology": "file", "edges": [[i, j] for i, j in edges]}
    if all(v == 1.0 and i != j for (i, j), v in entries.items()):
        return found
    sums = np.zeros(agents)
    for (i, _), value in entries.items():
        sums[i] += value
    worst = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[worst] - 1.0) > _TOLERANCE:
        expected = "a mixing matrix, whose rows sum to 1, or an adjacency matrix of zeros and ones"
        raise _mile.ExperimentError(f"network: expected {expected}, got a matrix whose row {worst} sums to {sums[worst]:.6g}")
    return found | {"mixing": "file", "matrix": [[i, j, entries[i, j]] for i, j in edges]}
