"""PyTorch problems: what identifies them when a run is resumed, and what is measured of their models at which cost."""

import math
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

import mile
import mile.torch
from test_torch import Tied, next_byte, sequences
from mile._samples import Counts, evaluated
from test_training import OPTIMIZERS, Stream, problem, run, shards, small

METHOD = mile.method("local-dsgd", lr=0.01, local_steps=2)

# What identifies a problem


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"data": shards(rows=25)}, "data"),
        ({"data": [(a, b + 1) for a, b in shards()]}, "data"),
        ({"loss": nn.L1Loss()}, "loss"),
        ({"batch": 9}, "batch"),
        ({"clip": 2.0}, "clip"),
        ({"optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.02)}, "optimizer"),
    ],
)
def test_a_run_is_resumed_only_with_the_same_data_loss_and_optimiser(change: dict[str, Any], key: str) -> None:
    def made(**more: Any) -> mile.torch.Problem:
        given = {"loss": nn.MSELoss(), "data": shards(), "batch": 8, "optimizer": OPTIMIZERS["adamw"], "clip": 1.0, **more}
        return mile.torch.Problem(small(), **given)

    run(made(), rounds=2, out="resumed")
    with pytest.raises(mile.ExperimentError, match=rf"problem\.{key}\b"):
        run(made(**change), rounds=4, out="resumed", resume=True)
    assert run(made(), rounds=4, out="resumed", resume=True).complete


def later(k: int = 1) -> list[Any]:
    """Data of which one number of one agent differs, in a row that the first mini-batch does not have."""
    data = [(a.clone(), b.clone()) for a, b in shards()]
    first = set(mile._mile.samples(24, 8, True, 0, 2, 0).tolist())
    data[2][k][max(set(range(24)) - first), 0] += 1e-9
    return data


FORMS: dict[str, Any] = {
    "tensors": lambda pair: pair,
    "subsets": lambda pair: Subset(TensorDataset(*pair), range(24)),
    "sums": lambda pair: ConcatDataset([TensorDataset(*(one[:12] for one in pair)), TensorDataset(*(one[12:] for one in pair))]),
    "samples": lambda pair: list(zip(*pair, strict=True)),
    "loaders": lambda pair: DataLoader(TensorDataset(*pair), batch_size=8),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("column", [0, 1])
def test_every_number_of_data_in_memory_counts(form: str, column: int) -> None:
    def made(data: list[Any]) -> mile.torch.Problem:
        return mile.torch.Problem(small(), nn.MSELoss(), [FORMS[form](pair) for pair in data], batch=8)

    run(made(shards()), METHOD, rounds=2, out="resumed")
    with pytest.raises(mile.ExperimentError, match=r"problem\.data\b"):
        run(made(later(column)), METHOD, rounds=4, out="resumed", resume=True)
    assert run(made(shards()), METHOD, rounds=4, out="resumed", resume=True).complete


class Scaled(nn.Module):
    """A network whose code says by how much its output is scaled, in training only."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.frozen = nn.Linear(4, 4, dtype=torch.float64).requires_grad_(False)
        self.inner, self.rate = small(), rate

    def forward(self, a: Any) -> Any:
        found = self.inner(self.frozen(a))
        return 2.0 * found if self.training else found


class OtherwiseScaled(Scaled):
    def forward(self, a: Any) -> Any:
        found = self.inner(self.frozen(a))
        return 3.0 * found if self.training else found


# Only its code tells.
OtherwiseScaled.__name__ = OtherwiseScaled.__qualname__ = "Scaled"


class Detached(Scaled):
    """Its losses are the same, and its gradients are not."""

    def forward(self, a: Any) -> Any:
        return self.inner[2](self.inner[:2](self.frozen(a)).detach())


def shifted(number: float = 1e-9) -> nn.Module:
    model = Scaled()
    with torch.no_grad():
        model.frozen.bias += number
    return model


TEACHERS = [torch.ones(1, dtype=torch.float64), 1.5 * torch.ones(1, dtype=torch.float64)]


def taught(teacher: Any) -> Any:
    return lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1] + 0.0 * teacher)


def module_taught(scale: float) -> Any:
    teacher = nn.Linear(4, 1, dtype=torch.float64)
    nn.init.constant_(teacher.weight, scale)
    nn.init.zeros_(teacher.bias)
    return lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1]) + 0.0 * teacher(batch[0]).sum()


@pytest.mark.parametrize(
    ("given", "change", "key"),
    [
        ({}, {"model": OtherwiseScaled()}, "model_code"),
        ({}, {"model": Scaled(0.1)}, "model_code"),
        ({}, {"model": shifted()}, "frozen"),
        ({"local": "inner.2"}, {"local": "inner.0"}, "local"),
        ({"test": shards()[0]}, {"test": later()[2]}, "test"),
        ({"test": shards()[0], "metrics": {"size": lambda model, batches: 0.0}}, {"metrics": {"size": lambda model, batches: 1.0}}, "metrics"),
        ({"loss": None, "closure": taught(TEACHERS[0])}, {"closure": taught(TEACHERS[1])}, "loss"),
        ({"loss": None, "closure": module_taught(1.0)}, {"closure": module_taught(1.1)}, "loss"),
        ({"optimizer": (lambda settings: lambda parameters: torch.optim.SGD(parameters, **settings))({"lr": 0.1})}, {"optimizer": (lambda settings: lambda parameters: torch.optim.SGD(parameters, **settings))({"lr": 0.2})}, "optimizer"),
    ],
)
def test_a_run_is_resumed_only_with_the_same_model_parts_and_measures(given: dict[str, Any], change: dict[str, Any], key: str) -> None:
    def made(**more: Any) -> mile.torch.Problem:
        return mile.torch.Problem(**{"model": Scaled(), "loss": nn.MSELoss(), "data": shards(), "batch": 8, **given, **more})

    run(made(), METHOD, rounds=2, out="resumed")
    with pytest.raises(mile.ExperimentError, match=rf"problem\.{key}\b"):
        run(made(**change), METHOD, rounds=4, out="resumed", resume=True)
    assert run(made(), METHOD, rounds=4, out="resumed", resume=True).complete


def test_gradients_at_the_start_are_a_fact() -> None:
    whole, detached = (mile.torch.Problem(model, nn.MSELoss(), shards(), batch=8).facts()["start"].split(",") for model in (Scaled(), Detached()))
    assert whole[0] == detached[0] and whole[1] != detached[1]


def test_what_a_notebook_does_between_two_runs_is_no_fact() -> None:
    """Names of attributes are not those of globals, lists are notes, and a model may be in either mode as a whole."""
    seen: list[float] = []
    model = Scaled()

    def closure(given: Any, batch: Any) -> Any:
        seen.append(0.0)
        return nn.functional.mse_loss(given(batch[0]), batch[1])

    first = mile.torch.Problem(model, closure=closure, data=shards()).facts()
    assert seen
    globals()["rate"] = globals().get("rate", 0) + 1
    assert mile.torch.Problem(model.eval(), closure=closure, data=shards()).facts() == first


class Changing(Dataset):  # type: ignore[type-arg]
    """Samples that are changed at random, with random numbers that nobody seeds."""

    def __init__(self, pair: Any) -> None:
        self.pair = pair

    def __len__(self) -> int:
        return len(self.pair[0])

    def __getitem__(self, k: int) -> Any:
        return self.pair[0][k] + float(os.urandom(1)[0]), self.pair[1][k]


def test_data_that_are_not_the_same_twice_can_be_resumed() -> None:
    def made(rows: int = 24) -> mile.torch.Problem:
        return mile.torch.Problem(small(), nn.MSELoss(), [DataLoader(Changing(pair), batch_size=4) for pair in shards(rows=rows)])

    method = mile.method("local-dsgd", lr=1e-6, local_steps=2)
    run(made(), method, rounds=2, out="random")
    assert run(made(), method, rounds=4, out="random", resume=True).complete
    with pytest.raises(mile.ExperimentError, match="problem.data"):
        run(made(rows=30), method, rounds=6, out="random", resume=True)


def test_a_version_stands_for_data_and_code() -> None:
    run(problem(version="1", optimizer=OPTIMIZERS["sgd"]), rounds=2, out="version")
    other = mile.torch.Problem(small(), nn.L1Loss(), shards(), batch=8, version="1", optimizer=OPTIMIZERS["sgd"])
    assert run(other, rounds=3, out="version", resume=True).complete


# Evaluation


class Counted(nn.Module):
    """Counts the samples of forward passes in training and in evaluation."""

    seen = {True: 0, False: 0}

    def __init__(self) -> None:
        super().__init__()
        # Large enough that evaluations count.
        self.inner = nn.Sequential(nn.Linear(4, 4000), nn.Tanh(), nn.Linear(4000, 1)).double()

    def forward(self, a: Any) -> Any:
        Counted.seen[self.training] += len(a)
        return self.inner(a)


def counted(**more: Any) -> tuple[dict[bool, int], mile.Run]:
    torch.manual_seed(0)
    found = mile.torch.Problem(Counted(), nn.MSELoss(), shards(rows=400), batch=4, test=shards(1, 1500)[0], **more)
    Counted.seen = {True: 0, False: 0}
    done = mile.run(problem=found, algorithms=[mile.method("local-dsgd", lr=1e-4, local_steps=20)], rounds=10, eval_every=4, out=str(more.get("eval_rows")), overwrite=True)
    return Counted.seen, done


def test_evaluation_takes_a_fifth_of_the_run_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    seen, chosen = counted()
    # Forward passes of evaluations cost half as much as gradients. At least 1,000 samples of each kind are measured.
    said = capsys.readouterr().err
    assert "losses are measured on 250 of 400 training samples of each agent, metrics on 1,000 of 1,500 test samples" in said
    assert "% of the work" in said
    everything, exact = counted(eval_rows="all")
    assert seen[False] < 0.7 * everything[False] and "measured on" not in capsys.readouterr().err
    assert chosen.rows[-1]["loss"] == pytest.approx(exact.rows[-1]["loss"], rel=0.3) and chosen.rows[-1]["loss"] != exact.rows[-1]["loss"]
    assert (chosen.x() == exact.x()).all()
    few, _ = counted(eval_rows=10)
    off, without = counted(eval_rows="off")
    assert off[False] < few[False] < everything[False]
    last = without.rows[-1]
    assert last["loss"] == pytest.approx(last["batch_loss"]) and (without.x() == exact.x()).all()


def test_evaluations_stay_below_a_fifth_of_the_work_counted_in_rows_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    found = mile.torch.Problem(Counted(), nn.MSELoss(), shards(rows=400), batch=32, test=shards(1, 1500)[0])
    Counted.seen = {True: 0, False: 0}
    mile.run(problem=found, algorithms=[mile.method("local-dsgd", lr=1e-4, local_steps=20)], rounds=40)
    assert Counted.seen[True] == 40 * 20 * 4 * 32
    # A forward pass is half a gradient, and what is left of a fifth would not do for one more record.
    work = 0.5 * Counted.seen[False]
    share = work / (work + Counted.seen[True])
    assert 0.15 < share <= 0.2
    said = re.search(r"(\d+)% of the work", capsys.readouterr().err)
    assert said and abs(100 * share - int(said[1])) <= 1


def unequal() -> list[Any]:
    """Agents with few and many rows."""
    return [one[0] for one in (shards(1, rows) for rows in (5, 400, 60))]


@pytest.mark.parametrize("weights", ["agents", "rows"])
def test_losses_of_agents_with_unequal_data_are_those_of_all_their_rows_or_estimate_them(weights: Any) -> None:
    def done(eval_rows: Any) -> tuple[mile.Run, float]:
        found = mile.torch.Problem(small(), nn.MSELoss(), unequal(), batch=4, weights=weights, eval_rows=eval_rows, gradient="loop")
        made = run(found, mile.method("dsgd", lr=0.01), rounds=4, out=str(eval_rows))
        model = small()
        nn.utils.vector_to_parameters(torch.from_numpy(made.average()), model.parameters())
        most = max(ROWS) if eval_rows == "all" else eval_rows
        chosen = [list(evaluated(len(b), most, agent)) for agent, (_, b) in enumerate(unequal())]
        losses = [nn.functional.mse_loss(model(a[rows]), b[rows]).item() for rows, (a, b) in zip(chosen, unequal(), strict=True)]
        return made, float(np.average(losses, weights=ROWS if weights == "rows" else None))

    exact, of_all = done("all")
    assert exact.rows[-1]["loss"] == pytest.approx(of_all, rel=1e-6)
    sampled, of_some = done(50)
    assert sampled.rows[-1]["loss"] == pytest.approx(of_some, rel=1e-6)
    assert (sampled.x() == exact.x()).all() and of_some == pytest.approx(of_all, rel=0.25) and of_some != of_all


ROWS = (5, 400, 60)


def test_what_agents_with_few_rows_lack_is_measured_of_the_others() -> None:
    counts = Counts(ROWS, 30, 4, 400, 30)
    assert (counts.measured, counts.described) == (465, None)
    for per_agent, of_each in ((20, (5, 28, 28)), (100, (5, 235, 60)), (1, (1, 1, 1)), (155, (5, 400, 60))):
        found = counts.limited(per_agent, 10)
        assert tuple(found.of(agent) for agent in range(3)) == of_each
        assert found.measured >= min(3 * per_agent, 465) and found.tested == 10


def test_samples_of_streams_count_alike_and_all_are_measured_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """24 samples in batches of five, of which the last one has four."""
    def made(**more: Any) -> mile.torch.Problem:
        return mile.torch.Problem(small(), nn.MSELoss(), [DataLoader(Stream(pair), batch_size=5) for pair in shards()], test=DataLoader(Stream(shards()[0]), batch_size=1), **more)

    whole = mile.torch.Problem(small(), nn.MSELoss(), shards(), test=shards()[0], batch="full")
    start = whole.initial(0)
    for given in (made(), made(eval_rows="all", gradient_norm=True)):
        assert [given.loss(agent, start) for agent in range(4)] == pytest.approx([whole.loss(agent, start) for agent in range(4)], rel=1e-12)
    assert np.abs(given.full_grad(2, start) - whole.full_grad(2, start)).max() < 1e-12
    # Otherwise eight batches: the first eight test samples.
    assert given.measure(start) == pytest.approx(whole.measure(start), rel=1e-12)

    def of_first(agent: int, rows: int) -> float:
        a, b = shards()[agent]
        return nn.functional.mse_loss(small()(a[:rows]), b[:rows]).item()

    assert made().measure(start) == pytest.approx([of_first(0, 8)], rel=1e-12)
    # A data set without a loader is read in batches of evaluations.
    direct = mile.torch.Problem(small(), nn.MSELoss(), shards(), test=Stream(shards()[0]), eval_batch=3)
    assert direct.measure(start) == pytest.approx([of_first(0, 24)], rel=1e-12)
    assert made(eval_rows=12).loss(1, start) == pytest.approx(of_first(1, 15), rel=1e-12)
    run(made(), mile.method("local-dsgd", lr=0.01), rounds=2, progress=None)
    assert "losses are measured on the first 40 samples of each agent, metrics on the first 8 test samples" in capsys.readouterr().err
    with pytest.raises(mile.ExperimentError, match="gradient_norm: "):
        made(gradient_norm=True)
    empty = mile.torch.Problem(small(), nn.MSELoss(), [DataLoader(Stream(((), ())), batch_size=5)] * 2, version="1")
    with pytest.raises(mile.ExperimentError, match="data, agent 0: "):
        empty.loss(0, start)


def test_budgets_count_the_batches_of_loaders() -> None:
    def counted(data: Any, **more: Any) -> tuple[int, ...]:
        return mile.torch.Problem(small(), nn.MSELoss(), data, **more).row_counts

    pairs = [list(zip(*pair, strict=True)) for pair in shards(3, 24)]
    assert counted([DataLoader(one, batch_size=6) for one in pairs]) == (24, 6, 72, 0)
    assert counted([DataLoader(one, batch_size=6) for one in pairs], accumulate=2) == (24, 12, 72, 0)
    sampler = torch.utils.data.BatchSampler(range(24), batch_size=8, drop_last=False)
    assert counted([DataLoader(one, batch_sampler=sampler) for one in pairs]) == (24, 8, 72, 0)
    assert counted([DataLoader(Stream(pair), batch_size=5) for pair in shards(3)]) == (40, 5, 120, 0)
    assert counted(unequal(), batch=[2, 64, "full"]) == (155, 42, 465, 0)
    assert counted(unequal(), batch=100, eval_rows=50) == (155, 55, 105, 0)


def test_losses_of_mini_batches_are_recorded() -> None:
    losses: list[float] = []

    def closure(model: Any, batch: Any) -> Any:
        found = nn.functional.mse_loss(model(batch[0]), batch[1])
        if model.training:
            losses.append(float(found))
        return found

    found = mile.torch.Problem(small(), None, shards(), batch=8, closure=closure, gradient="loop")
    done = run(found, mile.method("local-dsgd", lr=0.05, local_steps=3), rounds=6, eval_every=2)
    recorded = [row.get("batch_loss") for row in done.rows]
    of_record = np.array(losses[-6 * 3 * 4 :]).reshape(3, -1).mean(axis=1)
    assert recorded[0] is None or math.isnan(recorded[0])
    assert recorded[1:] == pytest.approx(list(of_record), rel=1e-5)
    mapped = mile.torch.Problem(small(), nn.MSELoss(), shards(), batch=8, gradient="vmap")
    other = run(mapped, mile.method("local-dsgd", lr=0.05, local_steps=3), rounds=6, eval_every=2, out="mapped")
    assert [row["batch_loss"] for row in other.rows[1:]] == pytest.approx(recorded[1:], rel=1e-5)


def test_a_second_interrupt_stops_in_the_middle_of_a_round_of_a_model() -> None:
    class Interrupted(mile.torch.Problem):
        calls = 0
        moments: tuple[int, ...] = (200, 230)

        def batches(self, agent: int, seed: int, draw: int) -> Any:
            self.calls += 1
            if self.calls in self.moments:
                signal.raise_signal(signal.SIGINT)
            return super().batches(agent, seed, draw)

    found = Interrupted(small(), nn.MSELoss(), shards(), batch=8)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(found, mile.method("local-dsgd", lr=0.01, local_steps=10**6), rounds=3, out="long")
    assert not isinstance(stopped.value, mile.Stopped) and found.calls < 10**4
    assert len(mile.load_run("long").rows) == 1
    # Between rounds the first one is enough.
    again = Interrupted(small(), nn.MSELoss(), shards(), batch=8)
    again.moments = (200,)
    with pytest.raises(mile.Stopped):
        run(again, mile.method("local-dsgd", lr=0.01, local_steps=10), rounds=10**6, out="short")
    assert again.calls < 10**4


def test_losses_that_are_not_yet_recorded_are_part_of_a_checkpoint() -> None:
    method = mile.method("local-dsgd", lr=0.05, local_steps=3)

    class Stopping(mile.torch.Problem):
        def batches(self, agent: int, seed: int, draw: int) -> Any:
            # In the middle of the 6th or 7th round, which is completed and not recorded.
            if (agent, draw) == (0, 19):
                signal.raise_signal(signal.SIGINT)
            return super().batches(agent, seed, draw)

    whole = run(problem(), method, rounds=12, eval_every=4, out="whole")
    with pytest.raises(mile.Stopped) as stopped:
        run(Stopping(small(), nn.MSELoss(), shards(), batch=8, eval_rows="all"), method, rounds=12, eval_every=4, out="part")
    assert stopped.value.run.outcomes[0]["round"] % 4 and list(Path("part/checkpoints").glob("*.agents.pt"))
    resumed = run(problem(), method, rounds=12, eval_every=4, out="part", resume=True)
    assert [row["batch_loss"] for row in resumed.rows[1:]] == [row["batch_loss"] for row in whole.rows[1:]]
    assert not list(Path("part").rglob("*.agents.pt"))


def test_metrics_of_ones_own_see_the_model_and_the_test_data() -> None:
    def perplexity(model: Any, batches: Any) -> float:
        losses = [float(next_byte(model(tokens), target)) * len(tokens) for tokens, target in batches]
        return math.exp(sum(losses) / 10)

    torch.manual_seed(0)
    found = mile.torch.Problem(Tied(), next_byte, sequences(), test=sequences()[0], metrics={"perplexity": perplexity}, batch=4, eval_batch=4)
    done = run(found, mile.method("local-dsgd", lr=0.5, local_steps=2), rounds=3)
    for row in done.rows:
        assert row["perplexity"] == pytest.approx(math.exp(row["test_loss"]), rel=1e-5)
    assert done.rows[-1]["local_perplexity"] > 0
