#!/usr/bin/env python3
"""Two agents on a long line that loses packets, or lets them overtake each other: each is in its own network namespace, without a route
to the other, and every packet passes through this process, which delays or drops it. With --jitter each packet has its own delay.

    python3 line.py --mile ../../target/release/mile --delay 100 --loss 0.05 --dim 20000 --rounds 20

Prints rounds per second, and what a direction carried. Needs root and ip, but no netem; good for some 10 MB/s.
"""

import argparse
import heapq
import os
import pathlib
import random
import select
import socket
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
"""


class Line(threading.Thread):
    """Forwards what arrives at a port to a target, and the answers back, late and not always."""

    def __init__(self, near, target, delay, jitter, loss):
        super().__init__(daemon=True)
        self.target, self.delay, self.jitter, self.loss = target, delay, jitter, loss
        self.front = self.bound(near)
        self.clients, self.backs, self.queue, self.count = {}, {}, [], 0
        self.port = self.front.getsockname()[1]

    @staticmethod
    def bound(address="0.0.0.0"):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        made.bind((address, 0))
        made.setblocking(False)
        return made

    def later(self, out, address, data):
        if random.random() >= self.loss:
            self.count += 1
            delay = self.delay + random.uniform(-self.jitter, self.jitter)
            heapq.heappush(self.queue, (time.monotonic() + delay, self.count, out, address, data))

    def run(self):
        while True:
            wait = max(0.0, self.queue[0][0] - time.monotonic()) if self.queue else 1.0
            ready, _, _ = select.select([self.front, *self.backs], [], [], wait)
            for one in ready:
                for _ in range(64):
                    try:
                        data, address = one.recvfrom(65536)
                    except (BlockingIOError, ConnectionRefusedError):
                        break
                    if one is self.front:
                        if address not in self.clients:
                            back = self.bound()
                            self.clients[address], self.backs[back] = back, address
                        self.later(self.clients[address], self.target, data)
                    else:
                        self.later(self.front, self.backs[one], data)
            now = time.monotonic()
            while self.queue and self.queue[0][0] <= now:
                _, _, out, address, data = heapq.heappop(self.queue)
                try:
                    out.sendto(data, address)
                except (BlockingIOError, ConnectionRefusedError):
                    pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mile", default="mile")
    parser.add_argument("--delay", type=float, default=100, help="milliseconds, one way")
    parser.add_argument("--jitter", type=float, default=0, help="milliseconds that a packet may be earlier or later")
    parser.add_argument("--loss", type=float, default=0.05)
    parser.add_argument("--dim", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    mile = str(pathlib.Path(arguments.mile).resolve())
    home = pathlib.Path(tempfile.mkdtemp(prefix="mile-line-"))
    (home / "e.toml").write_text(EXPERIMENT.format(rounds=arguments.rounds, dim=arguments.dim))
    spaces = [f"mile-line-{os.getpid()}-{k}" for k in (0, 1)]
    try:
        for k, space in enumerate(spaces):
            ip("netns", "add", space)
            ip("link", "add", f"ml{k}-{os.getpid()}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("address", "add", f"10.78.{k}.1/24", "dev", f"ml{k}-{os.getpid()}")
            ip("link", "set", f"ml{k}-{os.getpid()}", "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "address", "add", f"10.78.{k}.2/24", "dev", "eth0")
        measure(arguments, mile, home, spaces)
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def measure(arguments, mile, home, spaces):
    hosts = [part for k in (0, 1) for part in ("--host", f"{k}=10.78.{k}.2:7100")]
    subprocess.run([mile, "swarm", "e.toml", "--emit", "out", *hosts], cwd=home, check=True, capture_output=True)
    delay, jitter = arguments.delay / 1e3, arguments.jitter / 1e3
    # The line to agent k begins where the other agent can reach it.
    lines = [Line(f"10.78.{1 - k}.1", (f"10.78.{k}.2", 7100), delay, jitter, arguments.loss) for k in (0, 1)]
    for line in lines:
        line.start()
    for agent in (0, 1):
        file = home / f"out/agents/{agent}/agent.toml"
        there = f"10.78.{agent}.1:{lines[1 - agent].port}"
        file.write_text(file.read_text().replace(f"10.78.{1 - agent}.2:7100", there))
    begun = time.monotonic()
    agents = [
        subprocess.Popen(["ip", "netns", "exec", spaces[k], mile, "agent", f"out/agents/{k}/agent.toml"], cwd=home, stderr=open(home / f"log-{k}", "w"))
        for k in (0, 1)
    ]
    codes = [agent.wait() for agent in agents]
    took = time.monotonic() - begun
    rate = arguments.rounds * arguments.dim * 4 / took / 1e3
    print(
        f"{arguments.delay:.0f} ms each way, {100 * arguments.loss:.0f}% lost, n = {arguments.dim}: "
        f"{arguments.rounds} rounds in {took:.1f} s, {arguments.rounds / took:.2f} a second, {rate:.0f} kB/s a direction; "
        f"exit codes {codes}, {home}"
    )


if __name__ == "__main__":
    main()
