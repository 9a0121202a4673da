"""Random numbers that data sets, models and losses draw are functions of seeds; modules keep their own modes."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import mile
import mile.torch
from mile.torch._random import seeding
from test_training import run, shards, small

METHOD = mile.method("local-dsgd", lr=0.05, local_steps=3)


def changed(row: Any) -> Any:
    """A row that is changed at random, with the random numbers of three libraries."""
    return row * random.uniform(0.9, 1.1) + torch.randn(4, dtype=torch.float64) * 0.1 + torch.from_numpy(np.random.normal(size=4)) * 0.1


class Augmented(Dataset):  # type: ignore[type-arg]
    """Rows that are changed whenever they are read."""

    def __init__(self, pair: Any) -> None:
        self.pair = pair

    def __len__(self) -> int:
        return len(self.pair[0])

    def __getitem__(self, k: int) -> Any:
        return changed(self.pair[0][k]), self.pair[1][k]


class AugmentedStream(IterableDataset):  # type: ignore[type-arg]
    """The same without a number."""

    def __init__(self, pair: Any) -> None:
        self.pair = pair

    def __iter__(self) -> Iterator[Any]:
        return ((changed(a), b) for a, b in zip(*self.pair, strict=True))


def own_generator(pair: Any) -> Any:
    return DataLoader(Augmented(pair), batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(random.getrandbits(30)))


FORMS: dict[str, Callable[[Any], Any]] = {
    "set": Augmented,
    "loader": lambda pair: DataLoader(Augmented(pair), batch_size=5, shuffle=True),
    "own generator": own_generator,
    "workers": lambda pair: DataLoader(Augmented(pair), batch_size=5, shuffle=True, num_workers=1),
    "stream": lambda pair: DataLoader(AugmentedStream(pair), batch_size=5),
}


@pytest.mark.parametrize("form", FORMS)
def test_augmentations_are_repeatable_and_leave_random_numbers_alone(form: str) -> None:
    def done(out: str, rounds: int = 7, **more: Any) -> mile.Run:
        found = mile.torch.Problem(small(), nn.MSELoss(), [FORMS[form](pair) for pair in shards(2, 12)], batch=5)
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(len(out))
        before = [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()]
        made = run(found, METHOD, rounds=rounds, eval_every=2, out=out, **more)
        assert [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()] == before
        return made

    first, again = done("first"), done("again")
    assert (first.x() == again.x()).all()
    for ours, theirs in zip(first.rows, again.rows, strict=True):
        assert ours["loss"] == theirs["loss"]
    done("half", rounds=3)
    # In the middle of a pass, whose batches so far are read again.
    assert (done("half", resume=True).x() == first.x()).all()


def test_augmentations_differ_from_batch_to_batch_and_agent_to_agent() -> None:
    seen: list[tuple[float, ...]] = []

    class Drawing(Augmented):
        def __getitem__(self, k: int) -> Any:
            seen.append((random.random(), float(np.random.random()), float(torch.rand(()))))
            return self.pair[0][k], self.pair[1][k]

    data = [Drawing(pair) for pair in shards(2, 12)]
    done = run(mile.torch.Problem(small(), nn.MSELoss(), data, batch=4, eval_rows="off", version="1"), METHOD, rounds=3)
    # The losses at the start, of the average and of the agents' models, are those of one more mini-batch of each of the two agents.
    for column in zip(*seen, strict=True):
        assert len(set(column)) == 4 * (done.rows[-1]["gradient_evals"] + 2)


def test_losses_that_draw_random_numbers_of_numpy_and_python_are_repeatable() -> None:
    def closure(model: Any, batch: Any) -> Any:
        return nn.functional.mse_loss(model(batch[0]) * random.uniform(0.5, 1.5) + np.random.normal(), batch[1])

    found = [run(mile.torch.Problem(small(), None, shards(), closure=closure, batch=8), METHOD, out=str(k)).x() for k in range(2)]
    assert (found[0] == found[1]).all()


def test_the_random_numbers_of_a_gpu_are_lent_like_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = tuple(torch.Generator().manual_seed(k) for k in range(2))
    monkeypatch.setattr(torch.cuda, "default_generators", gpus)
    before = [one.get_state() for one in gpus]
    drawn = []
    for _ in range(2):
        with seeding(torch.device("cuda", 1)) as seed:
            seed(7)
            drawn.append((torch.rand(3, generator=gpus[1]).tolist(), torch.rand(3).tolist()))
            torch.rand(5, generator=gpus[1])
    assert drawn[0] == drawn[1]
    assert all((one.get_state() == state).all() for one, state in zip(gpus, before, strict=True))


def normed() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)).double()


@pytest.mark.parametrize("gradient", ["loop", "vmap"])
def test_frozen_batch_norms_keep_their_statistics(gradient: Any) -> None:
    model = normed()
    model[1].running_mean += 0.3
    model[1].eval()
    modes: set[tuple[bool, bool]] = set()
    model[1].register_forward_pre_hook(lambda norm, _: modes.add((norm.training, model.training)))
    found = mile.torch.Problem(model, nn.MSELoss(), shards(), batch=8, gradient=gradient)
    done = run(found, METHOD, rounds=4)
    assert modes == {(False, True)} and not model[1].training and model.training
    for state in done.state_dicts():
        assert (state["1.running_mean"] == 0.3).all() and state["1.num_batches_tracked"] == 0
    # The statistics of a batch norm that is not frozen change.
    other = run(mile.torch.Problem(normed(), nn.MSELoss(), shards(), batch=8), METHOD, rounds=4, out="other")
    assert all(state["1.num_batches_tracked"] == other.rows[-1]["gradient_evals"] / 4 for state in other.state_dicts())


def test_a_model_that_is_in_evaluation_mode_as_a_whole_is_trained() -> None:
    plain, evaluated = (run(mile.torch.Problem(model, nn.MSELoss(), shards(), batch=8), METHOD, rounds=4, out=out) for out, model in (("plain", normed()), ("evaluated", normed().eval())))
    assert (plain.x() == evaluated.x()).all() and evaluated.state_dicts()[0]["1.num_batches_tracked"] > 0
