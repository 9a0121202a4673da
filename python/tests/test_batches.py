"""Batches of all kinds and sizes, and the random numbers of models, in a loop and mapped over agents."""

from collections import OrderedDict, UserDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mile
import mile.torch
from test_torch import MILE, Tied, half_mse, next_byte, regression, sequences, zero_linear


class Attentive(nn.Module):
    """A model with attention, whose dropout is inside a kernel."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 8), nn.Linear(8, 7)
        self.attention = nn.MultiheadAttention(8, 2, dropout=dropout, batch_first=True)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        return self.head(x + self.attention(x, x, x, need_weights=False)[0])


@pytest.mark.parametrize("gradient", ["loop", "vmap"])
@pytest.mark.parametrize("model", [Attentive, Tied])
def test_dropout_everywhere_is_a_function_of_the_seed(model: Any, gradient: Any) -> None:
    def run(dropout: float, out: str, rounds: int = 5, **more: Any) -> mile.Run:
        torch.manual_seed(0)
        found = mile.torch.Problem(model(dropout), next_byte, sequences(), batch=4, gradient=gradient)
        torch.manual_seed(len(out))
        return mile.run(problem=found, algorithms=MILE, rounds=rounds, out=out, **more)

    first, again, plain, other = run(0.5, "first"), run(0.5, "again"), run(0.0, "plain"), run(0.5, "other", seeds=[1])
    assert (first.x() == again.x()).all() and (first.x() != plain.x()).any() and (first.x() != other.x()).any()
    run(0.5, "part", rounds=2)
    assert (run(0.5, "part", resume=True).x() == first.x()).all()


class Masked(nn.Module):
    """The gradient of its mean output is the mean of what dropout keeps of ones."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(64))

    def forward(self, a: Any) -> Any:
        return nn.functional.dropout(a * self.w, 0.5, self.training)


def masks(gradient: Any, first: int, last: int) -> np.ndarray:
    """What agents from `first` to before `last` keep, if a process hosts these."""
    data = [(torch.ones(1, 64), torch.zeros(1)) for _ in range(4)]
    given = mile.torch.Problem(Masked(), lambda output, target: output.sum(), data, batch="full", gradient=gradient)
    host = given.host(4, (first, last), [], 2, np.zeros((last - first) * 64, np.float32), 0, None)
    host.gradient(0, 1, 0, 1.0)
    return host.vector(1).reshape(last - first, 64)


def test_agents_of_all_processes_draw_other_numbers() -> None:
    for gradient in ("loop", "vmap"):
        rows = np.concatenate([masks(gradient, 0, 2), masks(gradient, 2, 4)])
        assert len(np.unique(rows, axis=0)) == 4 and len(np.unique(masks(gradient, 0, 4), axis=0)) == 4
    assert (np.concatenate([masks("loop", 0, 2), masks("loop", 2, 4)]) == masks("loop", 0, 4)).all()


def test_batches_of_different_sizes_are_mapped_one_by_one() -> None:
    def run(gradient: Any, last: int) -> mile.Run:
        pairs = [(a, b) if agent else (a[:last], b[:last]) for agent, (a, b) in enumerate(regression()[0])]
        loaders = [DataLoader(TensorDataset(*pair), batch_size=5, shuffle=True) for pair in pairs]
        return mile.run(problem=mile.torch.Problem(zero_linear(), half_mse, loaders, gradient=gradient), algorithms=MILE, rounds=6, out=f"{gradient}{last}")

    # Batches of 5, 5 and 2 at the same time, or of 5 and 4 of the first agent; and full batches of agents with more or less data.
    for last in (12, 9):
        loop, mapped = run("loop", last), run("vmap", last)
        assert np.abs(loop.x() - mapped.x()).max() < 1e-12
        assert loop.rows[-1]["batch_loss"] == pytest.approx(mapped.rows[-1]["batch_loss"])
    few = [(a[: 3 + agent], b[: 3 + agent]) for agent, (a, b) in enumerate(regression()[0])]
    for batch in ("full", 5):
        found = [mile.run(problem=mile.torch.Problem(zero_linear(), half_mse, few, batch=batch, gradient=gradient), algorithms=MILE, rounds=4, out=f"few-{batch}-{gradient}") for gradient in ("loop", "vmap")]
        assert np.abs(found[0].x() - found[1].x()).max() < 1e-12
    with pytest.raises(TypeError, match="gradient: .*got str"):
        words = [[{"a": a, "word": "w"} for a in pair[0]] for pair in regression()[0]]
        given = mile.torch.Problem(zero_linear(), closure=lambda model, batch: model(batch["a"]).mean(), data=words, batch=4, gradient="vmap")
        mile.run(problem=given, algorithms=MILE, rounds=1, out="words")


class Encoding(UserDict):  # type: ignore[type-arg]
    """A batch as tokenizers make them: a mapping whose entries are attributes, and which moves itself."""

    moved: Any = None

    def __getattr__(self, name: str) -> Any:
        if name == "data" or name not in self.data:
            raise AttributeError(name)
        return self.data[name]

    def to(self, device: Any) -> "Encoding":
        self.moved = device
        return self


class Sample:
    """A batch that is not a mapping."""

    def __init__(self, pair: Any) -> None:
        self.inputs, self.targets = pair

    def to(self, device: Any) -> "Sample":
        return Sample((self.inputs.to(device), self.targets.to(device)))


def test_batches_stay_what_they_are_and_are_moved() -> None:
    kinds: set[type] = set()

    def closure(model: Any, batch: Any) -> Any:
        kinds.add(type(batch))
        assert not isinstance(batch, Encoding) or batch.moved == torch.device("cpu")
        return next_byte(model(batch.inputs), batch.targets)

    def loaders(collate: Any) -> list[Any]:
        return [DataLoader(list(zip(*pair, strict=True)), batch_size=4, collate_fn=lambda rows: collate([torch.stack(part) for part in zip(*rows, strict=True)])) for pair in sequences()]

    forms = {"encoding": lambda pair: Encoding(inputs=pair[0], targets=pair[1]), "sample": Sample}
    found = []
    for name, form in forms.items():
        torch.manual_seed(0)
        given = mile.torch.Problem(Tied(), closure=closure, data=loaders(form))
        found.append(mile.run(problem=given, algorithms=MILE, rounds=3, out=name).x())
    assert kinds == {Encoding, Sample} and (found[0] == found[1]).all()
    ordered = mile.torch._data.to_device(OrderedDict(a=torch.zeros(2), b=[1, "c"]), torch.device("cpu"))
    assert isinstance(ordered, OrderedDict) and ordered["b"] == (1, "c")


def test_a_list_of_arrays_is_neither_columns_nor_samples() -> None:
    for make in (lambda a: a, lambda a: a.numpy()):
        with pytest.raises(TypeError, match="data, agent 0: .*got a list of 12 arrays"):
            mile.torch.Problem(zero_linear(), closure=lambda model, batch: model(batch).mean(), data=[[make(row) for row in a] for a, _ in regression()[0]])
