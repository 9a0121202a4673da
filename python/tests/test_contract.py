"""The contract for implementations: methods that obey the laws, and for each law one that breaks it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mile import contract

STEP_SIZE, LOCAL_STEPS, BETA = 0.2, 5, 0.2
Method = Callable[[contract.Agents], object]


def led(s: contract.Agents) -> None:
    phi = s.x
    for _ in range(LOCAL_STEPS):
        phi = phi - STEP_SIZE * s.gradient(phi) - BETA * s["y"]
    x = s.mix(phi)
    s["y"], s.x = s["y"] + phi - x, x


def without_corrections(s: contract.Agents) -> None:
    s["y"] = 0 * s.x


LED: dict[str, Any] = {
    "start": without_corrections, "zero_sum": ["y"], "step_size": STEP_SIZE, "sent": 1, "gradients": LOCAL_STEPS, "stored": 2, "rounds": 300,
}


def broken(step: Method, **expected: Any) -> set[str]:
    return {one.law for one in contract.check(step, **expected).broken}


def test_led_obeys_all_laws() -> None:
    report = contract.check(led, **LED, drop_rate=0.2)
    report.assert_all()
    assert report.holds and all(one.holds for one in report)
    assert report["minimum of quadratics"].measured < 1e-12
    assert report["sum of y, edges down"].measured < 1e-15


def test_k_gt_obeys_all_laws() -> None:
    def k_gt(s: contract.Agents) -> None:
        u = s.x
        for _ in range(LOCAL_STEPS):
            u = u - STEP_SIZE * (s.gradient(u) + s["c"])
        z = (s.x - u) / (LOCAL_STEPS * STEP_SIZE)
        s["c"], s.x = s["c"] - z + s.mix(z), s.mix(u)

    def begin(s: contract.Agents) -> None:
        s["c"] = 0 * s.x

    contract.check(k_gt, **LED | {"start": begin, "zero_sum": ["c"], "sent": 2, "rounds": 1200}).assert_all()


def tracking(s: contract.Agents) -> None:
    x = s.mix(s.x - 0.1 * s["y"])
    g = s.gradient(x)
    s["y"], s["g"], s.x = s.mix(s["y"]) + g - s["g"], g, x


def gradients_at_the_start(s: contract.Agents) -> None:
    s["y"] = s.gradient(s.x)
    s["g"] = s["y"].copy()


def test_gradient_tracking_has_the_mean_gradient() -> None:
    expected = {"start": gradients_at_the_start, "tracks": "y", "sent": 2, "gradients": 1, "stored": 3, "rounds": 1200}
    contract.check(tracking, **expected).assert_all()


def dsgd(s: contract.Agents) -> None:
    s.x = s.mix(s.x - 0.1 * s.gradient(s.x))


def test_a_method_that_is_not_exact_is_found_and_can_be_expected() -> None:
    costs = {"step_size": 0.1, "sent": 1, "gradients": 1, "stored": 1, "rounds": 600}
    assert broken(dsgd, **costs) == {"minimum of quadratics", "stationary point", "agreement"}
    assert broken(dsgd, exact=False, **costs) == set()
    assert broken(led, **LED | {"exact": False}) == {"minimum of quadratics", "stationary point"}


def test_on_another_graph() -> None:
    star = np.diag([0.4, 0.8, 0.8, 0.8, 1.0])
    star[0, 1:4] = star[1:4, 0] = 0.2
    star[3, 4] = star[4, 3] = 0.3
    star -= np.diag(star.sum(axis=1) - 1)
    report = contract.check(led, **LED | {"rounds": 1500}, weights=star)
    assert report.holds and report["hops in a round"].measured == 1


class Hidden:
    """LED with a momentum that is not part of the state."""

    def __init__(self) -> None:
        self.momentum: Any = 0.0

    def __call__(self, s: contract.Agents) -> None:
        if s.round == 0:
            self.momentum = 0.0
        self.momentum = 0.1 * self.momentum + s["y"]
        led(s)
        s.x = s.x - 1e-3 * self.momentum


def with_a_glance_at_the_average(s: contract.Agents) -> None:
    led(s)
    s.x = s.x + 0.1 * (s.x.mean(axis=0) - s.x)


def with_a_second_exchange(s: contract.Agents) -> None:
    led(s)
    s.exchange(s.x)


def with_a_longer_message(s: contract.Agents) -> None:
    led(s)
    s.send(0, 1, [1.0])


def with_a_silent_agent(s: contract.Agents) -> None:
    mixed = s.x - STEP_SIZE * s.gradient(s.x)
    for agent in range(1, s.agents):
        s.send(agent, s.neighbours[agent][0], mixed[agent])


def with_a_gradient_too_many(s: contract.Agents) -> None:
    led(s)
    s.gradient_of(3, s.x[3])


def with_a_vector_too_many(s: contract.Agents) -> None:
    led(s)
    s["phi"] = s.x.copy()


def with_one_more_correction(s: contract.Agents) -> None:
    led(s)
    s["y"][0] += 1e-11


def with_chance(s: contract.Agents) -> None:
    led(s)
    s.x = s.x * (1 + 1e-15 * np.random.default_rng().integers(0, 9))


@pytest.mark.parametrize(
    ("step", "laws"),
    [
        (with_a_glance_at_the_average, {"hops in a round"}),
        (with_a_second_exchange, {"vectors sent"}),
        (with_a_longer_message, {"vectors sent"}),
        (with_a_gradient_too_many, {"gradients", "average descends"}),
        (with_a_vector_too_many, {"vectors stored"}),
        (with_one_more_correction, {"sum of y", "average descends"}),
        (with_chance, {"repeated", "resumed"}),
        (Hidden(), {"resumed"}),
    ],
)
def test_each_law_is_broken_by_a_method_of_its_own(step: Method, laws: set[str]) -> None:
    ends = {"minimum of quadratics", "stationary point", "agreement"}
    assert broken(step, **LED | {"rounds": 1}) == laws | ends


def test_costs_that_are_not_those_of_all_agents_are_shown() -> None:
    report = contract.check(with_a_silent_agent, sent=1, gradients=1, rounds=1)
    assert report["vectors sent"].measured == 0 and report["vectors sent"].holds is False
    assert contract.check(with_a_silent_agent, rounds=1)["vectors sent"].measured == 1


def test_a_wrong_step_size_or_tracker_is_found() -> None:
    assert "average descends" in broken(led, **LED | {"rounds": 1, "step_size": 0.19})
    assert "mean of y" in broken(tracking, start=without_trackers, tracks="y", rounds=1)


def without_trackers(s: contract.Agents) -> None:
    gradients_at_the_start(s)
    s["y"] = 0 * s.x


def adding_what_arrives(s: contract.Agents) -> None:
    """LED where the weights of what has arrived may sum to less than one."""
    phi = s.x
    for _ in range(LOCAL_STEPS):
        phi = phi - STEP_SIZE * s.gradient(phi) - BETA * s["y"]
    received = s.exchange(phi)
    x = np.stack([s.weights[i, i] * phi[i] + sum(s.weights[i, j] * theirs for j, theirs in received[i].items()) for i in range(s.agents)])
    s["y"], s.x = s["y"] + phi - x, x


def test_weights_that_are_lost_with_messages_are_found() -> None:
    lossless = contract.check(adding_what_arrives, **LED)
    lossless.assert_all()
    report = contract.check(adding_what_arrives, **LED, drop_rate=0.2)
    assert {one.law for one in report.broken} == {f"{law}, edges down" for law in ("minimum of quadratics", "stationary point", "sum of y")}
    assert report["agreement, edges down"].measured < 1e-12


def test_messages_lost_at_one_end_break_the_sum_of_corrections() -> None:
    report = contract.check(led, **LED, lost_messages=0.2)
    assert {"minimum of quadratics, messages lost", "sum of y, messages lost"} <= {one.law for one in report.broken}
    assert all(one.law.endswith(", messages lost") for one in report.broken)


def test_messages_can_be_carried_one_by_one() -> None:
    def carried(s: contract.Agents) -> None:
        phi = s.x.copy()
        for agent in range(s.agents):
            for _ in range(LOCAL_STEPS):
                phi[agent] -= STEP_SIZE * s.gradient_of(agent, phi[agent]) + BETA * s["y"][agent]
        x = phi.copy()
        for agent in range(s.agents):
            for other in s.neighbours[agent]:
                if s.send(other, agent, phi[other]):
                    x[agent] += s.weights[agent, other] * (phi[other] - phi[agent])
        s["y"], s.x = s["y"] + phi - x, x

    contract.check(carried, **LED, drop_rate=0.1).assert_all()


def test_a_method_that_diverges_is_a_finding() -> None:
    def up(s: contract.Agents) -> None:
        s.x = s.mix(s.x + 9 * s.gradient(s.x))

    report = contract.check(up, rounds=2000)
    assert not report["minimum of quadratics"].holds and not np.isfinite(report["minimum of quadratics"].measured)


def test_a_failed_assertion_has_its_findings() -> None:
    with pytest.raises(contract.Broken) as caught:
        contract.check(dsgd, sent=2, rounds=600).assert_all()
    assert isinstance(caught.value, AssertionError)
    assert [one.law for one in caught.value.findings] == ["minimum of quadratics", "stationary point", "agreement", "vectors sent"]


def message_to(receiver: int) -> Method:
    return lambda s: s.send(0, receiver, s.x[0])


def of_shape(name: str, *shape: int) -> Method:
    return lambda s: s.state.update({name: np.zeros(shape)})


@pytest.mark.parametrize(
    ("step", "expected", "key"),
    [
        (message_to(3), {}, "receiver"),
        (message_to(0), {}, "receiver"),
        (of_shape("x", 8, 4), {}, "x"),
        (of_shape("y", 5), {}, "state['y']"),
        (lambda s: s.mix(s.x[0]), {}, "vectors"),
        (lambda s: s.gradient_of(0, s.x), {}, "x"),
        (dsgd, {"zero_sum": ["c"]}, "zero_sum"),
        (dsgd, {"drop_rate": 1.0}, "drop_rate"),
        (dsgd, {"lost_messages": -0.1}, "lost_messages"),
        (dsgd, {"rounds": 0}, "rounds"),
        (dsgd, {"weights": np.eye(3)[:2]}, "weights"),
        (dsgd, {"weights": [[0.5, 0.5], [0.4, 0.6]]}, "weights"),
    ],
)
def test_mistakes_are_refused_by_name(step: Method, expected: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match="expected .* got") as caught:
        contract.check(step, **{"rounds": 1} | expected)
    assert str(caught.value).startswith(key)
