"""Training of PyTorch models with what people bring: optimisers, schedulers, clipping, adapters, dictionaries and streams."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import mile
import mile.torch
from mile import _mile
from mile.torch._gradients import copied
from test_torch import Tied, next_byte, sequences

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01),
}


def small(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).to(dtype)


def shards(agents: int = 4, rows: int = 24, dtype: torch.dtype = torch.float64) -> list[Any]:
    generator = torch.Generator().manual_seed(2)
    found = []
    for agent in range(agents):
        a = torch.randn(rows, 4, generator=generator, dtype=dtype)
        found.append((a, (a[:, :1] * (agent - 1) + torch.randn(rows, 1, generator=generator, dtype=dtype))))
    return found


def run(problem: mile.torch.Problem, method: Any = None, **more: Any) -> mile.Run:
    algorithms = [method or mile.method("mile", local_steps=3, xi=0.1, gamma=1.0)]
    return mile.run(problem=problem, algorithms=algorithms, **{"rounds": 12, "progress": False, **more})


def problem(**more: Any) -> mile.torch.Problem:
    return mile.torch.Problem(small(), nn.MSELoss(), shards(), **{"batch": 8, **more})


# Optimisers


def by_hand(optimizer: Any, data: list[Any], w: np.ndarray, rounds: int, steps: int, xi: float, scheduler: Any = None, clip: float | None = None, seed: int = 0) -> np.ndarray:
    """MILE's correction around an optimiser, written out: after each optimiser step x = y + c; in the first step and then in every `steps`-th d = W x - x, c = c + xi d, x = x + d."""
    models = [small() for _ in data]
    optimizers = [optimizer(list(model.parameters())) for model in models]
    schedulers = [] if scheduler is None else [scheduler(one) for one in optimizers]
    dim = sum(p.numel() for p in models[0].parameters())
    c = torch.zeros(len(data), dim, dtype=torch.float64)

    def flat(model: nn.Module) -> Any:
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    def give(model: nn.Module, row: Any) -> None:
        nn.utils.vector_to_parameters(row, model.parameters())

    def step(draw: int, corrected: bool) -> None:
        for k, (model, (a, b)) in enumerate(zip(models, data, strict=True)):
            chosen = torch.from_numpy(mile._mile.samples(len(a), 8, True, seed, k, draw))
            optimizers[k].zero_grad()
            nn.functional.mse_loss(model(a[chosen]), b[chosen]).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizers[k].step()
            if corrected:
                give(model, flat(model) + c[k])
        for one in schedulers:
            one.step()

    step(0, corrected=False)  # from the starting point to x(0)
    for t in range((rounds - 1) * steps + 1):
        step(t + 1, corrected=True)
        if t % steps == 0:
            x = torch.stack([flat(model) for model in models])
            d = torch.from_numpy(w) @ x - x
            c += xi * d
            for model, row in zip(models, x + d, strict=True):
                give(model, row)
    return torch.stack([flat(model) for model in models]).numpy()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_correction_around_an_optimiser_is_what_it_is_by_hand(name: str) -> None:
    graph = mile.graph("ring", agents=4)
    found = run(problem(optimizer=OPTIMIZERS[name]), network=graph).x()
    expected = by_hand(OPTIMIZERS[name], shards(), graph.matrix, rounds=12, steps=3, xi=0.1)
    assert np.abs(found - expected).max() < 1e-11


def test_schedulers_and_clipping_are_those_of_pytorch() -> None:
    def scheduler(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)

    graph = mile.graph("ring", agents=4)
    found = run(problem(optimizer=OPTIMIZERS["sgd"], scheduler=scheduler, clip=0.3), network=graph).x()
    assert np.abs(found - by_hand(OPTIMIZERS["sgd"], shards(), graph.matrix, 12, 3, 0.1, scheduler, 0.3)).max() < 1e-11
    with pytest.raises(TypeError, match="scheduler: "):
        problem(scheduler=scheduler)


@pytest.mark.parametrize("steps", [3, [3, 1, 2, 3]])
def test_plain_sgd_as_an_optimiser_is_the_method_without_one(steps: Any) -> None:
    graph = mile.graph("ring", agents=4)
    method: dict[str, Any] = {"local_steps": steps, "xi": 0.1, "gamma": 1.0}
    own = run(problem(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05)), mile.method("mile", **method), network=graph, out="own")
    plain = run(problem(), mile.method("mile", step_size=0.05, **method), network=graph, out="plain")
    assert np.abs(own.x() - plain.x()).max() < 1e-12
    assert own.rows[-1]["loss"] == pytest.approx(plain.rows[-1]["loss"])
    # The step size of the method is a factor of the learning rate, and corrections follow it.
    method["schedule"] = {"kind": "cosine", "warmup": 3}
    own = run(problem(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)), mile.method("mile", step_size=0.5, **method), network=graph, out="scheduled")
    plain = run(problem(), mile.method("mile", step_size=0.05, **method), network=graph, out="plain-scheduled")
    assert np.abs(own.x() - plain.x()).max() < 1e-12


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_resumed_run_has_the_state_of_its_optimisers(name: str) -> None:
    def scheduler(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[5, 20], gamma=0.5)

    def made() -> mile.torch.Problem:
        return problem(optimizer=OPTIMIZERS[name], scheduler=scheduler, clip=1.0)

    whole = run(made(), out="whole")
    half = run(made(), rounds=5, out="half")
    assert (whole.x() == run(made(), out="half", resume=True).x()).all() and half.rows[-1]["round"] == 12
    assert len(list(Path("half/final").glob("*.agents.pt"))) == 1 and not list(Path("half/checkpoints").glob("*.pt"))


def test_groups_of_parameters_come_from_the_model() -> None:
    def groups(model: Any) -> Any:
        return torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters(), "lr": 0.1}])

    found = run(problem(optimizer=groups), network="complete")
    before = torch.cat([p.reshape(-1) for p in small().parameters()]).detach().numpy()
    moved = np.abs(found.x() - before).max(axis=0) > 1e-9
    assert not moved[:30].any() and moved[30:].all()
    with pytest.raises(TypeError, match="optimizer: .*list"):
        problem(optimizer=lambda parameters: list(parameters))


def test_methods_that_need_another_gradient_are_refused() -> None:
    class Twice(mile.Method):
        scratch = ("g", "d")

        def step(self, s: mile.Step) -> None:
            s.gradient("x", "g")
            s.gradient("x", "d")
            s.pull(("x", "d"))

    class Elsewhere(mile.Method):
        state, scratch = ("x", "y"), ("g", "d")

        def step(self, s: mile.Step) -> None:
            s.gradient("y", "g")
            s.pull(("x", "d"))

    for method in (Twice(), Elsewhere()):
        with pytest.raises(mile.ExperimentError, match="optimizer: "):
            run(problem(optimizer=OPTIMIZERS["sgd"]), mile.method(method, lr=1.0), out=type(method).__name__)
    for key in ("step_size", "xi", "gamma"):
        with pytest.raises(mile.ExperimentError, match=rf"algorithms\[0\].{key}: "):
            run(problem(optimizer=OPTIMIZERS["sgd"]), mile.method("mile", **{"local_steps": 2, key: "auto"}), out=key)


def test_gradients_may_be_accumulated_and_clipped_without_an_optimiser() -> None:
    for gradient in ("loop", "vmap"):
        large = run(problem(batch="full", gradient=gradient), mile.method("dsgd", lr=0.1), rounds=4, out=f"large-{gradient}")
        parts = run(problem(batch=8, accumulate=3, gradient=gradient), mile.method("dsgd", lr=0.1), rounds=4, out=f"parts-{gradient}")
        # Three batches of eight are the 24 samples of an epoch.
        assert np.abs(large.x() - parts.x()).max() < 1e-12
        clipped = run(problem(batch="full", clip=1e-3, gradient=gradient), mile.method("dsgd", lr=1.0), network="complete", rounds=1, out=f"clipped-{gradient}")
        moved = clipped.average() - problem().initial(0)
        assert 0 < np.linalg.norm(moved) <= 1e-3 * 1.0001
    with pytest.raises(ValueError, match="accumulate: "):
        problem(accumulate=0)


def test_mixed_precision_and_optimisers_work_together() -> None:
    model, data = small(torch.float32), shards(dtype=torch.float32)
    found = mile.torch.Problem(model, nn.MSELoss(), data, batch=8, autocast="bfloat16", optimizer=OPTIMIZERS["adamw"])
    mixed = run(found, out="mixed")
    plain = run(mile.torch.Problem(model, nn.MSELoss(), data, batch=8, optimizer=OPTIMIZERS["adamw"]), out="plain")
    assert 0 < np.abs(mixed.x() - plain.x()).max() < 0.2 and mixed.rows[-1]["loss"] < mixed.rows[0]["loss"]
    assert mixed.x().dtype == np.float32
    with pytest.raises(ValueError, match="autocast: "):
        mile.torch.Problem(model, nn.MSELoss(), data, autocast="float16")  # type: ignore[arg-type]


class Adapted(nn.Module):
    """A frozen layer with a trained product of two small matrices beside it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.frozen = nn.Linear(4, 6, dtype=torch.float64).requires_grad_(False)
        self.down = nn.Linear(4, 1, bias=False, dtype=torch.float64)
        self.up = nn.Linear(1, 6, bias=False, dtype=torch.float64)
        self.head = nn.Linear(6, 1, dtype=torch.float64).requires_grad_(False)

    def forward(self, a: Any) -> Any:
        return self.head(torch.tanh(self.frozen(a) + self.up(self.down(a))))


def test_only_what_is_trained_is_sent_as_with_adapters() -> None:
    model = Adapted()
    found = mile.torch.Problem(model, nn.MSELoss(), shards(), batch=8, optimizer=OPTIMIZERS["adamw"])
    done = run(found, network="ring")
    assert done.x().shape == (4, 10) and done.rows[-1]["bytes_sent"] == 12 * 8 * 10 * 8
    state = done.state_dict()
    assert (state["frozen.weight"] == model.frozen.weight).all() and (state["up.weight"] != model.up.weight).any()
    copy.deepcopy(model).load_state_dict(state, strict=True)


# Models and data in other forms


class Dicts(Dataset):  # type: ignore[type-arg]
    """A data set as those of `transformers`."""

    def __init__(self, pair: Any) -> None:
        self.pair = pair

    def __len__(self) -> int:
        return len(self.pair[0])

    def __getitem__(self, k: int) -> Any:
        return {"input_ids": self.pair[0][k], "labels": self.pair[1][k]}


class Language(nn.Module):
    """A model that takes names and returns a dictionary with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Tied()

    def forward(self, input_ids: Any, labels: Any = None) -> Any:
        logits = self.inner(input_ids)
        return {"logits": logits, "loss": next_byte(logits, labels)}


@pytest.mark.parametrize("gradient", ["loop", "vmap"])
def test_models_may_take_dictionaries_and_return_their_loss(gradient: Any) -> None:
    torch.manual_seed(0)
    model = Language()
    method = mile.method("mile", step_size=0.1, local_steps=2, xi="paper")
    dicts = mile.torch.Problem(model, None, [Dicts(pair) for pair in sequences()], batch=4, gradient=gradient, test=Dicts(sequences()[0]))
    named = run(dicts, method, out="named")
    plain = run(mile.torch.Problem(model.inner, next_byte, sequences(), batch=4, gradient=gradient), method, out="plain")
    assert np.abs(named.x() - plain.x()).max() < 1e-6 and "test_loss" in named.rows[0]
    with pytest.raises(mile.ExperimentError, match="loss: "):
        run(mile.torch.Problem(small(), None, [(a,) for a, _ in shards()]), method, out="wrong")


class Stream(IterableDataset):  # type: ignore[type-arg]
    """Samples without a number."""

    def __init__(self, pair: Any) -> None:
        self.pair = pair

    def __iter__(self) -> Iterator[Any]:
        return zip(*self.pair, strict=True)


def test_iterable_data_are_read_in_passes_and_resumed() -> None:
    def made() -> mile.torch.Problem:
        return mile.torch.Problem(small(), nn.MSELoss(), [DataLoader(Stream(pair), batch_size=5) for pair in shards()], eval_rows=10)

    whole = run(made(), mile.method("local-dsgd", lr=0.05, local_steps=3), rounds=8, out="whole")
    run(made(), mile.method("local-dsgd", lr=0.05, local_steps=3), rounds=3, out="half")
    half = run(made(), mile.method("local-dsgd", lr=0.05, local_steps=3), rounds=8, out="half", resume=True)
    assert (half.x() == whole.x()).all() and whole.rows[-1]["loss"] < whole.rows[0]["loss"]
    direct = mile.torch.Problem(small(), nn.MSELoss(), [Stream(pair) for pair in shards()], batch=5, eval_rows=10)
    assert (run(direct, mile.method("local-dsgd", lr=0.05, local_steps=3), rounds=8, out="direct").x() == whole.x()).all()


# Parameters that stay with their agent


@pytest.mark.parametrize("local", ["2", ["2.weight", "2.bias"], lambda name: name.startswith("2.")])
def test_local_parameters_are_never_mixed_and_losses_use_them(local: Any) -> None:
    found = problem(local=local, batch="full", optimizer=OPTIMIZERS["adamw"])
    done = run(found, mile.method("mile", local_steps=3, xi=0.1, gamma=1.0), network="complete", rounds=30)
    x = done.x()
    assert np.ptp(x[:, :30], axis=0).max() < 1e-12 and np.ptp(x[:, 30:], axis=0).min() > 1e-3
    assert done.state()["c"][:, 30:].any() == False and done.rows[-1]["consensus_error"] < 1e-20  # noqa: E712
    assert done.rows[-1]["bytes_sent"] == 30 * 12 * 30 * 8
    own = np.mean([float(nn.functional.mse_loss(_given(row)(a), b)) for row, (a, b) in zip(x, shards(), strict=True)])
    assert done.rows[-1]["loss"] == pytest.approx(own) and done.rows[-1]["local_loss"] == pytest.approx(own)
    shared = run(problem(batch="full", optimizer=OPTIMIZERS["adamw"]), network="complete", rounds=30, out="shared")
    assert done.rows[-1]["loss"] < shared.rows[-1]["loss"], "each agent has its own head for its own data"


def _given(row: np.ndarray) -> nn.Module:
    model = small()
    nn.utils.vector_to_parameters(torch.from_numpy(row.copy()), model.parameters())
    return model


def test_local_parameters_are_named_and_not_compressed() -> None:
    with pytest.raises(mile.ExperimentError, match=r"algorithms\[0\].compression: "):
        run(problem(local="2"), mile.method("mile", lr=0.1, local_steps=2, compression="8-bit"), out="compressed")
    assert not Path("compressed").exists()
    for local, got in (("3", "none"), (lambda name: True, "all of them")):
        with pytest.raises(mile.ExperimentError, match=f"local: .*got {got}"):
            problem(local=local)


def test_exact_methods_reach_a_stationary_point_of_common_and_own_parameters() -> None:
    """The mean of f_i(y, z_i), for weights y and biases z_i: the mean of the agents' gradients in y vanishes, and each agent's own in z_i. Without a correction the former does not."""
    def gradients(name: Literal["mile", "led", "local-dsgd"], **more: Any) -> tuple[float, float, float]:
        given = mile.torch.Problem(nn.Linear(4, 1, dtype=torch.float64), nn.MSELoss(), shards(), batch="full", local="bias")
        x = run(given, mile.method(name, lr=0.1, local_steps=3, **more), network="complete", rounds=400, eval_every=400, out=name).x()
        found = []
        for row, (a, b) in zip(x, shards(), strict=True):
            errors = a.numpy() @ row[:4] + row[4] - b.numpy()[:, 0]
            found.append([*(2 * a.numpy().T @ errors / len(a)), 2 * errors.mean()])
        common, own = np.split(np.array(found), [4], axis=1)
        return float(np.abs(common.mean(axis=0)).max()), float(np.abs(own).max()), float(np.abs(common).max())

    for name, more in (("mile", {"xi": 0.1, "gamma": 1.0}), ("led", {})):
        common, own, each = gradients(name, **more)  # type: ignore[arg-type]
        assert common < 1e-9 and own < 1e-9 and each > 0.1, name
    assert gradients("local-dsgd")[0] > 1e-3


# Defaults for networks


def test_networks_get_what_the_documentation_recommends(capsys: pytest.CaptureFixture[str]) -> None:
    found = mile.run(problem=problem(), algorithms=[mile.method("mile", lr=0.01, local_steps=2)], rounds=2, out="plain")
    section = found.config["algorithm"][0]
    assert section["momentum"] == 0.9 and "adaptive" in section["xi"]
    assert capsys.readouterr().err.splitlines()[0].startswith("mile: mile runs with momentum=0.9 and xi='adaptive', as recommended for networks")
    paper = mile.run(problem=problem(), algorithms=[mile.method("mile", lr=0.01, local_steps=2, xi="paper")], rounds=2, out="paper")
    assert "momentum" not in paper.config["algorithm"][0] or paper.config["algorithm"][0]["momentum"] == 0
    optimised = mile.run(problem=problem(optimizer=OPTIMIZERS["adamw"]), rounds=2, out="optimised").config["algorithm"][0]
    assert (optimised["step_size"], optimised["xi"], optimised["gamma"]) == (1.0, 0.04, 1.0)
    assert "as recommended around an optimizer" in capsys.readouterr().err


def test_a_network_needs_nothing_but_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    data = [(torch.randn(20, 4), torch.randint(0, 2, (20,))) for _ in range(3)]
    found = mile.run(problem=mile.torch.Problem(nn.Linear(4, 2), nn.CrossEntropyLoss(), data), rounds=30)
    (section,) = found.config["algorithm"]
    assert (section["name"], section["step_size"], section["local_steps"]) == ("mile", 1e-3, 10) and "adamw" in str(section["optimizer"])
    assert found.rows[-1]["loss"] < found.rows[0]["loss"] - 0.01
    assert capsys.readouterr().err.startswith("mile: mile runs with step_size=0.001, local_steps=10 and optimizer='adamw', a start for networks")


def test_marks_on_parameters_are_there_for_groups() -> None:
    model = small()
    for parameter in model.parameters():
        parameter.no_decay = parameter.ndim == 1  # type: ignore[attr-defined]

    def optimizer(parameters: Any) -> Any:
        groups = [{"params": [one for one in parameters if one.no_decay is marked], "lr": 0.0 if marked else 0.1} for marked in (False, True)]
        return torch.optim.SGD(groups)

    for kind in (torch.float64, torch.bfloat16):
        data = [(a.to(kind), b.to(kind)) for a, b in shards()]
        found = run(mile.torch.Problem(copied(model).to(kind), nn.MSELoss(), data, batch=8, optimizer=optimizer), out=str(kind))
        before = nn.utils.parameters_to_vector(model.to(kind).parameters()).detach().float().numpy()
        moved = np.abs(found.x() - before).max(axis=0) > 1e-6
        assert moved[:24].all() and not moved[24:30].any() and moved[30:36].all() and not moved[36]


def test_a_sweep_over_the_weight_of_the_paper_is_one_of_the_papers_method() -> None:
    found = mile.sweep(problem=problem(), algorithms=[mile.method("mile", lr=0.01, local_steps=2)], values={"algorithm.mile.xi": [0.1, 0.2]}, rounds=2, out="sweep")
    assert all(run.config["algorithm"][0].get("momentum", 0) == 0 for run in found.runs.values())
    changed = mile.run(problem=problem(), algorithms=[mile.method("mile", lr=0.01)], set=["algorithm.mile.xi=0.1"], rounds=2, out="set")
    assert changed.config["algorithm"][0]["xi"] == 0.1 and changed.config["algorithm"][0].get("momentum", 0) == 0


@pytest.mark.parametrize("name", ["adamw", "amsgrad"])
def test_built_in_optimizers_are_those_of_pytorch(name: str) -> None:
    torch.manual_seed(3)
    rows, targets = torch.randn(12, 5, dtype=torch.float64), torch.randn(12, 2, dtype=torch.float64)
    model = nn.Linear(5, 2, dtype=torch.float64)
    own = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(own.parameters(), lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, amsgrad=name == "amsgrad")
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.mse_loss(own(rows), targets).backward()
        nn.utils.clip_grad_norm_(own.parameters(), 0.5)
        optimizer.step()
    problem = mile.torch.Problem(model, nn.functional.mse_loss, [(rows, targets)], batch="full")
    by = {"name": name, "betas": [0.8, 0.95], "eps": 1e-6, "decay": 0.1}
    run = mile.run(problem=problem, algorithms=[mile.method("local-dsgd", step_size=0.01, local_steps=4, optimizer=by, clip=0.5)], rounds=5)
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in own.parameters()]).numpy()
    assert np.abs(run.x()[0] - expected).max() < 1e-12


def test_muon_steps_along_matrices_as_pytorch_does() -> None:
    torch.manual_seed(4)
    rows, targets = torch.randn(40, 12), torch.randn(40, 6)
    model = nn.Sequential(nn.Linear(12, 8, bias=False), nn.Tanh(), nn.Linear(8, 6, bias=False))
    own = copy.deepcopy(model)
    optimizer = torch.optim.Muon(own.parameters(), lr=0.01, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    nn.functional.mse_loss(own(rows), targets).backward()
    optimizer.step()
    problem = mile.torch.Problem(model, nn.functional.mse_loss, [(rows, targets)], batch="full")
    run = mile.run(problem=problem, algorithms=[mile.method("local-dsgd", step_size=0.01, local_steps=1, optimizer="muon")], rounds=1)
    begun = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).numpy()
    moved = torch.cat([parameter.detach().reshape(-1) for parameter in own.parameters()]).numpy() - begun
    # PyTorch's iteration is in bfloat16.
    assert np.linalg.norm(run.x()[0] - begun - moved) < 0.03 * np.linalg.norm(moved)


def test_steps_on_a_device_are_those_in_memory() -> None:
    from mile.torch._optimiser import take_steps

    generator = torch.Generator().manual_seed(5)
    for muon, matrices in ((None, []), ((0.9, True), [(2, 3, 4), (15, 5, 2)])):
        for amsgrad in (False, True) if muon is None else (False,):
            draw = lambda: torch.randn(3, 30, generator=generator, dtype=torch.float64)  # noqa: E731
            written = [draw(), draw(), draw().square(), *([draw().square()] if amsgrad else [])]
            read = [draw(), draw(), draw()]
            by = ((0.01, 3, -0.5, 1.0), ((0.9, 0.99), 1e-6, 0.1, amsgrad), muon)
            flat = [one.clone().view(-1).numpy() for one in written]
            _mile.take_steps(flat, [one.view(-1).numpy() for one in read], 30, by, matrices)
            take_steps(written, list(read), by, matrices)
            for found, expected in zip(written, flat, strict=True):
                assert np.abs(found.numpy().reshape(-1) - expected).max() < 1e-12


def test_one_optimizer_is_enough() -> None:
    problem = mile.torch.Problem(nn.Linear(2, 1), nn.functional.mse_loss, [(torch.ones(2, 2), torch.ones(2, 1))] * 3, batch=1, optimizer=torch.optim.AdamW)
    with pytest.raises(mile.ExperimentError, match="optimizer"):
        mile.run(problem=problem, algorithms=[mile.method("mile", optimizer="adamw")], rounds=1)
