#!/usr/bin/env python3
"""What `mile run --dry-run` promises, against what the run takes: time, memory and bytes.

    python3 bench/promises/run.py [--mile PROGRAM] [--only NAME] [--scale FACTOR] [--out DIR]

Each experiment is tried out and then run, and the ratios promised/taken are printed. Time should be within a factor of two
(less than 1 s counts as 1 s, promised or taken; "at most" is an upper bound, which the run should not exceed by more), memory within 1.3, and bytes equal, as far as they are printed (or fewer than "at most"). Also prints the share of a job's time that
evaluations take, which should be below a fifth. Needs Python and, without --mile, cargo. Run it alone on the machine.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from rivals import cpu_model  # noqa: E402 (the folder above has to be known first)

FIVE = "".join(
    f'[[algorithm]]\nname = "{name}"\nstep_size = 0.02\n' for name in ["mile", "k-gt", "led", "nids", "local-dsgd"]
)
EXACT = "".join(f'[[algorithm]]\nname = "{name}"\nstep_size = "auto"\n' for name in ["mile", "k-gt"])
ADAPTIVE = '[[algorithm]]\nname = "mile"\nstep_size = 0.02\nxi = "adaptive"\n'


def table(loss, keys=""):
    return f'[problem]\nkind = "table"\ndata = "all.csv"\ntarget = "y"\nloss = "{loss}"\nstandardise = true\ntest = 0.2\n{keys}\n'


def experiments(scale):
    """By name: the experiment, and rows and columns of its table."""
    rounds = lambda count: f"rounds = {max(1, int(count * scale))}\n"
    network = "[network]\nagents = 10\n"
    quadratic = lambda dim: f'[problem]\nkind = "quadratic"\ndim = {dim}\n'
    return {
        "short": (rounds(200) + network + quadratic(20) + FIVE, None),
        "long": (rounds(50_000) + network + quadratic(20) + FIVE, None),
        "large": (rounds(30) + network + quadratic(1_000_000) + FIVE, None),
        "adaptive": (rounds(3000) + "seeds = [0, 1]\n" + network + quadratic(200) + ADAPTIVE, None),
        "drops": (rounds(3000) + network + "drop_rate = 0.2\n" + quadratic(500) + FIVE, None),
        "logistic": (rounds(300) + network + table("logistic") + FIVE, (200_000, 20)),
        "batches": (rounds(5000) + "seeds = [0, 1, 2]\n" + network + table("logistic", "batch = 32") + FIVE, (100_000, 20)),
        "least-squares": (rounds(3000) + network + table("least-squares") + FIVE, (300_000, 20)),
        "softmax": (rounds(200) + network + table("softmax") + FIVE, (50_000, 30)),
        "images": (rounds(20) + network + '[problem]\nkind = "images"\n' + FIVE, None),
        # All rounds would take far longer than those until it has converged.
        "stopped": ("rounds = 1_000_000\nstop = { grad_norm = 1e-6, consensus = 1e-12 }\n" + network + quadratic(20) + EXACT, None),
        # Most of the time is that of checks, and no job converges.
        "checked": (rounds(300) + "stop = { grad_norm = 1e-12, every = 1 }\n" + network + table("logistic", "batch = 32") + FIVE, (100_000, 20)),
        "sweep": (rounds(300) + network + quadratic(2000) + FIVE + "[sweep]\nstep_size = [0.01, 0.02, 0.05]\n", None),
    }


def write_table(path, rows, columns, loss):
    draw = random.Random(0)
    with path.open("w") as file:
        file.write(",".join([f"a{k}" for k in range(columns)] + ["y"]) + "\n")
        for _ in range(rows):
            row = [draw.gauss(0, 1) for _ in range(columns)]
            score = sum(row[:3]) + draw.gauss(0, 1)
            target = {"logistic": int(score > 0), "softmax": int(score > -1) + int(score > 1)}.get(loss, round(score, 3))
            file.write(",".join(f"{number:.4f}" for number in row) + f",{target}\n")


def taken(command, folder):
    """Seconds, peak bytes of memory and standard output of a command."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.PIPE)
        errors = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - begun
        if status:
            sys.exit(f"{command}: {errors.decode()}")
        out.seek(0)
        return seconds, usage.ru_maxrss * 1024, out.read().decode()


def promised(text):
    """Seconds, whether they are "at most", bytes of memory, bytes to be sent, whether they are "at most", and the share of evaluations."""
    number, unit = re.search(r"^memory: about ([\d.]+) (\w+)", text, re.M).groups()
    memory = float(number) * {"MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]
    at_most = False
    if re.search(r"^time: less than", text, re.M):
        seconds = 1.0
    else:
        most, number, unit = re.search(r"^time: (at most )?about ([\d.]+) (\w+)", text, re.M).groups()
        at_most = most is not None
        seconds = float(number) * {"s": 1, "min": 60, "h": 3600, "days": 86400}[unit]
    most, sent = re.search(r"sent by all agents in all runs: (at most )?([\d.,]+ \w+)", text).groups()
    share = int(re.search(r"evaluations(?: and checks)? (\d+)%", text)[1])
    return seconds, at_most, memory, sent, most is not None, share


def in_words(count):
    """A number of bytes as a dry run prints it."""
    power = max(0, (int(count).bit_length() - 1) // 10)
    return f"{int(count)} B" if power == 0 else f"{count / 2 ** (10 * power):.2f} {'KMGT'[power - 1]}iB"


def compared(said, really, at_most):
    """How the number of bytes that was said compares with that of the run."""
    if said == in_words(really):
        return "equal"
    number, unit = said.split()
    most = float(number.replace(",", "")) * 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].index(unit)
    return "fewer" if at_most and really < most else "differ"


def bytes_sent(run):
    summaries = [run / "summary.json"] if (run / "summary.json").exists() else run.glob("points/*/summary.json")
    return sum(job["last"]["bytes_sent"] for path in summaries for job in json.loads(path.read_text()))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--mile", type=pathlib.Path, help="the program; default: a release build of this tree")
    options.add_argument("--only", action="append", help="the name of an experiment; may be given several times")
    options.add_argument("--scale", type=float, default=1.0, help="factor of the rounds, e.g. 0.1 for a build without optimisation")
    options.add_argument("--out", type=pathlib.Path, help="folder for results.json")
    given = options.parse_args()
    program = given.mile
    if program is None:
        subprocess.run(["cargo", "build", "--release", "-p", "mile-cli"], cwd=ROOT, check=True)
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        program = target / "release" / "mile"
    found = []
    print(f"{'experiment':14} {'time':>17} {'ratio':>6} {'MB':>13} {'ratio':>6} {'bytes':>7} {'evaluation':>10}")
    for name, (text, shape) in experiments(given.scale).items():
        if given.only and name not in given.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "experiment.toml").write_text(text)
            if shape:
                write_table(folder / "all.csv", *shape, re.search(r'loss = "(.*)"', text)[1])
            command = [str(program.resolve()), "run", "experiment.toml"]
            trying, _, plan = taken([*command, "--dry-run"], folder)
            seconds, at_most, memory, sent, at_most_sent, share = promised(plan)
            time_taken, peak, _ = taken([*command, "--out", "run", "--quiet"], folder)
            really = bytes_sent(folder / "run")
        row = {
            "name": name, "seconds": [seconds, time_taken], "at most": at_most, "bytes of memory": [memory, peak],
            "bytes sent": [sent, in_words(really), really], "share of evaluations": share / 100, "seconds of the dry run": trying,
        }
        found.append(row)
        ratios = seconds / max(time_taken, 1.0), memory / peak
        print(
            f"{name:14} {'<' if at_most else ' '}{seconds:7.1f} {time_taken:8.2f} {ratios[0]:6.2f} {memory / 1e6:6.0f} {peak / 1e6:6.0f} {ratios[1]:6.2f}"
            f" {compared(sent, really, at_most_sent):>7} {share:9}%",
            flush=True,
        )
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        machine = {"system": platform.platform(), "cores": os.cpu_count(), "processor": cpu_model()}
        (given.out / "results.json").write_text(json.dumps({"machine": machine, "experiments": found}, indent=1) + "\n")


main()
