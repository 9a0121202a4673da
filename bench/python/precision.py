#!/usr/bin/env python3
"""How far ED of mile and of decent-bench are from ED itself, on the logistic regression of `rival.py`.

    python3.13 bench/python/precision.py        with what rival.py needs

The reference is the recursion of the paper, x_{k+1} = (I + W)/2 (2 x_k - x_{k-1} - alpha (g_k - g_{k-1})), in 80-bit numbers, from the same start on the same data. Its own rounding is seen by comparing two orders of summation.
"""

import mile
import networkx
import numpy as np
import rival
from decent_bench.costs import LogisticRegressionCost

WIDE = np.longdouble
STEP = 0.1


def reference(features, signs, rounds, backwards=False):
    """Points after this many rounds, in 80-bit numbers."""
    order = slice(None, None, -1) if backwards else slice(None)
    a, b = features[:, order].astype(WIDE), signs[:, order].astype(WIDE)
    agents = len(a)
    w = np.zeros((agents, agents), dtype=WIDE)
    for i in range(agents):
        for j in ((i - 1) % agents, (i + 1) % agents, i):
            w[i, j] = WIDE(1) / 3
    half = (np.eye(agents, dtype=WIDE) + w) / 2

    def gradient(x):
        margins = b * (a * x[:, None, :]).sum(2)
        return -(a * (b / (1 + np.exp(margins)))[:, :, None]).sum(1) / a.shape[1]

    x = np.zeros((agents, a.shape[2]), dtype=WIDE)
    g = gradient(x)
    step = WIDE(STEP)
    before, x, g_before = x, half @ (x - step * g), g
    for _ in range(rounds - 1):
        g = gradient(x)
        before, x, g_before = x, half @ (2 * x - before - step * (g - g_before)), g
    return x


def main():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(rival.AGENTS, rival.ROWS, rival.DIM))
    rng.normal(size=(rival.AGENTS, rival.ROWS))
    classes = (features @ rng.normal(size=rival.DIM) + rng.normal(size=(rival.AGENTS, rival.ROWS)) > 0).astype(float)
    signs = 2 * classes - 1
    problem = mile.Table(list(zip(features, signs)), loss="logistic")
    print("| rounds | mile - exact | decent-bench - exact | mile - decent-bench | rounding of the reference | largest entry |\n|---|---|---|---|---|---|")
    for rounds in (1, 2, 5, 10, 50, 100, 500, 1000):
        rival.ROUNDS = rounds
        exact, other = (reference(features, signs, rounds, backwards) for backwards in (False, True))
        ours = rival.ours(problem, "ed")[2]
        theirs = rival.theirs(LogisticRegressionCost, list(zip(features, classes)), "ed")[1]
        far = [float(np.abs(one - two).max()) for one, two in ((ours, exact), (theirs, exact), (ours, theirs), (exact, other))]
        print(f"| {rounds} | {far[0]:.1e} | {far[1]:.1e} | {far[2]:.1e} | {far[3]:.1e} | {float(np.abs(exact).max()):.1f} |", flush=True)


if __name__ == "__main__":
    main()
