"""All parts of an experiment, from the arguments of `run`, and the folder it is run in."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from . import _mile
from ._files import free_folder, is_run, read_settings
from ._graphs import section as network_section
from ._methods import Algorithm, OwnMethod, resolve

PathLike = str | Path
Resume = bool | Literal["auto"]

# What people who come from other libraries write, and what to write here; <key> stands for the methods that have this parameter.
_OPTIMIZER = (
    "<optimizer> take optimizer='adamw', and mile.torch.Problem any optimizer for every method: "
    "optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)"
)
_CLIP = "<clip> have clip, and so has mile.torch.Problem, for every method"
_IN_METHODS = 'it belongs to a method: algorithms=[mile.method("mile", step_size=0.1, local_steps=5)]'
_HINTS = {
    "adam": f"Adam is a local optimiser, not a method; {_OPTIMIZER}",
    "adamw": f"AdamW is a local optimiser, not a method; {_OPTIMIZER}",
    "muon": f"Muon is a local optimiser, not a method; {_OPTIMIZER}",
    "sgd": "local-dsgd takes plain gradient steps and averages, and mile corrects them; both have momentum",
    "fedavg": "local-dsgd is FedAvg without a server",
    "optimizer": _OPTIMIZER,
    "optimiser": _OPTIMIZER,
    "clip": _CLIP,
    "max_grad_norm": _CLIP,
    "weight_decay": "use optimizer={'name': 'adamw', 'decay': 0.01} of <optimizer>, the optimizer of mile.torch.Problem, or l2 of mile.Table",
    "scheduler": "use schedule, such as schedule={'kind': 'cosine', 'warmup': 10}, or pass scheduler to mile.torch.Problem",
    "batch_size": "it belongs to the problem: batch",
    "max_steps": "runs are counted in rounds of local_steps mini-batches",
    "epochs": "runs are counted in rounds of local_steps mini-batches",
}
_IN_NETWORKS = 'it belongs to the network: network=mile.graph("ring", agents=10)'
_HINTS_OF_RUN = {
    **{key: _IN_METHODS for key in ("lr", "step_size", "local_steps", "xi", "gamma", "momentum")},
    **{key: _IN_NETWORKS for key in ("agents", "topology", "mixing", "drop_rate")},
    "metrics": "they belong to the problem: metrics of mile.Objective or mile.torch.Problem",
    "batch": "it belongs to the problem",
}
_NAMED = re.compile(r'algorithm\[\d+\]\.(?:name: .*got "?(?P<name>[\w-]+)|(?P<key>\w+): unknown key)|^(?P<top>\w+): unknown key')


class Request:
    """All parts of an experiment, from the arguments of `run`."""

    def __init__(self, experiment: Any, arguments: Mapping[str, Any], out: PathLike | None, resume: Resume, swept: Iterable[str] = ()) -> None:
        self.table, self.base = _table(experiment, out, resume)
        given = {key: value for key, value in arguments.items() if value is not None}
        self.set: Sequence[str] = given.pop("set", ())
        self.device: str | None = given.pop("device", None)
        problem = given.pop("problem", None)
        network = given.pop("network", None)
        algorithms = given.pop("algorithms", given.pop("algorithm", None))
        if algorithms is None:
            algorithms = self.table.get("algorithm", [])
            if experiment is None:
                _check_built_in(algorithms, out)
        if "iterations" in given:
            given["rounds"] = given.pop("iterations")
        if "seeds" in given:
            given["seeds"] = [int(given["seeds"])] if hasattr(given["seeds"], "__index__") else [int(seed) for seed in given["seeds"]]
        if isinstance(given.get("start"), str):
            given["start"] = {"value": given["start"]}
        self.table.update(given)
        self.notes: list[str] = []
        if hasattr(problem, "complete_algorithms"):
            keys = [*swept, *self.table.get("sweep", ()), *(one.partition("=")[0] for one in self.set)]
            algorithms, self.notes = problem.complete_algorithms(algorithms, {key.strip().rpartition(".")[2] for key in keys})
        self.methods: list[OwnMethod]
        self.table["algorithm"], self.methods = resolve(algorithms)
        agents = getattr(problem, "agents", None)
        own = {} if agents is None else {"agents": agents}
        if network is not None:
            self.table["network"] = own | network_section(network, {})
        else:
            self.table["network"] = own | self.table.get("network", {})
        if "name" not in self.table and hasattr(problem, "name"):
            self.table["name"] = str(problem.name)
        self.problem = problem
        self.object: object | None = None

    def place(self, folder: Path) -> None:
        """Puts the problem into the table; a DataFrame is written to the folder."""
        if self.problem is None:
            pass
        elif isinstance(self.problem, Mapping):
            self.table["problem"] = dict(self.problem)
        elif hasattr(self.problem, "section"):
            self.table["problem"], self.object = self.problem.section(folder)
        else:
            self.table["problem"], self.object = {"kind": "given"}, self.problem
        if self.set:
            self.table = json.loads(_mile.replace(self.table, list(self.set)))

    @property
    def name(self) -> str:
        return str(self.table.get("name", "experiment"))

    def prepare(self, out: PathLike | None, resume: Resume, overwrite: bool) -> tuple[Any, Path, bool]:
        """The processes that share the agents, if there are several; the folder, which is the same for all; and whether the run in it is resumed."""
        if resume not in (True, False, "auto"):
            raise ValueError(f"resume: expected True, False or 'auto', got {resume!r}")
        if overwrite and resume:
            raise ValueError("overwrite: expected either overwrite or resume, got both")
        ranks = self.problem.ranks() if hasattr(self.problem, "ranks") else None
        folder = Path(out) if out is not None else free_folder(self.name, bool(resume) or overwrite)
        goes_on = resume is True or (resume == "auto" and is_run(folder))
        if ranks is not None:
            folder, goes_on = json.loads(ranks.broadcast(0, json.dumps([str(folder), goes_on]).encode()))
            folder = Path(folder)
        if overwrite and (ranks is None or ranks.rank == 0):
            _remove(folder)
        return ranks, folder, goes_on


def hinted(error: Exception) -> str | None:
    """What to write instead of a word of another library that an error is about."""
    found = _NAMED.search(str(error))
    if found is None:
        return None
    word = (found["name"] or found["key"] or found["top"]).lower()
    hint = _HINTS_OF_RUN.get(word, _HINTS.get(word)) if found["top"] else _HINTS.get(word)
    return None if hint is None else re.sub(r"<(\w+)>", lambda key: _having(key[1]), hint)


def _having(key: str) -> str:
    """The methods with a parameter, as one names them."""
    *first, last = (one["name"] for one in json.loads(_mile.methods()) if key in one["parameters"])
    return f"{', '.join(first)} and {last}"


def _remove(folder: Path) -> None:
    """Removes a run or a sweep, and nothing else."""
    if not folder.exists():
        return
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in _mile.RUN_CONTENTS)
    if foreign or (any(folder.iterdir()) and not is_run(folder)):
        got = f"{foreign[0]} in it" if foreign else "no run in it"
        raise _mile.ExperimentError(f"overwrite: expected {folder} to hold a run and nothing else, got {got}; give another out")
    shutil.rmtree(folder)


def _table(experiment: Any, out: PathLike | None, resume: Resume) -> tuple[dict[str, Any], Path]:
    if experiment is None:
        if resume and out is not None and (Path(out) / "config.toml").exists():
            return read_settings(Path(out) / "config.toml"), Path()
        return {}, Path()
    if isinstance(experiment, Mapping):
        return dict(experiment), Path()
    if isinstance(experiment, (str, Path)):
        path = Path(experiment)
        return read_settings(path), path.parent
    raise TypeError(f"experiment: expected a path or a dictionary, got {type(experiment).__name__}")


def _check_built_in(algorithms: Sequence[Algorithm], out: PathLike | None) -> None:
    """Refuses custom methods: a run directory holds the name of a method, but not the method."""
    for k, section in enumerate(algorithms):
        name = section.get("name")
        if "factory" not in section and name not in _mile.method_names():
            got, remedy = f"the custom method {name} of the run in {out}", "pass it again, as algorithms=[mile.method(...)]"
            raise _mile.ExperimentError(f"algorithm[{k}].name: expected a built-in method, got {got}; {remedy}")
