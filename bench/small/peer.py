"""The runs of this benchmark in decent-bench: their times and final points.

    peer.py DATA RUNS DIR   JSON: milliseconds of each run; leaves the agents' final points in DIR

A run is `Algorithm.run` and nothing else: start-up and iterations. No metrics, tables, plots, progress bars or files are
asked for, and a period of snapshots beyond the last iteration leaves one snapshot, of the final points.
"""

import json
import pathlib
import sys
import time

import networkx
import numpy
from decent_array import interoperability as iop
from decent_bench.agents import Agent
from decent_bench.algorithms.p2p import ED, EXTRA, KGT, LED, NIDS
from decent_bench.costs import LinearRegressionCost
from decent_bench.networks import P2PNetwork

iop.set_backend("numpy")
AGENTS, ROWS, DIM, ROUNDS = 10, 40, 12, 500
# By name: an algorithm and its iterations. One of NIDS's is an unmixed first step, which mile counts as start-up.
METHODS = {
    "k-gt": (lambda: KGT(num_local_steps=5, step_size=0.02, aux_step_size=1.0), ROUNDS),
    "led": (lambda: LED(num_local_steps=5, step_size=0.02, aux_step_size=1 / 5), ROUNDS),
    "ed": (lambda: ED(step_size=0.1), ROUNDS),
    "extra": (lambda: EXTRA(step_size=0.1), ROUNDS),
    "nids": (lambda: NIDS(step_size=0.1), ROUNDS + 1),
}


def ring(data):
    """A network of agents with their costs; its weights are Metropolis weights unless others are given."""

    def agent(own):
        features, targets = own[: ROWS * DIM].reshape(ROWS, DIM), own[ROWS * DIM :].reshape(ROWS, 1)
        samples = [(iop.from_numpy(a), iop.from_numpy(b)) for a, b in zip(features, targets)]
        cost = LinearRegressionCost(samples)
        cost.gradient(iop.from_numpy(numpy.zeros(DIM)))  # stacks the samples and keeps their Gram matrix
        return Agent(cost, state_snapshot_period=10 * ROUNDS)

    return P2PNetwork(networkx.cycle_graph(AGENTS), [agent(own) for own in data])


def main():
    data = numpy.fromfile(sys.argv[1], dtype="<f8").reshape(AGENTS, ROWS * (DIM + 1))
    runs, directory = int(sys.argv[2]), pathlib.Path(sys.argv[3])
    times = {name: [] for name in METHODS}
    for _ in range(runs):
        for name, (algorithm, iterations) in METHODS.items():
            network, method = ring(data), algorithm()
            begun = time.perf_counter()
            method.run(network, iterations)
            times[name].append((time.perf_counter() - begun) * 1e3)
            points = numpy.array([iop.to_numpy(agent.x) for agent in network.agents()])
            points.astype("<f8").tofile(directory / name)
    print(json.dumps(times))


if __name__ == "__main__":
    main()
