"""Which samples are read, as a function of seeds: the same in all runs and processes."""

from __future__ import annotations

from . import _mile

# Chooses the samples that losses are measured on, so that they are the same in all records of all runs.
EVALUATION = 0x6D656173


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


def described(measured: tuple[int, int], rows: tuple[int, int]) -> str:
    """What losses and metrics are measured on, as a sentence."""
    (training, test), (all_training, all_test) = measured, rows
    text = f"losses are measured on {training:,} of {all_training:,} training samples of each agent"
    text += f", metrics on {test:,} of {all_test:,} test samples" if test < all_test else ""
    return f'{text}, to keep evaluations short (eval_rows="all" measures on all)'
