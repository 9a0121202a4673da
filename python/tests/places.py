"""What tests of several places share: a file with objectives and its experiment, the command, what agents say, agents that are killed, ports, and equal states."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import mile

NUMPY = """
import os
from pathlib import Path

import mile
import numpy as np
from beside import scale


def problem(agents, agent=None, width=3, slow=0.0):
    with open(Path(__file__).parent / f"asked-{agent}.txt", "a") as asked:
        asked.write(f"{os.getpid()}\\n")

    def target(agent):
        return scale * np.arange(agent, agent + width)

    def grad(agent, x, rng):
        import time
        time.sleep(slow)
        return np.tanh(x - target(agent)) + 0.01 * rng.standard_normal(width)

    return mile.Objective(lambda agent, x: float(np.log(np.cosh(x - target(agent))).sum()), grad, agents=agents, dim=width, stochastic=True, full_grad=lambda agent, x: np.tanh(x - target(agent)))
"""

EXPERIMENT = """
name = "places"
rounds = 12
seeds = [1]
[network]
agents = 3
[problem]
kind = "python"
factory = "train.py:{function}"
{more}
[[algorithm]]
name = "mile"
step_size = 0.05
local_steps = 3
{method}
"""


def write(place: Path, code: str = NUMPY, function: str = "problem", more: str = 'files = ["beside.py"]', method: str = "") -> Path:
    (place / "train.py").write_text(textwrap.dedent(code))
    (place / "beside.py").write_text("scale = 0.5\n")
    path = place / "experiment.toml"
    path.write_text(EXPERIMENT.format(function=function, more=more, method=method))
    return path


def command(*arguments: object, code: int = 0) -> str:
    done = subprocess.run([sys.executable, "-m", "mile", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def assert_equal(one: mile.Run, other: mile.Run) -> None:
    ours, theirs = one.state(), other.state()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype and np.array_equal(value, theirs[name]), name


def status(folder: Path) -> dict[str, Any] | None:
    """What the agent in a folder says on its socket; nothing if it does not answer."""
    pointer = folder / "status.path"
    path = pointer.read_text().strip() if pointer.exists() else str(folder / "status.sock")
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(2)
        try:
            one.connect(path)
            parts = list(iter(lambda: one.recv(65536), b""))
        except OSError:
            return None
    try:
        said: dict[str, Any] = json.loads(b"".join(parts))
    except ValueError:
        return None
    return said


def run_agents(folders: list[Path]) -> None:
    """Runs the agents of these folders until they end."""
    agents = [threading.Thread(target=mile.agent, args=(folder / "agent.toml",)) for folder in folders]
    for one in agents:
        one.start()
    for one in agents:
        one.join()


class Storm(threading.Thread):
    """Kills agents of a swarm with -9, one after the other: each while it says that it is at a certain round, or a later one, and not at its last."""

    def __init__(self, folder: Path, *kills: tuple[int, int]) -> None:
        super().__init__()
        self.folder, self.kills = folder / "agents", kills
        self.hit: list[tuple[int, int]] = []
        self.start()

    def run(self) -> None:
        for agent, round in self.kills:
            until = time.time() + 300
            while time.time() < until and not self._strike(self.folder / str(agent), agent, round):
                time.sleep(0.01)

    def _strike(self, folder: Path, agent: int, round: int) -> bool:
        said = status(folder)
        if said is None or not round <= said["round"] < said["rounds"]:
            return False
        os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
        self.hit.append((agent, said["round"]))
        return True

    def check(self) -> None:
        """All blows have fallen within the run, and each agent has continued from a round that it had reached."""
        self.join()
        assert [agent for agent, _ in self.hit] == [agent for agent, _ in self.kills]
        for agent in {agent for agent, _ in self.hit}:
            folder = self.folder / str(agent)
            blows = [round for one, round in self.hit if one == agent]
            assert int((folder / "incarnation").read_text()) == 1 + len(blows)
            resumed = [int(round) for round in re.findall(r"job .*, from round (\d+)", (folder / "log").read_text())]
            assert len(resumed) == len(blows) and all(resumed), f"agent {agent} was killed at {blows} and resumed at {resumed}"


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
