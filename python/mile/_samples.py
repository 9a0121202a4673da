"""Which samples are read, as a function of seeds: the same in all runs and processes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import _mile

# Chooses the samples that losses are measured on, so that they are the same in all records of all runs.
EVALUATION = 0x6D656173
# Tells what is drawn while samples are read from what is drawn while gradients are computed.
DATA = 0x64617461


def number(*parts: int) -> int:
    """A seed from several numbers."""
    mixed = 0x9E3779B97F4A7C15
    for part in parts:
        mixed = ((mixed ^ (part + 0x7F4A7C15)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        mixed ^= mixed >> 31
    return mixed & (2**63 - 1)


def evaluated(rows: int, count: int | None, agent: int) -> range | list[int]:
    """The numbers of all samples or, at random but always the same, of some."""
    if count is None or count >= rows:
        return range(rows)
    return sorted(int(k) for k in _mile.samples(rows, max(count, 1), True, EVALUATION, agent, 0))


@dataclass(frozen=True)
class Counts:
    """How many samples there are, and how many of them models are measured on."""

    rows: tuple[int, ...]
    """Samples of each agent."""
    test: int
    run: int
    """Samples that a gradient of the run reads, on average over the agents."""
    most: int
    """Samples of an agent that losses are measured on; an agent with fewer has all of its own measured."""
    tested: int
    """Test samples that metrics are measured on."""

    def of(self, agent: int) -> int:
        """Samples of this agent that losses are measured on."""
        return min(self.most, self.rows[agent])

    @property
    def measured(self) -> int:
        """Samples of all agents together that losses are measured on."""
        return sum(min(self.most, rows) for rows in self.rows)

    @property
    def for_library(self) -> tuple[int, int, int, int]:
        """What an evaluation budget counts: samples of an exact gradient of an agent, of a gradient of the run, of the losses of all agents, of the test data."""
        return -(-sum(self.rows) // len(self.rows)), self.run, self.measured, self.tested

    def limited(self, per_agent: int, test: int) -> Counts:
        """With as many samples as this number of each agent are together: what agents with fewer lack is measured of the others."""
        left, most = per_agent * len(self.rows), 1
        for place, rows in enumerate(sorted(self.rows)):
            most = max(most, min(rows, -(-left // (len(self.rows) - place))))
            left -= min(rows, most)
        return replace(self, most=most, tested=min(test, self.test))

    @property
    def described(self) -> str | None:
        """What losses and metrics are measured on, as a sentence; nothing if that is everything."""
        if self.measured == sum(self.rows) and self.tested == self.test:
            return None
        text = f"losses are measured on {self.most:,} of {self.rows[0]:,} training samples of each agent"
        if len(set(self.rows)) > 1:
            text = f"losses are measured on {self.measured:,} of {sum(self.rows):,} training samples, at most {self.most:,} of each agent"
        text += f", metrics on {self.tested:,} of {self.test:,} test samples" if self.tested < self.test else ""
        return f'{text}, to keep evaluations short (eval_rows="all" measures on all)'
