"""Agents as processes on networks: `swarm`, `emit`, `agent`, `keygen`, `status` and `gather`, which are commands of the command line too."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from . import _mile
from ._progress import is_watched
from ._request import PathLike, Request
from ._results import Answer
from ._runs import Run, Stopped

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._running import Arguments

_USAGE, _DIVERGED, _INTERRUPTED = 2, 3, 130


def swarm(
    experiment: PathLike | Mapping[str, object] | None = None,
    *,
    out: PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    agent: Mapping[str, object] | None = None,
    progress: bool | None = None,
    **arguments: Unpack[Arguments],
) -> Run:
    """Runs an experiment with one process per agent, over the network of this machine. The final states have the bits of `run`.

    Agents are separate processes, so an objective in Python is given as a function in a file that makes it:
    `problem={"kind": "python", "factory": "train.py:problem"}`, or with such a section in the experiment file. So is a custom method:
    `mile.method(factory="train.py:DGD", step_size=0.1)`.

    agent: settings of all agents, the section `[agent]` of an experiment file, such as {"transport": "quic"}.
    progress: whether to show what the agents report (default: in notebooks and terminals).

    All other arguments are those of `run`. An agent that is killed is started again and continues from its checkpoint. Ctrl-C stops all agents and raises `Stopped`;
    resume=True continues.

    >>> import mile
    >>> experiment = {"problem": {"kind": "quadratic", "dim": 3}, "network": {"agents": 3}, "rounds": 4}
    >>> algorithms = [mile.method("mile", step_size=0.1)]
    >>> there = mile.swarm(experiment, algorithms=algorithms, out=tmp / "swarm")
    >>> here = mile.run(experiment, algorithms=algorithms, out=tmp / "run")
    >>> bool((there.x() == here.x()).all())
    True
    """
    request = Request(experiment, arguments, out, resume)
    _, folder, resume = request.prepare(out, resume, overwrite)
    with tempfile.TemporaryDirectory() as place:
        file = _write(request, folder, agent, Path(place))
        command = ["swarm", str(file), "--out", str(folder), *(["--resume"] if resume else [])]
        code = _run(command, progress, (_DIVERGED, _INTERRUPTED))
    if code == _INTERRUPTED:
        raise Stopped(f"stopped; continue with resume=True and out={str(folder)!r}", Run(folder))
    return Run(folder)


def emit(
    experiment: PathLike | Mapping[str, object] | None = None,
    *,
    out: PathLike,
    hosts: Mapping[int, str] | None = None,
    agent: Mapping[str, object] | None = None,
    **arguments: Unpack[Arguments],
) -> list[Path]:
    """Writes a folder for each agent, with its configuration and its key, to be copied to its machine; returns the folders.

    hosts: where neighbours reach an agent, such as {0: "node0.example.org:7100"}; at least one end of every edge needs an address, unless `agent` names a relay.
    agent: settings of all agents, the section `[agent]` of an experiment file.

    All other arguments are those of `run`. On its machine, an agent is started with `mile agent agent.toml`, or with `mile.agent`.

    >>> import mile
    >>> folders = mile.emit(
    ...     problem=mile.Quadratic(dim=3), network={"agents": 2}, algorithms=[mile.method("mile", step_size=0.1)],
    ...     hosts={0: "node0.example.org:7100"}, out=tmp / "emitted",
    ... )
    >>> [folder.name for folder in folders]
    ['0', '1']
    """
    request = Request(experiment, arguments, None, False)
    with tempfile.TemporaryDirectory() as place:
        file = _write(request, Path(out), agent, Path(place))
        given = [word for one, address in (hosts or {}).items() for word in ("--host", f"{one}={address}")]
        _run(["swarm", str(file), "--emit", str(out), *given], False)
    return sorted((Path(out) / "agents").iterdir(), key=lambda folder: int(folder.name))


def agent(file: PathLike, *, progress: bool | None = None) -> None:
    """Runs one agent of an experiment on this machine, until its experiment is done.

    file: its configuration, agent.toml.
    progress: whether to show what it reports (default: in notebooks and terminals).

    It waits for neighbours that are unreachable. Ctrl-C stops it and raises `KeyboardInterrupt`; called again, it continues from its checkpoint, with the same bits.
    """
    if _run(["agent", str(file)], progress, (_INTERRUPTED,)) == _INTERRUPTED:
        raise KeyboardInterrupt(f"stopped; call mile.agent({str(file)!r}) again to continue")


def keygen(out: PathLike = "key", *, public: PathLike | None = None) -> str:
    """Writes a secret key to a new file that only its owner can read, and returns the public key, which neighbours list.

    public: an existing key file whose public key is returned; nothing is generated.

    >>> import mile
    >>> key = mile.keygen(tmp / "key")
    >>> key == mile.keygen(public=tmp / "key")
    True
    """
    given = ["--out", str(out)] if public is None else ["--public", str(public)]
    return _ask("keygen", *given).strip()


def status(*folders: PathLike) -> list[Answer]:
    """What agents on this machine are doing: for each folder of an agent its `status`, or the `error` with which it could not be asked.

    folders: folders of agents, or run directories of swarms; default: the current folder.
    """
    found: list[Answer] = json.loads(_ask("status", "--format", "json", *map(str, folders), accepted=(1,)) or "[]")
    return found


def gather(*folders: PathLike, out: PathLike, experiment: PathLike | None = None) -> Run | None:
    """Makes a run directory from the folders of agents, or of copies of them.

    Where the data or the folders of some agents are missing, there are no records and no run: a warning says what is missing, and `out` has
    the final states of the others and the losses that they have measured themselves.

    experiment: an experiment file on a machine that has the data of all agents; default: the agents' own files.
    """
    given = [] if experiment is None else ["--experiment", str(experiment)]
    said: list[str] = []
    _run(["gather", *map(str, folders), "--out", str(out), *given], None, said=said)
    if (Path(out) / "config.toml").exists():
        return Run(Path(out))
    warnings.warn("".join(said).strip(), stacklevel=2)
    return None


def _write(request: Request, folder: Path, agent: Mapping[str, object] | None, place: Path) -> Path:
    """Writes the experiment to a file that other processes can read, with absolute paths."""
    request.place(folder)
    if "sweep" in request.table:
        raise _mile.ExperimentError("sweep: expected a single experiment, got a sweep; use mile.sweep, which runs every combination of values")
    if request.object is not None:
        got = type(request.problem).__name__
        raise _mile.ExperimentError(
            'problem: expected objectives that each agent can make in its own process, such as {"kind": "python", "factory": "train.py:problem"}, '
            f"got {got} of this process"
        )
    own = {name: method for method, name, *_ in request.methods}
    for k, section in enumerate(request.table["algorithm"]):
        if section.get("name") in own:
            method = own[section["name"]]
            expected, got = "a method that each agent can make in its own process", f"{section['name']} of this process"
            raise _mile.ExperimentError(f"algorithm[{k}].name: expected {expected}, got {got}; {_remedy(type(method))}")
    if request.device is not None:
        raise _mile.ExperimentError(f"device: expected none, since agents on a network compute on the CPU, got {request.device}")
    settings = {"agent": {**request.table.pop("agent", {}), **(agent or {})}}
    path = place / "experiment.toml"
    path.write_text(_mile.resolve(request.table, request.base.absolute(), settings))
    return path


def _remedy(kind: type) -> str:
    """How agents get a method of this class."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None or "." in kind.__qualname__:
        return f'put the class into a file, and give factory="train.py:{kind.__name__}" instead'
    return f'give factory="{file}:{kind.__name__}" instead, with the arguments of the class as arguments={{...}}'


def _start(arguments: list[str], stdout: int) -> subprocess.Popen[str]:
    """The command, in a separate process: signals and the threads of agents stay out of this one."""
    return subprocess.Popen([sys.executable, "-m", "mile", *arguments], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True)


def _run(arguments: list[str], progress: bool | None, accepted: tuple[int, ...] = (), said: list[str] | None = None) -> int:
    """Runs the command until it ends, showing what it says; returns its exit code, which is 0 or accepted. Its messages are added to `said`."""
    shown = is_watched() if progress is None else progress
    said = [] if said is None else said
    process = _start(arguments, subprocess.PIPE)
    streams = (process.stdout, None), (process.stderr, said)
    readers = [threading.Thread(target=_read, args=(stream, shown, kept), daemon=True) for stream, kept in streams]
    for reader in readers:
        reader.start()
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:
            # In a terminal it has been interrupted too; twice would be at once.
            if process.poll() is None and not sys.stdin.isatty():
                process.send_signal(signal.SIGINT)
    for reader in readers:
        reader.join()
    return _checked(code, "".join(said), accepted)


def _read(stream: IO[str], shown: bool, kept: list[str] | None) -> None:
    for line in stream:
        if kept is not None:
            kept.append(line)
        if shown:
            print(line, end="", flush=True)


def _ask(*arguments: str, accepted: tuple[int, ...] = ()) -> str:
    """What the command prints."""
    process = _start(list(arguments), subprocess.PIPE)
    out, said = process.communicate()
    _checked(process.returncode, said, accepted)
    return out


def _checked(code: int, said: str, accepted: tuple[int, ...]) -> int:
    """Raises what has gone wrong."""
    if code == 0 or code in accepted:
        return code
    _, found, message = said.rpartition("mile: ")
    text = message.strip() if found else said.strip() or f"ended with code {code}"
    raise (_mile.ExperimentError if code == _USAGE else _mile.RunError)(text)
