"""The step that a method is given: valid only during its own call, on whatever thread it is used."""

import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mile
from problems import Quadratics

OVER = "during start or step"
BUSY = "one use at a time"

VERBS: dict[str, Callable[[Any], object]] = {
    "t": lambda s: s.t,
    "step_size": lambda s: s.step_size,
    "round": lambda s: s.round,
    "gradient": lambda s: s.gradient("x", "g"),
    "combine": lambda s: s.combine("x", 1.0, [(0.0, "g")]),
    "pull": lambda s: s.pull(("x", "g")),
    "mix": lambda s: s.mix(("x", "g")),
    "apply": lambda s: s.apply(lambda g: None, "g"),
}

PROBLEMS: list[Any] = [mile.Quadratic(dim=3), Quadratics()]


def run(method: mile.Method, problem: Any, rounds: int = 10, **more: Any) -> mile.Run:
    return mile.run(problem=problem, algorithms=[mile.method(method, step_size=0.05)], rounds=rounds, **more)


def refusal(use: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError) as caught:
        use()
    return str(caught.value)


def descend(s: mile.Step) -> None:
    """A gradient step and an exchange, for which the gradients must have been computed."""
    s.gradient("x", "g")
    s.combine("x", 1.0, [(-s.step_size, "g")])
    s.pull(("x", "d"))


class Descent(mile.Method):
    """A gradient step and an exchange, whose result is added."""

    scratch = ("g", "d")

    def step(self, s: mile.Step) -> None:
        descend(s)
        s.combine("x", 1.0, [(1.0, "d")])


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_step_that_was_kept_is_refused_in_the_next_step_and_after_the_run(problem: Any) -> None:
    kept: list[mile.Step] = []
    refused: list[str] = []

    class Keeping(Descent):
        def start(self, s: mile.Step) -> None:
            kept.append(s)

        def step(self, s: mile.Step) -> None:
            refused.extend(refusal(lambda verb=verb: verb(kept[-1])) for verb in VERBS.values())  # type: ignore[misc]
            kept.append(s)
            super().step(s)

    run(Keeping(), problem)
    assert len(kept) >= 11 and len(refused) >= 10 * len(VERBS)
    refused.extend(refusal(lambda: verb(s)) for s in kept for verb in VERBS.values())  # noqa: B023
    assert all(OVER in text for text in refused)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_thread_that_continues_with_a_step_is_refused_when_the_step_is_over(problem: Any) -> None:
    threads: list[threading.Thread] = []
    ended: list[str] = []

    def go_on(s: mile.Step) -> None:
        while True:
            for verb in VERBS.values():
                try:
                    verb(s)
                except RuntimeError as error:
                    ended.append(str(error))
                    return

    class Leaking(Descent):
        def step(self, s: mile.Step) -> None:
            super().step(s)
            threads.extend(threading.Thread(target=go_on, args=(s,)) for _ in range(3))
            for thread in threads[-3:]:
                thread.start()

    found = run(Leaking(), problem, rounds=60)
    for thread in threads:
        thread.join(30)
    assert len(threads) == len(ended) > 0 and found.complete
    # Two of the three threads may meet in a verb; the last one continues until the step is over.
    assert any(OVER in text for text in ended) and all(OVER in text or BUSY in text for text in ended)


class Hesitant(Quadratics):
    """Gradients that signal when another thread computes them, and then wait."""

    version = "1"

    def __init__(self, agents: int) -> None:
        super().__init__(agents)
        self.inside, self.released = threading.Event(), threading.Event()
        self.events: list[str] = []

    def grad(self, agent: int, x: np.ndarray, rng: Any) -> np.ndarray:
        if threading.current_thread().name == "elsewhere":
            self.inside.set()
            assert self.released.wait(30)
            self.events.append(f"agent {agent}")
        return super().grad(agent, x, rng)

    def compute_elsewhere(self, gradients: Callable[[], None]) -> threading.Thread:
        """Starts a thread, and returns when it waits in a gradient or has ended: a plan counts the costs of a step on other objectives."""
        self.inside.clear()
        thread = threading.Thread(target=gradients, name="elsewhere")
        thread.start()
        while thread.is_alive() and not self.inside.wait(0.01):
            pass
        return thread


@pytest.mark.parametrize("raises", [False, True])
def test_a_step_waits_for_a_verb_on_another_thread_however_it_ends(raises: bool) -> None:
    problem = Hesitant(agents=2)

    class Returning(mile.Method):
        scratch = ("g", "d")

        def step(self, s: mile.Step) -> None:
            problem.events.append("begins")
            problem.released.clear()
            if problem.compute_elsewhere(lambda: descend(s)).is_alive():
                assert BUSY in refusal(lambda: s.t)
                threading.Timer(0.2, problem.released.set).start()
                problem.events.append("returns")
                if raises:
                    raise LookupError("in the midst")

    if raises:
        with pytest.raises(LookupError, match="in the midst"):
            run(Returning(), problem, rounds=3)
    else:
        run(Returning(), problem, rounds=3)
    steps = 1 if raises else 3
    assert problem.events == ["begins"] + ["begins", "returns", "agent 0", "agent 1"] * steps


def test_a_verb_on_another_thread_has_the_bits_of_one_on_this() -> None:
    class Elsewhere(Descent):
        def step(self, s: mile.Step) -> None:
            thread = threading.Thread(target=super().step, args=(s,))
            thread.start()
            thread.join()

    for problem in PROBLEMS:
        assert (run(Elsewhere(), problem).x() == run(Descent(), problem).x()).all()


def test_an_objective_that_uses_the_step_that_called_it_is_refused() -> None:
    steps: list[mile.Step] = []

    class Looking(Quadratics):
        version = "1"
        records_gradient_norm = False

        def grad(self, agent: int, x: np.ndarray, rng: Any) -> np.ndarray:
            assert all(BUSY in refusal(lambda: verb(steps[-1])) for verb in VERBS.values())  # noqa: B023
            steps[-1].gradient("x", "g")
            raise AssertionError("it is refused")

    class Showing(Descent):
        def step(self, s: mile.Step) -> None:
            steps.append(s)
            super().step(s)

    with pytest.raises(RuntimeError, match=BUSY):
        run(Showing(), Looking())
    assert OVER in refusal(lambda: steps[-1].t)


def test_an_exception_ends_the_step_and_one_that_is_caught_does_not() -> None:
    kept: list[mile.Step] = []

    class Failing(Descent):
        def step(self, s: mile.Step) -> None:
            kept.append(s)
            with pytest.raises(ValueError, match=r"\bh\b"):
                s.gradient("x", "h")
            assert s.t >= 0
            super().step(s)
            if s.t == 3:
                raise LookupError("at step 3")

    with pytest.raises(LookupError, match="at step 3"):
        run(Failing(), mile.Quadratic(dim=3), out="failing")
    assert len(kept) >= 4 and all(OVER in refusal(lambda: s.t) for s in kept)  # noqa: B023


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that raise signals")
def test_an_exception_of_a_signal_handler_ends_a_step_that_waits() -> None:
    problem = Hesitant(agents=3)
    threads: list[threading.Thread] = []

    class TimedOut(Exception):
        """Raised by the handler."""

    def handler(number: int, frame: Any) -> None:
        problem.released.set()
        raise TimedOut

    class Returning(mile.Method):
        scratch = ("g", "d")

        def step(self, s: mile.Step) -> None:
            def compute() -> None:
                # This thread may be interrupted, too.
                with contextlib.suppress(KeyboardInterrupt):
                    descend(s)

            threads.append(problem.compute_elsewhere(compute))
            if threads[-1].is_alive():
                signal.setitimer(signal.ITIMER_REAL, 0.1)

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(TimedOut):
            run(Returning(), problem)
    finally:
        signal.signal(signal.SIGALRM, previous)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
