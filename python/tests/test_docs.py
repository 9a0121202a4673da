"""The examples of the documentation, as printed, on small data."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mile

PAGES = Path(__file__).parents[2] / "docs" / "src"


def examples(page: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


def small(example: str) -> str:
    """The same example, for a few rounds on a CPU."""
    return re.sub(r"(rounds)=\d+", r"\1=3", example.replace('"cuda"', '"cpu"'))


def network_and_data() -> dict[str, Any]:
    data = [(torch.randn(40, 5), torch.randint(0, 3, (40,))) for _ in range(8)]
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
    return {"nn": torch.nn, "model": model, "data": data, "test": data[0], "criterion": torch.nn.CrossEntropyLoss(), "dataset_of": data.__getitem__}


def test_the_page_on_python() -> None:
    first, sensors, network, optimised, adapters, groups, language, in_jax, dgd, adam = examples("python.md")
    exec(first, {})
    rng = np.random.default_rng(0)
    names: dict[str, Any] = {"np": np, "A": rng.normal(size=(8, 40, 3)), "b": rng.normal(size=(8, 40))}
    exec(sensors, names)
    run = mile.run(problem=names["Sensors"](), algorithms=[mile.method("mile", step_size=0.05, local_steps=3)], rounds=20)
    assert run.rows[-1]["loss"] < run.rows[0]["loss"]
    exec(dgd, {"mile": mile, "problem": mile.Quadratic()})
    exec(small(network), {"mile": mile} | network_and_data())
    exec(small(optimised), {"mile": mile, "torch": torch, "loss": torch.nn.CrossEntropyLoss()} | network_and_data())
    adapted, grouped, texts = ({"mile": mile, "torch": torch} | network_and_data() for _ in range(3))
    exec(small(adapters), adapted)
    assert adapted["run"].x().shape == (8, 4 * (5 + 7)) and "0.layer.weight" in adapted["run"].state_dict()
    exec(small(groups), grouped)
    assert grouped["run"].x().shape == (8, 5 * 7 + 7 + 7 * 3 + 3)
    for name in ("agent-0", "agent-1", "agent-2", "agent-3", "held-out"):
        Path(f"{name}.txt").write_text(f"a sentence of {name}, and another one; " * 40)
    exec(small(language), texts)
    done = texts["run"]
    texts["Language"]().load_state_dict(done.state_dict(), strict=True)
    assert done.x().shape == (4, 256 * 32) and done.rows[-1]["perplexity"] == pytest.approx(np.exp(done.rows[-1]["test_loss"]), rel=0.05)
    assert done.rows[-1]["loss"] < done.rows[0]["loss"]
    shards = [(rng.normal(size=(40, 3)), rng.normal(size=40)) for _ in range(4)]
    exec(small(in_jax), {"mile": mile, "data": shards})
    own: dict[str, Any] = {"mile": mile}
    exec(adam, own)
    assert mile.run(problem=mile.Quadratic(), algorithms=[mile.method(own["LocalAdam"](), lr=0.01)], rounds=3).complete


def test_the_page_on_migration() -> None:
    _, decent_bench, _, bluefog, decentralizepy = examples("migration.md")
    rng = np.random.default_rng(0)
    exec(decent_bench, {"A": rng.normal(size=(10, 30, 4)), "b": np.sign(rng.normal(size=(10, 30)))})
    # Only checked: the data set would have to be downloaded.
    exec(decentralizepy.replace("mile.run(", "mile.check(").replace('"cifar10"', '"glyphs"').replace('"cifar-cnn"', '"linear"'), {})
    exec(small(bluefog), network_and_data())


class Language(torch.nn.Module):
    """A model with the calls of `transformers`."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9)

    def forward(self, input_ids: Any, labels: Any) -> Any:
        logits = self.head(self.embed(input_ids))
        return {"logits": logits, "loss": torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}


def test_the_page_on_lightning() -> None:
    _, lightning = examples("lightning.md")
    names = network_and_data()
    loaders = [torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*pair), batch_size=8) for pair in names["data"]]
    own = names | {"torch": torch, "loaders": loaders, "test_loader": loaders[0]}
    exec(small(lightning), own)
    assert own["run"].complete and "test_loss" in own["run"].rows[-1]


def test_the_page_on_trainer() -> None:
    _, trainer = examples("trainer.md")
    datasets = [[torch.randint(0, 9, (6,)) for _ in range(10)] for _ in range(4)]

    def collate(rows: Any) -> Any:
        stacked = torch.stack(rows)
        return {"input_ids": stacked[:, :-1], "labels": stacked[:, 1:]}

    own: dict[str, Any] = {"torch": torch, "model": Language(), "datasets": datasets, "held_out": datasets[0], "collate": collate}
    exec(small(trainer), own)
    assert own["run"].complete and "test_loss" in own["run"].rows[-1]
    (metrics,) = re.findall(r"`metrics=(\{.*\})`\.$", (PAGES / "trainer.md").read_text(), re.MULTILINE)
    exec(small(trainer).replace("clip=1.0", f"metrics={metrics}, clip=1.0").replace('resume="auto"', 'out="measured"'), own)
    last = own["run"].rows[-1]
    # Losses are weighted by the samples of a batch, of which there are eight and two.
    assert last["perplexity"] == pytest.approx(np.exp(last["test_loss"]), rel=0.05)


def test_the_page_on_the_contract() -> None:
    (own,) = examples("contract.md")
    names: dict[str, Any] = {}
    exec(own, names)
    assert names["report"].holds
    shown = re.search(r"```text\n(.*?)```", (PAGES / "contract.md").read_text(), re.DOTALL)
    assert shown and [re.split(r"\s{2,}", line)[0] for line in shown[1].splitlines()[2:]] == [one.law for one in names["report"]]


def test_the_page_on_own_models_shows_the_example() -> None:
    page, example = (PAGES / "own-model.md").read_text(), PAGES.parents[1] / "python" / "examples" / "hospitals"
    assert (shown := re.search(r"```toml\n(.*?)```", page, re.DOTALL)) and shown[1] == (example / "experiment.toml").read_text()
    assert examples("own-model.md")[0] == (example / "train.py").read_text()
