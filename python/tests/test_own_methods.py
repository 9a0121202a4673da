"""Methods that a file defines, or this process, on objectives that a file defines."""

from pathlib import Path
from typing import Any

import pytest
from places import NUMPY, Storm, assert_equal, command, free_ports, run_agents, write

import mile
from mile import _factory

OWN = NUMPY + """

def move(x, m, g, step):
    m *= 0.9
    m += g
    x -= step * np.tanh(m) / (1 + np.abs(m))


class Bounded(mile.Method):
    # Momentum and steps of bounded length, which only `apply` expresses.
    state, scratch = ("x", "m"), ("g", "d")

    def __init__(self, rate=1.0):
        self.rate = rate * scale

    def step(self, s):
        step = self.rate * s.step_size
        s.gradient("x", "g")
        s.apply(lambda x, m, g: move(x, m, g, step), "x", "m", "g")
        s.pull(("x", "d"))
        s.combine("x", 1.0, [(1.0, "d")])


class Silent(mile.Method):
    def step(self, s):
        s.gradient("x", "g")


class Broken(Bounded):
    def __init__(self):
        raise KeyError("what is missing")


class Fails(Bounded):
    def step(self, s):
        s.apply(lambda x: x[:, :1], "x")
        s.pull(("x", "d"))


def number():
    return 3
"""


def write_own(place: Path, factory: str = "train.py:Bounded", more: str = "arguments = { rate = 2.0 }") -> Path:
    path = write(place, OWN)
    text = path.read_text().replace('name = "mile"', f'factory = "{factory}"\n{more}').replace("local_steps = 3\n", "")
    path.write_text(text)
    return path


def test_an_own_method_has_the_same_bits_everywhere(place: Path) -> None:
    path = write_own(place)
    path.write_text(path.read_text().replace('files = ["beside.py"]', 'files = ["beside.py"]\narguments = { slow = 0.05 }'))
    here = mile.run(path, out="here", set=["problem.arguments.slow=0.0"])
    assert sorted(here.state()) == ["m", "x"] and here.rows[-1]["round"] == 12 and here.x("Bounded").any()
    method = _factory.make_method(place / "train.py", "Bounded", '{"rate": 2.0}')
    own = mile.method(method, step_size=0.05)  # type: ignore[arg-type]
    assert_equal(here, mile.run(path, algorithms=[own], out="object"))
    command("run", path, "--out", "commanded")
    assert_equal(here, mile.load_run("commanded"))
    storm = Storm(place / "there", (0, 2), (1, 4), (2, 7))
    there = mile.swarm(path, out="there", agent={"transport": "tcp"})
    storm.check()
    assert_equal(here, there)
    assert [row["loss"] for row in there.rows] == [row["loss"] for row in here.rows]


def test_a_run_of_an_own_method_goes_on_with_the_same_file_only(place: Path) -> None:
    path = write_own(place)
    here = mile.run(path, out="here")
    mile.run(path, rounds=5, out="parts")
    assert_equal(here, mile.run(rounds=12, out="parts", resume=True))
    section = {"kind": "quadratic", "dim": 2}
    given: dict[str, Any] = {"problem": section, "network": "ring", "algorithms": [mile.method(factory="train.py:Bounded", step_size=0.05)], "out": "other"}
    mile.run(rounds=5, **given)
    (place / "train.py").write_text((place / "train.py").read_text().replace("m *= 0.9", "m *= 0.8"))
    with pytest.raises(mile.ExperimentError, match=r"algorithm\.factory"):
        mile.run(rounds=12, resume=True, **given)


def test_arguments_of_an_own_method_are_swept(place: Path) -> None:
    found = mile.sweep(write_own(place), values={"algorithm.Bounded.arguments.rate": [1.0, 2.0]}, criterion="grad_norm_sq", out="swept")
    assert sorted(found.trials["algorithm.Bounded.arguments.rate"]) == [1.0, 2.0]
    assert len(set(found.trials["grad_norm_sq"])) == 2


def test_agents_folders_have_an_own_method_on_any_problem(place: Path) -> None:
    write(place, OWN)
    own = mile.method(factory="train.py:Bounded", files=["beside.py"], step_size=0.05)
    given: dict[str, Any] = {"problem": mile.Quadratic(dim=3), "network": {"agents": 2}, "algorithms": [own], "rounds": 6}
    here = mile.run(out="here", **given)
    ports = free_ports(2)
    folders = mile.emit(out="deploy", hosts={k: f"127.0.0.1:{port}" for k, port in enumerate(ports)}, agent={"transport": "tcp"}, **given)
    assert [sorted(one.name for one in folder.iterdir()) for folder in folders] == 2 * [["agent.toml", "beside.py", "key", "train.py"]]
    (place / "train.py").rename(place / "gone.py")
    run_agents(folders)
    assert_equal(here, mile.gather("deploy", out="gathered"))


@pytest.mark.parametrize(
    ("factory", "more", "kind"),
    [
        ("train.py:Silent", "", mile.ExperimentError),
        ("train.py:number", "", mile.ExperimentError),
        ("train.py:absent", "", mile.ExperimentError),
        ("train.py:Bounded", "arguments = { raet = 2.0 }", mile.ExperimentError),
        ("train.py:Broken", "", KeyError),
    ],
)
def test_what_is_no_method_is_refused_by_key(place: Path, factory: str, more: str, kind: type[Exception]) -> None:
    path = write_own(place, factory, more)
    with pytest.raises(kind, match=factory.partition(":")[2] if kind is mile.ExperimentError else "missing"):
        mile.run(path, out="no")
    assert "algorithm[0].factory" in command("run", path, "--out", "commanded", code=2)
    with pytest.raises(mile.ExperimentError, match=r"algorithm\[0\]\.factory"):
        mile.swarm(path, out="there")


def test_a_function_that_fails_in_an_agent_is_named(place: Path) -> None:
    path = write_own(place, "train.py:Fails", "")
    with pytest.raises(ValueError, match="apply: .*shape"):
        mile.run(path, out="here")
    with pytest.raises(mile.RunError):
        mile.swarm(path, out="there")
    assert any("apply: " in (place / f"there/agents/{k}/log").read_text() for k in range(3))


def of_this_process(place: Path, rate: float) -> list[Any]:
    method: Any = _factory.make_method(place / "train.py", "Bounded", f'{{"rate": {rate}}}')
    return [mile.method(method, step_size=0.05, label="own")]


def test_an_own_method_of_this_process_runs_on_objectives_of_a_file(place: Path) -> None:
    path, own = write(place, OWN), of_this_process(place, 1.0)
    here = mile.run(path, algorithms=own, out="here")
    assert sorted(here.state()) == ["m", "x"] and here.rows[-1]["round"] == 12
    mile.run(path, algorithms=own, rounds=5, out="parts")
    assert_equal(here, mile.run(path, algorithms=own, out="parts", resume=True))
    with pytest.raises(mile.ExperimentError, match=r"algorithm\.attribute\.rate"):
        mile.run(path, algorithms=of_this_process(place, 2.0), rounds=15, out="parts", resume=True)
    swept = mile.sweep(path, algorithms=own, values={"problem.arguments.width": [3, 5]}, criterion="grad_norm_sq", out="swept")
    assert sorted(swept.trials["problem.arguments.width"]) == [3, 5]


def test_an_own_method_of_this_process_is_no_swarm(place: Path) -> None:
    class Local(mile.Method):
        scratch = ("g", "d")

        def step(self, s: mile.Step) -> None:
            s.pull(("x", "d"))

    path = write(place, OWN)
    local: list[Any] = [mile.method(Local(), step_size=0.1)]
    for own, remedy in [(local, "train.py:Local"), (of_this_process(place, 1.0), f"{place / 'train.py'}:Bounded")]:
        for refuses in (mile.swarm, mile.emit):
            with pytest.raises(mile.ExperimentError, match=r"^algorithm\[1\]\.name: ") as refused:
                refuses(path, algorithms=[mile.method("mile", step_size=0.1), *own], out="no")
            assert f'factory="{remedy}"' in str(refused.value)
    path.write_text(path.read_text().replace('name = "mile"', 'name = "Bounded"'))
    with pytest.raises(mile.ExperimentError, match=r"algorithm\[0\]\.name: .*Bounded"):
        mile.run(path, out="no")
    assert "algorithm[0].name" in command("run", path, "--out", "no", code=2)
    assert not (place / "no").exists()
    for wrong in [{}, {"name": "mile", "factory": "train.py:Bounded"}]:
        with pytest.raises(TypeError, match="name: .*factory"):
            mile.method(**wrong)  # type: ignore[arg-type]
