"""Built-in and custom methods."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from . import _mile
from ._facts import exchanges, facts
from ._names import MethodName, Parameters

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Unpack

Algorithm = dict[str, object]
"""A section `[[algorithm]]`: the method, its step size and its parameters."""

Algorithms = Mapping[str, object] | Sequence[Mapping[str, object]]
"""What is run: one `method(...)`, or several."""

OwnMethod = tuple[object, str, str, list[tuple[str, str]]]
"""A custom method: the object, its name in the experiment, its title, and the facts that identify it."""


_ALIASES = {"num_local_steps": "local_steps", "tau": "local_steps", "lr": "step_size"}
# The parameter that decent-bench's second step size sets, by method.
_AUXILIARY = {"led": "beta", "proxskip": "beta", "k-gt": "eta_s"}


class Method:
    """A custom method, written in the verbs of a `Step`; meant for prototypes.

    The class names its vectors. `state` is kept from step to step and begins with "x", the agents' models; `scratch` is for gradients and messages. State
    vectors in units of the step size, such as corrections of x, are also listed in `scaled`, so that they follow a step size that changes. `step` is one
    update; `start` takes the agents from their starting point to x(0). `s.apply` applies any NumPy function, or PyTorch function for PyTorch models, to whole vectors.

    Where each agent is a process, a method is named by its file: `method(factory="train.py:DGD")`.

    Attributes are hyperparameters. A run is resumed only if the attributes and the code are unchanged. A string `version` replaces this check, for methods that change
    their own attributes.

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
        """Takes the agents from the starting point to x(0); all state vectors but x are zero at first."""

    def step(self, s: _mile.Step) -> None:
        """One update, from x(t) to x(t+1)."""
        raise NotImplementedError("step: expected step(self, s), got none; define it")


@runtime_checkable
class HasStep(Protocol):
    """Anything that can be used as a method."""

    state: tuple[str, ...]

    def step(self, s: _mile.Step) -> None: ...


def method(
    name: MethodName | HasStep | None = None,
    step_size: float | Literal["auto"] | None = None,
    *,
    lr: float | Literal["auto"] | None = None,
    label: str | None = None,
    **parameters: Unpack[Parameters],
) -> Algorithm:
    """A method with its step size and parameters, for `algorithms`.

    `name` is the name of a built-in method (`methods` lists them), or a custom `Method`; `factory`, in its place, names the class of a custom method in a file,
    `factory="train.py:DGD"`, which `arguments={...}` are passed to. `step_size="auto"` chooses the step size from the estimated curvature; `lr` is an
    alias. Only problems with a PyTorch optimizer need none. The parameters are the keys of the section `[[algorithm]]`; `num_local_steps` and `tau` are aliases of
    `local_steps`, and `aux_step_size` is an alias of LED's `beta` and K-GT's `eta_s`.

    >>> import mile
    >>> mile.method("mile", step_size=0.1, num_local_steps=5)
    {'name': 'mile', 'step_size': 0.1, 'num_local_steps': 5}
    >>> mile.method("mile", lr=0.1, momentum=0.9)
    {'name': 'mile', 'step_size': 0.1, 'momentum': 0.9}
    >>> mile.method(factory="train.py:DGD", arguments={"rate": 2.0}, step_size=0.1)
    {'step_size': 0.1, 'factory': 'train.py:DGD', 'arguments': {'rate': 2.0}}
    """
    if (name is None) == (parameters.get("factory") is None):
        got = "neither" if name is None else "both"
        raise TypeError(f"name: expected either name or factory, a class in a file, got {got}")
    if step_size is not None and lr is not None:
        raise TypeError(f"step_size: expected either step_size or its alias lr, got {step_size} and {lr}")
    found: Algorithm = {} if name is None else {"name": name}
    given = lr if step_size is None else step_size
    found |= {} if given is None else {"step_size": given}
    found |= {} if label is None else {"label": label}
    return found | dict(parameters)


def methods() -> pd.DataFrame:
    """The built-in methods as a DataFrame; without pandas, as a list of dictionaries.

    >>> import mile
    >>> mile.methods().loc["mile", "vectors_sent"].item()
    1
    """
    found: Any = json.loads(_mile.methods())
    try:
        import pandas as pd
    except ImportError:
        return found
    return pd.DataFrame(found).set_index("name")


def own_name(method: object) -> str:
    """The name of a custom method: its class, with the numbers and strings it was made with."""
    kind = type(method).__name__
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in sorted(vars(method).items()) if key[0] != "_"}
    values = [f"{key}={value}" for key, value in plain.items() if isinstance(value, (bool, int, float, str))]
    return f"{kind}({', '.join(values)})" if values else kind


class _Own:
    """The custom methods of one experiment. Each object is a separate method, even if another has the same name."""

    def __init__(self) -> None:
        self.methods: list[OwnMethod] = []

    def add(self, method: object) -> tuple[str, str]:
        """The unique name of the method in this experiment, and its title."""
        for known, name, title, _ in self.methods:
            if known is method:
                return name, title
        title = own_name(method)
        alike = sum(title == other for _, _, other, _ in self.methods)
        name = f"{title} #{alike + 1}" if alike else title
        self.methods.append((method, name, title, list(facts(method, Method).items())))
        return name, title


def resolve(algorithms: Any) -> tuple[list[Algorithm], list[OwnMethod]]:
    """Sections for algorithms in any form, and the custom methods among them."""
    if isinstance(algorithms, (str, Mapping)) or isinstance(algorithms, HasStep):
        algorithms = [algorithms]
    elif not isinstance(algorithms, Iterable):
        raise TypeError(f"algorithms: expected a list of mile.method(...), got {type(algorithms).__name__}")
    found: list[Algorithm] = []
    own = _Own()
    for k, given in enumerate(algorithms):
        if not isinstance(given, Mapping):
            expected = "mile.method(name, step_size=...) or a dictionary with name and step_size"
            raise TypeError(f"algorithms[{k}]: expected {expected}, got {given!r}")
        names = dict(_ALIASES)
        method = given.get("name")
        if isinstance(method, str) and method in _AUXILIARY:
            names["aux_step_size"] = _AUXILIARY[method]
        section: Algorithm = {names.get(str(key), str(key)): value for key, value in given.items()}
        if len(section) < len(given):
            raise ValueError(f"algorithms[{k}]: expected each parameter once, got two names of one among {', '.join(given)}")
        if isinstance(method, type):
            raise TypeError(f"algorithms[{k}]: expected a method, got the class {method.__name__}; pass an object, {method.__name__}(...)")
        if method is not None and not isinstance(method, str):
            if not exchanges(method, Method):
                expected = "a method that exchanges vectors: its step calls s.pull or s.mix"
                raise _mile.ExperimentError(f"algorithms[{k}]: expected {expected}, got {type(method).__name__}, which calls neither")
            section["name"], title = own.add(method)
            section.setdefault("label", title)
        found.append(section)
    return found, own.methods
