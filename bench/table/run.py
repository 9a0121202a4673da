#!/usr/bin/env python3
"""Gradients of regressions on tables beside numpy's and the memory bandwidth, in one run on one machine.

    python3 bench/table/run.py [--threads N] [--windows N] [--rounds N] [--out DIR] [--python PYTHON | --no-numpy]

Builds the benchmark, installs numpy into an environment that is thrown away at the end (without it the rest is
still reported), and alternates the rivals so that a disturbance meets both. The figure of each is its best window.
Needs only Python and cargo.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from rivals import cpu_model, environment, output  # noqa: E402 (the folder above has to be known first)


def measure(binary, python, threads, windows, rounds):
    raw = {"cpu": cpu_model(), "threads": threads, "windows": windows, "mile": [], "numpy": []}
    for round_number in range(rounds):
        print(f"round {round_number + 1} of {rounds}", file=sys.stderr)
        raw["mile"].append(json.loads(output(binary, threads, windows)))
        if python:
            raw["numpy"].append(json.loads(output(python, HERE / "peer.py", threads, windows)))
    return raw


def times(runs, case):
    keys = ("rows", "dim", "precision", "loss")
    return [ms for run in runs for g in run["gradients"] if tuple(g[k] for k in keys) == case for ms in g["ms"]]


def table(raw):
    triad = max(run["triad"] for run in raw["mile"])
    lines = [f"{raw['cpu']}, {raw['threads']} threads, triad {triad / 1e9:.1f} GB/s in all", ""]
    lines += ["| rows x columns | precision | loss | mile, ms | rows read at | of the triad | numpy, ms | mile faster by | numpy with A'A formed before, ms | mile faster by |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    keys = ("rows", "dim", "precision", "loss")
    for case in (tuple(g[k] for k in keys) for g in raw["mile"][0]["gradients"]):
        rows, dim, precision, loss = case
        ours = times(raw["mile"], case)
        row = f"| {rows:,} x {dim:,} | {precision} | {loss} | {min(ours):.4f} ({statistics.median(ours):.4f}) |"
        if loss == "logistic":
            speed = rows * dim * (8 if precision == "f64" else 4) * raw["threads"] / min(ours) * 1e3
            row += f" {speed / 1e9:.1f} GB/s | {speed / triad:.0%} |"
        else:
            row += " A'A instead | |"
        theirs = times(raw["numpy"], case)
        if theirs:
            row += f" {min(theirs):.3f} ({statistics.median(theirs):.3f}) | {min(theirs) / min(ours):.1f} |"
            formed = times(raw["numpy"], (rows, dim, precision, "normal equations"))
            row += f" {min(formed):.4f} | {min(formed) / min(ours):.1f} |" if loss == "least-squares" else " | |"
        else:
            row += " not measured | | | |"
        lines.append(row)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--windows", type=int, default=20, help="windows of a tenth of a second for each figure and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, help="where to write raw.json and table.md")
    parser.add_argument("--binary", type=pathlib.Path, help="a benchmark that is built already")
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has numpy, instead of installing one")
    parser.add_argument("--no-numpy", action="store_true")
    arguments = parser.parse_args()
    binary = arguments.binary
    if not binary:
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=HERE, check=True)
        binary = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target")) / "release" / "bench-table"
    with tempfile.TemporaryDirectory() as directory:
        python = arguments.python
        if not (python or arguments.no_numpy):
            python = environment(pathlib.Path(directory), "numpy")
        raw = measure(binary, python, arguments.threads, arguments.windows, arguments.rounds)
    text = table(raw)
    print(text)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "raw.json").write_text(json.dumps(raw) + "\n")
        (arguments.out / "table.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
