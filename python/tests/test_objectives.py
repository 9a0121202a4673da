"""Objectives and methods in Python: the protocol, its errors, and what happens to arrays that are kept."""

import contextlib
import gc
import multiprocessing
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mile
from problems import Quadratics

ALGORITHM = [mile.method("mile", step_size=0.1, local_steps=3)]


def literal_mile(problem: Quadratics, w: np.ndarray, alpha: float, tau: int, xi: float, rounds: int) -> np.ndarray:
    """MILE as the library's documentation writes it, a row for each agent."""
    def gradients(x: np.ndarray) -> np.ndarray:
        return np.stack([problem.grad(i, x[i], None) for i in range(problem.agents)])

    x = np.zeros((problem.agents, problem.dim))
    x = x - alpha * gradients(x)
    c = np.zeros_like(x)
    t = done = 0
    while done < rounds:
        v = x - alpha * gradients(x) + c
        if t % tau == 0:
            d = w @ v - v
            c, x = c + xi * d, v + xi * d
            done += 1
        else:
            x = v
        t += 1
    return x


def test_objectives_in_numpy_reach_the_minimiser_of_the_sum() -> None:
    problem = Quadratics()
    run = mile.run(problem=problem, algorithms=ALGORITHM, rounds=800)
    assert run.config["name"] == "quadratics"
    assert np.abs(run.average() - problem.minimiser).max() < 1e-8
    assert run.rows[-1]["grad_norm_sq"] < 1e-14


def test_every_method_has_the_same_bits_as_with_the_objective_in_rust() -> None:
    """Least squares with a diagonal and one row per coordinate: sums have one term, so both ways round alike."""
    rng = np.random.default_rng(3)
    agents, dim = 5, 3
    scale, targets = rng.uniform(0.5, 2.0, size=(agents, dim)), rng.normal(size=(agents, dim))

    def grad(agent: int, x: np.ndarray, rng: Any) -> np.ndarray:
        return scale[agent] * (scale[agent] * x - targets[agent]) / dim

    def loss(agent: int, x: np.ndarray) -> float:
        return float(np.sum((scale[agent] * x - targets[agent]) ** 2) / (2 * dim))

    names = [name for name in mile.methods().index if name not in ("scaffold", "diloco")]
    algorithms = [mile.method(name, step_size=0.05) for name in names]
    network = {"topology": "ring", "mixing": "lazy-metropolis"}
    own = mile.Objective(loss, grad, agents=agents, dim=dim)
    table = mile.Table([(np.diag(scale[i]), targets[i]) for i in range(agents)])
    in_python = mile.run(problem=own, network=network, algorithms=algorithms, rounds=12, out="python")
    in_rust = mile.run(problem=table, network=network, algorithms=algorithms, rounds=12, out="rust")
    for name in names:
        assert np.abs(in_python.x(name) - in_rust.x(name)).max() < 1e-13, name


def test_x_is_lent_without_a_copy_and_cannot_be_written() -> None:
    seen: dict[int, set[int]] = {}

    class Looking(Quadratics):
        def grad(self, agent: int, x: np.ndarray, rng: Any) -> np.ndarray:
            assert not x.flags.owndata and not x.flags.writeable
            with pytest.raises(ValueError):
                x[0] = 1.0
            seen.setdefault(agent, set()).add(x.ctypes.data)
            return super().grad(agent, x, rng)

    problem = Looking()
    problem.version = "1"  # type: ignore[attr-defined]
    problem.records_gradient_norm = False  # type: ignore[attr-defined]
    mile.run(problem=problem, algorithms=[mile.method("dsgd", step_size=0.1)], rounds=50)
    assert all(len(places) == 1 for places in seen.values()), "an agent's row stays where it is"
    row = problem.dim * 8
    assert sorted(min(places) for places in seen.values()) == [min(seen[0]) + k * row for k in range(problem.agents)]


def test_a_gradient_that_is_written_to_out_is_the_same() -> None:
    class Writing(Quadratics):
        def grad(self, agent: int, x: np.ndarray, rng: Any, out: np.ndarray) -> None:  # type: ignore[override]
            np.matmul(self.A[agent], x - self.c[agent], out=out)

    returned = mile.run(problem=Quadratics(), algorithms=ALGORITHM, rounds=20, out="returned")
    written = mile.run(problem=Writing(), algorithms=ALGORITHM, rounds=20, out="written")
    assert (returned.x() == written.x()).all()


def test_arrays_that_are_kept_stay_valid() -> None:
    kept: list[np.ndarray] = []

    class Keeping(Quadratics):
        def grad(self, agent: int, x: np.ndarray, rng: Any) -> np.ndarray:
            kept.append(x[1:])
            return super().grad(agent, x, rng)

    mile.run(problem=Keeping(), algorithms=ALGORITHM, rounds=5)
    gc.collect()
    rubbish = [np.full(1000, np.nan) for _ in range(100)]
    assert all(np.isfinite(array).all() for array in kept) and rubbish


def test_an_exception_has_its_own_traceback_and_the_run_can_be_resumed() -> None:
    class Failing(Quadratics):
        calls = 0
        fails = True

        def grad(self, agent: int, x: np.ndarray, rng: Any) -> np.ndarray:
            self.calls += 1
            if self.fails and agent == 2 and self.calls > 200:
                raise LookupError("no data at agent 2")
            return super().grad(agent, x, rng)

    problem = Failing()
    with pytest.raises(LookupError, match="no data at agent 2") as caught:
        mile.run(problem=problem, algorithms=ALGORITHM, rounds=60, eval_every=1, out="failing")
    text = "".join(traceback.format_exception(caught.value))
    assert "in grad" in text and 'raise LookupError("no data at agent 2")' in text
    if sys.version_info >= (3, 11):
        assert "resume=True" in text and "failing" in text
    kept = mile.load("failing")
    assert len(kept.rows) > 2 and kept.outcomes[0]["status"] == "failed"  # type: ignore[union-attr]
    problem.fails = False
    resumed = mile.run(problem=problem, algorithms=ALGORITHM, rounds=60, eval_every=1, out="failing", resume=True)
    whole = mile.run(problem=Quadratics(), algorithms=ALGORITHM, rounds=60, eval_every=1, out="whole")
    assert resumed.complete and (resumed.x() == whole.x()).all()


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        (np.zeros(3), r"grad\(.*\(4,\).*\[3\]"),
        (np.zeros((4, 1)), r"grad\(.*\(4,\).*\[4, 1\]"),
        (np.zeros(4, complex), r"grad\(.*complex128"),
        ([0.0] * 3, r"grad\(.*\(4,\).*\[3\]"),
        (["a"] * 4, r"grad\(.*<U1"),
        (0.0, r"grad\(.*float"),
        (None, r"grad\(.*NoneType"),
    ],
)
def test_shapes_and_types_are_refused_before_the_first_step(returned: Any, named: str) -> None:
    class Wrong(Quadratics):
        def grad(self, agent: int, x: np.ndarray, rng: Any) -> Any:
            return returned

    with pytest.raises(TypeError, match=named):
        mile.run(problem=Wrong(), algorithms=ALGORITHM, out="wrong")
    assert not Path("wrong/metrics.jsonl").exists()


def test_objects_that_are_not_objectives_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="loss"):
        mile.run(problem=object(), algorithms=ALGORITHM)
    with pytest.raises(ValueError, match=r"network\.agents: "):
        mile.run(problem=Quadratics(), network={"agents": 4}, algorithms=ALGORITHM)
    wrong = Quadratics()
    wrong.dtype = np.int32  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="dtype: .*int32"):
        mile.run(problem=wrong, algorithms=ALGORITHM)
    wrong = Quadratics()
    wrong.loss = lambda agent, x: "high"  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError, match=r"loss\(.*str"):
        mile.run(problem=wrong, algorithms=ALGORITHM)


class Noisy(Quadratics):
    """Stochastic gradients in single precision, with a starting point and a metric."""

    dtype = "float32"
    stochastic = True
    metrics = ("rmse",)

    def initial(self, seed: int) -> np.ndarray:
        return np.full(self.dim, seed, dtype=np.float32)

    def loss(self, agent: int, x: np.ndarray) -> float:
        return super().loss(agent, x.astype(np.float64))

    def grad(self, agent: int, x: np.ndarray, rng: Any) -> np.ndarray:
        assert rng.agent == agent
        noise = rng.normal(scale=0.01, size=self.dim)
        return (super().grad(agent, x.astype(np.float64), rng) + noise).astype(np.float32)

    def measure(self, x: np.ndarray) -> list[float]:
        return [float(np.linalg.norm(x - self.minimiser))]


def test_noise_is_a_function_of_seed_agent_and_step() -> None:
    arguments: dict[str, Any] = {"problem": Noisy(), "algorithms": ALGORITHM, "seeds": [3, 4]}
    whole = mile.run(**arguments, rounds=20, out="whole")
    part = mile.run(**arguments, rounds=9, out="part").resume(rounds=20)
    assert (whole.x(seed=4) == part.x(seed=4)).all() and (whole.x(seed=3) != whole.x(seed=4)).any()
    assert whole.x().dtype == np.float32 and "grad_norm_sq" not in whole.rows[-1]
    assert whole.rows[0]["rmse"] > whole.rows[-1]["rmse"]


def test_objectives_that_changed_are_refused_when_a_run_is_resumed() -> None:
    mile.run(problem=Quadratics(), algorithms=ALGORITHM, rounds=5, out="changed")
    with pytest.raises(mile.ExperimentError, match="problem.values"):
        mile.run(problem=Quadratics(seed=1), algorithms=ALGORITHM, rounds=9, out="changed", resume=True)


class OwnMile(mile.Method):
    """MILE in the verbs."""

    state = ("x", "c")
    scaled = ("c",)
    scratch = ("g",)

    def __init__(self, tau: int, xi: float) -> None:
        self.tau, self.xi = tau, xi

    def start(self, s: mile.Step) -> None:
        s.gradient("x", "g")
        s.combine("x", 1.0, [(-s.step_size, "g")])

    def step(self, s: mile.Step) -> None:
        s.gradient("x", "g")
        s.combine("x", 1.0, [(-s.step_size, "g"), (1.0, "c")])
        if s.t % self.tau == 0:
            s.pull(("x", "g"))
            s.combine("c", 1.0, [(self.xi, "g")])
            s.combine("x", 1.0, [(self.xi, "g")])


def test_a_method_in_python_has_the_bits_of_the_built_in_one() -> None:
    algorithms = [
        mile.method(OwnMile(3, 0.2), step_size=0.1, label="own"),
        mile.method("mile", step_size=0.1, local_steps=3, xi=0.2),
    ]
    for algorithm in algorithms:
        algorithm["schedule"] = {"kind": "cosine", "rounds": 30}
    for k, problem in enumerate((mile.Quadratic(dim=3), Quadratics())):
        run = mile.run(problem=problem, algorithms=algorithms, rounds=30, out=f"own-{k}")
        assert (run.x("own") == run.x("mile")).all()
        assert (run.state("own")["c"] == run.state("mile")["c"]).all()
    assert run.config["algorithm"][0]["name"] == "OwnMile(tau=3, xi=0.2)"


def test_a_method_that_misuses_its_vectors_is_refused() -> None:
    class Wrong(mile.Method):
        kept: Any = None

        def step(self, s: mile.Step) -> None:
            Wrong.kept = s
            s.pull(("x", "h"))

    with pytest.raises(ValueError, match=r"\bh\b"):
        mile.run(problem=mile.Quadratic(), algorithms=[mile.method(Wrong(), step_size=0.1)], out="wrong")
    with pytest.raises(RuntimeError):
        Wrong.kept.t  # noqa: B018

    class NoModel(mile.Method):
        state = ("y",)

    with pytest.raises(ValueError, match='"x"'):
        mile.run(problem=mile.Quadratic(), algorithms=[mile.method(NoModel(), step_size=0.1)])


SCRIPT = """
import signal, sys, time, numpy as np, mile
class Slow:
    dim, agents, version, records_gradient_norm = 3, 4, "1", False
    def loss(self, agent, x): return float(x @ x)
    def grad(self, agent, x, rng):
        time.sleep(0.002)
        return 2 * x - agent
problem = Slow() if sys.argv[1] == "python" else mile.Quadratic(dim=200_000 if sys.argv[1] == "large" else 3)
before = signal.getsignal(signal.SIGINT)
try:
    mile.run(problem=problem, network={"agents": 4}, algorithms=[mile.method("mile", step_size=0.1, local_steps=int(sys.argv[3]))], rounds=int(sys.argv[2]), out="slow",
             resume=len(sys.argv) > 4, progress=lambda kind, *rest: print(kind, flush=True))
except mile.Stopped as stopped:
    print("stopped at", stopped.run.outcomes[0]["round"], flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert signal.getsignal(signal.SIGINT) is before
"""


@contextlib.contextmanager
def _started(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The script, once it has its first record."""
    Path("slow.py").write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, "slow.py", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and any(line.startswith("recorded") for line in process.stdout)
        time.sleep(0.3)
        yield process
    finally:
        process.kill()


@pytest.mark.parametrize("problem", ["python", "rust"])
def test_an_interrupt_stops_after_the_round_and_the_run_can_be_resumed(problem: str) -> None:
    with _started(problem, "500000000", "2") as process:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "stopping" in rest and "stopped at" in rest
    done = int(rest.split("stopped at")[1])
    assert 0 < done < 500000000
    subprocess.run([sys.executable, "slow.py", problem, str(done + 5), "2", "resume"], check=True, timeout=60)
    found = mile.load("slow")
    assert found.complete and found.rows[-1]["round"] == done + 5  # type: ignore[union-attr]


@pytest.mark.parametrize("problem", ["python", "large"])
def test_a_second_interrupt_stops_in_the_middle_of_a_round(problem: str) -> None:
    with _started(problem, "5", "1000000") as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None and any("stopping" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and rest.split()[-1] == "interrupted"
    assert mile.load("slow").outcomes[0]["status"] == "failed"  # type: ignore[union-attr]


def test_objectives_are_called_on_the_calling_thread_and_signal_handlers_are_kept() -> None:
    threads, heard = set[int](), set[int]()
    loss: list[Any] = [0.0]

    def grad(agent: int, x: np.ndarray, rng: Any) -> np.ndarray:
        threads.add(threading.get_ident())
        return x

    # Long enough that the library's own problems would use several threads.
    problem = mile.Objective(lambda agent, x: loss[0], grad, agents=30, dim=3000)

    def call(out: str) -> None:
        mile.run(problem=problem, algorithms=ALGORITHM, rounds=3, out=out, progress=lambda *event: heard.add(threading.get_ident()))

    def handler(number: int, frame: Any) -> None:
        raise AssertionError

    previous = signal.signal(signal.SIGINT, handler)
    try:
        call("main")
        assert threads == heard == {threading.get_ident()}
        loss[0] = "high"
        with pytest.raises(TypeError, match="loss"):
            call("wrong")
        loss[0] = 0.0
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, previous)
    # Other threads cannot handle signals, and need not.
    threads.clear()
    heard.clear()
    other = threading.Thread(target=call, args=("other",))
    other.start()
    other.join(60)
    assert threads == heard != {threading.get_ident()} and len(heard) == 1
    assert mile.load("other").complete  # type: ignore[union-attr]


def _child(queue: Any, problem: Any) -> None:
    run = mile.run(problem=problem, algorithms=ALGORITHM, rounds=20, out="child")
    queue.put(run.x().sum())


@pytest.mark.parametrize("problem", [mile.Quadratic(dim=40), Quadratics(agents=10)])
def test_a_forked_process_does_not_hang(problem: Any) -> None:
    before = mile.run(problem=problem, algorithms=ALGORITHM, rounds=20, out="parent")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue, problem))
    child.start()
    assert queue.get(timeout=60) == before.x().sum()
    child.join(60)
    assert child.exitcode == 0


def test_the_literal_recursion_in_numpy_agrees() -> None:
    problem = Quadratics()
    w = mile.graph("ring", agents=6).matrix
    algorithm = [mile.method("mile", step_size=0.1, local_steps=3, xi=0.2)]
    run = mile.run(problem=problem, network="ring", algorithms=algorithm, rounds=25)
    assert np.abs(run.x() - literal_mile(problem, w, 0.1, 3, 0.2, 25)).max() < 1e-12


def test_lists_and_other_precisions_are_accepted_as_gradients_and_starting_points() -> None:
    class Loose(Quadratics):
        def __init__(self, kind: Any) -> None:
            super().__init__()
            self.kind = kind

        def grad(self, agent: int, x: np.ndarray, rng: Any) -> Any:
            return self.kind(super().grad(agent, x, rng))

    exact = mile.run(problem=Loose(lambda g: g), algorithms=ALGORITHM, rounds=20, out="exact").x()
    assert (mile.run(problem=Loose(list), algorithms=ALGORITHM, rounds=20, out="list").x() == exact).all()
    single = mile.run(problem=Loose(lambda g: g.astype(np.float32)), algorithms=ALGORITHM, rounds=20, out="single").x()
    assert 0 < np.abs(single - exact).max() < 1e-5
    whole = mile.Objective(lambda agent, x: float(x @ x), lambda agent, x, rng: np.zeros(2, int), agents=3, dim=2, initial=[1, 2])
    assert (mile.run(problem=whole, algorithms=ALGORITHM, rounds=2, out="whole").x() == [1.0, 2.0]).all()


def test_each_agent_may_have_its_own_starting_point() -> None:
    problem = Quadratics(agents=5, dim=4)
    starts = np.arange(20.0).reshape(5, 4)
    problem.initial = starts  # type: ignore[attr-defined]
    run = mile.run(problem=problem, algorithms=[mile.method("dsgd", step_size=1e-12)], network="complete", rounds=1, eval_every=1)
    assert run.rows[0]["consensus_error"] == pytest.approx(np.mean(np.sum((starts - starts.mean(0)) ** 2, axis=1)), rel=1e-9)
    problem.initial = lambda seed: starts + seed  # type: ignore[attr-defined]
    of_seed = mile.run(problem=problem, algorithms=[mile.method("dsgd", step_size=1e-12)], network="complete", rounds=1, seeds=[3], out="seed")
    assert of_seed.average() == pytest.approx(starts.mean(0) + 3, rel=1e-9)
    problem.initial = np.zeros((4, 4))  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"initial: .*\(5, 4\).*\[4, 4\]"):
        mile.run(problem=problem, algorithms=ALGORITHM, rounds=1, out="wrong")


def test_metrics_of_ones_own_are_recorded_for_the_average_and_for_the_agents_models() -> None:
    q = Quadratics(agents=3)
    problem = mile.Objective(q.loss, q.grad, agents=3, dim=4, metrics={"size": lambda x: float(np.abs(x).sum()), "rmse": lambda x: float(x[0])})
    run = mile.run(problem=problem, network="complete", algorithms=ALGORITHM, rounds=10)
    last = run.rows[-1]
    assert last["size"] == pytest.approx(np.abs(run.average()).sum()) and last["rmse"] == pytest.approx(run.average()[0])
    assert last["local_size"] == pytest.approx(np.mean([np.abs(x).sum() for x in run.x()]))
    assert run.records["size"].notna().all() and run.plot("size") is not None
    with pytest.raises(TypeError, match="measure: "):
        mile.run(problem=mile.Objective(q.loss, q.grad, agents=3, dim=4, metrics=["rmse"]), algorithms=ALGORITHM, rounds=1, out="none")
    for name in ("loss", "local_accuracy", "no name"):
        with pytest.raises(mile.ExperimentError, match=f"metrics: .*got {name}"):
            mile.Objective(q.loss, q.grad, agents=3, dim=4, metrics={name: lambda x: 0.0})


def test_what_an_exception_keeps_of_the_agents_memory_is_freed_with_it() -> None:
    dim = 1 << 21

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def failing(agent: int, x: np.ndarray, rng: Any) -> Any:
        if rng.draw > 1:
            raise ZeroDivisionError
        return np.zeros(dim)

    problem = mile.Objective(lambda agent, x: 0.0, failing, agents=4, dim=dim, stochastic=True, version="1")
    kept: list[Any] = []
    for k in range(6):
        with pytest.raises(ZeroDivisionError) as error:
            mile.run(problem=problem, algorithms=[mile.method("mile", step_size=0.1, local_steps=5)], rounds=2, out=f"failed{k}")
        frame = error.tb
        while frame.tb_next is not None:
            frame = frame.tb_next
        kept[:] = [frame.tb_frame.f_locals["x"]]
        assert kept[0].sum() == 0.0, "what Python keeps stays valid"
        del frame, error
        if k == 1:
            before = resident()
    # Four agents with three vectors of 16 MB each.
    assert resident() - before < 2 * 12 * 8 * dim / 2


def test_an_out_that_is_resized_is_refused() -> None:
    def grad(agent: int, x: np.ndarray, rng: Any, out: np.ndarray) -> None:
        out.resize(7, refcheck=False)

    problem = mile.Objective(lambda agent, x: 0.0, grad, agents=3, dim=4)
    with pytest.raises(ValueError, match=r"out: .*\(4,\).*\(7,\)"):
        mile.run(problem=problem, algorithms=ALGORITHM, rounds=1)
