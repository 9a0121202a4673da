#!/usr/bin/env python3
"""What an objective in Python costs beside one in Rust: microseconds of a gradient of one agent.

    python bench/python/overhead.py [--rounds N]        with the package mile, built for release, installed

Local DSGD, 10 agents on a ring, 10 local steps a round. The time is that of the rounds (`wall_s` of the last record), divided by gradients; medians of runs that alternate. In Python
the gradient is an array that is there already, returned or copied to `out`: what is left is the binding, with the call of a Python function that does nothing. In Rust it is least squares with one
row for each agent, which is as little as a gradient of n numbers can be.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import mile
import numpy as np

AGENTS, LOCAL_STEPS = 10, 10


class Returns:
    """A gradient that costs nothing."""

    agents, version, records_gradient_norm = AGENTS, "1", False

    def __init__(self, dim: int) -> None:
        self.dim, self.found = dim, np.zeros(dim)

    def loss(self, agent: int, x: np.ndarray) -> float:
        return 0.0

    def grad(self, agent: int, x: np.ndarray, rng: mile.Random) -> np.ndarray:
        return self.found


class Writes(Returns):
    """The same, written to where it is needed."""

    def grad(self, agent: int, x: np.ndarray, rng: mile.Random, out: np.ndarray) -> None:
        out[:] = self.found


def seconds(problem: object, rounds: int) -> float:
    """Seconds of a gradient and its share of all else that a round does."""
    with tempfile.TemporaryDirectory() as folder:
        algorithm = mile.method("local-dsgd", step_size=0.01, local_steps=LOCAL_STEPS)
        run = mile.run(problem=problem, network={"agents": AGENTS}, algorithms=[algorithm], rounds=rounds, eval_every=rounds, out=Path(folder) / "run")
        return run.rows[-1]["wall_s"] / (rounds * LOCAL_STEPS * AGENTS)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=300)
    arguments.add_argument("--runs", type=int, default=7)
    given = arguments.parse_args()
    raw = {}
    print("| n | Rust | Python, returned | Python, out | binding, returned | binding, out |\n|---|---|---|---|---|---|")
    for dim in (10, 1000, 100_000):
        rounds = max(3, given.rounds if dim <= 1000 else given.rounds // 30)
        table = mile.Table([(np.ones((1, dim)) / dim, np.ones(1)) for _ in range(AGENTS)])
        problems = {"rust": table, "returned": Returns(dim), "out": Writes(dim)}
        times = {name: [] for name in problems}
        for _ in range(given.runs):
            for name, problem in problems.items():
                times[name].append(1e6 * seconds(problem, rounds))
        raw[dim] = times
        rust, returned, out = (statistics.median(times[name]) for name in problems)
        print(f"| {dim} | {rust:.2f} | {returned:.2f} | {out:.2f} | {returned - rust:.2f} | {out - rust:.2f} |")
    Path("overhead.json").write_text(json.dumps(raw))


if __name__ == "__main__":
    main()
