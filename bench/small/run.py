#!/usr/bin/env python3
"""Runs of five methods on a small problem, beside decent-bench's on the same data, in one run on one machine.

    python3 bench/small/run.py [--runs N] [--rounds N] [--out DIR] [--python PYTHON | --no-peer]

Builds the benchmark, installs decent-bench into an environment that is thrown away at the end (it needs Python 3.13;
without it mile's figures are still reported), and alternates the rivals so that a disturbance meets both. The figure
of each is the median of its runs, of which mile has more because they are short. Fails if a final point of an agent differs by more than 1e-12. Needs only Python and cargo.
"""

import argparse
import array
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
PEER = "decent-bench==0.3.*"
METHODS = {"k-gt": "K-GT", "led": "LED", "ed": "ED", "extra": "EXTRA", "nids": "NIDS"}
LARGEST_DIFFERENCE = 1e-12


def peer_version(python):
    """The version of decent-bench, or None if this Python does not have it."""
    try:
        return output(python, "-c", "import decent_bench, importlib.metadata as m; print(m.version('decent-bench'))").strip()
    except (OSError, subprocess.CalledProcessError):
        print(f"{python} has no decent-bench; going on without it (it needs Python 3.13: pip install '{PEER}')", file=sys.stderr)
        return None


def measure(binary, python, runs, rounds):
    peer = python and peer_version(python)
    raw = {"cpu": cpu_model(), "runs": runs, "rounds": rounds, "peer": peer, "mile": [], "decent-bench": []}
    with tempfile.TemporaryDirectory() as directory:
        data, ours, theirs = (pathlib.Path(directory) / name for name in ("data", "mile", "decent-bench"))
        ours.mkdir()
        theirs.mkdir()
        output(binary, "data", data)
        for round_number in range(rounds):
            print(f"round {round_number + 1} of {rounds}", file=sys.stderr)
            raw["mile"].append(json.loads(output(binary, "run", data, 10 * runs, ours)))
            if peer:
                raw["decent-bench"].append(json.loads(output(python, HERE / "peer.py", data, runs, theirs)))
        if peer:
            raw["differences"] = {name: difference(ours / name, theirs / name) for name in METHODS}
    return raw


def difference(one, other):
    """The largest difference of two files of numbers; infinite if there is a NaN, or if one has more numbers."""
    points = [array.array("d", path.read_bytes()) for path in (one, other)]
    if len(points[0]) != len(points[1]):
        return float("inf")
    differences = [abs(a - b) for a, b in zip(*points)]
    return max(differences) if all(d == d for d in differences) else float("inf")


def times(rounds, name):
    return [ms for one in rounds for ms in one[name]]


def table(raw):
    peer = f"decent-bench {raw['peer'] or ''}".strip()
    lines = [f"CPU: {raw['cpu']}. Milliseconds of a run of 500 rounds, median of all runs (best run):", ""]
    lines += [f"| method | mile | {peer} | mile faster by | largest difference of the final points |", "|---|---|---|---|---|"]
    for name, title in METHODS.items():
        ours, theirs = times(raw["mile"], name), times(raw["decent-bench"], name)
        row = f"| {title} | {statistics.median(ours):.2f} ({min(ours):.2f}) |"
        if theirs:
            row += f" {statistics.median(theirs):.0f} ({min(theirs):.0f}) | {statistics.median(theirs) / statistics.median(ours):.0f} | {raw['differences'][name]:.1e} |"
        else:
            row += " not measured | | |"
        lines.append(row)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs of decent-bench for each method and round; ten times as many of mile")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, help="where to write raw.json and table.md")
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has decent-bench 0.3, instead of installing one")
    parser.add_argument("--no-peer", action="store_true", help="without decent-bench")
    arguments = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=HERE, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target"))
    with tempfile.TemporaryDirectory() as directory:
        python = arguments.python
        if not (python or arguments.no_peer):
            python = environment(pathlib.Path(directory), PEER, python="python3.13")
        raw = measure(target / "release" / "bench-small", python, arguments.runs, arguments.rounds)
    text = table(raw)
    print(text)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "raw.json").write_text(json.dumps(raw) + "\n")
        (arguments.out / "table.md").write_text(text + "\n")
    wrong = {name: d for name, d in raw.get("differences", {}).items() if d > LARGEST_DIFFERENCE}
    sys.exit(f"decent-bench's final points differ by more than {LARGEST_DIFFERENCE}: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
