"""Exported models are whole, and what belongs to a state is never that of another."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mile
import mile.torch
from mile._files import read_safetensors
from test_training import OPTIMIZERS, shards

METHOD = [mile.method("mile", lr=0.05, local_steps=3, xi="paper")]


class Whole(nn.Module):
    """A frozen layer, statistics, a buffer with two names, and trained parameters."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.frozen = nn.Linear(4, 6).requires_grad_(False)
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("count", torch.zeros(()))
        self.inner = nn.Module()
        self.inner.register_buffer("same", self.count)
        self.head = nn.Linear(6, 1)

    def forward(self, a: Any) -> Any:
        if self.training:
            self.count += 1.0
        return self.head(torch.tanh(self.norm(self.frozen(a)))) + 1e-3 * self.inner.same


def problem(**more: Any) -> mile.torch.Problem:
    return mile.torch.Problem(Whole(), nn.MSELoss(), shards(dtype=torch.float32), **{"batch": 8, "test": shards(1, 40, torch.float32)[0], **more})


def run(out: str = "run", rounds: int = 6, given: Any = None, **more: Any) -> mile.Run:
    return mile.run(problem=problem() if given is None else given, algorithms=METHOD, rounds=rounds, out=out, progress=False, **more)


def test_exports_and_state_dicts_are_loaded_strictly_and_measure_what_is_recorded() -> None:
    done = run()
    inputs, targets = shards(1, 40, torch.float32)[0]

    def measured(state: Any) -> float:
        model = Whole()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
            model.load_state_dict(state, strict=True)
            return float(nn.functional.mse_loss(model.eval()(inputs), targets))

    def exported(whose: str) -> Any:
        return {key: torch.from_numpy(value.copy()) for key, value in read_safetensors(Path(f"run/final/mile-seed0.{whose}.safetensors")).items()}

    last, agents = done.rows[-1], [exported(f"agent-{k}") for k in range(4)]
    for average, own in ((exported("average"), agents), (done.state_dict(), done.state_dicts())):
        assert measured(average) == pytest.approx(last["test_loss"], rel=1e-6)
        assert np.mean([measured(one) for one in own]) == pytest.approx(last["local_test_loss"], rel=1e-6)
        assert set(average) == set(Whole().state_dict()) and (average["frozen.weight"] == Whole().frozen.weight).all()
        assert average["count"] == average["inner.same"] == 1 + 5 * 3 + 1
    assert len({tuple(one["norm.running_mean"].tolist()) for one in agents}) == 4, "each agent has its own statistics"


def test_a_run_that_is_killed_while_a_state_is_replaced_goes_on_with_what_belongs_to_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(Exception):
        pass

    def made() -> mile.torch.Problem:
        return problem(optimizer=OPTIMIZERS["adamw"])

    whole = run("whole", rounds=9, given=made())
    for moment in ("saving", "saved"):
        run(moment, rounds=4, given=made())
        original = getattr(mile.torch.Host, moment)

        def dying(host: Any, state: Path, round: int) -> None:
            if moment == "saving":
                original(host, state, round)
            raise Killed

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(mile.torch.Host, moment, dying)
            run(moment, rounds=7, given=made(), resume=True)
        assert len(list(Path(moment, "final").glob("*.agents.pt"))) == 2, "of the earlier state, and of the one that replaces it"
        goes_on = run(moment, rounds=9, given=made(), resume=True)
        assert (goes_on.x() == whole.x()).all()
        for ours, theirs in zip(goes_on.state_dicts(), whole.state_dicts(), strict=True):
            assert all((ours[key] == theirs[key]).all() for key in theirs)
        assert len(list(Path(moment).rglob("*.agents.pt*"))) == 1


def test_a_state_without_what_belongs_to_it_is_refused() -> None:
    run(rounds=2)
    next(Path("run/final").glob("*.agents.pt")).unlink()
    with pytest.raises(mile.ExperimentError, match=r"round-2.agents.pt: expected the buffers .*delete mile-seed0.safetensors"):
        run(rounds=4, resume=True)
