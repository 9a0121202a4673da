"""Custom methods: each is the object that was given, whatever its name, and a run is resumed only with the same method."""

import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mile
from mile._facts import facts

PROBLEM = mile.Quadratic(dim=3)


def made(scale: float) -> mile.Method:
    """Methods with the same name, but different classes."""

    class Scaled(mile.Method):
        scratch = ("g", "d")

        def step(self, s: mile.Step) -> None:
            s.gradient("x", "g")
            s.pull(("x", "d"))
            s.combine("x", 1.0, [(1.0, "d"), (-scale * s.step_size, "g")])

    return Scaled()


class Weighted(mile.Method):
    """A method whose hyperparameter is whatever it was made with."""

    scratch = ("g", "d")

    def __init__(self, weight: Any, hidden: float = 1.0) -> None:
        self.weight, self._hidden = weight, hidden

    def step(self, s: mile.Step) -> None:
        s.gradient("x", "g")
        s.pull(("x", "d"))
        s.combine("x", 1.0, [(1.0, "d"), (-float(np.sum(self.weight)) * self._hidden * s.step_size, "g")])


PAIRS = {
    "arrays": (Weighted(np.array([0.5, 0.5])), Weighted(np.array([0.5, 1.5]))),
    "numpy numbers": (Weighted(np.float64(1.0)), Weighted(np.float64(2.0))),
    "private attributes": (Weighted(1.0), Weighted(1.0, hidden=2.0)),
    "two classes of one name": (made(1.0), made(2.0)),
}


def run(*methods: mile.Method, labels: tuple[str, ...] = ("one", "two"), **more: Any) -> mile.Run:
    algorithms = [mile.method(method, step_size=0.05, label=label) for method, label in zip(methods, labels, strict=False)]
    return mile.run(problem=PROBLEM, algorithms=algorithms, **{"rounds": 8, **more})


@pytest.mark.parametrize("which", PAIRS)
def test_methods_that_differ_run_as_themselves(which: str) -> None:
    one, two = PAIRS[which]
    both = run(one, two)
    assert (both.x("one") == run(one).x()).all()
    assert (both.x("two") == run(two).x()).all()
    assert (both.x("one") != both.x("two")).any()
    again = run(two, labels=("one",))
    assert (again.x("one") == both.x("two")).all(), "no run remembers the methods of another"


@pytest.mark.parametrize("which", ["arrays", "private attributes", "two classes of one name"])
def test_methods_with_the_same_name_need_labels(which: str) -> None:
    algorithms = [mile.method(method, step_size=0.05) for method in PAIRS[which]]
    with pytest.raises(mile.ExperimentError, match=r"algorithm\[1\].label: "):
        mile.run(problem=PROBLEM, algorithms=algorithms)
    algorithms[0]["label"] = "first"
    assert mile.run(problem=PROBLEM, algorithms=algorithms, rounds=3).complete


def test_one_object_may_run_twice_and_two_that_are_equal_may_run_together() -> None:
    method = made(1.0)
    twice = mile.run(problem=PROBLEM, algorithms=[mile.method(method, step_size=step, label=str(step)) for step in (0.05, 0.1)], rounds=5)
    assert [section["name"] for section in twice.config["algorithm"]] == ["Scaled", "Scaled"]
    alike = run(made(1.0), made(1.0))
    assert (alike.x("one") == alike.x("two")).all()


def test_threads_do_not_share_their_methods() -> None:
    expected = {scale: run(made(scale), labels=("m",)).x() for scale in (1.0, 2.0, 3.0)}
    wrong: list[str] = []

    def work(scale: float) -> None:
        for k in range(5):
            found = run(made(scale), labels=("m",), out=f"thread-{scale}-{k}").x()
            if (found != expected[scale]).any():
                wrong.append(f"{scale} in run {k}")

    threads = [threading.Thread(target=work, args=(scale,)) for scale in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("arrays", "algorithm.attribute.weight .*ndarray"),
        ("numpy numbers", r"algorithm.attribute.weight .*1\.0.*2\.0"),
        ("private attributes", r"algorithm.attribute._hidden .*1\.0.*2\.0"),
        ("two classes of one name", "code"),
    ],
)
def test_a_run_is_resumed_only_with_the_same_method(which: str, message: str) -> None:
    one, two = PAIRS[which]
    run(one, out="resumed")
    with pytest.raises(mile.ExperimentError, match=message):
        run(two, out="resumed", resume=True, rounds=12)
    found = run(one, out="resumed", resume=True, rounds=12)
    assert found.complete and (found.x() == run(one, rounds=12).x()).all()


def test_a_method_may_be_added_to_a_run_whose_method_has_its_name() -> None:
    one, two = PAIRS["two classes of one name"]
    run(one, out="added")
    found = run(two, one, labels=("two", "one"), out="added", resume=True, rounds=12)
    assert (found.x("one") == run(one, rounds=12).x()).all() and (found.x("two") == run(two, rounds=12).x()).all()


SOURCE = '''
import mile
RATE = {rate}
def scaled(step_size):
    {comment}
    return {factor} * step_size
class Own(mile.Method):
    scratch = ("g", "d")
    def step(self, s):
        s.gradient("x", "g")
        s.pull(("x", "d"))
        s.combine("x", 1.0, [(1.0, "d"), (-RATE * scaled(s.step_size), "g")])
'''


def load(name: str, rate: float = 1.0, factor: float = 1.0, comment: str = "# as it is") -> mile.Method:
    path = Path(f"{name}.py")
    path.write_text(SOURCE.format(rate=rate, factor=factor, comment=comment))
    spec = importlib.util.spec_from_file_location("own", path)
    assert spec is not None and spec.loader is not None
    sys.modules["own"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    method: mile.Method = module.Own()
    return method


def test_changed_code_is_refused_and_changed_comments_are_not() -> None:
    run(load("first"), out="code")
    for k, change in enumerate(({"rate": 2.0}, {"factor": 2.0})):
        with pytest.raises(mile.ExperimentError, match="code"):
            run(load(f"changed{k}", **change), out="code", resume=True, rounds=12)
    assert run(load("second", comment="# said better"), out="code", resume=True, rounds=12).complete


def test_a_version_stands_for_code_and_attributes() -> None:
    class Counting(mile.Method):
        version: str | None = None
        calls = 0
        scratch = ("g", "d")

        def step(self, s: mile.Step) -> None:
            self.calls += 1
            s.pull(("x", "d"))
            s.combine("x", 1.0, [(1.0, "d")])

    method = Counting()
    run(method, out="counted")
    with pytest.raises(mile.ExperimentError, match="algorithm.attribute.calls"):
        run(method, out="counted", resume=True, rounds=12)
    method.version = "1"
    run(method, out="versioned")
    assert run(method, out="versioned", resume=True, rounds=12).complete
    method.version = "2"
    with pytest.raises(mile.ExperimentError, match="algorithm.version .*1.*2"):
        run(method, out="versioned", resume=True, rounds=16)


def test_a_run_directory_of_a_custom_method_can_be_read_and_asks_for_the_method() -> None:
    run(made(1.0), out="read")
    assert mile.load("read").complete and mile.load("read").figures  # type: ignore[union-attr]
    with pytest.raises(mile.ExperimentError, match=r"algorithm\[0\].name: .*Scaled of the run in read"):
        mile.run(problem=PROBLEM, out="read", resume=True, rounds=12)


def test_facts_are_the_same_for_equal_methods_and_see_all_that_differs() -> None:
    class Rule:
        def __init__(self, rate: float) -> None:
            self.rate = rate

    def of(weight: Any) -> dict[str, str]:
        return facts(Weighted(weight), mile.Method)

    cycle: list[Any] = [1]
    cycle.append(cycle)
    values: list[Any] = [
        None, True, 1, 1.0, "1", 1j, [1], (1,), [1, 2], {"a": 1}, {"a": 2}, {1, 2}, {1, 3}, cycle, "long" * 100,
        np.float32(1), np.ones(2), np.ones((2, 1)), np.ones(2, np.float32), np.array([None, 1], dtype=object),
        Rule(1.0), Rule(2.0), Rule, len, lambda x: x, lambda x: x + 1, np.random.default_rng(0), np.random.default_rng(1), Path("a"), Path("b"),
    ]  # fmt: skip
    found = [of(value) for value in values]
    assert found == [of(value) for value in values]
    assert len({str(one) for one in found}) == len(values)
    assert of([np.ones(3), {"rule": Rule(1.0)}]) == of([np.ones(3), {"rule": Rule(1.0)}])
    assert of(threading.Lock())["attribute.weight"].startswith("lock")
