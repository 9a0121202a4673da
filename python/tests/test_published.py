"""What `mile export` writes: PyTorch loads it strictly and computes what `mile predict` says, and the card has what was recorded."""

from __future__ import annotations

import csv
import io
import json
import platform
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import mile
import mile.torch
from mile._files import read_safetensors
from mile.torch import load_file

METHOD = [mile.method("mile", step_size=0.1, local_steps=3)]
NETWORK = {"agents": 3, "topology": "path"}


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mile", *words], capture_output=True, text=True, check=False)


def said(*words: str) -> str:
    done = command(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def predicted(model: str, data: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(said("predict", model, data))))


def card(folder: str) -> dict[str, str]:
    """The rows of the card's tables."""
    return dict(re.findall(r"^\| (\S.*?) \| (.*) \|$", Path(folder, "README.md").read_text(), re.MULTILINE))


def save(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """A safetensors file, as PyTorch's users write it."""
    head, data = {}, b""
    for name, tensor in tensors.items():
        bytes_of = tensor.numpy().tobytes()
        kind = {torch.float32: "F32", torch.float64: "F64"}[tensor.dtype]
        head[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(bytes_of)]}
        data += bytes_of
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Net(nn.Module):
    """The layers of the experiment below, under the names of exported files."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.fc1, self.fc2 = nn.Conv2d(2, 3, 3), nn.Linear(3 * 4 * 2, 5), nn.Linear(5, 3)

    def forward(self, inputs: Any) -> Any:
        return self.fc2(torch.relu(self.fc1(torch.relu(self.conv1(inputs)).flatten(1))))


def test_a_network_in_pytorch_gives_the_predictions_of_the_command_and_the_reverse() -> None:
    rng = np.random.default_rng(5)
    np.save("x.npy", rng.normal(size=(60, 6, 4, 2)).astype(np.float32))
    np.save("y.npy", rng.integers(0, 3, 60))
    new = rng.normal(size=(20, 6, 4, 2)).astype(np.float32)
    np.save("new.npy", new)
    layers = [{"kind": "conv", "out": 3, "kernel": 3}, {"kind": "relu"}, {"kind": "dense", "out": 5}, {"kind": "relu"}, {"kind": "dense", "out": 3}]
    problem = {"kind": "arrays", "inputs": "x.npy", "targets": "y.npy", "batch": 8, "model": layers}
    mile.run(problem=problem, network=NETWORK, algorithms=METHOD, rounds=8, out="run", progress=False)
    said("export", "run", "--out", "away")
    model = Net()
    model.load_state_dict(load_file("away/model.safetensors"), strict=True)

    def forward() -> NDArray[np.float64]:
        with torch.no_grad():
            outputs = model(torch.from_numpy(new.transpose(0, 3, 1, 2).copy()))
        return torch.softmax(outputs.double(), 1).numpy()

    def probabilities(rows: list[dict[str, str]]) -> NDArray[np.float64]:
        return np.array([[float(row[f"probability {k}"]) for k in range(3)] for row in rows])

    rows = predicted("run", "new.npy")
    assert rows == predicted("away", "new.npy")
    assert np.abs(probabilities(rows) - forward()).max() < 1e-6
    assert [int(row["prediction"]) for row in rows] == forward().argmax(1).tolist()
    before = forward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    save(Path("away/model.safetensors"), {name: tensor.contiguous() for name, tensor in model.state_dict().items()})
    assert np.abs(forward() - before).max() > 1e-3
    assert np.abs(probabilities(predicted("away", "new.npy")) - forward()).max() < 1e-6


def test_a_linear_model_of_pytorch_gives_the_predictions_of_the_command() -> None:
    rng = np.random.default_rng(6)
    inputs = rng.normal(size=(40, 2))
    targets = inputs @ [2.0, -1.0] + 3.0 + 0.1 * rng.normal(size=40)
    lines = [f"{a},{b},{y}" for (a, b), y in zip(inputs.tolist(), targets.tolist(), strict=True)]
    Path("rows.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    problem = {"kind": "table", "data": "rows.csv", "target": "y", "loss": "least-squares", "intercept": True}
    run = mile.run(problem=problem, network=NETWORK, algorithms=METHOD, rounds=30, out="run", progress=False)
    said("export", "run", "--agent", "1", "--out", "away")
    model = nn.Linear(2, 1).double()
    model.load_state_dict(load_file("away/model.safetensors"), strict=True)
    with torch.no_grad():
        outputs = model(torch.from_numpy(inputs))[:, 0].numpy()
    found = np.array([float(row["prediction"]) for row in predicted("away", "rows.csv")])
    assert np.abs(found - outputs).max() < 1e-12 and np.abs(found - targets).mean() < 1.0
    assert (run.predict("rows.csv", agent=1)["prediction"].to_numpy() == found).all()


def run_of_pytorch(**more: Any) -> mile.Run:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1))
    data = [(torch.randn(12, 4), torch.randn(12, 1)) for _ in range(3)]
    problem = mile.torch.Problem(model, nn.MSELoss(), data, batch=6, name="small", metrics={"spread": lambda model, _: model[0].weight.std()})
    return mile.run(problem=problem, network=NETWORK, algorithms=METHOD, rounds=5, progress=False, **more)


def test_a_model_of_pytorch_is_exported_whole_with_a_card() -> None:
    run = run_of_pytorch(out="run")
    for agent in (None, 2):
        said("export", "run", "--out", f"away-{agent}", *([] if agent is None else ["--agent", str(agent)]))
        found = load_file(f"away-{agent}/model.safetensors")
        model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1))
        model.load_state_dict(found, strict=True)
        expected = run.state_dict() if agent is None else run.state_dicts()[agent]
        assert all((found[key] == value).all() for key, value in expected.items()) and set(found) == set(expected)
    rows, last = card("away-None"), run.rows[-1]
    assert rows["trained with"] == f"mile {mile.__version__}, Python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__}"
    assert (rows["problem"], rows["rounds"], rows["seed"], rows["method"]) == ("small", "5", "0", "mile")
    for title, quantity in (("Loss of the average model", "loss"), ("Loss of the agents' own models, mean", "local_loss"), ("Consensus error after mixing", "consensus_error"), ("spread", "spread")):
        assert float(rows[title]) == pytest.approx(last[quantity], rel=1e-3)
    assert rows["`0.weight`"] == "[5, 4]" and rows["`1.running_mean`"] == "[5]"
    text = Path("away-None/README.md").read_text()
    assert "load_state_dict" in text and "local_steps = 3" in text and "average" in text
    assert "agent 2" in Path("away-2/README.md").read_text()
    assert not Path("away-None/model.json").exists()


def test_what_only_its_program_understands_is_exported_and_not_used() -> None:
    run_of_pytorch(out="run")
    said("export", "run", "--out", "away")
    for words in (["predict", "run"], ["evaluate", "run"], ["predict", "away"]):
        done = command(*words, "new.npy")
        assert done.returncode == 2 and "model.json" in done.stderr
    done = command("export", "run", "--agent", "3", "--out", "other")
    assert done.returncode == 2 and "--agent" in done.stderr
    with pytest.raises(mile.ExperimentError, match=r"model\.json"):
        mile.load_run("run").predict("new.npy")


@pytest.mark.parametrize("start", ["tree", "array"])
def test_a_pytree_of_jax_is_exported_under_its_paths(start: str) -> None:
    jax = pytest.importorskip("jax")
    import mile.jax

    rng = np.random.default_rng(7)
    data = [(rng.normal(size=(9, 3)), rng.normal(size=9)) for _ in range(3)]
    if start == "tree":
        parameters: Any = {"layer": [{"w": jax.numpy.ones(3)}], "b": jax.numpy.zeros(())}
        loss = lambda p, batch: ((batch[0] @ p["layer"][0]["w"] + p["b"] - batch[1]) ** 2).mean()
        names = {"b": [], "layer.0.w": [3]}
    else:
        parameters = jax.numpy.ones(3)
        loss = lambda p, batch: ((batch[0] @ p - batch[1]) ** 2).mean()
        names = {"parameters": [3]}
    problem = mile.jax.Problem(loss, parameters, data, batch="full")
    run = mile.run(problem=problem, network=NETWORK, algorithms=METHOD, rounds=5, out="run", progress=False)
    said("export", "run", "--out", "away")
    found, rows = read_safetensors(Path("away/model.safetensors")), card("away")
    assert {name: list(value.shape) for name, value in found.items()} == names
    assert rows["trained with"].endswith(f"jax {jax.__version__}, numpy {np.__version__}")
    assert all(rows[f"`{name}`"] == str(shape) for name, shape in names.items())
    flat = np.concatenate([found[name].ravel() for name in names])
    assert (flat == run.average().astype(np.float32)).all()


class Sensors:
    """f_i(x) = |x - i|^2 / 2."""

    dim = 2

    def loss(self, agent: int, x: Any) -> float:
        return 0.5 * float(((x - agent) ** 2).sum())

    def grad(self, agent: int, x: Any, rng: Any) -> Any:
        return x - agent


def test_a_variable_without_names_is_exported_as_x_in_its_own_precision() -> None:
    run = mile.run(problem=Sensors(), network=NETWORK, algorithms=METHOD, rounds=200, out="run", progress=False)
    said("export", "run", "--out", "away")
    found = read_safetensors(Path("away/model.safetensors"))
    assert list(found) == ["x"] and found["x"].dtype == np.float64
    assert np.abs(found["x"] - run.average()).max() < 1e-15 and np.abs(found["x"] - 1).max() < 1e-6
    assert card("away")["trained with"] == f"mile {mile.__version__}, Python {platform.python_version()}, numpy {np.__version__}"
