"""The agents in tensors: the three verbs on vectors of shape (agents, n)."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _mile
from ._gradients import shorten
from ._kept import Losses, beside, forget, keep, kept
from ._optimiser import Numbers, take_steps

if TYPE_CHECKING:
    from ._problem import Problem
    from ._ranks import Ranks

# On a CPU longer vectors are processed in parts of this many numbers, which stay in the cache from one operation to the next.
_PART = 1 << 18
# On a CPU rows of at least this many numbers are exchanged one by one, which saves a copy; shorter ones together, which saves calls.
_LONG = 1 << 13
# The length of a sketch, as in the library.
_SKETCH = 256


# The models, the optimiser's state, the gradients, and what is added before and after the optimiser.
_Vectors = tuple[int, list[int], int, int | None, int | None]


class Host:
    """Hosts agents for the methods of the library, which calls it one verb at a time.

    Products and sums are rounded one by one, in the order of the library's own engines, so that `combine` and `pull` give the same bits for any number of processes.
    """

    def __init__(
        self,
        problem: Problem,
        agents: int,
        hosted: tuple[int, int],
        edges: list[tuple[int, int, float]],
        vectors: int,
        start: NDArray[np.floating],
        seed: int,
        ranks: Ranks | None,
    ) -> None:
        self.problem, self.seed, self.ranks, self.agents = problem, seed, ranks, agents
        self.hosted = range(*hosted)
        self.dim = problem.dim
        shape = (len(self.hosted), self.dim)
        self.vectors = [torch.zeros(shape, device=problem.device, dtype=problem.torch_dtype) for _ in range(vectors)]
        self.vectors[0].copy_(torch.from_numpy(start.copy()).view(-1, self.dim))
        self.losses = Losses(self.vectors[0])
        self._factors = None if problem.weights is None else [problem.factors[agent] for agent in self.hosted]
        self.chosen: list[int] | None = None
        local = problem.local_columns
        self._local = None if local is None else torch.from_numpy(local).to(problem.device)
        self.gradients = problem.gradients(self)
        self.mean_buffers: dict[str, torch.Tensor] | None = None
        self._saved: tuple[Path, int] | None = None
        self._neighbours(edges)
        self._signs: torch.Tensor | None = None
        numbers = shape[0] * self.dim
        self._room = self.vectors[0].new_empty(min(numbers, _PART) if self._on_cpu() else numbers)

    def _on_cpu(self) -> bool:
        return self.problem.device.type == "cpu"

    # Verbs

    def only(self, rows: list[int] | None) -> None:
        """From now on verbs other than exchanges are for these rows only, or for all of them again."""
        self.chosen = rows

    def _parts(self) -> list[slice]:
        """The rows that verbs are for: all together, or one by one."""
        return [slice(None)] if self.chosen is None else [slice(row, row + 1) for row in self.chosen]

    def moving(self) -> list[int]:
        """The rows that verbs are for."""
        return list(range(len(self.hosted))) if self.chosen is None else self.chosen

    def gradient(self, x: int, g: int, draw: int, step_size: float) -> None:
        """`g_i <- grad f_i(x_i)`, at most as long as the problem allows, times the agent's weight."""
        self.gradients.compute(x, g, draw, step_size)
        with torch.no_grad():
            for rows in self._parts():
                found = self.vectors[g][rows]
                if self.problem.clip is not None and self.problem.optimizer is None:
                    shorten(found, self.problem.clip)
                if self._factors is not None:
                    found.mul_(found.new_tensor(self._factors[rows]).unsqueeze(1))

    def batch_losses(self) -> NDArray[np.float64]:
        """The mean loss of each hosted agent's mini-batches since the last record; nothing if there were none."""
        found = self.losses.mean()
        self.losses.forget()
        if found is None:
            return np.zeros(0)
        return found if self._factors is None else found * np.array(self._factors)

    @torch.no_grad()
    def apply(self, function: Callable[..., object], vectors: list[int]) -> None:
        """Applies a function to vectors: it changes them in place, or returns the first ones."""
        given = [self.vectors[v] for v in vectors]
        found = function(*given)
        results = () if found is None else found if isinstance(found, tuple) else (found,)
        if len(results) > len(given):
            raise ValueError(f"apply: expected at most {len(given)} tensors, one for each vector, got {len(results)}")
        for vector, result in zip(given, results, strict=False):
            # NumPy functions return arrays for tensors on a CPU.
            result = torch.as_tensor(result)
            if tuple(result.shape) != tuple(vector.shape):
                raise ValueError(f"apply: expected a tensor of shape {list(vector.shape)}, got shape {list(result.shape)}")
            if result is not vector:
                vector.copy_(result)

    @torch.no_grad()
    def combine(self, y: int, keep: float, terms: list[tuple[float, int]]) -> None:
        """`y <- keep*y + sum_k a_k v_k`."""
        part = len(self._room)
        for rows in self._parts():
            out, given = self.vectors[y][rows].view(-1), [(a, self.vectors[v][rows].view(-1)) for a, v in terms]
            for begin in range(0, len(out), part):
                at = slice(begin, begin + part)
                _combine(out[at], keep, [(a, v[at]) for a, v in given], self._room)

    @torch.no_grad()
    def optimise(self, vectors: _Vectors, by: Numbers, matrices: list[tuple[int, int, int]]) -> None:
        """A step of a local optimiser. In memory the library takes it, with the bits of its own engines; on other devices PyTorch does."""
        x, states, *read = vectors
        for rows in self._parts():
            moved = [self.vectors[v][rows] for v in (x, *states)]
            g, *optional = [None if v is None else self.vectors[v][rows] for v in read]
            if self._on_cpu():
                flat = [None if one is None else one.view(-1).numpy() for one in (*moved, g, *optional)]
                _mile.take_steps(flat[:-3], flat[-3:], self.dim, by, matrices)
            else:
                take_steps(moved, [g, *optional], by, matrices)

    @torch.no_grad()
    def clip(self, g: int, most: float) -> None:
        """`g_i <- g_i min(1, most/|g_i|)`."""
        for rows in self._parts():
            if self._on_cpu():
                _mile.clip_rows(self.vectors[g][rows].view(-1).numpy(), self.dim, most)
            else:
                shorten(self.vectors[g][rows], most)

    @torch.no_grad()
    def pull(
        self, pairs: list[tuple[int, int]], weights: NDArray[np.float64] | None, received: NDArray[np.floating] | None = None
    ) -> None:
        """`to_i <- sum_j w_ij (from_j - from_i)` for each pair, in order of increasing j. Rows of neighbours in other processes are exchanged, unless they were already received."""
        if self.ranks is None:
            sources = [self.vectors[source] for source, _ in pairs]
        elif received is None:
            sources = self._exchange(pairs)
        else:
            own = self.vectors[pairs[0][0]]
            sources = [torch.cat((own, torch.from_numpy(received).to(own.device).view(-1, self.dim)))]
        for (source, to), others in zip(pairs, sources, strict=True):
            self._pull_into(to, source, others, weights)

    def _pull_into(self, to: int, source: int, others: torch.Tensor, weights: NDArray[np.float64] | None) -> None:
        if self._on_cpu() and self.dim >= _LONG:
            self._pull_rows(self.vectors[to], others, self._weights if weights is None else weights)
        else:
            columns = self._columns if weights is None else self._weighted(weights)
            _pull(self.vectors[to], self.vectors[source], others, columns)
        if self._local is not None:
            self.vectors[to][:, self._local] = 0.0

    @torch.no_grad()
    def summaries(self, source: int, memory: int) -> NDArray[np.float64]:
        """What each hosted agent sends along with a vector whose differences are weighted: r, and the sketches of the vector and of the remembered one."""
        r = self.vectors[memory][:, :1].double()
        parts = [r, self._sketch(self.vectors[source]), self._sketch(self.vectors[memory])]
        found: NDArray[np.float64] = torch.cat(parts, dim=1).cpu().numpy().reshape(-1)
        return found

    def _sketch(self, rows: torch.Tensor) -> torch.Tensor:
        """The sketch of each row: the k-th element after the first is added, with its sign, to entry k mod 256, in order of increasing k."""
        if self._local is not None:
            rows = rows.index_fill(1, self._local, 0.0)
        elements = rows[:, 1:]
        count = elements.shape[1]
        size = min(count, _SKETCH)
        sums = torch.zeros((len(rows), size), dtype=torch.float64, device=rows.device)
        if self._signs is None:
            self._signs = torch.from_numpy(_signs(count)).to(rows.device)
        for begin in range(0, count, _PART):
            part = elements[:, begin : begin + _PART].double() * self._signs[begin : begin + _PART]
            for first in range(0, part.shape[1], _SKETCH):
                block = part[:, first : first + _SKETCH]
                sums[:, : block.shape[1]] += block
        return sums

    @torch.no_grad()
    def pull_steady(
        self,
        vectors: tuple[int, int, int, int],
        weights: NDArray[np.float64],
        weighed: NDArray[np.float64],
        r: NDArray[np.float64],
    ) -> None:
        """`pull` of one vector with two lists of weights; afterwards the memory is the vector, with r in place of its first element."""
        source, memory, to, steady = vectors
        others = self.vectors[source] if self.ranks is None else self._exchange([(source, to)])[0]
        self._pull_into(to, source, others, weights)
        self._pull_into(steady, source, others, weighed)
        self.vectors[memory].copy_(self.vectors[source])
        self.vectors[memory][:, 0] = torch.from_numpy(r)

    def _pull_rows(self, out: torch.Tensor, others: torch.Tensor, weights: NDArray[np.float64]) -> None:
        """`pull`, row by row; the first rows of `others` are the hosted ones."""
        room = torch.empty_like(out[0]) if len(out) else out
        for row, neighbours in enumerate(self._lists):
            first = True
            for place, number in neighbours:
                to = out[row] if first else room
                torch.sub(others[place], others[row], out=to).mul_(float(weights[number]))
                if not first:
                    out[row].add_(room)
                first = False
            if first:
                out[row].zero_()

    # Looking at the agents

    def vector(self, v: int) -> NDArray[np.floating]:
        """A vector of the hosted agents, row by row."""
        found: NDArray[Any] = self.vectors[v].detach().cpu().numpy().reshape(-1)
        return found

    def set_vector(self, v: int, rows: NDArray[np.floating]) -> None:
        """Replaces a vector."""
        self.vectors[v].copy_(torch.from_numpy(rows).view(-1, self.dim))

    def norms_sq(self, v: int) -> NDArray[np.float64]:
        """The squared norm of each row."""
        found: NDArray[np.float64] = torch.linalg.vector_norm(self.vectors[v], dim=1).double().square().cpu().numpy()
        return found

    def distances_sq(self, v: int, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """The squared distance of each row from a point."""
        rows = self._rows(v)
        point = torch.from_numpy(mean).to(rows.device)
        if self._local is not None:
            rows, point = rows.index_fill(1, self._local, 0.0), point.index_fill(0, self._local, 0.0)
        sums = [(row.double() - point).square().sum() for row in rows]
        found: NDArray[np.float64] = torch.stack(sums).cpu().numpy() if sums else np.zeros(0)
        return found

    def sum(self, v: int) -> NDArray[np.float64]:
        """The sum over all agents, in order of increasing agent. For the models it also forms the mean of the agents' buffers, with which the average model is measured."""
        if v == 0 and self.problem.buffers:
            self.mean_buffers = self._mean_buffers()
        return self._sum(self._rows(v))

    def sum_rows(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """The same for rows that are not one of the vectors."""
        return self._sum(torch.from_numpy(rows).view(-1, self.dim))

    def _rows(self, v: int) -> torch.Tensor:
        """A vector on a device that supports double precision: its own, or else the CPU."""
        rows = self.vectors[v].detach()
        return rows.cpu() if rows.device.type == "mps" else rows

    def _sum(self, rows: torch.Tensor) -> NDArray[np.float64]:
        if self.ranks is not None:
            return self.ranks.sum_in_order(rows.cpu().double()).numpy()
        total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
        for row in rows:
            total += row
        found: NDArray[np.float64] = total.cpu().numpy()
        return found

    @torch.no_grad()
    def _mean_buffers(self) -> dict[str, torch.Tensor]:
        """The mean over all agents of floating-point buffers, summed in order of increasing agent, and all other buffers of the first agent."""
        own = self.gradients.buffers()
        names = [key for key, value in own[0].items() if value.is_floating_point()]
        found = {key: value.detach().clone() for key, value in own[0].items()}
        if self.ranks is not None:
            room = io.BytesIO()
            torch.save({key: value.cpu() for key, value in found.items() if key not in names}, room)
            found.update(torch.load(io.BytesIO(self.ranks.broadcast(0, room.getvalue())), weights_only=True))
        if names:
            rows = torch.stack([torch.cat([one[key].detach().double().cpu().reshape(-1) for key in names]) for one in own])
            mean = torch.from_numpy(self._sum(rows)) / self.agents
            parts = torch.split(mean, [own[0][key].numel() for key in names])
            found.update({key: part.view(own[0][key].shape).to(own[0][key].dtype) for key, part in zip(names, parts, strict=True)})
        return found

    def row(self, v: int, agent: int) -> NDArray[np.floating]:
        """One agent's row, whichever process hosts it."""
        if self.ranks is None:
            own_row: NDArray[Any] = self.vectors[v][agent].cpu().numpy()
            return own_row
        owner = next(k for k in range(self.ranks.count) if agent in self.ranks.block(self.agents, k))
        own = b""
        if agent in self.hosted:
            own = self.vectors[v][agent - self.hosted.start].cpu().numpy().tobytes()
        return np.frombuffer(self.ranks.broadcast(owner, own), dtype=self.problem.dtype).copy()

    # What stays with the agents: buffers, what optimisers remember, and losses that are not yet recorded

    def saving(self, state: Path, round: int) -> None:
        """Stores it for all agents, next to the state of a round that is about to be written."""
        buffers = [{k: b.detach().cpu().clone() for k, b in one.items()} for one in self.gradients.buffers()] if self.problem.buffers else None
        keep(state, round, {"buffers": buffers, "optimizer": self.gradients.state(), "losses": self.losses.state()}, self.ranks)
        self._saved = (state, round)

    def saved(self, state: Path, round: int) -> None:
        """Removes what is stored next to earlier states."""
        if self.ranks is None or self.ranks.rank == 0:
            forget(state, round)

    def restored(self, state: Path, round: int) -> None:
        """Restores what is stored next to the state of a round."""
        found = kept(state, round)
        for what, needed in (("buffers", bool(self.problem.buffers)), ("optimizer", self.gradients.state() is not None)):
            if needed and not found.get(what):
                path = beside(state, round)
                raise _mile.ExperimentError(f"{path}: expected the {what} of all agents after round {round}, got none; delete {state.name} beside it to restart this job")
        if self.problem.buffers:
            for agent, own in zip(self.hosted, self.gradients.buffers(), strict=True):
                for name, buffer in own.items():
                    buffer.copy_(found["buffers"][agent][name])
        if found.get("optimizer"):
            self.gradients.restore([found["optimizer"][agent] for agent in self.hosted])
        if found.get("losses"):
            self.losses.restore([found["losses"][agent] for agent in self.hosted])

    def kept_buffers(self) -> list[dict[str, torch.Tensor]] | None:
        """The buffers of all agents, as they were stored last."""
        return None if self._saved is None else kept(*self._saved).get("buffers")

    # Neighbours

    def _neighbours(self, edges: list[tuple[int, int, float]]) -> None:
        """For k = 0, 1, ...: the hosted agents with more than k neighbours, and the k-th neighbour of each with its weight."""
        lists: list[list[tuple[int, int]]] = [[] for _ in range(self.agents)]
        for number, (i, j, _) in enumerate(edges):
            lists[i].append((j, number))
            lists[j].append((i, number))
        for one in lists:
            one.sort()
        self._plan_exchange(lists)
        self._weights = np.array([w for _, _, w in edges])
        self._lists = [[(self._place[j], number) for j, number in lists[agent]] for agent in self.hosted]
        self._numbers: list[tuple[list[int], torch.Tensor, list[int]]] = []
        device = self.problem.device
        most = max((len(lists[agent]) for agent in self.hosted), default=0)
        for k in range(most):
            rows = [row for row, agent in enumerate(self.hosted) if len(lists[agent]) > k]
            chosen = [lists[self.hosted[row]][k] for row in rows]
            places = torch.tensor([self._place[j] for j, _ in chosen], device=device)
            self._numbers.append((rows, places, [number for _, number in chosen]))
        self._columns = self._weighted(self._weights)

    def _weighted(self, weights: NDArray[np.float64]) -> list[tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]]:
        device, dtype = self.problem.device, self.problem.torch_dtype
        found: list[tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]] = []
        for rows, places, numbers in self._numbers:
            chosen = None if len(rows) == len(self.hosted) else torch.tensor(rows, device=device)
            weight = torch.from_numpy(weights[numbers]).to(device=device, dtype=dtype).unsqueeze(1)
            found.append((chosen, places, weight))
        return found

    def _plan_exchange(self, lists: list[list[tuple[int, int]]]) -> None:
        """Which rows go to which rank, and where received rows are put: after the hosted ones."""
        self._place = {agent: row for row, agent in enumerate(self.hosted)}
        self._sends: dict[int, torch.Tensor] = {}
        self._receives: dict[int, slice] = {}
        if self.ranks is None:
            return
        for peer in range(self.ranks.count):
            block = self.ranks.block(self.agents, peer)
            if peer == self.ranks.rank:
                continue
            wanted = [agent for agent in self.hosted if any(j in block for j, _ in lists[agent])]
            coming = [agent for agent in block if any(j in self.hosted for j, _ in lists[agent])]
            if wanted:
                rows = [agent - self.hosted.start for agent in wanted]
                self._sends[peer] = torch.tensor(rows, device=self.problem.device)
                begin = len(self._place)
                self._receives[peer] = slice(begin, begin + len(coming))
                self._place.update((agent, begin + k) for k, agent in enumerate(coming))

    def _exchange(self, pairs: list[tuple[int, int]]) -> list[torch.Tensor]:
        """The rows of the hosted agents and of their neighbours, for each vector that is sent."""
        assert self.ranks is not None
        rows = len(self._place)
        found = [self.vectors[0].new_empty((rows, self.dim)) for _ in pairs]
        for extended, (source, _) in zip(found, pairs, strict=True):
            extended[: len(self.hosted)] = self.vectors[source]
            sends = {peer: self.vectors[source].index_select(0, chosen) for peer, chosen in self._sends.items()}
            self.ranks.exchange(sends, {peer: extended[place] for peer, place in self._receives.items()})
        return found

    def exchange_messages(self, sent: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
        """Sends the messages of hosted agents, each of `length` bytes, and returns those of their neighbours in other processes, in the order of their rows."""
        assert self.ranks is not None
        own, first = torch.from_numpy(sent).to(self.problem.device).view(-1, length), len(self.hosted)
        found = own.new_empty((len(self._place) - first, length))
        sends = {peer: own.index_select(0, chosen) for peer, chosen in self._sends.items()}
        places = {peer: slice(place.start - first, place.stop - first) for peer, place in self._receives.items()}
        self.ranks.exchange(sends, {peer: found[place] for peer, place in places.items()})
        messages: NDArray[np.uint8] = found.cpu().numpy().reshape(-1)
        return messages


def _combine(y: torch.Tensor, keep: float, terms: list[tuple[float, torch.Tensor]], room: torch.Tensor) -> None:
    if keep == 0.0:
        if not terms:
            y.zero_()
            return
        (a, first), terms = terms[0], terms[1:]
        torch.mul(first, a, out=y)
    elif keep != 1.0:
        y.mul_(keep)
    for a, v in terms:
        if a == 1.0:
            y.add_(v)
        else:
            y.add_(torch.mul(v, a, out=room[: len(v)]))


def _pull(
    out: torch.Tensor,
    own: torch.Tensor,
    others: torch.Tensor,
    columns: list[tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]],
) -> None:
    """`pull` for all rows together: first the first neighbour of each, then the second, and so on."""
    out.zero_()
    for k, (rows, neighbours, weight) in enumerate(columns):
        if rows is not None:
            difference = others.index_select(0, neighbours).sub_(own.index_select(0, rows)).mul_(weight)
            out.index_add_(0, rows, difference)
        elif k == 0:
            torch.index_select(others, 0, neighbours, out=out)
            out.sub_(own).mul_(weight)
        else:
            out.add_(others.index_select(0, neighbours).sub_(own).mul_(weight))


def _signs(count: int) -> NDArray[np.int8]:
    """The signs of a sketch's elements, as in the library: bits of SplitMix64, where 1 is negative."""
    words = np.arange(1, -(-count // 64) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")[:count]
    return (1 - 2 * bits.astype(np.int8)).astype(np.int8)
