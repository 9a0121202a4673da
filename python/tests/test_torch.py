"""PyTorch models: the host against the simulator, batch norm, data in all forms, resuming, and processes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import mile
import mile.torch
import ranks
from test_objectives import OwnMile

MILE = [mile.method("mile", step_size=0.05, local_steps=3, xi="paper")]
# Methods with a server need the complete graph.
WITH_SERVER = ("scaffold", "diloco")


def regression(agents: int = 6, rows: int = 12, columns: int = 4) -> tuple[list[Any], Any]:
    """Least squares in PyTorch, and the same in Rust."""
    generator = torch.Generator().manual_seed(1)
    shards = [(torch.randn(rows, columns, dtype=torch.float64, generator=generator), torch.randn(rows, 1, dtype=torch.float64, generator=generator)) for _ in range(agents)]
    return shards, mile.Table([(a.numpy(), b.numpy()[:, 0]) for a, b in shards])


def half_mse(output: Any, target: Any) -> Any:
    return 0.5 * nn.functional.mse_loss(output, target)


def zero_linear() -> Any:
    model = nn.Linear(4, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    return model


@pytest.mark.parametrize("gradient", ["loop", "vmap"])
@pytest.mark.parametrize("drop_rate", [0.0, 0.3])
def test_every_method_agrees_with_the_simulator(gradient: str, drop_rate: float) -> None:
    shards, table = regression()
    names = [name for name in mile.methods().index if name not in WITH_SERVER]
    algorithms = [mile.method(name, step_size=0.05, **({"xi": "paper"} if name == "mile" else {})) for name in names]
    own: dict[str, Any] = {"step_size": 0.05, "local_steps": [3, 1, 2, 3, 1, 1]}
    algorithms += [mile.method(name, label=f"own {name}", **own, **({"xi": "paper"} if name == "mile" else {})) for name in ("mile", "k-gt", "gta-3", "local-dsgd")]
    algorithms.append(mile.method("mile", label="own adamw", **own, optimizer="adamw", clip=0.5, xi=0.1, gamma=0.8))
    names += [algorithm["label"] for algorithm in algorithms[len(names) :]]
    network = {"topology": "erdos-renyi", "p": 0.5, "mixing": "lazy-metropolis", "drop_rate": drop_rate, "seed": 3}
    problem = mile.torch.Problem(zero_linear(), half_mse, shards, batch="full", gradient=gradient, gradient_norm=True)
    arguments: dict[str, Any] = {"network": network, "algorithms": algorithms, "rounds": 8, "eval_every": 4, "seeds": [5]}
    host = mile.run(problem=problem, **arguments, out="host")
    simulator = mile.run(problem=table, **arguments, out="simulator")
    for name in names:
        for vector, rows in simulator.state(name).items():
            scale = max(1.0, np.abs(rows).max())
            assert np.abs(host.state(name)[vector] - rows).max() < 1e-12 * scale, (name, vector)
    for ours, theirs in zip(host.rows, simulator.rows, strict=True):
        for key in ("loss", "local_loss", "worst_loss", "grad_norm_sq", "consensus_error", "consensus_error_before"):
            assert ours.get(key, 0.0) == pytest.approx(theirs.get(key, 0.0), rel=1e-9, abs=1e-14), key
        assert (ours["bytes_sent"], ours["gradient_evals"]) == (theirs["bytes_sent"], theirs["gradient_evals"])


@pytest.mark.parametrize("name", WITH_SERVER)
def test_methods_with_a_server_agree_with_the_simulator_on_a_complete_graph(name: str) -> None:
    shards, table = regression()
    arguments: dict[str, Any] = {"network": "complete", "algorithms": [mile.method(name, step_size=0.05)], "rounds": 8}
    host = mile.run(problem=mile.torch.Problem(zero_linear(), half_mse, shards, batch="full"), **arguments, out="host")
    assert np.abs(host.x() - mile.run(problem=table, **arguments, out="simulator").x()).max() < 1e-12


class Constant(nn.Module):
    """A parameter of some length, on which the loss does not depend."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Any) -> Any:
        return self.w


@pytest.mark.parametrize("dim", [3, 9000])
@pytest.mark.parametrize("topology", ["ring", "star"])
def test_combine_and_pull_have_the_bits_of_the_library(dim: int, topology: str) -> None:
    """With gradients that are zero everywhere, exchanges and combinations are all that is left."""
    data = [(torch.zeros(1, 1), torch.zeros(1)) for _ in range(7)]
    problem = mile.torch.Problem(Constant(dim), lambda output, target: 0.0 * output.sum(), data, batch="full")
    own = mile.Objective(lambda agent, x: 0.0, lambda agent, x, rng: np.zeros(dim, np.float32), agents=7, dim=dim, dtype="float32")
    network = {"topology": topology, "drop_rate": 0.2}
    algorithms = MILE + [mile.method("gta-2", step_size=0.1), mile.method("mile", 0.1, label="adaptive", local_steps=2, xi={"adaptive": 0.1})]
    arguments: dict[str, Any] = {"network": network, "algorithms": algorithms, "rounds": 9, "start": "random"}
    if topology == "ring":
        arguments["network"] = {"topology": topology}
        algorithms += [mile.method("mile", 0.1, label=by, local_steps=2, compression=by) for by in ("8-bit", "bf16", "fp16")]
        algorithms += [mile.method("local-dsgd", 0.1, label="few", compression={"top_k": 0.3})]
    host, simulator = mile.run(problem=problem, **arguments, out="host"), mile.run(problem=own, **arguments, out="simulator")
    for name in [algorithm.get("label", algorithm["name"]) for algorithm in algorithms]:
        assert (host.x(name) == simulator.x(name)).all() and host.x(name).std() > 0.1


class Small(nn.Module):
    """A network with batch norm and dropout."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(4 * 8 * 8, 3)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(self.drop(x.flatten(1)))


def images(agents: int = 4, rows: int = 24) -> list[Any]:
    generator = torch.Generator().manual_seed(2)
    found = []
    for agent in range(agents):
        labels = torch.randint(0, 3, (rows,), generator=generator)
        pixels = torch.randn(rows, 1, 8, 8, generator=generator) + labels.view(-1, 1, 1, 1) + agent
        found.append((pixels, labels))
    return found


def problem(dropout: float = 0.0, data: Any = None, **more: Any) -> Any:
    torch.manual_seed(0)
    given = images() if data is None else data
    return mile.torch.Problem(Small(dropout), nn.CrossEntropyLoss(), given, batch=8, test=images(1)[0], **more)


def test_buffers_stay_local_and_state_dicts_load() -> None:
    run = mile.run(problem=problem(), algorithms=MILE, rounds=30, seeds=[1])
    dicts = run.state_dicts()
    assert len(dicts) == 4 and set(dicts[0]) == set(Small().state_dict())
    means = torch.stack([one["norm.running_mean"] for one in dicts])
    assert (means.std(0) > 0).all(), "each agent has the statistics of its own data"
    assert int(dicts[0]["norm.num_batches_tracked"]) == 1 + 29 * 3 + 1
    average = run.state_dict()
    assert torch.allclose(average["norm.running_mean"], means.mean(0))
    assert torch.allclose(average["head.bias"], torch.stack([one["head.bias"] for one in dicts]).mean(0), atol=1e-6)
    model = Small()
    model.load_state_dict(average)
    pixels, labels = images(1)[0]
    accuracy = (model.eval()(pixels).argmax(1) == labels).float().mean().item()
    assert accuracy == pytest.approx(run.rows[-1]["accuracy"])
    own = []
    for one in dicts:
        model.load_state_dict(one)
        own.append((model.eval()(pixels).argmax(1) == labels).float().mean().item())
    assert run.rows[-1]["local_accuracy"] == pytest.approx(sum(own) / 4), "agents are measured with their own buffers"
    assert run.rows[-1]["worst_accuracy"] == pytest.approx(min(own))
    assert mile.load(run.folder, problem=problem()).state_dicts()[3].keys() == dicts[3].keys()  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="mile.torch.Problem"):
        mile.load(run.folder).state_dict()  # type: ignore[union-attr]


def test_a_resumed_run_has_the_bits_and_the_buffers_of_a_whole_one() -> None:
    whole = mile.run(problem=problem(0.3), algorithms=MILE, rounds=12, out="whole")
    part = mile.run(problem=problem(0.3), algorithms=MILE, rounds=5, out="part")
    part = mile.run(problem=problem(0.3), algorithms=MILE, rounds=12, out="part", resume=True)
    assert (whole.x() == part.x()).all()
    for ours, theirs in zip(part.state_dicts(), whole.state_dicts(), strict=True):
        assert all((ours[key] == theirs[key]).all() for key in ours)


def test_dropout_differs_from_step_to_step_and_agent_to_agent() -> None:
    plain = mile.run(problem=problem(0.0), algorithms=MILE, rounds=3, out="plain")
    dropped = mile.run(problem=problem(0.5), algorithms=MILE, rounds=3, out="dropped")
    again = mile.run(problem=problem(0.5), algorithms=MILE, rounds=3, out="again")
    assert (plain.x() != dropped.x()).any() and (again.x() == dropped.x()).all()


class Listed(Dataset):  # type: ignore[type-arg]
    """A data set that is not a tensor."""

    def __init__(self, pair: Any) -> None:
        self.pair = pair

    def __len__(self) -> int:
        return len(self.pair[0])

    def __getitem__(self, k: int) -> Any:
        return self.pair[0][k], self.pair[1][k]


def test_data_in_all_forms() -> None:
    tensors = mile.run(problem=problem(), algorithms=MILE, rounds=4, out="tensors")
    for name, form in (("sets", lambda pair: TensorDataset(*pair)), ("listed", Listed)):
        other = mile.run(problem=problem(data=[form(pair) for pair in images()]), algorithms=MILE, rounds=4, out=name)
        assert (tensors.x() == other.x()).all(), name
    made: list[int] = []

    def of_agent(agent: int) -> Any:
        made.append(agent)
        return images()[agent]

    other = mile.run(problem=problem(data=of_agent, agents=4), algorithms=MILE, rounds=4, out="function")
    assert (tensors.x() == other.x()).all() and sorted(made) == [0, 1, 2, 3]


class Tied(nn.Module):
    """A language model of sorts: bytes in, scores of the next byte out, with one matrix at both ends."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight
        self.dropout = dropout

    def forward(self, tokens: Any) -> Any:
        return self.head(nn.functional.dropout(torch.tanh(self.embed(tokens)), self.dropout, self.training))


def sequences(agents: int = 3, rows: int = 10) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    tokens = [torch.randint(0, 7, (rows, 6), generator=generator) for _ in range(agents)]
    return [(one[:, :-1], one[:, 1:]) for one in tokens]


def next_byte(output: Any, target: Any) -> Any:
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


@pytest.mark.parametrize("gradient", ["loop", "vmap"])
def test_tied_weights_are_exported_under_all_their_names(gradient: str) -> None:
    torch.manual_seed(0)
    data = sequences()
    problem = mile.torch.Problem(Tied(), next_byte, data, batch=4, gradient=gradient)
    run = mile.run(problem=problem, algorithms=[mile.method("mile", step_size=0.5, local_steps=3)], rounds=20, seeds=[1])
    assert run.x().shape == (3, 35)

    def loss(state: Any) -> float:
        model = Tied()
        model.load_state_dict(state, strict=True)
        return float(sum(next_byte(model.eval()(tokens), target) for tokens, target in data) / len(data))

    assert loss(run.state_dict()) == pytest.approx(run.rows[-1]["loss"], rel=1e-5)
    assert np.mean([loss(one) for one in run.state_dicts()]) == pytest.approx(run.rows[-1]["local_loss"], rel=1e-5)
    exported = {path.name.split(".")[-2]: loss(mile.torch.load_file(path)) for path in (run.folder / "final").glob("*.*.safetensors")}
    assert exported.pop("average") == pytest.approx(run.rows[-1]["loss"], rel=1e-5)
    assert sorted(exported) == ["agent-0", "agent-1", "agent-2"]
    assert np.mean(list(exported.values())) == pytest.approx(run.rows[-1]["local_loss"], rel=1e-5)


class Dictionaries(Dataset):  # type: ignore[type-arg]
    """A data set of dictionaries."""

    def __init__(self, pair: Any) -> None:
        self.pair = pair

    def __len__(self) -> int:
        return len(self.pair[0])

    def __getitem__(self, k: int) -> Any:
        return {"tokens": self.pair[0][k], "next": self.pair[1][k]}


class Singles(Dataset):  # type: ignore[type-arg]
    """A data set of single tensors."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, k: int) -> Any:
        return self.rows[k]


def test_closures_get_batches_as_the_data_give_them_and_losses_count_samples() -> None:
    def closure(model: Any, batch: Any) -> Any:
        return next_byte(model(batch["tokens"]), batch["next"])

    def started(loss: Any, data: Any, out: str, **more: Any) -> Any:
        torch.manual_seed(0)
        found = mile.torch.Problem(Tied(), loss, data, **{"batch": 4, "eval_batch": 4, **more})
        return mile.run(problem=found, algorithms=MILE, rounds=4, out=out)

    plain = started(next_byte, sequences(), "plain")
    dictionaries = [Dictionaries(pair) for pair in sequences()]
    for out, gradient in (("loop", "loop"), ("vmap", "vmap")):
        other = started(None, dictionaries, out, closure=closure, gradient=gradient)
        assert np.abs(plain.x() - other.x()).max() < 1e-6, out
        assert other.rows[-1]["loss"] == pytest.approx(plain.rows[-1]["loss"], rel=1e-5)
    loaders = [DataLoader(one, batch_size=3) for one in dictionaries]
    of_loaders, of_tensors = (mile.torch.Problem(Tied(), *given, eval_batch=4, **more) for given, more in (((None, loaders), {"closure": closure}), ((next_byte, sequences()), {})))
    start = of_tensors.initial(0)
    for agent in range(3):
        assert of_loaders.loss(agent, start) == pytest.approx(of_tensors.loss(agent, start), rel=1e-6), "a batch counts by its samples, not by its keys"
    assert started(None, loaders, "loaded", closure=closure).complete
    arrays = [(tokens.numpy(), target.numpy()) for tokens, target in sequences()]
    assert (started(next_byte, arrays, "arrays").x() == plain.x()).all()
    seen: list[Any] = []

    def whole(model: Any, batch: Any) -> Any:
        seen.append(batch.shape)
        return next_byte(model(batch[:, :-1]), batch[:, 1:])

    single = [torch.cat((tokens, target[:, -1:]), 1) for tokens, target in sequences()]
    started(None, [Singles(rows) for rows in single], "single", closure=whole, batch=5)
    assert set(seen) == {(5, 6), (4, 6), (2, 6)}, "batches of five samples, and evaluations of four, four and two"
    with pytest.raises(TypeError, match="closure"):
        started(next_byte, dictionaries, "refused")


def test_floating_point_arrays_have_the_precision_of_the_model() -> None:
    shards = [(a.numpy(), b.numpy()) for a, b in regression(3)[0]]
    found = mile.torch.Problem(nn.Linear(4, 1), half_mse, shards, batch=4)
    assert mile.run(problem=found, algorithms=MILE, rounds=3).x().dtype == np.float32


def test_an_accuracy_is_recorded_only_if_shapes_decide_what_it_is() -> None:
    data, labelled = sequences(), [(torch.randn(8, 4), torch.arange(8) % 2) for _ in range(3)]
    floats = [(inputs, labels.float()) for inputs, labels in labelled]
    numbers = [(inputs, 0.5 * labels) for inputs, labels in labelled]

    def binary(output: Any, target: Any) -> Any:
        return nn.functional.binary_cross_entropy_with_logits(output[:, 0], target.float())

    def named(output: Any, target: Any) -> Any:
        return nn.functional.cross_entropy(output["logits"], target)

    class Named(nn.Linear):
        def forward(self, inputs: Any) -> Any:
            return {"logits": super().forward(inputs)}

    def closure(model: Any, batch: Any) -> Any:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def noted(model: nn.Module, loss: Any, given: Any, **more: Any) -> tuple[list[str], list[str]]:
        made = mile.torch.Problem(model, loss, given, test=given[0], **more)
        return made.metrics, made.complete_algorithms(MILE, set())[1]

    for case, got in (
        ((Tied(), next_byte, data), r"float32 \[10, 5, 7\] for targets int64 \[10, 5\]"),
        ((nn.Linear(4, 1), binary, labelled), r"float32 \[8, 1\] for targets int64 \[8\]"),
        ((nn.Linear(4, 1), binary, floats), r"float32 \[8, 1\] for targets float32 \[8\]"),
        ((Named(4, 2), named, labelled), r"dict for targets int64 \[8\]"),
    ):
        metrics, (note,) = noted(*case)
        assert metrics == ["test_loss"] and re.search(f"no accuracy is recorded: .*got {got}; .*metrics", note)
    assert noted(nn.Linear(4, 2), None, labelled, closure=closure)[1][0].startswith("no accuracy is recorded")
    # Where an accuracy is clear, is the user's own, or is not expected, there is nothing to say.
    assert noted(nn.Linear(4, 2), nn.CrossEntropyLoss(), labelled) == (["accuracy", "test_loss"], [])
    assert noted(Tied(), next_byte, data, metrics={"perplexity": lambda model, batches: 0.0}) == (["test_loss"], [])
    assert noted(nn.Linear(4, 1), binary, numbers) == (["test_loss"], [])


def test_functional_dropout_is_repeatable_and_leaves_the_random_numbers_of_pytorch_alone() -> None:
    def run(dropout: float, out: str) -> Any:
        torch.manual_seed(0)
        found = mile.torch.Problem(Tied(dropout), next_byte, sequences(), batch=4)
        torch.manual_seed(len(out))
        before = torch.get_rng_state()
        done = mile.run(problem=found, algorithms=MILE, rounds=3, out=out)
        assert (torch.get_rng_state() == before).all()
        return done

    first, again, plain = run(0.5, "first"), run(0.5, "again"), run(0.0, "plain")
    assert (first.x() == again.x()).all() and (first.x() != plain.x()).any()
    assert first.rows[-1]["loss"] == again.rows[-1]["loss"]


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_parameters_are_refused(register: str) -> None:
    model = nn.Linear(4, 1, dtype=torch.float64)
    getattr(model.weight, register)(lambda gradient: None)
    with pytest.raises(mile.ExperimentError, match="weight"):
        mile.torch.Problem(model, half_mse, regression(3)[0])


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("workers", [0, 2])
def test_data_loaders_resume_where_they_stopped(workers: int) -> None:
    def loaders() -> Any:
        return problem(data=[DataLoader(Listed(pair), batch_size=7, shuffle=True, num_workers=workers) for pair in images(2)])

    whole = mile.run(problem=loaders(), algorithms=MILE, rounds=4, out="whole")
    mile.run(problem=loaders(), algorithms=MILE, rounds=2, out="part")
    part = mile.run(problem=loaders(), algorithms=MILE, rounds=4, out="part", resume=True)
    assert (whole.x() == part.x()).all()


SCRIPT = """
import mile, mile.torch, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
torch.set_num_threads(2)
data = [DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=2, num_workers=1) for _ in range(2)]
problem = mile.torch.Problem(nn.Linear(4, 1), nn.MSELoss(), data)
try:
    mile.run(problem=problem, algorithms=[mile.method("mile", step_size=0.01)], rounds=100000, out="loaders", progress=lambda kind, *rest: print(kind, flush=True))
except mile.Stopped as stopped:
    print("stopped at", stopped.run.outcomes[0]["round"], flush=True)
"""


def test_an_interrupt_of_the_whole_terminal_leaves_data_loader_workers_until_the_round_is_over() -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None and any(line.startswith("advanced") for line in process.stdout)
        os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0 and rest.count("stopping") == 1 and "stopped at" in rest, rest


def test_unusable_models_and_data_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="torch.float16"):
        mile.torch.Problem(nn.Linear(2, 1).half(), half_mse, [(torch.zeros(1, 2), torch.zeros(1, 1))])
    with pytest.raises(TypeError, match="data, agent 0: "):
        mile.torch.Problem(nn.Linear(2, 1), half_mse, [1, 2])
    with pytest.raises(mile.ExperimentError, match=r"data, agent 0: .*\[3, 2\]"):
        mile.torch.Problem(nn.Linear(2, 1), half_mse, [(torch.zeros(3, 2), torch.zeros(2, 1))])
    with pytest.raises(RuntimeError) as caught:
        wrong = mile.torch.Problem(nn.Linear(2, 1), half_mse, [(torch.zeros(3, 5), torch.zeros(3, 1))] * 3)
        mile.run(problem=wrong, algorithms=MILE, out="wrong")
    assert any("linear.py" in str(entry.path) for entry in caught.traceback)


def test_frozen_parameters_and_closures() -> None:
    model = nn.Sequential(nn.Linear(4, 5, dtype=torch.float64), nn.Tanh(), nn.Linear(5, 1, dtype=torch.float64))
    model[0].requires_grad_(False)
    shards, _ = regression(3)

    def closure(model: Any, batch: Any) -> Any:
        return half_mse(model(batch[0]), batch[1])

    of_loss = mile.run(problem=mile.torch.Problem(model, half_mse, shards, batch=4), algorithms=MILE, rounds=5, out="loss")
    of_closure = mile.run(problem=mile.torch.Problem(model, closure=closure, data=shards, batch=4), algorithms=MILE, rounds=5, out="closure")
    assert of_loss.x().shape == (3, 6) and (of_loss.x() == of_closure.x()).all()
    assert (of_loss.state_dict()["0.weight"] == model[0].weight).all()


def test_a_method_in_python_runs_on_tensors() -> None:
    shards, _ = regression()
    algorithms = [mile.method(OwnMile(3, 0.2), step_size=0.1), mile.method("mile", step_size=0.1, local_steps=3, xi=0.2)]
    run = mile.run(problem=mile.torch.Problem(zero_linear(), half_mse, shards, batch=4), algorithms=algorithms, rounds=10)
    assert (run.x("OwnMile") == run.x("mile")).all()


def test_three_processes_have_the_results_of_one() -> None:
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", ranks.__file__, "three"]
    three = subprocess.run(start, capture_output=True, text=True, timeout=300)
    assert three.returncode == 0, three.stderr
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        ranks.runs("one", 7, False)
    finally:
        torch.set_num_threads(threads)
    for names, folder in ((("mile", "k-gt", "gta-2", "chosen", "adaptive", "own"), ""), (("bits", "floats", "few"), "-compressed"), (("mile", "steps"), "-weighted"), (("mile",), "-norms"), (("mile", "steps"), "-personal"), (("mile",), "-optimised")):
        one_run, three_run = mile.load("one" + folder), mile.load("three" + folder)
        for name in names:
            ours, theirs = three_run.state(name), one_run.state(name)  # type: ignore[union-attr]
            assert all((ours[key] == theirs[key]).all() for key in theirs), name
        for ours, theirs in zip(three_run.rows, one_run.rows, strict=True):
            assert {k: v for k, v in ours.items() if k != "wall_s"} == {k: v for k, v in theirs.items() if k != "wall_s"}


@pytest.mark.parametrize(("device", "nccl", "gpus", "processes", "found"), [("cpu", True, 8, 4, "gloo"), ("cuda", True, 4, 4, "nccl"), ("cuda", False, 4, 4, "gloo"), ("cuda", True, 1, 2, "gloo")])
def test_gpu_tensors_use_nccl_if_each_process_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch, device: str, nccl: bool, gpus: int, processes: int, found: str) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: nccl)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    monkeypatch.setenv("LOCAL_RANK", str(processes - 1))
    assert mile.torch._ranks.backend(torch.device(device)) == found
    assert mile.torch._ranks.own_gpu() == (processes - 1) % gpus


def test_rows_on_a_device_that_gloo_cannot_send_go_through_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[torch.Tensor] = []

    class Request:
        def wait(self) -> None:
            sent[1].copy_(sent[0] + 1)

    monkeypatch.setattr(torch.distributed, "P2POp", lambda _, tensor, rank: sent.append(tensor))
    monkeypatch.setattr(torch.distributed, "batch_isend_irecv", lambda _: [Request()])
    ranks = object.__new__(mile.torch.Ranks)
    ranks.direct = False
    own, other = torch.arange(3.0), torch.zeros(3)
    ranks.exchange({1: own}, {1: other})
    assert sent[1] is not other and (other == own + 1).all()
