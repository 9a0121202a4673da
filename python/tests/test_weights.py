"""Agents that count more than others, and agents with their own batches."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import mile
import mile.torch
from problems import Quadratics
from test_training import Stream, small
from test_training import run as train

ROWS = (24, 12, 6, 18)
WEIGHTS = [4.0, 1.0, 2.5, 0.5]


def shards() -> list[Any]:
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(rows, 4, generator=generator, dtype=torch.float64), torch.randn(rows, 1, generator=generator, dtype=torch.float64)) for rows in ROWS]


def problem(**more: Any) -> mile.torch.Problem:
    return mile.torch.Problem(small(), nn.MSELoss(), shards(), **{"batch": "full", **more})


def test_weighted_objectives_reach_the_minimiser_of_the_weighted_mean() -> None:
    q = Quadratics(agents=4)
    arguments: dict[str, Any] = {"network": "complete", "algorithms": [mile.method("mile", lr=0.1, local_steps=3)], "rounds": 800}
    found = mile.run(problem=mile.Objective(q.loss, q.grad, agents=4, dim=4, weights=WEIGHTS), **arguments)
    w = np.array(WEIGHTS)
    expected = np.linalg.solve(np.einsum("a,aij->ij", w, q.A), np.einsum("a,aij,aj->i", w, q.A, q.c))
    assert np.abs(found.average() - expected).max() < 1e-8
    losses = [q.loss(agent, found.average()) for agent in range(4)]
    assert found.rows[-1]["loss"] == pytest.approx(np.average(losses, weights=w))
    for wrong in ([1.0, 2.0], [1.0, -1.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match="agent_weights: "):
            mile.run(problem=mile.Objective(q.loss, q.grad, agents=4, dim=4, weights=wrong), **arguments, out="wrong")


def by_hand(weights: Any, rounds: int = 10, lr: float = 0.05) -> np.ndarray:
    """Gradient descent on the weighted mean, which DSGD with one step and the complete graph is."""
    model, factors = small(), np.asarray(weights) / np.sum(weights)
    for _ in range(rounds):
        loss = sum(f * nn.functional.mse_loss(model(a), b) for f, (a, b) in zip(factors, shards(), strict=True))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= lr * gradient
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).numpy()


@pytest.mark.parametrize(("weights", "of"), [(WEIGHTS, WEIGHTS), ("rows", ROWS)])
def test_models_are_trained_on_the_weighted_mean(weights: Any, of: Any) -> None:
    w = "complete"
    found = mile.torch.Problem(small(), nn.MSELoss(), shards(), batch="full", weights=weights, gradient="loop", gradient_norm=True)
    done = train(found, mile.method("dsgd", lr=0.05), network=w, rounds=10, out="weighted")
    assert np.abs(done.average() - by_hand(of)).max() < 1e-12
    model = small()
    nn.utils.vector_to_parameters(torch.from_numpy(done.average()), model.parameters())
    losses = [nn.functional.mse_loss(model(a), b).item() for a, b in shards()]
    assert done.rows[-1]["loss"] == pytest.approx(np.average(losses, weights=of))
    sgd = train(problem(weights=weights, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05)), mile.method("dsgd"), network=w, rounds=10, out="sgd")
    assert np.abs(sgd.average() - done.average()).max() < 1e-12


def test_weights_are_the_same_in_a_loop_and_mapped() -> None:
    loop, mapped = (train(problem(batch=3, weights=WEIGHTS, gradient=kind), mile.method("mile", lr=0.05, local_steps=2), out=kind) for kind in ("loop", "vmap"))
    assert np.abs(loop.x() - mapped.x()).max() < 1e-12
    assert [row["batch_loss"] for row in loop.rows[1:]] == pytest.approx([row["batch_loss"] for row in mapped.rows[1:]])
    plain = train(problem(batch=3), mile.method("mile", lr=0.05, local_steps=2), out="plain")
    assert np.abs(loop.x() - plain.x()).max() > 1e-3


def test_agents_may_have_their_own_batches() -> None:
    seen: dict[int, set[int]] = {}

    def closure(model: Any, batch: Any) -> Any:
        if model.training:
            seen.setdefault(int(batch[2][0]), set()).add(len(batch[0]))
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    numbered = [(a, b, torch.full((len(a),), agent)) for agent, (a, b) in enumerate(shards())]
    found = mile.torch.Problem(small(), None, numbered, closure=closure, batch=[8, "full", 2, 3])
    train(found, mile.method("local-dsgd", lr=0.01, local_steps=2), rounds=3)
    assert seen == {0: {8}, 1: {12}, 2: {2}, 3: {3}}
    train(problem(batch=np.array([8, 4, 2, 3])), mile.method("mile", lr=0.01), out="kept", rounds=2)
    with pytest.raises(mile.ExperimentError, match=r"problem\.batch"):
        train(problem(batch=[8, 4, 2, 4]), mile.method("mile", lr=0.01), out="kept", rounds=4, resume=True)
    with pytest.raises(ValueError, match="gradient: "):
        problem(batch=[8, 4, 2, 3], gradient="vmap")
    for wrong in ([1, 2], 0, [8, 4, 2, True], "all"):
        with pytest.raises(ValueError, match="batch: "):
            problem(batch=wrong)


def test_weights_are_part_of_a_run_and_streams_have_no_rows() -> None:
    train(problem(weights=WEIGHTS), mile.method("mile", lr=0.01), out="kept", rounds=2)
    with pytest.raises(mile.ExperimentError, match=r"problem\.weights"):
        train(problem(weights="rows"), mile.method("mile", lr=0.01), out="kept", rounds=4, resume=True)
    for wrong in ([1, 2], [1, 2, 3, float("nan")], "row"):
        with pytest.raises(mile.ExperimentError, match="weights: "):
            problem(weights=wrong)
    streams = [DataLoader(Stream(pair), batch_size=5) for pair in shards()]
    with pytest.raises(mile.ExperimentError, match="weights: "):
        mile.torch.Problem(small(), nn.MSELoss(), streams, weights="rows")
