#!/usr/bin/env python3
"""Modelled against measured time: a ring of agents, each in its own network namespace, on lines with given latencies and bandwidths.

    cargo build -p mile-cli && cargo build -p mile-net --example paced
    python3 modelled.py --mile ../../target/debug/mile --agent ../../target/debug/examples/paced

Every packet between two namespaces passes through this process, which sends it on late and at a limited rate, for each direction of each
pair by itself. Agents sleep for the time of a local step. `mile run` models the same experiment with a section [time]. Prints, for each
case, the seconds of a round after the first ones, measured and modelled. Needs root, ip and /dev/net/tun, but no netem; good for some 2 MB/s.
"""

import argparse
import fcntl
import heapq
import json
import os
import pathlib
import select
import struct
import subprocess
import tempfile
import threading
import time

# What each case has beside equal agents: METHOD, LOCAL_STEPS, n, rounds, seconds of a step, lines {(i, j): (latency, bandwidth)}.
LINE = (0.02, 500e3)
CASES = {
    "equal agents, latency only": dict(line=(0.05, float("inf")), dim=250),
    "equal agents, bandwidth": dict(dim=25_000),
    "one slow agent": dict(steps={2: 0.1}, dim=2500),
    "one slow line": dict(lines={(0, 1): (0.1, 100e3)}, dim=10_000),
    "slow agent at the slow line": dict(steps={0: 0.1}, lines={(0, 1): (0.1, 100e3)}, dim=10_000),
    "two vectors per round": dict(method="k-gt", dim=10_000),
    "several exchanges per round": dict(method="mg-skip", dim=2500),
    "compute only": dict(line=(0.0, float("inf")), steps={0: 0.05, 2: 0.03}, dim=250),
    "long fat line": dict(line=(0.1, 1e6), dim=100_000, rounds=20),
}
AGENTS, LOCAL_STEPS, STEP, FIRST = 5, 5, 0.02, 5


class Lines(threading.Thread):
    """Passes packets on between the ends of tunnels."""

    def __init__(self, ends, line):
        super().__init__(daemon=True)
        self.ends, self.line, self.queue, self.free, self.count = ends, line, [], {}, 0

    def run(self):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        poll = select.poll()
        for end in self.ends:
            poll.register(end, select.POLLIN)
        place = {end: k for k, end in enumerate(self.ends)}
        while True:
            wait = max(0.0, self.queue[0][0] - time.monotonic()) if self.queue else 0.5
            for end, _ in poll.poll(wait * 1e3):
                for _ in range(64):
                    try:
                        packet = os.read(end, 2048)
                    except BlockingIOError:
                        break
                    except OSError:
                        # The namespaces are gone: this case is over.
                        return
                    self.later(place[end], packet)
            now = time.monotonic()
            while self.queue and self.queue[0][0] <= now:
                _, _, to, packet = heapq.heappop(self.queue)
                try:
                    os.write(self.ends[to], packet)
                except OSError:
                    pass

    def later(self, source, packet):
        # IPv4 to 10.79.0.(agent + 1).
        to = packet[19] - 1
        if packet[0] >> 4 != 4 or packet[16:19] != b"\x0a\x4f\x00" or not 0 <= to < len(self.ends):
            return
        latency, bandwidth = self.line(source, to)
        sent = max(time.monotonic(), self.free.get((source, to), 0.0)) + len(packet) / bandwidth
        self.free[source, to] = sent
        self.count += 1
        heapq.heappush(self.queue, (sent + latency, self.count, to, packet))


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def tunnel(space, name, agent):
    """The end, in this process, of a device in a namespace."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001))  # TUNSETIFF: IFF_TUN | IFF_NO_PI
    ip("link", "set", name, "netns", space)
    ip("-n", space, "link", "set", "lo", "up")
    ip("-n", space, "address", "add", f"10.79.0.{agent + 1}/24", "dev", name)
    ip("-n", space, "link", "set", name, "mtu", "1500", "txqueuelen", "10000", "up")
    return end


def modelled(mile, home, case):
    """The modelled time of each round."""
    lines = ", ".join(f"[{i}, {j}, {latency}, {bandwidth}]" for (i, j), (latency, bandwidth) in case["lines"].items())
    tau = f"local_steps = {LOCAL_STEPS}" if case["method"] != "mg-skip" else ""
    text = f"""
name = "modelled"
rounds = {case["rounds"]}
eval_every = 1
precision = "f32"
[network]
agents = {AGENTS}
[problem]
kind = "quadratic"
dim = {case["dim"]}
[[algorithm]]
name = "{case["method"]}"
step_size = 0.001
{tau}
[time]
step = {case["seconds"]}
latency = {case["line"][0]}
bandwidth = {case["line"][1]}
edges = [{lines}]
"""
    (home / "e.toml").write_text(text)
    subprocess.run([mile, "run", "e.toml", "--out", "run", "--quiet"], cwd=home, check=True, capture_output=True)
    records = [json.loads(line) for line in (home / "run/metrics.jsonl").read_text().splitlines()]
    return {record["round"]: record["modelled_s"] for record in records}


def measured(agent, case, transport):
    """When the last agent had ended each round."""
    spaces = [f"mile-t{os.getpid()}-{k}" for k in range(AGENTS)]
    lines = case["lines"] | {(j, i): line for (i, j), line in case["lines"].items()}
    ends = []
    try:
        for k, space in enumerate(spaces):
            ip("netns", "add", space)
            ends.append(tunnel(space, f"mt{k}-{os.getpid()}", k))
        Lines(ends, lambda i, j: lines.get((i, j), case["line"])).start()
        tau = 1 if case["method"] == "mg-skip" else LOCAL_STEPS
        words = [case["method"], tau, case["dim"], case["rounds"], transport, *case["seconds"]]
        words += [f"10.79.0.{k + 1}:7100" for k in range(AGENTS)]
        start = lambda k: subprocess.Popen(
            ["ip", "netns", "exec", spaces[k], "nice", "-n", "-10", agent, str(k), *map(str, words)], stdout=subprocess.PIPE, text=True
        )
        agents = [start(k) for k in range(AGENTS)]
        said = [one.communicate()[0] for one in agents]
        assert all(one.returncode == 0 for one in agents)
        rounds = [dict((int(r), float(t)) for r, t in (line.split() for line in text.splitlines())) for text in said]
        return {r: max(of[r] for of in rounds) for r in rounds[0]}
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mile", default="mile")
    parser.add_argument("--agent", default="paced")
    parser.add_argument("--transport", default="tcp", choices=["tcp", "quic"])
    parser.add_argument("--case")
    arguments = parser.parse_args()
    mile, agent = (str(pathlib.Path(path).resolve()) for path in (arguments.mile, arguments.agent))
    if arguments.case is None:
        # Each case in a separate process, which takes its lines with it.
        for name in CASES:
            subprocess.run([os.sys.executable, __file__, "--mile", mile, "--agent", agent, "--transport", arguments.transport, "--case", name], check=True)
        return
    case = dict(method="mile", rounds=40, steps={}, lines={}, line=LINE) | CASES[arguments.case]
    case["seconds"] = [case["steps"].get(k, STEP) for k in range(AGENTS)]
    with tempfile.TemporaryDirectory() as home:
        model = modelled(mile, pathlib.Path(home), case)
    real = measured(agent, case, arguments.transport)
    first, last = FIRST, case["rounds"]
    seconds = [(times[last] - times[first]) / (last - first) for times in (real, model)]
    print(
        f"{arguments.case:28s} {arguments.transport:5s} measured {seconds[0]:.4f} s, modelled {seconds[1]:.4f} s a round, "
        f"{100 * (seconds[0] / seconds[1] - 1):+.1f}%",
        flush=True,
    )


if __name__ == "__main__":
    main()
