"""Laws of decentralized methods, checked on any implementation.

The built-in methods are tested by them, and so can be yours: `check` runs it on two problems whose agents differ strongly, and compares where it ends, what it conserves,
what it sends and stores, and whether it can be continued, with what you expect. Nothing that a method says of itself is believed: costs are counted by the messages and
the gradients, and what a method remembers is what other agents can continue from. A method is a function of one round, which sees the agents as `Agents`:

>>> from mile import contract
>>> def led(s):
...     phi = s.x
...     for _ in range(5):
...         phi = phi - 0.2 * s.gradient(phi) - 0.2 * s["y"]
...     x = s.mix(phi)
...     s["y"], s.x = s["y"] + phi - x, x
>>> def begin(s):
...     s["y"] = 0 * s.x
>>> report = contract.check(led, start=begin, zero_sum=["y"], step_size=0.2, sent=1, gradients=5, stored=2, rounds=1000)
>>> report.holds
True
>>> report["vectors sent"].measured
1.0

`print(report)` shows a table, and `report.assert_all()` raises `Broken` if a law does not hold.
"""

from ._agents import Agents
from ._laws import check
from ._report import Broken, Finding, Report

__all__ = ["Agents", "Broken", "Finding", "Report", "check"]
