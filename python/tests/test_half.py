"""Models whose parameters are bfloat16: x, gradients and corrections are float32."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mile
import mile.torch
from test_training import OPTIMIZERS, run, shards, small

METHODS = {"mile": mile.method("mile", lr=0.05, local_steps=3, xi="paper"), "k-gt": mile.method("k-gt", lr=0.05, local_steps=3)}


def data(dtype: torch.dtype = torch.bfloat16) -> list[Any]:
    """The same numbers in another precision."""
    return [(a.to(dtype), b.to(dtype)) for a, b in shards()]


def problem(dtype: torch.dtype = torch.bfloat16, **more: Any) -> mile.torch.Problem:
    return mile.torch.Problem(small(dtype), nn.MSELoss(), data(dtype), **{"batch": 8, **more})


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("gradient", ["loop", "vmap"])
def test_half_models_are_trained_as_single_ones_are(name: str, gradient: Any) -> None:
    half, single = (run(problem(dtype, gradient=gradient), METHODS[name], rounds=30, out=str(dtype)) for dtype in (torch.bfloat16, torch.float32))
    assert half.x().dtype == np.float32 and half.rows[-1]["bytes_sent"] == single.rows[-1]["bytes_sent"]
    moved = np.linalg.norm(single.x() - problem(torch.float32).initial(0))
    assert np.linalg.norm(half.x() - single.x()) < 0.05 * moved
    assert half.rows[-1]["loss"] == pytest.approx(single.rows[-1]["loss"], rel=0.02)


def test_the_recorded_loss_is_that_of_the_half_model() -> None:
    done = run(problem(batch="full"), METHODS["mile"], rounds=5)
    model = small(torch.bfloat16)
    model.load_state_dict(done.state_dict(), strict=True)
    losses = [float(nn.functional.mse_loss(model(a), b)) for a, b in data()]
    assert done.rows[-1]["loss"] == pytest.approx(np.mean(losses), rel=1e-6)


def test_steps_too_small_for_half_precision_add_up() -> None:
    """A thousand steps, each of which rounding to bfloat16 would undo."""

    class Slope(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))

        def forward(self, a: Any) -> Any:
            return self.w * a

    ones = [(torch.ones(1, 3, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.bfloat16)) for _ in range(3)]
    for out, optimizer in (("plain", None), ("sgd", lambda parameters: torch.optim.SGD(parameters, lr=1e-4))):
        found = mile.torch.Problem(Slope(), lambda output, target: output.sum(), ones, batch="full", optimizer=optimizer)
        done = run(found, mile.method("local-dsgd", lr=1.0 if optimizer else 1e-4, local_steps=100), rounds=10, out=out)
        steps = done.rows[-1]["gradient_evals"] / 3
        assert np.abs(done.x() - (1 - 1e-4 * steps)).max() < 1e-4 and steps >= 900


def test_optimizers_of_half_models_step_in_single_precision_and_are_resumed() -> None:
    def made(dtype: torch.dtype = torch.bfloat16) -> mile.torch.Problem:
        return problem(dtype, optimizer=OPTIMIZERS["adamw"], clip=1.0, accumulate=2)

    method = mile.method("mile", local_steps=3, xi=0.1, gamma=1.0)
    whole, single = run(made(), method, rounds=20, out="whole"), run(made(torch.float32), method, rounds=20, out="single")
    assert whole.rows[-1]["loss"] == pytest.approx(single.rows[-1]["loss"], rel=0.05)
    run(made(), method, rounds=7, out="half")
    assert (run(made(), method, rounds=20, out="half", resume=True).x() == whole.x()).all()


def test_numbers_of_a_data_set_get_the_precision_of_the_model() -> None:
    arrays = [(a.float().numpy(), b.float().numpy()) for a, b in shards()]
    given, converted = (mile.torch.Problem(small(torch.bfloat16), nn.MSELoss(), given, batch="full") for given in (arrays, data(torch.float32)))
    start = given.initial(0)
    assert start.dtype == np.float32
    assert [given.loss(agent, start) for agent in range(4)] == pytest.approx([problem(batch="full").loss(agent, start) for agent in range(4)], rel=0.02)
    with pytest.raises(RuntimeError):
        converted.loss(0, start)
