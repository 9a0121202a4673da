"""Methods: the built-in ones, and those of one's own."""

from __future__ import annotations

import json
from typing import Any, Protocol, runtime_checkable

from . import _mile

Algorithm = dict[str, Any]
"""A section `[[algorithm]]`: the method, its step size and its parameters."""


_ALIASES = {"num_local_steps": "local_steps", "tau": "local_steps", "lr": "step_size"}
# decent-bench's second step size, by method.
_AUXILIARY = {"led": "beta", "proxskip": "beta", "k-gt": "eta_s"}


class Method:
    """A method of one's own, written in the verbs of a `Step`; for prototypes.

    The class names its vectors: `state` is kept from step to step and begins with "x", the agents' models; `scratch` is for gradients and messages. State
    vectors in units of the step size, such as corrections of x, are also listed in `scaled`, so that they follow a step size that changes. `step` is one
    update; `start` takes the agents from their starting point to x(0).

    >>> import mile
    >>> class DGD(mile.Method):
    ...     state = ("x",)
    ...     scratch = ("g", "d")
    ...     def step(self, s):
    ...         s.gradient("x", "g")
    ...         s.pull(("x", "d"))                                    # d = W x - x
    ...         s.combine("x", 1.0, [(1.0, "d"), (-s.step_size, "g")])  # x = W x - alpha g
    >>> own = mile.method(DGD(), step_size=0.05)
    >>> same = mile.method("dsgd", step_size=0.05, variant="cta")
    >>> run = mile.run(problem=mile.Quadratic(dim=3), network="ring", algorithms=[own, same], rounds=30, out=tmp / "dgd")
    >>> bool((run.x("DGD") == run.x("dsgd")).all())
    True
    """

    state: tuple[str, ...] = ("x",)
    scaled: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ("g",)

    def start(self, s: _mile.Step) -> None:
        """From the starting point to x(0); all state vectors but x are zero before it."""

    def step(self, s: _mile.Step) -> None:
        """One update, from x(t) to x(t+1)."""
        raise NotImplementedError("a method needs step(self, s)")


@runtime_checkable
class HasStep(Protocol):
    """Anything that can be used as a method."""

    state: tuple[str, ...]

    def step(self, s: _mile.Step) -> None: ...


def method(name: str | HasStep, step_size: float | str, *, label: str | None = None, **parameters: Any) -> Algorithm:
    """A method with its step size and parameters, for `algorithms`.

    `name` is that of a built-in method (`methods` lists them), or a `Method` of your own. `step_size="auto"` chooses it from the estimated curvature. The
    parameters are the keys of the section `[[algorithm]]`; `num_local_steps` and `tau` are other names of `local_steps`, and `aux_step_size` of LED's `beta` and
    K-GT's `eta_s`.

    >>> import mile
    >>> mile.method("mile", step_size=0.1, num_local_steps=5)
    {'name': 'mile', 'step_size': 0.1, 'num_local_steps': 5}
    """
    found: Algorithm = {"name": name, "step_size": step_size}
    if label is not None:
        found["label"] = label
    return found | parameters


def methods() -> Any:
    """The built-in methods as a DataFrame, or as a list of dictionaries without pandas.

    >>> import mile
    >>> mile.methods().loc["mile", "vectors_sent"].item()
    1
    """
    found = json.loads(_mile.methods())
    try:
        import pandas as pd
    except ImportError:
        return found
    return pd.DataFrame(found).set_index("name")


def own_name(method: object) -> str:
    """The name of a method of one's own: its class and the numbers that it was made with."""
    kind = type(method).__name__
    plain = (bool, int, float, str)
    values = {key: value for key, value in sorted(vars(method).items()) if isinstance(value, plain) and key[0] != "_"}
    return f"{kind}({', '.join(f'{key}={value}' for key, value in values.items())})" if values else kind


def resolve(algorithms: Any) -> tuple[list[Algorithm], list[tuple[str, object]]]:
    """Sections for algorithms in any form, and the methods of one's own among them, by name."""
    if isinstance(algorithms, (str, dict)) or isinstance(algorithms, HasStep):
        algorithms = [algorithms]
    found: list[Algorithm] = []
    own: list[tuple[str, object]] = []
    for k, given in enumerate(algorithms):
        if not isinstance(given, dict):
            takes = 'takes mile.method(name, step_size=...), or a dictionary with name and step_size'
            raise TypeError(f"algorithms[{k}]: got {given!r}, {takes}")
        names = dict(_ALIASES)
        if given.get("name") in _AUXILIARY:
            names["aux_step_size"] = _AUXILIARY[given["name"]]
        section: Algorithm = {names.get(str(key), str(key)): value for key, value in given.items()}
        if len(section) < len(given):
            raise ValueError(f"algorithms[{k}]: two names of one parameter: {', '.join(given)}")
        given_method = section.get("name")
        if given_method is not None and not isinstance(given_method, str):
            name = own_name(given_method)
            own.append((name, given_method))
            section["name"] = name
        found.append(section)
    return found, own
