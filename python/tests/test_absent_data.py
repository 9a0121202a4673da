"""Objectives that a function in a file makes, where nobody has the data of all agents: `emit` and `gather` do without what is elsewhere."""

import json
from pathlib import Path

import numpy as np
import pytest
from places import assert_equal, free_ports, run_agents

import mile

AGENTS = range(3)

RECORDS = """
from pathlib import Path

import mile
import mile.torch
import numpy as np
from torch import nn

HERE = Path(__file__).parent


def records(agent):
    found = np.load(HERE / f"records-{agent}.npy")
    return found[:, :3].astype(np.float32), (found[:, 3] > 0).astype(np.int64)


def module(agents, agent=None):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    return mile.torch.Problem(model, nn.CrossEntropyLoss(), records, agents=agents, agent=agent, batch=4)


def functions(agents, agent=None):
    def loss(agent, x):
        inputs, targets = records(agent)
        return float(np.mean((inputs @ x - targets) ** 2))

    def grad(agent, x, rng):
        inputs, targets = records(agent)
        return 2 * inputs.T @ (inputs @ x - targets) / len(inputs)

    return mile.Objective(loss, grad, agents=agents, dim=3)


def unreachable(agents, agent=None):
    if agent is None:
        raise ConnectionRefusedError("the hospitals answer nobody else")
    return functions(agents, agent)


def wrong(agents, agent=None):
    raise ValueError("a mistake")
"""

EXPERIMENT = """
rounds = 12
{precision}
network = {{ agents = 3 }}
problem = {{ kind = "python", factory = "train.py:{function}", files = {files} }}
algorithm = [{{ name = "mile", step_size = 0.05, local_steps = 3 }}]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "train.py").write_text(RECORDS)
    return tmp_path


def write(place: Path, function: str, files: str, precision: str = 'precision = "f64"') -> Path:
    path = place / "experiment.toml"
    path.write_text(EXPERIMENT.format(function=function, files=files, precision=precision))
    return path


def emit(path: Path) -> list[Path]:
    hosts = dict(zip(AGENTS, (f"127.0.0.1:{port}" for port in free_ports(3)), strict=True))
    return mile.emit(path, out="deploy", hosts=hosts, agent={"transport": "tcp"})


def records(agent: int) -> str:
    return f"records-{agent}.npy"


OWN = '["records-{agent}.npy"]'


@pytest.mark.parametrize(("function", "files", "precision"), [("module", OWN, "f32"), ("functions", OWN, "f64"), ("functions", "[]", "f64"), ("unreachable", "[]", "f64")])
def test_nobody_needs_the_data_of_all_agents(place: Path, function: str, files: str, precision: str) -> None:
    path = write(place, function, files, f'precision = "{precision}"')
    folders = emit(path)
    random = np.random.default_rng(1)
    for agent, folder in enumerate(folders):
        assert sorted(one.name for one in folder.iterdir()) == ["agent.toml", "key", "train.py"]
        np.save(folder / records(agent), random.standard_normal((20 + 30 * agent, 4)))
    run_agents(folders)
    # Copies of the folders come back without the data.
    for agent, folder in enumerate(folders):
        (folder / records(agent)).rename(place / records(agent))
    with pytest.warns(UserWarning, match="data" if function == "unreachable" else records(0)):
        assert mile.gather("deploy", out="parts") is None
    found = json.loads((place / "parts/gathered.json").read_text())
    assert found["missing"] == [] and found["losses"] == [*AGENTS] and list(found["states"].values()) == [[*AGENTS]]
    if function == "unreachable":
        return
    # One who has all data makes the run that one process makes: from an experiment file of theirs, or with what the folders bring.
    here = mile.run(path, out="here")
    whole = mile.gather("deploy", out="whole", experiment=path)
    assert whole is not None
    assert_equal(here, whole)
    if files == "[]":
        return
    for agent, folder in enumerate(folders):
        (place / records(agent)).rename(folder / records(agent))
    brought = mile.gather("deploy", out="brought")
    assert brought is not None
    assert_equal(here, brought)


def test_code_that_fails_is_not_taken_for_absent_data(place: Path) -> None:
    with pytest.raises(mile.ExperimentError, match="a mistake"):
        emit(write(place, "wrong", "[]"))
    assert not (place / "deploy").exists()


def test_the_precision_of_absent_data_is_not_guessed(place: Path) -> None:
    with pytest.raises(mile.ExperimentError, match=r"precision: .*records-0\.npy"):
        emit(write(place, "module", OWN, ""))
    assert not (place / "deploy").exists()
