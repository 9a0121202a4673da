#!/usr/bin/env python3
"""decent-bench's problems with its own costs, in decent-bench and in mile: what is left is what each adds to the gradients.

    python3.13 bench/python/costs.py [--runs N] [--rounds N] [--framework numpy|torch]
        with decent-bench 0.3, networkx, PyTorch for the network, and the package mile, built for release, installed

Ten agents on a ring, K-GT with five local steps. Rows: least squares and logistic regression with 40 x 12 data for each agent (`float64`), and with PyTorch a network of 269,322 parameters with 100 samples for each (`float32`). Milliseconds of CPU time of a
round, of all threads: on a machine that others use, it hardly depends on them. `OMP_NUM_THREADS=1` gives all the same number of threads. The raw data have the seconds that have passed, too. Of

- the gradients alone: the same number of calls of `cost.gradient`, at one point, in a plain loop;
- decent-bench: `Algorithm.run` without metrics, tables, plots or progress;
- mile with these costs: the rounds of a run whose objective calls `cost.gradient`;
- mile with its own: `mile.Table`, or `mile.torch.Problem` with the same model and data.

Runs alternate, and ratios are medians of those of neighbouring runs, so that what else the machine does counts for all; in brackets, the smallest and the largest. Points of decent-bench and mile that differ by more than 1e-12 (1e-4 for the network) are named at the end.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import mile
import networkx
import numpy as np
from decent_array import interoperability as iop
from decent_array.types import Devices, Frameworks
from decent_bench.agents import Agent
from decent_bench.benchmark import configure
from decent_bench.algorithms.p2p import KGT
from decent_bench.networks import P2PNetwork

AGENTS, STEPS, ROWS, DIM, SAMPLES = 10, 5, 40, 12, 100
STEP_SIZE = {"least squares": 0.02, "logistic": 0.02, "network": 0.01}


class Costs:
    """The costs of decent-bench as objectives of mile."""

    agents, version, records_gradient_norm = AGENTS, "1", False

    def __init__(self, costs, dim, dtype, initial=None):
        self.costs, self.dim, self.dtype, self.initial = costs, dim, dtype, initial

    def loss(self, agent, x):
        return float(self.costs[agent].function(iop.from_numpy(x)))

    def grad(self, agent, x, rng):
        return iop.to_numpy(self.costs[agent].gradient(iop.from_numpy(x)))


def tables():
    """Least squares and logistic regression: costs, and the same in Rust."""
    from decent_bench.costs import LinearRegressionCost, LogisticRegressionCost

    rng = np.random.default_rng(0)
    features = rng.normal(size=(AGENTS, ROWS, DIM))
    numbers = rng.normal(size=(AGENTS, ROWS))
    classes = (features @ rng.normal(size=DIM) + rng.normal(size=(AGENTS, ROWS)) > 0).astype(float)
    for title, cost, targets, own in (
        ("least squares", LinearRegressionCost, numbers, mile.Table(list(zip(features, numbers)))),
        ("logistic", LogisticRegressionCost, classes, mile.Table(list(zip(features, 2 * classes - 1)), loss="logistic")),
    ):
        samples = [[(iop.from_numpy(a), iop.from_numpy(np.array([b]))) for a, b in zip(*pair)] for pair in zip(features, targets)]
        yield title, lambda cost=cost, samples=samples: Costs([cost(one) for one in samples], DIM, "float64"), own, 1e-12


def networks():
    """A network on generated pictures: costs, and the same with `mile.torch`."""
    import torch
    from decent_bench.costs import PyTorchCost
    from torch import nn

    import mile.torch

    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(SAMPLES, 784, generator=generator), torch.randint(0, 10, (SAMPLES,), generator=generator)) for _ in range(AGENTS)]

    def model():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))

    start = torch.cat([p.detach().reshape(-1) for p in model().parameters()]).numpy()

    def costs():
        made = [PyTorchCost(list(zip(*pair)), model(), nn.CrossEntropyLoss()) for pair in data]
        return Costs(made, len(start), "float32", start)

    yield "network", costs, mile.torch.Problem(model(), nn.CrossEntropyLoss(), data, batch="full", eval_rows=1), 1e-4


class Clock:
    """Seconds that have passed, and seconds of CPU time."""

    def __init__(self):
        self.begun = self.now()

    def now(self):
        return np.array([time.perf_counter(), time.process_time()])

    def spent(self):
        return (self.now() - self.begun).tolist()


def alone(costs, title, rounds):
    """Seconds of as many gradients as a run evaluates."""
    x = iop.from_numpy(np.zeros(costs.dim, costs.dtype) if costs.initial is None else costs.initial.copy())
    for cost in costs.costs:
        cost.gradient(x)  # stacks the samples
    clock = Clock()
    for _ in range(rounds * STEPS):
        for cost in costs.costs:
            cost.gradient(x)
    return clock.spent(), None


def theirs(costs, title, rounds):
    agents = [Agent(cost, state_snapshot_period=10 * rounds) for cost in costs.costs]
    for cost in costs.costs:
        cost.gradient(iop.from_numpy(np.zeros(costs.dim, costs.dtype)))
    start = {} if costs.initial is None else {"x0": iop.from_numpy(costs.initial.copy())}
    method = KGT(num_local_steps=STEPS, step_size=STEP_SIZE[title], aux_step_size=1.0, **start)
    network = P2PNetwork(networkx.cycle_graph(AGENTS), agents)
    clock = Clock()
    method.run(network, rounds)
    return clock.spent(), np.array([iop.to_numpy(agent.x) for agent in network.agents()])


def run_of(problem, title, rounds, **more):
    algorithm = mile.method("k-gt", step_size=STEP_SIZE[title], num_local_steps=STEPS, aux_step_size=1.0)
    with tempfile.TemporaryDirectory() as folder:
        run = mile.run(
            problem=problem, network=networkx.cycle_graph(AGENTS), algorithms=[algorithm], rounds=rounds, eval_every=rounds, eval_agents=1,
            out=Path(folder) / "run", progress=False, **more,
        )
        return run.x()


def ours(problem, title, rounds):
    """From the record of the start to that of the last round: with the evaluation of the latter, of the average and of one agent."""
    clocks = []
    points = run_of(problem, title, rounds, on_record=lambda record: clocks.append(Clock()))
    first, last = clocks
    return (last.begun - first.begun).tolist(), points


def in_rust(problem, title, rounds):
    """What 200 times as many rounds take in addition: they are short, and other threads do the work, so that records are seen later."""
    spent = []
    for factor in (201, 1):
        clock = Clock()
        points = run_of(problem, title, factor * rounds)
        spent.append(clock.spent())
    long, short = np.array(spent)
    return ((long - short) / 200).tolist(), points


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--rounds", type=int, default=100)
    arguments.add_argument("--framework", choices=("numpy", "torch"), default="numpy")
    given = arguments.parse_args()
    warnings.filterwarnings("ignore", "The given NumPy array is not writable")
    configure(Frameworks.NUMPY if given.framework == "numpy" else Frameworks.PYTORCH, Devices.CPU)
    raw, apart = {}, []
    print("| problem | gradients alone, ms | decent-bench, ms | mile with these costs, ms | mile with its own, ms | decent-bench / alone | mile with these costs / alone | mile with these costs / decent-bench | mile with its own / decent-bench |\n|---|---|---|---|---|---|---|---|---|")
    for title, costs, own, tolerance in tables() if given.framework == "numpy" else networks():
        measured = {
            "alone": lambda: alone(costs(), title, given.rounds),
            "theirs": lambda: theirs(costs(), title, given.rounds),
            "costs": lambda: ours(costs(), title, given.rounds),
            "own": lambda: (in_rust if isinstance(own, mile.Table) else ours)(own, title, given.rounds),
        }
        times, points = {name: [] for name in measured}, {}
        for k in range(given.runs):
            for name in list(measured) if k % 2 == 0 else reversed(list(measured)):
                seconds, points[name] = measured[name]()
                times[name].append(seconds)
        raw[title] = times
        apart += [f"{title}, {name}: {np.abs(points[name] - points['theirs']).max():.1e}" for name in ("costs", "own") if np.abs(points[name] - points["theirs"]).max() > tolerance]
        cpu = {name: [1e3 * spent / given.rounds for _, spent in each] for name, each in times.items()}
        pairs = (("theirs", "alone"), ("costs", "alone"), ("costs", "theirs"), ("own", "theirs"))
        ratios = [[a / b for a, b in zip(cpu[one], cpu[other])] for one, other in pairs]
        cells = [f"{statistics.median(each):.3g}" for each in cpu.values()]
        cells += [f"{statistics.median(each):.3g} ({min(each):.3g} to {max(each):.3g})" for each in ratios]
        print(f"| {title} | " + " | ".join(cells) + " |", flush=True)
    Path(f"costs-{given.framework}.json").write_text(json.dumps(raw))
    print(f"apart: {', '.join(apart) or 'none'}")


if __name__ == "__main__":
    main()
