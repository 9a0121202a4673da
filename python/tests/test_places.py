"""Objectives that a file defines, in every place: `run`, the command, a swarm whose agents are killed, agents' folders on other machines."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from places import Storm, assert_equal, command, free_ports, run_agents, status, write

import mile
from mile import _factory

TORCH = """
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mile.torch


def data(agent):
    generator = torch.Generator().manual_seed(agent)
    inputs = torch.randn(30, 6, generator=generator)
    return inputs, (inputs.sum(1) > agent / 2).long()


class Gpt(nn.Module):
    def __init__(self, words=7, width=8):
        super().__init__()
        self.embedding, self.place = nn.Embedding(words, width), nn.Parameter(torch.zeros(5, width))
        self.norm, self.attention, self.head = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True), nn.Linear(width, words)

    def forward(self, words):
        x = self.norm(self.embedding(words) + self.place)
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        return self.head(x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])


def text(agent):
    generator = torch.Generator().manual_seed(agent)
    words = torch.randint(0, 7, (20, 6), generator=generator)
    return words[:, :-1], words[:, 1:]


def problem(agents, agent=None, hidden=5):
    model = nn.Sequential(nn.Linear(6, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 2))
    return mile.torch.Problem(model, nn.CrossEntropyLoss(), data, agents=agents, agent=agent, batch=4)


def gpt(agents, agent=None, slow=0.0):
    def loss(output, target):
        time.sleep(slow)
        return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())

    return mile.torch.Problem(Gpt(), loss, text, agents=agents, agent=agent, batch=3)


def mlp():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.2), nn.Linear(5, 2))


def classes(slow):
    def loss(output, target):
        time.sleep(slow)
        return nn.functional.cross_entropy(output, target)

    return loss


def with_batch_norm(agents, agent=None, slow=0.0):
    return mile.torch.Problem(mlp(), classes(slow), data, agents=agents, agent=agent, batch=4)


def with_loaders(agents, agent=None, slow=0.0):
    def loader(agent):
        return DataLoader(TensorDataset(*data(agent)), batch_size=4, shuffle=True, drop_last=True)

    return mile.torch.Problem(mlp(), classes(slow), loader, agents=agents, agent=agent)


def with_optimizer(agents):
    return mile.torch.Problem(nn.Linear(6, 2), nn.CrossEntropyLoss(), data, agents=agents, optimizer=lambda parameters: torch.optim.AdamW(parameters))


def with_local(agents):
    return mile.torch.Problem(nn.Linear(6, 2), nn.CrossEntropyLoss(), data, agents=agents, local="bias")


def without_evaluation(agents):
    return mile.torch.Problem(nn.Linear(6, 2), nn.CrossEntropyLoss(), data, agents=agents, eval_rows="off")


def broken(agents):
    raise KeyError("what is missing")


def nothing():
    return 3
"""

JAX = """
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import mile.jax


def data(agent):
    with open(Path(__file__).parent / f"asked-{agent}.txt", "a") as asked:
        asked.write(f"{os.getpid()}\\n")
    rng = np.random.default_rng(agent)
    inputs = rng.normal(size=(20 + agent, 3))
    return inputs, np.tanh(inputs @ np.arange(3.0)) + agent


def loss(parameters, batch, key):
    inputs, targets = batch
    hidden = jnp.tanh(inputs @ parameters["w"] + parameters["b"])
    if key is not None:
        hidden = hidden * jax.random.bernoulli(key, 0.8, hidden.shape) / 0.8
    return jnp.mean((hidden @ parameters["v"] - targets) ** 2)


def problem(agents, agent=None, width=4, eval_rows=None):
    start = {"w": 0.1 * jnp.arange(3.0 * width).reshape(3, width), "b": jnp.zeros(width), "v": jnp.ones(width)}
    return mile.jax.Problem(loss, start, data, agents=agents, agent=agent, batch=5, eval_rows=eval_rows)
"""

def test_one_file_has_the_same_bits_everywhere(place: Path) -> None:
    path = write(place, more='files = ["beside.py"]\narguments = { width = 4, slow = 0.05 }')
    here = mile.run(path, out="here")
    assert here.x().shape == (3, 4) and here.rows[-1]["round"] == 12
    command("run", path, "--out", "commanded", "--set", "problem.arguments.slow=0.0")
    assert_equal(here, mile.load_run("commanded"))
    command("report", "commanded")
    assert (place / "commanded/report.html").exists() and "estimated" in command("theory", path)
    storm = Storm(place / "there", (0, 2), (1, 4), (2, 7))
    there = mile.swarm(path, out="there")
    storm.check()
    assert_equal(here, there)
    assert there.rows[-1]["loss"] == here.rows[-1]["loss"]
    assert any("start" in line for line in (place / "there/agents/0/log").read_text().splitlines())


def test_an_agent_asks_for_its_own_data_only(place: Path) -> None:
    mile.swarm(write(place), out="there")
    asked = {agent: set((place / f"asked-{agent}.txt").read_text().split()) for agent in (0, 1, 2, None)}
    own = {agent: (place / f"there/agents/{agent}/pid").read_text().strip() for agent in range(3)}
    for agent in range(3):
        # Nor for those of all.
        for other in asked:
            assert (own[agent] in asked[other]) == (agent == other)


@pytest.mark.parametrize("transport", ["quic", "tcp"])
@pytest.mark.parametrize(("function", "method"), [("with_batch_norm", ""), ("gpt", "optimizer = 'adamw'")])
def test_models_in_a_storm_have_the_bits_of_a_run(place: Path, function: str, method: str, transport: str) -> None:
    _storm(place, function, method, transport)


def test_data_loaders_in_a_storm_have_the_bits_of_a_run(place: Path) -> None:
    _storm(place, "with_loaders", "", "tcp")


def _storm(place: Path, function: str, method: str, transport: str) -> None:
    path = write(place, TORCH, function, "arguments = { slow = 0.02 }", method)
    here = mile.run(path, set=["problem.arguments.slow=0.0"], rounds=30, out="here")
    storm = Storm(place / "there", (0, 5), (2, 12), (0, 18))
    there = mile.swarm(path, rounds=30, out="there", agent={"transport": transport, "checkpoint_every": 2})
    storm.check()
    assert_equal(here, there)


def test_losses_in_jax_are_in_every_place_and_agents_read_their_own_data_only(place: Path) -> None:
    pytest.importorskip("jax")
    path = write(place, JAX, "problem", "arguments = { width = 3 }", "momentum = 0.5\nxi = 'adaptive'")
    here = mile.run(path, rounds=120, out="here")
    command("run", path, "--set", "rounds=120", "--out", "commanded")
    assert_equal(here, mile.load_run("commanded"))
    storm = Storm(place / "there", (0, 20), (1, 60))
    there = mile.swarm(path, rounds=120, out="there")
    storm.check()
    assert_equal(here, there)
    assert [row["loss"] for row in there.rows] == [row["loss"] for row in here.rows]
    asked = {agent: set((place / f"asked-{agent}.txt").read_text().split()) for agent in range(3)}
    for agent in range(3):
        own = (place / f"there/agents/{agent}/pid").read_text().strip()
        assert [own in asked[other] for other in range(3)] == [agent == other for other in range(3)]
    with pytest.raises(mile.ExperimentError, match="problem: .*eval_rows"):
        mile.run(write(place, JAX, "problem", 'arguments = { eval_rows = "off" }'), out="off")


def test_an_agent_computes_as_a_run_of_the_same_model_does(place: Path) -> None:
    path = write(place, TORCH, "with_batch_norm", "")
    here = mile.run(path, out="here")
    sys.path.insert(0, str(place))
    try:
        import train  # type: ignore[import-not-found]

        torch.manual_seed(0)
        problem = train.with_batch_norm(3)
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("train", None)
    hosted = mile.run(problem=problem, network={"agents": 3}, algorithms=[mile.method("mile", step_size=0.05, local_steps=3, xi="paper")], rounds=12, seeds=[1], name="places", out="hosted")
    assert np.array_equal(here.x(), hosted.x()), "dropout and batch norms are in training mode, as in a host"
    here = mile.load_run("here", problem=problem)
    for ours, theirs in zip([here.state_dict(), *here.state_dicts()], [hosted.state_dict(), *hosted.state_dicts()], strict=True):
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs) and "1.running_mean" in ours
    assert not torch.equal(here.state_dicts()[0]["1.running_mean"], here.state_dicts()[1]["1.running_mean"])


REMEMBERING = """
import json

import mile
import numpy as np


class Walk:
    # Each gradient depends on how many there were before, and on a random generator of its own.
    dim, stochastic = 2, True

    def __init__(self, agents):
        self.agents, self.own = agents, {}
        for agent in range(agents):
            self.recall(agent, None)

    def loss(self, agent, x):
        return float(np.sum((x - agent) ** 2))

    def grad(self, agent, x, rng):
        count, generator = self.own[agent]
        self.own[agent] = count + 1, generator
        return 2 * (x - agent) + generator.standard_normal(2) / (1 + count)

    def memory(self, agent):
        count, generator = self.own[agent]
        return json.dumps([count, generator.bit_generator.state]).encode()

    def recall(self, agent, memory):
        generator = np.random.default_rng(agent)
        count = 0
        if memory is not None:
            count, generator.bit_generator.state = json.loads(memory)
        self.own[agent] = count, generator


def problem(agents):
    return Walk(agents)
"""


def test_what_an_objective_remembers_is_part_of_its_state(place: Path) -> None:
    path = write(place, REMEMBERING, "problem", "")
    here = mile.run(path, rounds=400, seeds=[0, 1], out="here")
    assert not np.array_equal(here.x(seed=0), np.zeros((3, 2))) and np.array_equal(here.x(seed=0), here.x(seed=1)), "it starts from nothing with each job"
    assert sorted(here.state()) == ["c", "x"], "it is no vector"
    mile.run(path, rounds=150, out="parts")
    assert np.array_equal(mile.run(path, rounds=400, out="parts", resume=True).x(), here.x(seed=0))
    storm = Storm(place / "there", (0, 100), (1, 300), (2, 500))
    there = mile.swarm(path, rounds=400, seeds=[0, 1], out="there")
    storm.check()
    assert_equal(here, there)
    assert [row["loss"] for row in there.rows] == [row["loss"] for row in here.rows]


def test_arguments_are_swept(place: Path) -> None:
    found = mile.sweep(write(place), values={"problem.arguments.width": [2, 5]}, criterion="grad_norm_sq", out="swept")
    assert sorted(found.trials["problem.arguments.width"]) == [2, 5]


def test_agents_folders_have_the_code(place: Path) -> None:
    path = write(place)
    here = mile.run(path, out="here")
    with pytest.raises(mile.ExperimentError, match="address"):
        mile.emit(path, out="deploy")
    ports = free_ports(3)
    folders = mile.emit(path, out="deploy", hosts={k: f"127.0.0.1:{port}" for k, port in enumerate(ports)}, agent={"transport": "tcp"})
    assert [sorted(one.name for one in folder.iterdir()) for folder in folders] == 3 * [["agent.toml", "beside.py", "key", "train.py"]]
    (place / "train.py").rename(place / "gone.py")
    run_agents(folders)
    assert [one["status"]["activity"] for one in mile.status(*folders)] == 3 * ["done"]
    there = mile.gather("deploy", out="gathered")
    assert there is not None
    assert_equal(here, there)


def test_a_network_in_a_file_is_told_what_is_recommended(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = 'xi = "adaptive"'
    for method, is_told in (("", True), ('xi = "paper"', False), ("momentum = 0.5", False), ('optimizer = "adamw"', False)):
        path = write(place, TORCH, "problem", "", method)
        mile.run(path, rounds=1, out="here", overwrite=True)
        assert (said in capsys.readouterr().err) == is_told
        assert (said in command("run", path, "--dry-run")) == is_told
    # Without a network there is nothing to recommend.
    mile.run(write(place), rounds=1, out="here", overwrite=True)
    assert said not in capsys.readouterr().err
    assert said in command("swarm", write(place, TORCH, "problem", ""), "--out", "there")


def test_classes_of_a_file_are_the_same_in_every_folder(place: Path) -> None:
    def facts(folder: Path, code: str) -> dict[str, str]:
        folder.mkdir()
        (folder / "train.py").write_text(textwrap.dedent(code))
        found: dict[str, str] = _factory.make(folder / "train.py", "gpt", "{}", 3, None).facts()
        return found

    one, other, changed = facts(place / "one", TORCH), facts(place / "other", TORCH), facts(place / "changed", TORCH.replace("dropout=0.1", "dropout=0.3"))
    assert one == other
    assert one["model_code"] != changed["model_code"]


UNLIKE = """
from pathlib import Path

import mile
import mile.torch
import torch
from torch import nn

HERE = Path(__file__).parent


def sizes(agents, agent=None):
    here = HERE / "here.txt"
    dim = int(here.read_text()) if here.exists() else 3
    return mile.Objective(lambda agent, x: 0.0, lambda agent, x, rng: x, agents=agents, dim=dim)


def data(agent):
    return torch.zeros(4, 6), torch.zeros(4, dtype=torch.long)


def shapes(agents, agent=None):
    inner, outer = map(int, (HERE / "here.txt").read_text().split())
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, inner, bias=False), nn.Linear(inner, outer, bias=False))
    # The same values at the start, in tensors of other shapes.
    for one in model.parameters():
        nn.init.zeros_(one)
    return mile.torch.Problem(model, nn.CrossEntropyLoss(), data, agents=agents, agent=agent, batch=2)


class Named:
    def __init__(self, agents, shape):
        self.agents, self.dim, self.parts = agents, 6, [("weight", shape)]

    def loss(self, agent, x):
        return 0.0

    def grad(self, agent, x, rng):
        return x


def named(agents, agent=None):
    return Named(agents, tuple(map(int, (HERE / "here.txt").read_text().split())))


def models(agents, agent=None):
    from here import Net

    return mile.torch.Problem(Net(), nn.CrossEntropyLoss(), data, agents=agents, agent=agent, batch=2)
"""

NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, inputs):
        return self.layer(inputs{more})
"""


@pytest.mark.parametrize(
    ("function", "file", "contents", "key"),
    [
        ("sizes", "train.py", (UNLIKE, UNLIKE + "# another line\n"), "problem.factory"),
        ("sizes", "here.txt", ("3", "4"), "the dimension"),
        ("shapes", "here.txt", ("2 6", "3 2"), "problem.model_code"),
        ("named", "here.txt", ("2 3", "3 2"), "problem.tensors"),
        ("models", "here.py", (NET.format(more=""), NET.format(more=".tanh()")), "problem.model_code"),
    ],
)
def test_agents_whose_objectives_differ_refuse_each_other_by_name(place: Path, function: str, file: str, contents: tuple[str, str], key: str) -> None:
    path = write(place, UNLIKE, function, "")
    (place / file).write_text(contents[0])
    ports = free_ports(2)
    folders = mile.emit(path, set=["network.agents=2", "network.topology=path"], out="deploy", hosts={k: f"127.0.0.1:{port}" for k, port in enumerate(ports)}, agent={"transport": "tcp"})
    for folder, text in zip(folders, contents, strict=True):
        (folder / file).write_text(text)
    agents = [subprocess.Popen([sys.executable, "-m", "mile", "agent", folder / "agent.toml"]) for folder in folders]
    found: list[str | None] = [None, None]
    until = time.time() + 300
    while time.time() < until and None in found:
        time.sleep(0.05)
        said = [status(folder) for folder in folders]
        found = [None if one is None else one["neighbours"][0]["refusal"] for one in said]
    for one in agents:
        one.kill()
        one.wait()
    # The one that is refused says by whom, too.
    assert [why and why.split(" differs")[0].split(": ")[-1] for why in found] == [key, key]


def test_what_cannot_be_is_refused(place: Path) -> None:
    for function, named in [
        ("with_optimizer", "with_optimizer: .*optimizer"),
        ("with_local", "with_local: .*local"),
        ("without_evaluation", "without_evaluation: .*eval_rows"),
        ("nothing", "problem: .*int"),
        ("absent", r"train\.py: .*absent"),
    ]:
        with pytest.raises(Exception, match=named):
            mile.run(write(place, TORCH, function, ""), out=f"no-{function}")
    with pytest.raises(KeyError, match="what is missing"):
        mile.run(write(place, TORCH, "broken", ""), out="no-broken")
    said = command("run", write(place, TORCH, "broken", ""), "--out", "broken", code=2)
    assert "KeyError" in said and "in broken" in said
    with pytest.raises(mile.ExperimentError, match=r"problem\(agents.*heigth"):
        mile.run(write(place, more="arguments = { heigth = 3 }"), out="no")
    with pytest.raises(mile.ExperimentError, match="train.py:problem"):
        mile.run(write(place), set=["problem.factory=train.py"], out="no")
    (place / "train.py").unlink()
    with pytest.raises(mile.ExperimentError, match=r"train\.py: .*problem"):
        mile.run(place / "experiment.toml", out="no")


def test_what_only_this_process_has_is_no_swarm(place: Path) -> None:
    objective = mile.Objective(lambda agent, x: 0.0, lambda agent, x, rng: x, agents=2, dim=2)
    with pytest.raises(mile.ExperimentError, match='kind": "python"'):
        mile.swarm(problem=objective, algorithms=[mile.method("mile", step_size=0.1)], out="no")
    mile.run(problem=objective, network={"agents": 2}, algorithms=[mile.method("mile", step_size=0.1)], rounds=2, out="run")
    assert 'kind = "python"' in command("swarm", "run/config.toml", "--out", "no", code=2)


def test_an_interrupted_swarm_goes_on(place: Path) -> None:
    path = write(place, more='files = ["beside.py"]\narguments = { slow = 0.1 }')
    script = f"import mile\ntry:\n    mile.swarm({str(path)!r}, out='there')\nexcept mile.Stopped as stopped:\n    print('stopped', stopped.run.folder)\n"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    until = time.time() + 30
    while time.time() < until and not (place / "there/agents/2/pid").exists():
        time.sleep(0.05)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0].strip() == "stopped there"
    assert_equal(mile.swarm(path, out="there", resume=True), mile.run(path, out="here"))
