"""Losses in JAX: pytrees against the same problem in Rust, random keys, resuming, and what is refused."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import mile  # noqa: E402
import mile.jax  # noqa: E402

MILE = [mile.method("mile", lr=0.05, local_steps=3, xi=0.2)]


def shards(agents: int = 4, rows: int = 12) -> list[Any]:
    rng = np.random.default_rng(1)
    return [(rng.normal(size=(rows, 3)), rng.normal(size=rows)) for _ in range(agents)]


def least_squares(parameters: Any, batch: Any) -> Any:
    features, targets = batch
    return 0.5 * jnp.mean((features @ parameters["w"] - targets) ** 2)


def linear(**more: Any) -> mile.jax.Problem:
    return mile.jax.Problem(least_squares, {"w": jnp.zeros(3)}, **{"data": shards(), "batch": "full", **more})


def run(problem: Any, **more: Any) -> mile.Run:
    return mile.run(problem=problem, **{"algorithms": MILE, "rounds": 12, "progress": False, **more})


def test_a_loss_in_jax_is_the_problem_in_rust() -> None:
    ours = run(linear(gradient_norm=True), out="jax")
    table = run(mile.Table(shards()), out="table", precision="f32")
    assert ours.x().dtype == np.float32 and np.abs(ours.x() - table.x()).max() < 1e-5
    assert ours.rows[-1]["loss"] == pytest.approx(table.rows[-1]["loss"], rel=1e-4)
    assert ours.rows[-1]["grad_norm_sq"] == pytest.approx(table.rows[-1]["grad_norm_sq"], rel=1e-2)


def network(parameters: Any, inputs: Any, key: Any) -> Any:
    hidden = jnp.tanh(inputs @ parameters["first"]["w"] + parameters["first"]["b"])
    if key is not None:
        hidden = hidden * jax.random.bernoulli(key, 0.8, hidden.shape) / 0.8
    return hidden @ parameters["last"]


def with_dropout(parameters: Any, batch: Any, key: Any) -> Any:
    return jnp.mean((network(parameters, batch["inputs"], key) - batch["targets"]) ** 2)


def start(kind: Any = jnp.float32) -> Any:
    rng = np.random.default_rng(2)
    leaf = lambda *shape: jnp.asarray(rng.normal(size=shape), kind)  # noqa: E731
    return {"first": {"w": leaf(3, 5), "b": leaf(5)}, "last": leaf(5)}


def dictionaries() -> list[Any]:
    return [{"inputs": a, "targets": b} for a, b in shards()]


def dropping(**more: Any) -> mile.jax.Problem:
    return mile.jax.Problem(with_dropout, start(), dictionaries(), **{"batch": 4, **more})


def test_a_resumed_run_has_the_bits_of_a_whole_one_with_random_keys() -> None:
    whole = run(dropping(), out="whole")
    run(dropping(), rounds=5, out="part")
    assert (run(dropping(), out="part", resume=True).x() == whole.x()).all()
    assert (run(dropping(), out="seed", seeds=[1]).x() != whole.x()).any()
    with pytest.raises(mile.ExperimentError, match=r"problem\.loss"):
        run(mile.jax.Problem(lambda p, batch: with_dropout(p, batch, None), start(), dictionaries(), batch=4), out="part", resume=True, rounds=20)
    with pytest.raises(mile.ExperimentError, match=r"problem\.data"):
        run(mile.jax.Problem(with_dropout, start(), dictionaries()[::-1], batch=4), out="part", resume=True, rounds=20)


def test_a_loss_needs_nothing_but_a_problem() -> None:
    found = run(dropping(), algorithms=None, rounds=30)
    (section,) = found.config["algorithm"]
    assert (section["name"], section["step_size"]) == ("mile", 1e-3) and found.rows[-1]["loss"] < found.rows[0]["loss"]


def beside(teacher: Any) -> Any:
    return lambda parameters, batch: with_dropout(parameters, batch, None) + 0.0 * jnp.sum(teacher)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"loss": beside(jnp.ones(2) + 1e-3)}, "loss"),
        ({"test": dictionaries()[1]}, "test"),
        ({"metrics": {"size": lambda parameters, test: 1.0}}, "metrics"),
    ],
)
def test_a_run_is_resumed_only_with_the_same_arrays_and_measures(change: Any, key: str) -> None:
    def made(**more: Any) -> Any:
        given = {"loss": beside(jnp.ones(2)), "parameters": start(), "data": dictionaries(), "test": dictionaries()[0], "metrics": {"size": lambda parameters, test: 0.0}, "batch": 4, **more}
        return mile.jax.Problem(**given)

    run(made(), rounds=2, out="resumed")
    with pytest.raises(mile.ExperimentError, match=rf"problem\.{key}\b"):
        run(made(**change), rounds=4, out="resumed", resume=True)
    assert run(made(), rounds=4, out="resumed", resume=True).complete


def test_gradients_at_the_start_are_a_fact() -> None:
    losses = (least_squares, lambda parameters, batch: jax.lax.stop_gradient(least_squares(parameters, batch)))
    whole, stopped = (mile.jax.Problem(loss, {"w": jnp.ones(3)}, shards()).facts()["start"].split(",") for loss in losses)
    assert whole[0] == stopped[0] and stopped[1] == " gradients of norm 0" != whole[1]


def test_parameters_come_back_in_their_shapes_and_are_exported_by_name() -> None:
    problem = dropping(test=dictionaries()[0], metrics={"size": lambda p, test: np.abs(np.asarray(p["last"])).sum() + 0 * len(test["targets"])})
    found = run(problem)
    tree = problem.unravel(found.average())
    assert jax.tree_util.tree_structure(tree) == jax.tree_util.tree_structure(start())
    assert found.rows[-1]["test_loss"] == pytest.approx(float(with_dropout(tree, dictionaries()[0], None)), rel=1e-5)
    assert found.rows[-1]["size"] == pytest.approx(float(jnp.abs(tree["last"]).sum()), rel=1e-5)
    exported = mile._files.read_safetensors(next((found.folder / "final").glob("*.average.safetensors")))
    assert {key: value.shape for key, value in exported.items()} == {"first.b": (5,), "first.w": (3, 5), "last": (5,)}
    with pytest.raises(ValueError, match=r"x: expected shape \(25,\)"):
        problem.unravel(np.zeros(3))


def test_parameters_of_half_precision_have_gradients_and_corrections_of_single() -> None:
    seen: list[Any] = []

    def loss(parameters: Any, batch: Any) -> Any:
        seen.append(parameters["last"].dtype)
        return with_dropout(parameters, batch, None)

    problem = mile.jax.Problem(loss, start(jnp.bfloat16), dictionaries(), batch="full")
    found = run(problem, rounds=40)
    assert set(seen) == {jnp.dtype("bfloat16")} and found.x().dtype == found.state()["c"].dtype == np.float32
    assert problem.unravel(found.average())["last"].dtype == jnp.bfloat16
    wide = run(mile.jax.Problem(lambda p, b: with_dropout(p, b, None), jax.tree_util.tree_map(lambda a: a.astype(jnp.float32), start(jnp.bfloat16)), dictionaries(), batch="full"), rounds=40, out="wide")
    # Steps too small for half precision still add up.
    assert found.rows[-1]["loss"] == pytest.approx(wide.rows[-1]["loss"], rel=0.02) and found.rows[-1]["loss"] < 0.8 * found.rows[0]["loss"]


def test_arrays_of_other_libraries_come_through_dlpack() -> None:
    tensors = [(torch.from_numpy(a).float(), torch.from_numpy(b).float()) for a, b in shards()]
    assert (run(linear(data=tensors), out="torch").x() == run(linear(), out="numpy").x()).all()
    by_function = linear(data=lambda agent: shards()[agent], agents=4)
    assert (run(by_function, out="function").x() == run(linear(), out="again").x()).all()


def test_evaluations_are_short_and_can_be_of_everything() -> None:
    rng = np.random.default_rng(3)
    many = [(rng.normal(size=(4000, 3)).astype(np.float32), rng.normal(size=4000).astype(np.float32)) for _ in range(4)]

    def loss(parameters: Any, batch: Any) -> Any:
        return jnp.mean((jnp.tanh(batch[0] @ parameters["w"]) @ parameters["v"] - batch[1]) ** 2)

    def made(**more: Any) -> mile.jax.Problem:
        # Large enough that evaluations count.
        wide = {"w": jnp.asarray(rng.normal(size=(3, 4000))), "v": jnp.zeros(4000)}
        return mile.jax.Problem(loss, wide, many, batch=4, test=(many[0][0][:1500], many[0][1][:1500]), metrics={"rows": lambda _, test: len(test[0])}, name="wide", version="1", **more)

    arguments: dict[str, Any] = {"algorithms": [mile.method("local-dsgd", lr=1e-5, local_steps=20)], "rounds": 10, "eval_every": 4}
    rng = np.random.default_rng(4)
    short = run(made(), **arguments, out="short")
    rng = np.random.default_rng(4)
    whole = run(made(eval_rows="all"), **arguments, out="all")
    assert (short.x() == whole.x()).all() and short.rows[-1]["loss"] != whole.rows[-1]["loss"]
    assert short.rows[-1]["loss"] == pytest.approx(whole.rows[-1]["loss"], rel=0.3)
    assert 1000 <= short.rows[-1]["rows"] < whole.rows[-1]["rows"] == 1500


def test_all_rows_of_agents_with_unequal_data_are_measured() -> None:
    unequal = [shards(1, rows)[0] for rows in (5, 90, 30)]
    found = run(linear(data=unequal, eval_rows="all"), algorithms=[mile.method("dsgd", lr=0.05)])
    losses = [0.5 * np.mean((a @ found.average() - b) ** 2) for a, b in unequal]
    assert found.rows[-1]["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert linear(data=unequal, batch=10).row_counts == (42, 9, 125, 0)


def test_an_agent_reads_its_own_data_only() -> None:
    asked: list[int] = []

    def data(agent: int) -> Any:
        asked.append(agent)
        return shards()[agent]

    own, of_all = linear(data=data, agents=4, agent=2, batch=5), linear(batch=5)
    x = np.ones(3, np.float32)
    assert own.loss(2, x) == of_all.loss(2, x) and (own.full_grad(2, x) == of_all.full_grad(2, x)).all()
    assert own.data_of(2) == of_all.data_of(2) != of_all.data_of(1) and own.facts().keys() == of_all.facts().keys()
    assert asked == [2] and own.row_counts == of_all.row_counts


@pytest.mark.parametrize("weights", ["agents", [1.0, 2.0, 3.0, 4.0]])
def test_losses_of_mini_batches_are_recorded(weights: Any) -> None:
    method = [mile.method("local-dsgd", lr=0.05, local_steps=1)]

    def of_weights(x: Any) -> float:
        own = [0.5 * np.mean((a @ w - b) ** 2) for (a, b), w in zip(shards(), x, strict=True)]
        return float(np.average(own, weights=None if weights == "agents" else weights))

    done = run(linear(weights=weights), algorithms=method, rounds=6, eval_every=2, out="six")
    before = [of_weights(run(linear(weights=weights), algorithms=method, rounds=k, out=f"to-{k}").x()) for k in range(1, 6)]
    start = of_weights(np.zeros((4, 3)))
    assert np.isnan(done.rows[0].get("batch_loss", np.nan))
    expected = [np.mean([start, before[0]]), np.mean(before[1:3]), np.mean(before[3:5])]
    assert [row["batch_loss"] for row in done.rows[1:]] == pytest.approx(expected, rel=1e-5)
    off = run(linear(weights=weights, eval_rows="off"), algorithms=method, rounds=6, eval_every=2, out="off")
    assert [row["loss"] for row in off.rows[1:]] == pytest.approx([row["batch_loss"] for row in off.rows[1:]])
    assert [row["batch_loss"] for row in off.rows[1:]] == [row["batch_loss"] for row in done.rows[1:]] and (off.x() == done.x()).all()


def test_losses_that_are_not_yet_recorded_are_part_of_a_checkpoint() -> None:
    class Stopping(mile.jax.Problem[Any, Any]):
        def grad(self, agent: int, x: Any, rng: mile.Random) -> Any:
            # In the middle of the 6th or 7th round, which is completed and not recorded.
            if (agent, rng.draw) == (0, 19):
                signal.raise_signal(signal.SIGINT)
            return super().grad(agent, x, rng)

    def made(kind: Any) -> Any:
        return kind(least_squares, {"w": jnp.zeros(3)}, shards(), batch=5)

    whole = run(made(mile.jax.Problem), eval_every=4, out="whole", seeds=[0, 1])
    with pytest.raises(mile.Stopped) as stopped:
        run(made(Stopping), eval_every=4, out="part", seeds=[0, 1])
    assert stopped.value.run.outcomes[0]["round"] % 4
    resumed = run(made(mile.jax.Problem), eval_every=4, out="part", seeds=[0, 1], resume=True)
    ours, theirs = ([row["batch_loss"] for row in one.rows if row["round"] > 0] for one in (resumed, whole))
    assert ours == theirs and (resumed.x(seed=1) == whole.x(seed=1)).all()


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (lambda: mile.jax.Problem(least_squares, {"w": jnp.zeros(3, int)}, shards()), "parameters: .*got int32"),
        (lambda: mile.jax.Problem(least_squares, {}, shards()), "parameters: .*got none"),
        (lambda: linear(data=[(np.zeros((3, 3)), np.zeros(2))] * 2), "data, agent 0: "),
        (lambda: linear(data=["text", "text"]), "data, agent 0: "),
        (lambda: linear(data=[]), "data: "),
        (lambda: linear(batch=0), "batch: .*got 0"),
        (lambda: linear(eval_rows="none"), "eval_rows: .*got 'none'"),
        (lambda: linear(agent=4), "agent: .*4"),
        (lambda: linear(agent=1, weights="rows"), "weights: "),
        (lambda: linear(eval_rows=-1), "eval_rows: .*got -1"),
        (lambda: linear(batch=[3, 3]), "batch: .*4.*got 2"),
        (lambda: linear(weights=[1, 2, 0, 1]), "weights: "),
        (lambda: linear(metrics={"size": lambda p, t: 0.0}), "test: "),
        (lambda: run(mile.jax.Problem(lambda p, b: p["w"], {"w": jnp.zeros(3)}, shards())), r"loss: .*got shape \(3,\)"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(made: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        made()
    assert not Path("runs/jax/metrics.jsonl").exists()
