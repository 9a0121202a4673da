"""The gradients of bench-table in numpy, in several processes of one BLAS thread each.

    python peer.py PROCESSES WINDOWS

Prints one JSON object, in the form of bench-table's: windows begin together, and count until the last process ends.
"""

import json
import multiprocessing
import os
import sys
import time

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402 (after the number of threads is set)

SHAPES = [(50_000, 30), (5_000, 1_000)]
AGENTS = 2
WINDOW_S = 0.1


def logistic(a, b, x, l2):
    return a.T @ (-b / (1 + np.exp(b * (a @ x)))) / len(b) + l2 * x


def least_squares(a, b, x, l2):
    return a.T @ (a @ x - b) / len(b) + l2 * x


def normal_equations(gram, shift, x, l2):
    return gram @ x - shift + l2 * x


def measure(seed, windows, barrier, results):
    random = np.random.default_rng(seed)
    for rows, dim in SHAPES:
        for name, dtype in (("f64", np.float64), ("f32", np.float32)):
            agents = []
            for _ in range(AGENTS):
                a = random.uniform(-1, 1, (rows, dim)).astype(dtype)
                agents.append((a, np.sign(random.uniform(-1, 1, rows)).astype(dtype)))
            x, l2 = (np.arange(dim) % 7 / dim).astype(dtype), dtype(0.01)
            formed = [(a.T @ a / len(b), a.T @ b / len(b)) for a, b in agents]
            for loss, gradient, agents in (
                ("logistic", logistic, agents),
                ("least-squares", least_squares, agents),
                ("normal equations", normal_equations, formed),
            ):
                start = time.perf_counter()
                for a, b in agents:
                    gradient(a, b, x, l2)
                repetitions = AGENTS * max(1, round(WINDOW_S / (time.perf_counter() - start)))
                for window in range(windows):
                    barrier.wait()
                    start = time.perf_counter()
                    for i in range(repetitions):
                        a, b = agents[i % AGENTS]
                        gradient(a, b, x, l2)
                    ms = (time.perf_counter() - start) * 1e3 / repetitions
                    results.put(((rows, dim, name, loss), window, ms))


def main():
    processes, windows = int(sys.argv[1]), int(sys.argv[2])
    barrier, results = multiprocessing.Barrier(processes), multiprocessing.SimpleQueue()
    workers = [
        multiprocessing.Process(target=measure, args=(seed, windows, barrier, results)) for seed in range(processes)
    ]
    for worker in workers:
        worker.start()
    slowest = {}
    for _ in range(processes * windows * len(SHAPES) * 6):
        case, window, ms = results.get()
        times = slowest.setdefault(case, [0.0] * windows)
        times[window] = max(times[window], ms)
    for worker in workers:
        worker.join()
    names = ("rows", "dim", "precision", "loss", "ms")
    gradients = [dict(zip(names, (*case, ms))) for case, ms in slowest.items()]
    print(json.dumps({"numpy": np.__version__, "processes": processes, "gradients": gradients}))


if __name__ == "__main__":
    main()
