#!/usr/bin/env python3
"""Thousands of starts and kills of agents: none may end by itself, none may hang, and no bit may differ from mile run.

    python3 starts.py --mile ../../target/release/mile --starts 10000 --kills 5000 --parallel 2 --log results/DATE/starts.jsonl

Starts: swarms of 8 agents on a complete graph, n = 2e5, 4 rounds. Kills: the same agents with n = 2e4 and 200 rounds, of which one at
random gets SIGKILL every few hundred milliseconds. Several swarms run side by side (--parallel); when enough has been counted, or the
time is over, nobody is killed any more and the swarms run to their end. A line of the log for each swarm; the last line sums up, and
the exit code is 1 if anything was found. Needs Python 3.9 and the program, nothing else.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

EXPERIMENT = """
name = "starts"
rounds = {rounds}
eval_every = {rounds}
precision = "f32"
[network]
agents = {agents}
topology = "complete"
[problem]
kind = "quadratic"
dim = {dim}
[[algorithm]]
name = "mile"
step_size = 0.05
local_steps = 1
[agent]
linger = 60
"""
STARTS, KILLS = (200_000, 4), (20_000, 200)
BAD = ["panicked", "SIGABRT", "signal: 6", "the network thread failed", "core dumped"]
COUNTED = ["swarms", "starts", "kills", "ended_by_themselves", "aborts", "hangs", "failed", "other_bits", "ports_taken"]
FAULTS = ["ended_by_themselves", "aborts", "hangs", "failed", "other_bits"]


def digests(folder):
    files = sorted((folder / "final").glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def text_of(file):
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def kill(mile, file):
    """Kills the agent whose process is noted in a file; says whether it did."""
    try:
        pid = int(file.read_text())
        if pathlib.Path(f"/proc/{pid}/exe").resolve() != pathlib.Path(mile):
            return False
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True


class Storm:
    """What all swarms share: what has been counted, and when it is enough."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.mile = str(pathlib.Path(arguments.mile).resolve())
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="mile-starts-", dir=arguments.home))
        self.lock = threading.Lock()
        self.total = dict.fromkeys(COUNTED, 0)
        self.begun = time.monotonic()
        self.next = 0
        self.expected = {}
        for dim, rounds in [STARTS, KILLS]:
            folder = self.folder(f"one-{dim}", dim, rounds)
            command = [self.mile, "run", "e.toml", "--out", "run"]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            self.expected[dim] = digests(folder / "run")

    def folder(self, name, dim, rounds):
        folder = self.home / name
        folder.mkdir(parents=True)
        (folder / "e.toml").write_text(EXPERIMENT.format(rounds=rounds, agents=self.arguments.agents, dim=dim))
        return folder

    def in_time(self):
        return time.monotonic() - self.begun < self.arguments.time_limit

    def wants(self, what):
        return self.total[what] < getattr(self.arguments, what) and self.in_time()

    def add(self, what, count=1):
        with self.lock:
            self.total[what] += count

    def work(self, log):
        """One swarm after another, until it is enough."""
        while True:
            with self.lock:
                kills, starts = self.wants("kills"), self.wants("starts")
                if not (kills or starts):
                    return
                k, self.next = self.next, self.next + 1
            stormy = kills and (k % 2 == 1 or not starts)
            dim, rounds = KILLS if stormy else STARTS
            folder = self.folder(str(k), dim, rounds)
            result = self.swarm(folder, stormy)
            same = digests(folder / "run") == self.expected[dim]
            faults = {"failed": int(result["exit"] != 0), "other_bits": int(not same)}
            with self.lock:
                self.total["swarms"] += 1
                for key, count in {**faults, **result["counted"]}.items():
                    self.total[key] += count
                log.write(json.dumps({"swarm": k, "dim": dim, "same_bits": same, **result}) + "\n")
                log.flush()
            if any(faults.values()) or result["counted"]["aborts"] or result["counted"]["hangs"]:
                print(f"swarm {k}: {result}, same bits: {same}; kept in {folder}", flush=True)
            else:
                shutil.rmtree(folder)

    def swarm(self, home, stormy):
        """Runs a swarm to its end, killing its agents if it is stormy. Returns what was counted and found; kills and starts are
        added to the total as they happen."""
        run, pids = home / "run", set()
        kills, resumed, hangs, begun = 0, 0, 0, time.monotonic()
        quiet = begun
        while True:
            command = [self.mile, "swarm", "e.toml", "--out", "run", *(["--resume"] if resumed else [])]
            with open(home / "out", "a") as out:
                process = subprocess.Popen(command, cwd=home, stdout=out, stderr=out)
                while process.poll() is None:
                    time.sleep(self.arguments.pause if stormy else 0.05)
                    if stormy and self.wants("kills") and process.poll() is None:
                        agent = random.randrange(self.arguments.agents)
                        if kill(self.mile, run / "agents" / str(agent) / "pid"):
                            kills, quiet = kills + 1, time.monotonic()
                            self.add("kills")
                    if time.monotonic() - quiet > self.arguments.hang:
                        hangs += 1
                        process.kill()
                        process.wait()
            # A swarm gives up on an agent that is killed five times before it has done a round, or whose port another swarm took.
            tail = "\n".join(text_of(home / "out").splitlines()[-12:])
            gave_up = "times without completing a round" in tail
            if process.returncode == 0 or hangs or not gave_up or resumed == 200:
                break
            resumed, quiet = resumed + 1, time.monotonic()
        out, logs = text_of(home / "out"), [text_of(log) for log in run.glob("agents/*/log")]
        taken = sum(text.count("cannot listen") for text in logs)
        ended = [line for line in out.splitlines() if "restarting it" in line and "signal: 9" not in line]
        found = collections.Counter(word for text in [out, *logs] for word in BAD if word in text)
        starts = sum(text.count("listening") for text in logs)
        self.add("starts", starts)
        counted = {
            "ended_by_themselves": max(len(ended) - taken, 0),
            "aborts": sum(found.values()),
            "hangs": hangs,
            "ports_taken": taken,
        }
        seconds = round(time.monotonic() - begun, 1)
        return {
            "exit": process.returncode,
            "starts": starts,
            "kills": kills,
            "resumed": resumed,
            "counted": counted,
            "found": sorted(found),
            "ended": ended[:5],
            "seconds": seconds,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mile", default=shutil.which("mile") or "mile")
    parser.add_argument("--starts", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=5_000)
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.3, help="seconds from one kill in a swarm to the next")
    parser.add_argument("--parallel", type=int, default=1, help="swarms side by side")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which no swarm is started and nobody killed")
    parser.add_argument("--hang", type=float, default=150.0, help="seconds a swarm may take after its start or last kill")
    parser.add_argument("--home", type=pathlib.Path, help="folder for the swarms, for instance /dev/shm; default: a temporary one")
    parser.add_argument("--log", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.log.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    storm = Storm(arguments)
    with open(arguments.log, "a") as log:
        workers = [threading.Thread(target=storm.work, args=[log]) for _ in range(arguments.parallel)]
        for worker in workers:
            worker.start()
        shown = time.monotonic()
        while any(worker.is_alive() for worker in workers):
            time.sleep(0.2)
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(f"{shown - storm.begun:.0f} s: {storm.total}", flush=True)
        seconds = round(time.monotonic() - storm.begun, 1)
        log.write(json.dumps({"total": storm.total, "seconds": seconds}) + "\n")
    print(f"all, in {seconds} s: {storm.total}")
    if not any(storm.total[fault] for fault in FAULTS):
        shutil.rmtree(storm.home)
        return
    sys.exit(1)


if __name__ == "__main__":
    main()
