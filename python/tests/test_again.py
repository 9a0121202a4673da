"""Scripts and notebooks that are run twice, results that are handed on, and words of other libraries."""

import functools
import json
import pickle
import re
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest

import mile
from mile import _names, _request, _running
from mile._facts import exchanges

PROBLEM = mile.Quadratic(dim=3)
METHODS = [mile.method("mile", lr=0.1, local_steps=3)]


def run(**more: Any) -> mile.Run:
    return mile.run(problem=PROBLEM, algorithms=METHODS, **{"rounds": 6, "out": "again", **more})


def test_a_run_can_be_overwritten_and_nothing_else_can() -> None:
    first = run(seeds=[0, 1])
    assert {row["seed"] for row in first.rows} == {0, 1}
    assert {row["seed"] for row in run(overwrite=True).rows} == {0}
    assert run(overwrite=True, report=True, tensorboard=True).complete and run(overwrite=True).complete, "with everything that a run may write"
    Path("again/notes.txt").write_text("mine")
    with pytest.raises(mile.ExperimentError, match="overwrite: .*notes.txt"):
        run(overwrite=True)
    Path("other").mkdir()
    Path("other/data.csv").write_text("1,2")
    with pytest.raises(mile.ExperimentError, match="overwrite: .*other"):
        run(overwrite=True, out="other")
    assert Path("other/data.csv").exists() and Path("again/notes.txt").exists()
    with pytest.raises(ValueError, match="overwrite: "):
        run(overwrite=True, resume=True)


@pytest.mark.parametrize(
    "problem",
    [
        {"kind": "images", "dataset": "glyphs", "model": "linear"},
        mile.Table(pd.DataFrame({"dose": [0.0, 1.0, 2.0, 3.0, 5.0, 8.0], "cost": [1.0, 2.0, 2.0, 4.0, 5.0, 9.0]}), target="cost", standardise=True),
    ],
)
def test_runs_of_data_can_be_overwritten(problem: Any) -> None:
    for _ in range(2):
        again = mile.run(problem=problem, network={"agents": 2, "topology": "path"}, algorithms=METHODS, rounds=2, report=True, out="data", overwrite=True)
        assert again.complete


def test_a_sweep_can_be_overwritten() -> None:
    for _ in range(2):
        found = mile.sweep(problem=PROBLEM, algorithms=METHODS, rounds=2, values={"step_size": [0.1, 0.2]}, out="sweep", overwrite=True)
    assert len(found.trials) == 2 and mile.load_sweep("sweep").complete


def test_a_script_that_is_started_again_goes_on() -> None:
    first = run(resume="auto")
    written = (first.folder / "metrics.jsonl").stat().st_mtime_ns
    again = run(resume="auto")
    assert (again.x() == first.x()).all() and (again.folder / "metrics.jsonl").read_text().count("\n") == len(first.rows)
    assert written and run(resume="auto", rounds=9).rows[-1]["round"] == 9
    by_name = mile.run(problem=PROBLEM, algorithms=METHODS, rounds=4, resume="auto")
    assert mile.run(problem=PROBLEM, algorithms=METHODS, rounds=6, resume="auto").folder == by_name.folder
    with pytest.raises(ValueError, match="resume: "):
        run(resume="yes")


def test_runs_tables_and_interrupts_can_be_pickled() -> None:
    found = run()
    copy = pickle.loads(pickle.dumps(found))
    assert (copy.x() == found.x()).all() and copy.rows == found.rows
    stopped = pickle.loads(pickle.dumps(mile.Stopped("stopped", found)))
    assert stopped.run.rows == found.rows and str(stopped) == "stopped"
    swept = mile.sweep(problem=PROBLEM, algorithms=METHODS, rounds=2, values={"step_size": [0.1]}, out="sweep")
    assert pickle.loads(pickle.dumps(swept)).trials.equals(swept.trials)
    rng = np.random.default_rng(0)
    shards = [(rng.normal(size=(9, 2)), rng.normal(size=9)) for _ in range(3)]
    table = mile.Table(shards, weights=[rng.random(9) for _ in range(3)], test=shards, l2=0.1)
    of_copy, of_table = (mile.run(problem=one, algorithms=METHODS, rounds=5, out=f"table{k}") for k, one in enumerate((pickle.loads(pickle.dumps(table)), table)))
    assert (of_copy.x() == of_table.x()).all()


def test_rows_of_arrays_have_weights() -> None:
    rng = np.random.default_rng(1)
    shards = [(rng.normal(size=(rows, 2)), rng.normal(size=rows)) for rows in (9, 6, 4)]
    weights = [rng.integers(0, 4, len(b)).astype(float) for _, b in shards]
    method = [mile.method("mile", step_size=0.05, local_steps=2)]
    found = mile.run(problem=mile.Table(shards, weights=weights, l2=0.1), network="complete", algorithms=method, rounds=3000).average()
    a, b, w = (np.concatenate(parts) for parts in ([a for a, _ in shards], [b for _, b in shards], weights))
    exact = np.linalg.solve(a.T @ (w[:, None] * a) / w.sum() + 0.1 * np.eye(2), a.T @ (w * b) / w.sum())
    assert found == pytest.approx(exact, abs=1e-8)
    split = mile.Table((a, b), agents=3, weights=w, l2=0.1)
    assert mile.run(problem=split, network="complete", algorithms=method, rounds=3000, out="split").average() == pytest.approx(exact, abs=1e-8)
    with pytest.raises(mile.ExperimentError, match="weights: "):
        mile.Table(shards, weights=weights[:2])
    with pytest.raises(ValueError, match="data, agent 1: "):
        mile.Table(shards, weights=[weights[0], weights[0], weights[2]])
    with pytest.raises(mile.ExperimentError, match="problem.weights: "):
        mile.run(problem=mile.Table(shards, weights="agent"), algorithms=method, out="word")


def test_a_notebook_shows_curves() -> None:
    found = run(seeds=range(2))
    assert list(found.figures)[0] == "overview" and {"loss-round", "graph"} <= set(found.figures)
    assert found.figures["overview"] in found._repr_html_() and all(svg.startswith("<svg") for svg in found.figures.values())


def test_zeros_leave_gaps_on_logarithmic_axes() -> None:
    matplotlib.use("agg")
    found = mile.run(problem=PROBLEM, algorithms=[mile.method("dsgd", lr=0.1)], rounds=20, seeds=[0, 1], out="dsgd")
    assert found.rows[0]["consensus_error"] == 0.0
    axes = found.plot("consensus_error")
    heights = axes.get_lines()[0].get_ydata()
    assert axes.get_yscale() == "log" and np.isnan(heights[0]) and (np.asarray(heights[1:], float) > 0).all()


def test_records_are_handed_to_a_function_and_to_tensorboard() -> None:
    heard: list[dict[str, Any]] = []
    found = run(on_record=heard.append, tensorboard=True, seeds=[0, 1], progress=False)
    assert sorted(heard, key=lambda row: (row["seed"], row["round"])) == found.rows
    files = list((found.folder / "tensorboard").rglob("events.out.tfevents.*"))
    assert len(files) == 2 and all(b"consensus_error" in file.read_bytes() for file in files)
    assert found.resume(rounds=8).rows[-1]["round"] == 8 and heard[-1]["round"] == 8

    def broken(record: dict[str, Any]) -> None:
        raise ZeroDivisionError("of the logger")

    with pytest.raises(ZeroDivisionError, match="of the logger"):
        run(out="broken", on_record=broken)


def test_runs_and_sweeps_are_loaded_as_what_they_are() -> None:
    assert mile.load_run(run().folder).complete
    with pytest.raises(mile.ExperimentError, match="sweep.json"):
        mile.load_sweep("again")
    with pytest.raises(mile.ExperimentError, match="config.toml"):
        mile.load_run("nowhere")


HINTS = {
    "adam": "torch.optim.AdamW",
    "adamw": "torch.optim.AdamW",
    "muon": "torch.optim.AdamW",
    "sgd": "local-dsgd takes",
    "fedavg": "local-dsgd is",
    "optimizer": "torch.optim.AdamW",
    "optimiser": "torch.optim.AdamW",
    "clip": "mile.torch.Problem",
    "max_grad_norm": "mile.torch.Problem",
    "weight_decay": "'decay': 0.01",
    "scheduler": "schedule={'kind': 'cosine'",
    "batch_size": "the problem: batch",
    "max_steps": "rounds of local_steps",
    "epochs": "rounds of local_steps",
}
HINTS_OF_RUN = {
    **{key: 'mile.method("mile", step_size=0.1' for key in ("lr", "step_size", "local_steps", "xi", "gamma", "momentum")},
    **{key: 'mile.graph("ring"' for key in ("agents", "topology", "mixing", "drop_rate")},
    "metrics": "metrics of mile.Objective",
    "batch": "the problem",
}
# In sections of methods, these words are names of methods; the others are parameters that no method, or not this one, has.
NAMES = ("adam", "adamw", "muon", "sgd", "fedavg")
LOCAL_OPTIMIZERS = ("mile", "led", "k-gt", "local-dsgd", "diloco", "noloco", "gasloc", "dinno")


def refused(**arguments: Any) -> str:
    with pytest.raises(mile.ExperimentError) as error:
        mile.run(**{"problem": PROBLEM, "algorithms": METHODS, "out": "hint", **arguments})
    assert not Path("hint").exists()
    return str(error.value)


@pytest.mark.parametrize("word", [*HINTS, *(f"{key} of run" for key in HINTS_OF_RUN)])
def test_words_of_other_libraries_are_answered(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _, of_run = word.partition(" ")
    section = {"name": key, "step_size": 0.1} if key in NAMES else {"name": "extra", "step_size": 0.1, key: 0.1}
    given: dict[str, Any] = {key: 0.1} if of_run else {"algorithms": [section]}
    said = (HINTS_OF_RUN if of_run else HINTS)[key]
    assert said in refused(**given)
    monkeypatch.setattr(_running, "hinted", lambda error: None)
    assert said not in refused(**given)


def test_every_hint_is_tested_and_names_all_methods_with_a_local_optimizer() -> None:
    assert HINTS.keys() == _request._HINTS.keys() and HINTS_OF_RUN.keys() == _request._HINTS_OF_RUN.keys()
    for key in ("optimizer", "clip", "weight_decay"):
        said = refused(algorithms=[{"name": "extra", "step_size": 0.1, key: 0.1}])
        assert set(LOCAL_OPTIMIZERS) <= set(re.findall(r"[\w-]+", said))


def test_a_step_size_has_one_name_at_a_time() -> None:
    with pytest.raises(TypeError, match="step_size: "):
        mile.method("mile", 0.1, lr=0.2)
    with pytest.raises(mile.ExperimentError, match=r"algorithm\[0\].step_size"):
        mile.run(problem=PROBLEM, algorithms=[mile.method("mile")])


def test_names_in_types_are_those_of_the_library() -> None:
    assert list(typing.get_args(_names.MethodName)) == list(mile.methods().index)
    keys = mile.keys()
    assert all(word in keys for word in typing.get_args(_names.Topology))
    schema = json.loads(mile.keys("json-schema"))["properties"]

    def known(section: Any) -> set[str]:
        return set(section["properties"])

    methods, network = known(schema["algorithm"]["items"]), known(schema["network"])
    table = next(known(one) for one in schema["problem"]["oneOf"] if one["properties"]["kind"]["const"] == "table")
    assert _keys(_names.Parameters) - {"aux_step_size"} == methods - {"name", "label", "step_size", "lr"}
    assert _keys(_names.GraphParameters) == network - {"agents", "topology", "mixing", "drop_rate"}
    assert _keys(_names.TableParameters) == table - {"kind", "data", "target", "test", "loss", "batch", "weights"}
    assert _keys(_names.Stop) == known(schema["stop"])
    assert set(typing.get_args(_names.Mixing)) - {"weight"} == set(schema["network"]["properties"]["mixing"]["enum"])


def _keys(names: Any) -> set[str]:
    return set(names.__annotations__)


CHECKED = """
import mile, mile.jax, mile.loggers, mile.torch, jax, torch
mile.run(problem=mile.Quadratic(), network="rng", algorithms=[mile.method("mile", lr=0.1)])
mile.run(problm=mile.Quadratic())
mile.method("mille", lr=0.1)
mile.run(problem=3)
mile.method("mile", lr=0.1, local_step=3)
mile.graph("torus", agents=9, mixing="metropolys")
mile.Table("rows.csv", target="y", los="huber")
mile.torch.Problem(torch.nn.Linear(2, 1), torch.nn.MSELoss(), [], batchs=3)
run = mile.run(problem=mile.Quadratic(), network="ring", algorithms=[mile.method("mile", lr=0.1, local_steps=2)], seeds=range(3), stop={"grad_norm": 1e-6})
run.resume(round=30)
run.resume(rounds=30).records.groupby("label")["loss"].last()
class Sensors:
    dim = 3
    def loss(self, agent: int, x: np.ndarray) -> float:
        return float(x @ x)
    def grad(self, agent: int, x: np.ndarray, rng: mile.Random) -> np.ndarray:
        return 2 * x + rng.normal(size=3)
mile.run(problem=Sensors(), network=[(0, 1)], algorithms=[mile.method("mile", lr=0.1)])
def half_mse(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return 0.5 * torch.nn.functional.mse_loss(output, target)
pairs = [(torch.zeros(4, 2), torch.zeros(4, 1))] * 3
mile.run(problem=mile.torch.Problem(torch.nn.Linear(2, 1), half_mse, pairs, batch=[1, 2, "full"]), network="ring", algorithms=[mile.method("led", lr=0.1)])
mile.torch.Problem(torch.nn.Linear(2, 1), half_mse, pairs, optimizer=torch.optim.AdamW, scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 3))
mile.torch.Problem(torch.nn.Linear(2, 1), half_mse, pairs, optimizer=torch.optim.AdamW, scheduler=lambda optimizer: 3)
mile.torch.Problem(torch.nn.Linear(2, 1), half_mse, pairs, optimizer=lambda parameters: list(parameters))
mile.torch.Problem(torch.nn.Linear(2, 1), half_mse, pairs, metrics={"w": lambda model, batches: next(model.parameters()).sum(), "n": lambda model, batches: len(list(batches))})
mile.torch.Problem(torch.nn.Linear(2, 1), half_mse, pairs, metrics={"names": lambda model, batches: ["w"]})
def in_jax(parameters: dict[str, jax.Array], batch: tuple[np.ndarray, np.ndarray]) -> jax.Array:
    return jax.numpy.mean((batch[0] @ parameters["w"] - batch[1]) ** 2)
linear = mile.jax.Problem(in_jax, {"w": jax.numpy.zeros(2)}, [(np.zeros((3, 2)), np.zeros(3))] * 3, eval_rows="all")
mile.jax.Problem(in_jax, {"w": jax.numpy.zeros(2)}, [(np.zeros((3, 2)), np.zeros(3))] * 3, eval_rows="none")
linear.unravel(run.average())["w"].sum()
linear.unravel(run.average()).w
mile.sweep(problem=linear, values={"step_size": [0.1]}, logger=mile.loggers.Logger("mlflow", offline=True), on_record=lambda record: print(record["point"]))
mile.sweep(problem=linear, values={"step_size": [0.1]}, logger=3)
run.rows[-1]["loss"] + run.rows[-1]["round"] + run.rows[-1]["perplexity"]
run.rows[-1]["label"] + 1.0
run.outcomes[0]["status"].upper()
run.outcomes[0]["statuss"].upper()
run.config["rounds"] + 1
run.config["round"] + 1
[answer["status"]["neighbours"][0]["lag"] + 1 for answer in mile.status() if "status" in answer]
[answer["status"]["lag"] + 1 for answer in mile.status() if "status" in answer]
mile.theory("ring", agents=5).xi_best + 1.0
mile.theory("ring", agents=5).solver + 1.0
closed = mile.torch.Problem(torch.nn.Linear(2, 1), None, pairs, closure=lambda model, batch: half_mse(model(batch[0]), batch[1]))
mile.torch.Problem(torch.nn.Linear(2, 1), None, pairs, closure=lambda model, batch: 3.0)
"""
WRONG = {4, 5, 6, 7, 8, 9, 10, 11, 13, 27, 28, 30, 34, 36, 38, 40, 42, 44, 46, 48, 50}


def test_mypy_sees_misspelt_names() -> None:
    Path("script.py").write_text(CHECKED.replace("import mile,", "import numpy as np\nimport mile,"))
    found = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--disable-error-code=type-arg", "script.py"], capture_output=True, text=True)
    lines = {int(line.split(":")[1]) for line in found.stdout.splitlines() if ": error:" in line}
    assert lines == WRONG, found.stdout


def test_pyright_sees_misspelt_names() -> None:
    Path("script.py").write_text(CHECKED.replace("import mile,", "import numpy as np\nimport mile,"))
    settings = {"typeCheckingMode": "standard", "include": ["script.py"], "extraPaths": [str(Path(mile.__file__).parents[1])]}
    Path("pyrightconfig.json").write_text(json.dumps(settings))
    found = subprocess.run([sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson"], capture_output=True, text=True)
    errors = [one for one in json.loads(found.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    assert {one["range"]["start"]["line"] + 1 for one in errors} == WRONG, errors


class Alone(mile.Method):
    """Gradient descent without neighbours."""

    def step(self, s: mile.Step) -> None:
        s.gradient("x", "g")
        s.combine("x", 1.0, [(-s.step_size, "g")])


def _helper(s: mile.Step) -> None:
    s.mix(("x", "g"))


class Helped(Alone):
    def step(self, s: mile.Step) -> None:
        _helper(s)


class ByWord(Alone):
    def step(self, s: mile.Step) -> None:
        getattr(s, "pull")(("x", "g"))


class Rule:
    def __call__(self, s: mile.Step) -> None:
        s.pull(("x", "g"))


class ByRule(Alone):
    def __init__(self) -> None:
        self.rule = Rule()

    def step(self, s: mile.Step) -> None:
        self.rule(s)


class Partial(Alone):
    """Its only exchange is behind a partial, a bound method or a cache."""

    def __init__(self, kind: str) -> None:
        wrap: dict[str, Any] = {"partial": functools.partial, "bound": lambda function: types.MethodType(lambda _, s: function(s), self), "cached": functools.lru_cache}
        self.exchange = wrap[kind](_helper)

    def step(self, s: mile.Step) -> None:
        self.exchange(s)


class BoundAlone(Alone):
    """Keeps its own bound method, and makes no exchange."""

    def __init__(self) -> None:
        self.descend = super().step

    def step(self, s: mile.Step) -> None:
        self.descend(s)


def test_a_method_that_never_exchanges_is_refused() -> None:
    with pytest.raises(mile.ExperimentError, match=r"algorithms\[0\]: .*got Alone"):
        mile.run(problem=PROBLEM, algorithms=[mile.method(Alone(), lr=0.1)])
    assert [exchanges(kind(), mile.Method) for kind in (Alone, BoundAlone, Helped, ByWord, ByRule)] == [False, False, True, True, True]
    assert all(exchanges(Partial(kind), mile.Method) for kind in ("partial", "bound", "cached"))
