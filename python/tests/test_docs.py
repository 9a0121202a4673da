"""The examples of the documentation, as printed, on small data."""

import re
from pathlib import Path
from typing import Any

import numpy as np
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
    first, sensors, network, dgd = examples("python.md")
    exec(first, {})
    rng = np.random.default_rng(0)
    names: dict[str, Any] = {"np": np, "A": rng.normal(size=(8, 40, 3)), "b": rng.normal(size=(8, 40))}
    exec(sensors, names)
    run = mile.run(problem=names["Sensors"](), algorithms=[mile.method("mile", step_size=0.05, local_steps=3)], rounds=20)
    assert run.rows[-1]["loss"] < run.rows[0]["loss"]
    exec(dgd, {"mile": mile, "problem": mile.Quadratic()})
    exec(small(network), {"mile": mile} | network_and_data())


def test_the_page_on_migration() -> None:
    _, decent_bench, _, bluefog, decentralizepy = examples("migration.md")
    rng = np.random.default_rng(0)
    exec(decent_bench, {"A": rng.normal(size=(10, 30, 4)), "b": np.sign(rng.normal(size=(10, 30)))})
    # Only checked: the data set would have to be downloaded.
    exec(decentralizepy.replace("mile.run(", "mile.check(").replace('"cifar10"', '"glyphs"').replace('"cifar-cnn"', '"linear"'), {})
    exec(small(bluefog), network_and_data())
