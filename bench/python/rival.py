#!/usr/bin/env python3
"""mile from Python beside decent-bench, on the same data in the same process: least squares and logistic regression.

    python3.13 bench/python/rival.py        with decent-bench 0.3, networkx and the package mile, built for release, installed

10 agents on a ring, 40 x 12 data each, 500 rounds, `float64`. Timed in decent-bench: `Algorithm.run` without metrics, tables, plots or progress. In mile: the rounds (`wall_s` of the last record), and the whole call of `mile.run`
with two records, a state and tables on disk. Medians of runs that alternate. Final points that differ by more than 1e-12 are named at the end.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import mile
import networkx
import numpy as np
from decent_array import interoperability as iop
from decent_bench.agents import Agent
from decent_bench.algorithms.p2p import ED, EXTRA, KGT, LED
from decent_bench.costs import LinearRegressionCost, LogisticRegressionCost
from decent_bench.networks import P2PNetwork

iop.set_backend("numpy")
AGENTS, ROWS, DIM, ROUNDS, RUNS = 10, 40, 12, 500, 5
METHODS = {
    "k-gt": (lambda: KGT(num_local_steps=5, step_size=0.02, aux_step_size=1.0), {"step_size": 0.02, "num_local_steps": 5, "aux_step_size": 1.0}),
    "led": (lambda: LED(num_local_steps=5, step_size=0.02, aux_step_size=1 / 5), {"step_size": 0.02, "num_local_steps": 5, "aux_step_size": 1 / 5}),
    "ed": (lambda: ED(step_size=0.1), {"step_size": 0.1}),
    "extra": (lambda: EXTRA(step_size=0.1), {"step_size": 0.1}),
}
LARGEST_DIFFERENCE = 1e-12


def theirs(cost_of, data, name):
    """Milliseconds and final points of decent-bench."""

    def agent(features, targets):
        cost = cost_of([(iop.from_numpy(a), iop.from_numpy(np.array([b]))) for a, b in zip(features, targets)])
        cost.gradient(iop.from_numpy(np.zeros(DIM)))  # stacks the samples
        return Agent(cost, state_snapshot_period=10 * ROUNDS)

    network, method = P2PNetwork(networkx.cycle_graph(AGENTS), [agent(*own) for own in data]), METHODS[name][0]()
    begun = time.perf_counter()
    method.run(network, ROUNDS)
    spent = time.perf_counter() - begun
    return 1e3 * spent, np.array([iop.to_numpy(agent.x) for agent in network.agents()])


def ours(problem, name):
    """Milliseconds of the rounds, of the whole call, and final points of mile."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        algorithms = [mile.method(name, **METHODS[name][1])]
        run = mile.run(problem=problem, network=networkx.cycle_graph(AGENTS), algorithms=algorithms, iterations=ROUNDS, eval_every=ROUNDS, out=Path(folder) / "run")
        spent = time.perf_counter() - begun
        return 1e3 * run.rows[-1]["wall_s"], 1e3 * spent, run.x()


def main():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(AGENTS, ROWS, DIM))
    numbers = rng.normal(size=(AGENTS, ROWS))
    classes = (features @ rng.normal(size=DIM) + rng.normal(size=(AGENTS, ROWS)) > 0).astype(float)
    problems = {
        # decent-bench's least squares is a sum over rows with a factor 1/2 m; both have it.
        "least squares": (LinearRegressionCost, list(zip(features, numbers)), mile.Table(list(zip(features, numbers)))),
        "logistic": (LogisticRegressionCost, list(zip(features, classes)), mile.Table(list(zip(features, 2 * classes - 1)), loss="logistic")),
    }
    raw = {}
    print("| problem | method | mile, rounds | mile.run | decent-bench 0.3.0 | faster by, rounds | faster by, all | largest difference |\n|---|---|---|---|---|---|---|---|")
    apart = []
    for title, (cost, data, problem) in problems.items():
        for name in METHODS:
            times = {"rounds": [], "all": [], "decent-bench": []}
            for _ in range(RUNS):
                rounds, whole, points = ours(problem, name)
                their_time, their_points = theirs(cost, data, name)
                times["rounds"].append(rounds), times["all"].append(whole), times["decent-bench"].append(their_time)
            difference = float(np.abs(points - their_points).max())
            if difference > LARGEST_DIFFERENCE:
                apart.append(f"{title}, {name}")
            raw[f"{title}, {name}"] = times | {"difference": difference}
            r, a, d = (statistics.median(times[key]) for key in times)
            print(f"| {title} | {name} | {r:.2f} | {a:.0f} | {d:.0f} | {d / r:.0f} | {d / a:.1f} | {difference:.1e} |", flush=True)
    Path("rival.json").write_text(json.dumps(raw))
    print(f"above {LARGEST_DIFFERENCE}: {', '.join(apart) or 'none'}")


if __name__ == "__main__":
    main()
