#!/usr/bin/env python3
"""CPU time of a round: a swarm of agents, each a process, over that of mile run on the same experiment.

    python3 cpu.py --mile ../../target/release/mile

Both are run with two numbers of rounds, in turns; the difference leaves out what a start costs. Times are user and system time of all
processes. With --every K agents write a checkpoint every K rounds. --transports quic tcp compares both.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

EXPERIMENT = """
name = "cpu"
rounds = {rounds}
eval_every = {rounds}
precision = "f32"
[network]
agents = {agents}
topology = "ring"
[problem]
kind = "quadratic"
dim = {dim}
[[algorithm]]
name = "mile"
step_size = 0.05
{steps}
[agent]
checkpoint_every = {every}
{transport}
"""


def cpu(command, home):
    """Seconds of CPU (user, system) and of the clock that a command takes."""
    begun, before = time.monotonic(), os.times()
    done = subprocess.run(command, cwd=home, capture_output=True)
    after = os.times()
    if done.returncode != 0:
        raise SystemExit(f"{command}: {done.stderr.decode()}")
    user = after.children_user - before.children_user
    return user, after.children_system - before.children_system, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mile", default="mile")
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--dim", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, help="local steps in a round; default: that of the method")
    parser.add_argument("--every", type=int, default=1, help="rounds from one checkpoint to the next")
    parser.add_argument("--transports", nargs="+", default=[""], help="quic, tcp; default: that of mile swarm")
    parser.add_argument("--rounds", type=int, nargs=2, default=[5, 35])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--home", type=pathlib.Path, help="a folder on the disk that is used; default: a temporary one")
    arguments = parser.parse_args()
    mile = str(pathlib.Path(arguments.mile).resolve())
    steps = f"local_steps = {arguments.steps}" if arguments.steps else ""
    rows = {"run": []} | {f"swarm {by}".strip(): [] for by in arguments.transports}
    for _ in range(arguments.turns):
        for what, found in rows.items():
            times = []
            for rounds in arguments.rounds:
                home = pathlib.Path(tempfile.mkdtemp(prefix="mile-cpu-", dir=arguments.home))
                command, _, by = what.partition(" ")
                transport = f'transport = "{by}"' if by else ""
                values = {"agents": arguments.agents, "dim": arguments.dim, "steps": steps, "transport": transport}
                (home / "e.toml").write_text(EXPERIMENT.format(rounds=rounds, every=arguments.every, **values))
                times.append(cpu([mile, command, "e.toml", "--out", "out"], home))
                shutil.rmtree(home)
            count = arguments.rounds[1] - arguments.rounds[0]
            found.append([(long - short) / count for short, long in zip(*times)])
            user, system, wall = (1e3 * t for t in found[-1])
            print(f"{what:>10}: a round {user:.1f} ms user, {system:.1f} ms system, {wall:.1f} ms wall", flush=True)
    best = {what: min(user + system for user, system, _ in found) for what, found in rows.items()}
    middle = {what: sorted(user + system for user, system, _ in found)[len(found) // 2] for what, found in rows.items()}
    for name, of in [("best", best), ("median", middle)]:
        for what in list(rows)[1:]:
            ratio = of[what] / of["run"]
            print(f"{name}: run {1e3 * of['run']:.1f} ms, {what} {1e3 * of[what]:.1f} ms of CPU a round: {ratio:.2f} times")


if __name__ == "__main__":
    main()
