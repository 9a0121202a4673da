"""What new users try that cannot work: each is refused before the first step, by name, with what to write instead."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mile
import mile.torch
from test_training import Stream, shards, small

SGD = torch.optim.SGD


def problem(loss: Any = None, data: Any = None, model: Any = None, **more: Any) -> Any:
    return mile.torch.Problem(small() if model is None else model, nn.MSELoss() if loss is None else loss, shards() if data is None else data, **more)


def run(given: Any, method: Any = None, **more: Any) -> mile.Run:
    return mile.run(problem=given, algorithms=[method or mile.method("mile", lr=0.01)], **{"rounds": 1, "out": "misused", "progress": False, **more})


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (lambda: problem(loss=nn.MSELoss(reduction="sum")), "loss: .*got reduction='sum'"),
        (lambda: problem(loss="mse"), "loss: .*got mse"),
        (lambda: run(problem(loss=lambda output, target: (output - target) ** 2)), r"loss: .*got shape \[\d+, 1\]"),
        (lambda: run(problem(loss=lambda output, target: 1.0)), "loss: .*got float"),
        (lambda: problem(model=lambda a: a), "model: .*got function"),
        (lambda: problem(model=nn.Linear(4, 1).half()), "got torch.float16"),
        (lambda: problem(data=TensorDataset(*shards()[0])), "data: .*got one TensorDataset"),
        (lambda: problem(data=[DataLoader(TensorDataset(*pair), batch_size=64, drop_last=True) for pair in shards()]), "data, agent 0: "),
        (lambda: problem(optimizer=SGD(small().parameters(), lr=0.1)), "optimizer: .*got SGD"),
        (lambda: problem(data=[Stream(pair) for pair in shards()], batch="full"), "batch: .*got full"),
        (lambda: problem(optimizer=SGD, gradient="vmap"), 'gradient: .*got "vmap"'),
        (lambda: problem(local="2", gradient_norm=True), "gradient_norm: .*got True"),
        (lambda: run(problem(local="2"), mile.method("mile", lr=0.1, compression="8-bit")), r"algorithms\[0\].compression: .*got '8-bit'"),
        (lambda: problem(optimizer="adamw"), "optimizer: .*got adamw"),
        (lambda: problem(optimizer=torch.optim.LBFGS), "optimizer: .*got LBFGS"),
        (lambda: problem(optimizer=SGD, scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau), "scheduler: .*got ReduceLROnPlateau"),
        (lambda: run(problem(), mile.method("adam", lr=0.1)), "optimizer='adamw'"),  # type: ignore[arg-type]
        (lambda: mile.run(problem=problem(), algorithms="mile", out="misused"), r"algorithms\[0\]: .*got 'mile'"),  # type: ignore[arg-type]
        (lambda: mile.run(problem=problem(), algorithms=3, out="misused"), r"algorithms\[0\]: .*got 3"),  # type: ignore[arg-type]
        (lambda: run(problem(optimizer=SGD), mile.method("mile", local_steps=0)), r"algorithm\[0\].local_steps: "),
        (lambda: run(problem(optimizer=SGD), mile.method("mile", local_steps="5")), r"algorithm\[0\].local_steps: "),  # type: ignore[arg-type]
        (lambda: run(problem(), epochs=3), "epochs: .*rounds"),
        (lambda: run(problem(), lr=0.1), "lr: "),
        (lambda: run(problem(), mile.method(mile.Method, lr=0.1)), r"algorithms\[0\]: .*Method"),  # type: ignore[arg-type]
        (lambda: run(problem(), mile.method("mile", lr=0.1, clip=-1.0)), r"algorithm\[0\].clip: "),
        (lambda: run(problem(), agents=3), "agents: "),
    ],
)
def test_what_cannot_work_is_refused_by_name(made: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        made()
    assert not Path("misused/metrics.jsonl").exists()
