#!/usr/bin/env python3
"""What a release profile costs in speed: two builds of the command mile, on the same experiments, in turns.

    python3 compare.py --builds OLD NEW

Each line is the CPU time (user and system, of all processes) of the second build over that of the first: the medians and the best of all turns.
"""

import argparse
import os
import pathlib
import random
import statistics
import subprocess
import tempfile


def experiment(problem, agents, rounds, method, more=""):
    return f"""
name = "compare"
rounds = {rounds}
eval_every = {rounds}
[network]
agents = {agents}
topology = "ring"
[problem]
{problem}
[[algorithm]]
{method}
{more}
"""


def write_table(path, rows, columns, is_class):
    draw = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(",".join(f"c{k}" for k in range(columns)) + ",y\n")
        for _ in range(rows):
            x = [draw.gauss(0.0, 1.0) for _ in range(columns)]
            y = sum(x[:3]) + draw.gauss(0.0, 1.0)
            file.write(",".join(f"{v:.6f}" for v in x) + f",{int(y > 0) if is_class else round(y, 6)}\n")


def cases(home):
    write_table(home / "small.csv", 400, 12, False)
    write_table(home / "large.csv", 200_000, 30, True)
    write_table(home / "wide.csv", 8, 20_000, False)
    small = 'kind = "table"\ndata = "small.csv"\ntarget = "y"\nloss = "least-squares"\npartition = "iid"'
    large = 'kind = "table"\ndata = "large.csv"\ntarget = "y"\nloss = "logistic"\npartition = "iid"'
    wide = 'kind = "table"\ndata = "wide.csv"\ntarget = "y"\nloss = "least-squares"\npartition = "iid"\nl1 = 0.01'
    images = 'kind = "images"\ndataset = "glyphs"\nmodel = "mnist-cnn"\nbatch = 16'
    vectors = 'kind = "quadratic"\ndim = 300000'
    mile = 'name = "mile"\nstep_size = 0.05\n'
    agent = "[agent]\ncheckpoint_every = 1"
    files = {
        "small": experiment(small, 10, 40_000, 'name = "k-gt"\nlocal_steps = 5\nstep_size = 0.05'),
        "table": experiment(large, 4, 200, 'name = "mile"\ntau = 2\nstep_size = 0.5'),
        "reading": experiment(large, 4, 1, 'name = "mile"\ntau = 1\nstep_size = 0.5'),
        "network": experiment(images, 10, 25, 'name = "mile"\ntau = 5\nstep_size = 0.05'),
        "swarm": experiment(vectors, 4, 60, mile, agent),
        "eight-bit": experiment(vectors, 4, 60, mile + 'compression = "8-bit"', agent),
        "largest": experiment(vectors, 4, 60, mile + "compression = { top_k = 0.05 }", agent),
        "adaptive": experiment(vectors, 4, 60, mile + 'xi = "adaptive"', agent),
        "penalty": experiment(wide, 4, 1_000, 'name = "ed"\nstep_size = 0.00002', "[agent]\ncheckpoint_every = 1000"),
    }
    for name, text in files.items():
        (home / f"{name}.toml").write_text(text, encoding="utf-8")
    return {
        "small problem, K-GT": ["run", "small.toml", "--quiet"],
        "table of 200,000 rows": ["run", "table.toml", "--quiet"],
        "reading 60 MB": ["run", "reading.toml", "--quiet"],
        "network, CNN": ["run", "network.toml", "--quiet"],
        "swarm by TCP": ["swarm", "swarm.toml"],
        "swarm by QUIC": ["swarm", "swarm.toml", "--set", "agent.transport=quic"],
        "swarm, eight bits": ["swarm", "eight-bit.toml"],
        "swarm, largest elements": ["swarm", "largest.toml"],
        "swarm, adaptive weight": ["swarm", "adaptive.toml"],
        "swarm, l1": ["swarm", "penalty.toml"],
        "built-in example, figures and report": ["run", "--quiet"],
        "spectrum of a grid of 10,000": ["graph", "--topology", "grid", "--agents", "10000"],
        "spectrum of a grid of 1,600": ["graph", "--topology", "grid", "--agents", "1600"],
        "fastest mixing matrix of 300": ["graph", "--topology", "random-regular", "--agents", "300", "--mixing", "fdla"],
    }


def cpu(mile, arguments, home):
    with tempfile.TemporaryDirectory(dir=home) as out:
        command = [mile, *arguments] + ([] if arguments[0] == "graph" else ["--out", f"{out}/run"])
        before = os.times()
        done = subprocess.run(command, cwd=home, capture_output=True)
        after = os.times()
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr.decode()}")
        return after.children_user - before.children_user + after.children_system - before.children_system


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", nargs=2, required=True, metavar=("OLD", "NEW"))
    parser.add_argument("--cases", default="", metavar="TEXT", help="only those whose name contains it")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    builds = [str(pathlib.Path(build).resolve()) for build in options.builds]
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        for name, arguments in cases(home).items():
            if options.cases not in name:
                continue
            times = [[], []]
            for turn in range(options.turns):
                for k in (0, 1) if turn % 2 == 0 else (1, 0):
                    times[k].append(cpu(builds[k], arguments, home))
            old, new = times
            medians = statistics.median(new) / statistics.median(old)
            print(f"{name}: {medians:.2f} by medians, {min(new) / min(old):.2f} by the best ({min(old):.2f} s, {min(new):.2f} s)", flush=True)


if __name__ == "__main__":
    main()
