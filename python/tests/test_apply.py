"""Custom methods that apply their own functions to vectors."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mile
import mile.torch
from problems import Quadratics


class SignDescent(mile.Method):
    """Signs of gradients, then an average."""

    scratch = ("g", "d")

    def step(self, s: mile.Step) -> None:
        s.gradient("x", "g")
        s.apply(np.sign, "g")
        s.combine("x", 1.0, [(-s.step_size, "g")])
        s.pull(("x", "d"))
        s.combine("x", 1.0, [(1.0, "d")])


def adam(x: Any, g: Any, m: Any, v: Any, step_size: float, t: int) -> None:
    """Adam in place, for arrays and tensors."""
    m *= 0.9
    m += 0.1 * g
    v *= 0.99
    v += 0.01 * g * g
    x -= step_size * (m / (1 - 0.9 ** (t + 1))) / ((v / (1 - 0.99 ** (t + 1))) ** 0.5 + 1e-8)


class Adam(mile.Method):
    """Local Adam steps, then an average."""

    state, scratch = ("x", "m", "v"), ("g", "d")

    def __init__(self, local_steps: int) -> None:
        self.local_steps = local_steps

    def step(self, s: mile.Step) -> None:
        s.gradient("x", "g")
        step_size, t = s.step_size, s.t
        s.apply(lambda x, g, m, v: adam(x, g, m, v, step_size, t), "x", "g", "m", "v")
        if (t + 1) % self.local_steps == 0:
            s.pull(("x", "d"))
            s.combine("x", 1.0, [(1.0, "d")])


def by_hand(q: Quadratics, w: np.ndarray, rounds: int, local_steps: int, lr: float) -> np.ndarray:
    x, m, v = (np.zeros((q.agents, q.dim)) for _ in range(3))
    for t in range(rounds * local_steps):
        adam(x, np.stack([q.grad(i, x[i], None) for i in range(q.agents)]), m, v, lr, t)
        if (t + 1) % local_steps == 0:
            x = w @ x
    return x


def test_adam_is_what_it_is_by_hand_on_arrays_and_on_tensors() -> None:
    q = Quadratics()
    graph = mile.graph("ring", agents=6)
    expected = by_hand(q, graph.matrix, rounds=20, local_steps=3, lr=0.05)
    method = [mile.method(Adam(3), lr=0.05)]
    found = mile.run(problem=q, network=graph, algorithms=method, rounds=20)
    assert np.abs(found.x() - expected).max() < 1e-12 and set(found.state()) == {"x", "m", "v"}

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Parameter(torch.zeros(4, dtype=torch.float64))

        def forward(self, a: Any, c: Any) -> Any:
            d = self.x - c[0]
            return 0.5 * d @ a[0] @ d

    data = [(torch.from_numpy(q.A[i : i + 1]), torch.from_numpy(q.c[i : i + 1])) for i in range(6)]
    problem = mile.torch.Problem(Model(), None, data, batch="full")
    tensors = mile.run(problem=problem, network=graph, algorithms=method, rounds=20, out="tensors")
    assert np.abs(tensors.x() - expected).max() < 1e-12
    half = mile.run(problem=problem, network=graph, algorithms=method, rounds=11, out="half").resume(rounds=20)
    assert (half.x() == tensors.x()).all()


def test_returned_values_become_the_first_vectors() -> None:
    q = Quadratics()
    found = mile.run(problem=q, network="complete", algorithms=[mile.method(SignDescent(), lr=0.01)], rounds=3).x()
    x = np.zeros((6, 4))
    for _ in range(3):
        x = x - 0.01 * np.sign(np.stack([q.grad(i, x[i], None) for i in range(6)]))
        x = np.broadcast_to(x.mean(0), x.shape)
    assert np.abs(found - x).max() < 1e-12


def test_functions_of_numpy_work_on_tensors_too() -> None:
    data = [(torch.full((4, 3), float(k)), torch.zeros(4, 1)) for k in range(1, 4)]
    model = nn.Linear(3, 1)
    # All outputs are too large, so that the signs of all agents agree.
    nn.init.ones_(model.weight)
    nn.init.ones_(model.bias)
    problem = mile.torch.Problem(model, nn.MSELoss(), data, batch="full")
    found = mile.run(problem=problem, network="complete", algorithms=[mile.method(SignDescent(), lr=0.01)], rounds=1)
    assert np.abs(np.abs(found.average() - problem.initial(0)) - 0.01).max() < 1e-6


def test_own_methods_run_in_sweeps_on_tensors_mapped_over_agents_and_with_losses_in_jax() -> None:
    jnp, mile_jax = pytest.importorskip("jax.numpy"), pytest.importorskip("mile.jax")
    graph, rates = mile.graph("ring", agents=3), [0.02, 0.05]
    generator = torch.Generator().manual_seed(6)
    data = [(torch.randn(8, 3, generator=generator), torch.randn(8, 1, generator=generator)) for _ in range(3)]

    def model() -> nn.Module:
        model = nn.Linear(3, 1)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        return model

    def loss(parameters: Any, batch: Any) -> Any:
        return jnp.mean((batch[0] @ parameters["weight"].T + parameters["bias"] - batch[1]) ** 2)

    # Parameters of a pytree are in the order of their names.
    start = {"bias": jnp.zeros(1), "weight": jnp.zeros((1, 3))}
    arrays = [(a.numpy(), b.numpy()) for a, b in data]
    problems = {kind: mile.torch.Problem(model(), nn.MSELoss(), data, batch="full", gradient=kind) for kind in ("loop", "vmap")}
    problems["jax"] = mile_jax.Problem(loss, start, arrays, batch="full")
    found = {}
    for name, problem in problems.items():
        swept = mile.sweep(problem=problem, network=graph, algorithms=[mile.method(Adam(2), lr=0.1)], values={"step_size": rates}, rounds=6, out=f"sweep-{name}")
        assert sorted(swept.trials["step_size"]) == rates and swept.complete
        found[name] = {run.config["algorithm"][0]["step_size"]: run.x() for run in swept.runs.values()}
        alone = mile.run(problem=problem, network=graph, algorithms=[mile.method(Adam(2), lr=rates[1])], rounds=6, out=f"alone-{name}")
        assert (alone.x() == found[name][rates[1]]).all()
    for rate in rates:
        assert np.abs(found["loop"][rate] - found["vmap"][rate]).max() < 1e-5
        in_torch = found["loop"][rate][:, [3, 0, 1, 2]]
        assert np.abs(in_torch - found["jax"][rate]).max() < 1e-5 and np.abs(in_torch).min() > 1e-4


def test_functions_see_only_the_vectors_of_the_problem() -> None:
    shapes: set[Any] = set()

    class Clipped(mile.Method):
        scratch = ("g", "d")

        def step(self, s: mile.Step) -> None:
            s.gradient("x", "g")
            s.apply(self.clip, "g")
            s.pull(("x", "d"))
            s.combine("x", 1.0, [(1.0, "d"), (-s.step_size, "g")])

        def clip(self, g: Any) -> Any:
            shapes.add((type(g).__name__, tuple(g.shape)))
            return torch.clamp(g, -0.1, 0.1) if isinstance(g, torch.Tensor) else np.clip(g.reshape(-1, 2, 2), -0.1, 0.1).reshape(g.shape)

    mile.run(problem=Quadratics(), algorithms=[mile.method(Clipped(), lr=0.1)], rounds=3)
    assert shapes == {("ndarray", (6, 4))}
    shapes.clear()
    data = [(torch.randn(4, 3), torch.zeros(4, 1)) for _ in range(3)]
    mile.run(problem=mile.torch.Problem(nn.Linear(3, 1), nn.MSELoss(), data), algorithms=[mile.method(Clipped(), lr=0.1)], rounds=3, out="tensors")
    assert shapes == {("Tensor", (3, 4))}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((np.sign, "h"), "vector: .*got h"),
        ((3, "x"), "apply: "),
        ((lambda g: g[0], "g"), r"apply: .*\[6, \d\].*\[\d\]"),
        ((lambda g: (g, g), "g"), "apply: .*1.*2"),
        ((lambda x, y: None, "x", "x"), "vector 0"),
        ((lambda g: 1 / 0, "g"), "division by zero"),
    ],
)
def test_what_cannot_be_applied_is_refused(arguments: Any, error: str) -> None:
    class Wrong(mile.Method):
        def step(self, s: mile.Step) -> None:
            s.gradient("x", "g")
            s.apply(*arguments)
            s.pull(("x", "g"))

    with pytest.raises(Exception, match=error):
        mile.run(problem=Quadratics(), algorithms=[mile.method(Wrong(), lr=0.1)], rounds=1)
