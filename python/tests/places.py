"""What tests of several places share: the command, agents that are killed, ports, and equal states."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

import mile


def command(*arguments: object, code: int = 0) -> str:
    done = subprocess.run([sys.executable, "-m", "mile", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def assert_equal(one: mile.Run, other: mile.Run) -> None:
    ours, theirs = one.state(), other.state()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype and np.array_equal(value, theirs[name]), name


def kill_agents(folder: Path, times: int) -> threading.Thread:
    """Kills agents of a swarm, one after the other, while it runs."""

    def storm() -> None:
        for k in range(times):
            pid = folder / "agents" / str(k % 3) / "pid"
            until = time.time() + 30
            while time.time() < until and not pid.exists():
                time.sleep(0.05)
            time.sleep(1.0)
            try:
                os.kill(int(pid.read_text()), signal.SIGKILL)
            except (OSError, ValueError):
                return

    thread = threading.Thread(target=storm)
    thread.start()
    return thread


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
