#!/usr/bin/env python3
"""Thousands of starts and kills of agents: none may end by itself, and no bit may differ from mile run.

    python3 starts.py --mile ../../target/release/mile --starts 10000 --kills 5000 --log results/DATE/starts.jsonl

Starts: swarms of 8 agents on a complete graph, n = 2e5, 4 rounds. Kills: the same agents with n = 2e4 and more rounds, of which one
at random gets SIGKILL every few hundred milliseconds. A line of the log for each swarm; the last line sums up.
"""

import argparse
import hashlib
import json
import pathlib
import random
import shutil
import subprocess
import tempfile
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
linger = 5
"""
BAD = ["panicked", "SIGABRT", "signal: 6", "the network thread failed", "core dumped"]


def digests(folder):
    files = sorted((folder / "final").glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def kill(mile, file):
    """Kills the agent whose process is noted in a file; says whether it did."""
    try:
        pid = int(file.read_text())
        is_agent = pathlib.Path(f"/proc/{pid}/exe").resolve() == pathlib.Path(mile)
    except (OSError, ValueError):
        return False
    return is_agent and subprocess.run(["kill", "-9", str(pid)], capture_output=True).returncode == 0


def swarm(mile, home, agents, dim, rounds, pause):
    """Runs a swarm, killing agents every `pause` seconds if it is not None. Returns what was counted and found."""
    home.mkdir(parents=True)
    (home / "e.toml").write_text(EXPERIMENT.format(rounds=rounds, agents=agents, dim=dim))
    run = home / "run"
    kills, resumed, begun = 0, 0, time.monotonic()
    while True:
        again = ["--resume"] if resumed else []
        with open(home / "out", "a") as out:
            command = [mile, "swarm", "e.toml", "--out", "run", *again]
            process = subprocess.Popen(command, cwd=home, stdout=out, stderr=out)
            while process.poll() is None:
                time.sleep(0.05 if pause is None else pause)
                if pause is not None and process.poll() is None:
                    kills += kill(mile, run / "agents" / str(random.randrange(agents)) / "pid")
        # A swarm gives up on an agent that is killed five times before it has done a round.
        tail = "\n".join((home / "out").read_text().splitlines()[-10:])
        gave_up = "times without completing a round" in tail
        if process.returncode == 0 or pause is None or not gave_up or resumed == 50:
            break
        resumed += 1
    texts = [(home / "out").read_text()] + [log.read_text() for log in run.glob("agents/*/log")]
    starts = sum(text.count("listening") for text in texts[1:])
    found = sorted({word for word in BAD for text in texts if word in text})
    by_itself = texts[0].count("restarting it") - kills
    result = {
        "exit": process.returncode,
        "starts": starts,
        "kills": kills,
        "resumed": resumed,
        "ended_by_themselves": max(by_itself, 0),
        "found": found,
        "seconds": round(time.monotonic() - begun, 1),
    }
    return result, digests(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mile", default="mile")
    parser.add_argument("--starts", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=5_000)
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.3)
    parser.add_argument("--log", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    mile, agents = str(pathlib.Path(arguments.mile).resolve()), arguments.agents
    home = pathlib.Path(tempfile.mkdtemp(prefix="mile-starts-"))
    expected = {}
    for dim, rounds in [(200_000, 4), (20_000, 200)]:
        folder = home / f"one-{dim}"
        folder.mkdir(parents=True)
        (folder / "e.toml").write_text(EXPERIMENT.format(rounds=rounds, agents=agents, dim=dim))
        subprocess.run([mile, "run", "e.toml", "--out", "run"], cwd=folder, check=True, capture_output=True)
        expected[dim] = digests(folder / "run")
    total = {"swarms": 0, "starts": 0, "kills": 0, "ended_by_themselves": 0, "failed": 0, "other_bits": 0}
    arguments.log.parent.mkdir(parents=True, exist_ok=True)
    with open(arguments.log, "a") as log:
        k = 0
        while total["starts"] < arguments.starts or total["kills"] < arguments.kills:
            storm = total["kills"] < arguments.kills and (k % 2 == 1 or total["starts"] >= arguments.starts)
            dim, rounds = (20_000, 200) if storm else (200_000, 4)
            folder = home / str(k)
            result, bits = swarm(mile, folder, agents, dim, rounds, arguments.pause if storm else None)
            same = bits == expected[dim]
            bad = result["exit"] != 0 or result["found"] or not same
            total["swarms"] += 1
            for key in ["starts", "kills", "ended_by_themselves"]:
                total[key] += result[key]
            total["failed"] += int(result["exit"] != 0)
            total["other_bits"] += int(not same)
            log.write(json.dumps({"swarm": k, "dim": dim, "same_bits": same, **result}) + "\n")
            log.flush()
            if bad:
                print(f"swarm {k}: {result}, same bits: {same}; kept in {folder}", flush=True)
            else:
                shutil.rmtree(folder)
            k += 1
        log.write(json.dumps({"total": total}) + "\n")
    print(total)


if __name__ == "__main__":
    main()
