#!/usr/bin/env python3
"""Two agents on a long line that loses packets, or lets them overtake each other: each is in its own network namespace, and every packet between them
passes through this process, which delays or drops it. With --jitter each packet has its own delay.

    python3 line.py --mile ../../target/release/mile --transport quic --delay 100 --loss 0.05 --dim 20000 --rounds 20

Prints rounds per second, and what a direction carried. Needs root, ip and /dev/net/tun, but no netem; good for some 10 MB/s.
"""

import argparse
import fcntl
import heapq
import os
import pathlib
import random
import select
import struct
import subprocess
import tempfile
import threading
import time

EXPERIMENT = """
name = "line"
rounds = {rounds}
eval_every = {rounds}
precision = "f32"
[network]
agents = 2
topology = "path"
[problem]
kind = "quadratic"
dim = {dim}
[[algorithm]]
name = "mile"
step_size = 0.1
[agent]
linger = 20
transport = "{transport}"
"""

TUNSETIFF, TUN, NO_HEADER = 0x400454CA, 0x0001, 0x1000


class Line(threading.Thread):
    """Passes packets between two network devices, late and not always."""

    def __init__(self, ends, delay, jitter, loss):
        super().__init__(daemon=True)
        self.ends, self.delay, self.jitter, self.loss = ends, delay, jitter, loss
        self.queue, self.count = [], 0

    def run(self):
        there = dict(zip(self.ends, reversed(self.ends), strict=True))
        while True:
            wait = max(0.0, self.queue[0][0] - time.monotonic()) if self.queue else 1.0
            for end in select.select(self.ends, [], [], wait)[0]:
                for _ in range(64):
                    try:
                        packet = os.read(end, 65536)
                    except BlockingIOError:
                        break
                    except OSError:
                        return  # The devices are gone with their namespaces.
                    if random.random() >= self.loss:
                        self.count += 1
                        due = time.monotonic() + self.delay + random.uniform(-self.jitter, self.jitter)
                        heapq.heappush(self.queue, (due, self.count, there[end], packet))
            now = time.monotonic()
            while self.queue and self.queue[0][0] <= now:
                _, _, end, packet = heapq.heappop(self.queue)
                try:
                    os.write(end, packet)
                except OSError:
                    pass  # The device is not up yet, or its queue is full: lost.


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mile", default="mile")
    parser.add_argument("--transport", default="quic", choices=["quic", "tcp"])
    parser.add_argument("--delay", type=float, default=100, help="milliseconds, one way")
    parser.add_argument("--jitter", type=float, default=0, help="milliseconds that a packet may be earlier or later")
    parser.add_argument("--loss", type=float, default=0.05)
    parser.add_argument("--dim", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    mile = str(pathlib.Path(arguments.mile).resolve())
    home = pathlib.Path(tempfile.mkdtemp(prefix="mile-line-"))
    (home / "e.toml").write_text(EXPERIMENT.format(rounds=arguments.rounds, dim=arguments.dim, transport=arguments.transport))
    spaces = [f"mile-line-{os.getpid()}-{k}" for k in (0, 1)]
    try:
        line = Line([device(k, space) for k, space in enumerate(spaces)], arguments.delay / 1e3, arguments.jitter / 1e3, arguments.loss)
        line.start()
        measure(arguments, mile, home, spaces)
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)


def device(k, space):
    """A network device in a namespace of its own, whose packets are read and written here."""
    name = f"ml{k}-{os.getpid()}"
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), TUN | NO_HEADER))
    ip("netns", "add", space)
    ip("link", "set", name, "netns", space)
    ip("-n", space, "address", "add", f"10.78.0.{k + 1}/30", "dev", name)
    ip("-n", space, "link", "set", "lo", "up")
    ip("-n", space, "link", "set", name, "up")
    return end


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def measure(arguments, mile, home, spaces):
    hosts = [part for k in (0, 1) for part in ("--host", f"{k}=10.78.0.{k + 1}:7100")]
    subprocess.run([mile, "swarm", "e.toml", "--emit", "out", *hosts], cwd=home, check=True, capture_output=True)
    begun = time.monotonic()
    agents = [
        subprocess.Popen(["ip", "netns", "exec", spaces[k], mile, "agent", f"out/agents/{k}/agent.toml"], cwd=home, stderr=open(home / f"log-{k}", "w"))
        for k in (0, 1)
    ]
    codes = [agent.wait() for agent in agents]
    took = time.monotonic() - begun
    rate = arguments.rounds * arguments.dim * 4 / took / 1e3
    print(
        f"{arguments.transport}, {arguments.delay:.0f} +- {arguments.jitter:.0f} ms each way, {100 * arguments.loss:.0f}% lost, n = {arguments.dim}: "
        f"{arguments.rounds} rounds in {took:.1f} s, {arguments.rounds / took:.2f} a second, {rate:.0f} kB/s a direction; "
        f"exit codes {codes}, {home}"
    )


if __name__ == "__main__":
    main()
