#!/usr/bin/env python3
"""Agent-gradients per second of networks (the paper's, and two with the other kinds of layers) beside PyTorch's, in one run on one machine.

    python3 bench/nn/run.py [--cores N] [--windows N] [--rounds N] [--networks NAME ...] [--out DIR] [--binary FILE] [--python PYTHON | --no-torch]

Builds the benchmark, installs PyTorch into an environment that is thrown away at the end (without it the rest is
still reported), and alternates the rivals so that a disturbance meets all of them. The figure of each is its
best window. Needs only Python and cargo.
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


NETWORKS = ("mnist-cnn", "cifar-cnn", "strided-cnn", "residual-cnn")


def measure(binary, python, cores, windows, rounds, networks):
    raw = {"cpu": cpu_model(), "cores": cores, "windows": windows, "rounds": rounds, "mile": [], "torch": []}
    for round_number in range(rounds):
        print(f"round {round_number + 1} of {rounds}", file=sys.stderr)
        raw["mile"].append(json.loads(output(binary, "speed", cores, windows, ",".join(networks))))
        if python:
            for processes, threads in sorted({(cores, 1), (1, cores)}):
                raw["torch"].append(json.loads(output(python, HERE / "peer.py", "speed", processes, threads, windows, ",".join(networks))))
    if python:
        with tempfile.TemporaryDirectory() as directory:
            output(binary, "export", directory)
            raw["check"] = json.loads(output(python, HERE / "peer.py", "check", directory))
    return raw


def times(runs, network, batch):
    return [ms for run in runs for g in run["gradients"] if (g["network"], g["batch"]) == (network, batch) for ms in g["ms"]]


def rival(raw, network, batch, channels_last, ours):
    """PyTorch's best way: this many processes, each with this many threads."""
    case = (network, batch, channels_last)
    runs = [
        (min(g["ms"]), f"{run['processes']} x {run['threads']}", g["ms"])
        for run in raw["torch"]
        for g in run["gradients"]
        if (g["network"], g["batch"], g["channels_last"]) == case
    ]
    if not runs:
        return " not measured | |"
    best, way, _ = min(runs)
    median = statistics.median(ms for _, other, windows in runs if other == way for ms in windows)
    return f" {best:.2f} ({median:.2f}), {way} | {best / ours:.2f} |"


def tables(raw):
    peak = max(p for run in raw["mile"] for p in run["peak_gflops"])
    lines = [f"FMA peak of a core, register-only loop: {peak:.1f} GFLOP/s ({raw['mile'][0]['isa']})", ""]
    lines += ["Milliseconds of wall time for each agent-gradient, all cores at work, best window (median of all windows):", ""]
    lines += ["| network | batch | mile | of the FMA peak | PyTorch, default layout | mile faster by | PyTorch, channels last | mile faster by |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for network in dict.fromkeys(g["network"] for g in raw["mile"][0]["gradients"]):
        for batch in (32, 128):
            ours = times(raw["mile"], network, batch)
            best = min(ours)
            mflop = next(g["mflop"] for g in raw["mile"][0]["gradients"] if (g["network"], g["batch"]) == (network, batch))
            share = mflop / best / raw["cores"] / peak
            row = f"| {network} | {batch} | {best:.2f} ({statistics.median(ours):.2f}) | {share:.0%} |"
            for channels_last in (False, True):
                row += rival(raw, network, batch, channels_last, best)
            lines.append(row)
    if "check" in raw:
        lines += ["", "| network | data | images | accuracy | accuracy in PyTorch | largest difference of a score | of the gradient, relative |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for c in raw["check"]:
            lines.append(
                f"| {c['network']} | {c['data']} | {c['images']} | {c['accuracy']:.4f} | {c['accuracy_torch']:.4f} |"
                f" {c['largest_score_difference']:.1e} (largest score {c['largest_score']:.1f}) | {c['relative_gradient_difference']:.1e} |"
            )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=30, help="windows of a tenth of a second for each figure and round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--out", type=pathlib.Path, help="where to write raw.json and table.md")
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has PyTorch, instead of installing one")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="cores to use, by default all")
    parser.add_argument("--binary", type=pathlib.Path, help="a benchmark that is built already")
    arguments = parser.parse_args()
    binary, cores = arguments.binary, arguments.cores
    if not binary:
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=HERE, check=True)
        binary = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target")) / "release" / "bench-nn"
    with tempfile.TemporaryDirectory() as directory:
        python = arguments.python
        if not (python or arguments.no_torch):
            python = environment(pathlib.Path(directory), "torch", "numpy")
        raw = measure(binary, python, cores, arguments.windows, arguments.rounds, arguments.networks)
    table = tables(raw)
    print(table)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "raw.json").write_text(json.dumps(raw) + "\n")
        (arguments.out / "table.md").write_text(table + "\n")
    # On noise, which stands in for a data set that is not here, the mean gradient all but cancels: its relative
    # difference says nothing there.
    def wrong_gradient(c):
        return c["data"] != "noise" and c["relative_gradient_difference"] > 1e-4

    wrong = [c for c in raw.get("check", []) if c["accuracy"] != c["accuracy_torch"] or wrong_gradient(c)]
    sys.exit(f"PyTorch disagrees: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
