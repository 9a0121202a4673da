"""Types of what a user touches: nothing in them may be anything, and what runs and agents say has the types that are promised."""

import ast
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import mile
import mile.jax
import mile.loggers
import mile.torch
from mile import _results

Nested = dict[str, list[Any]]
Quoted: typing.TypeAlias = "int | Mapping[str, Any]"
Array = NDArray[np.floating]
T = typing.TypeVar("T", bound=Mapping[str, Any])


class Loose(TypedDict):
    field: "list[Any]"


class Inherited(dict[str, Any]):
    pass


def is_loose(hint: Any, names: Mapping[str, Any], seen: set[Any]) -> bool:
    """Whether a hint has Any in it, behind however many names; classes of this package are looked into."""
    if hint is Any:
        return True
    if hint == ArrayLike:
        # NumPy's own name for what it makes arrays of.
        return False
    if isinstance(hint, typing.ForwardRef):
        hint = hint.__forward_arg__
    if isinstance(hint, str):
        if hint in seen:
            return False
        seen.add(hint)
        nodes = list(ast.walk(ast.parse(hint, mode="eval")))
        named = [names.get(node.id) for node in nodes if isinstance(node, ast.Name)]
        # An array's numbers have a type in brackets, and its shape has none.
        named = [one for one in named if one is not NDArray]
        return any(isinstance(node, ast.Attribute) and node.attr == "Any" for node in nodes) or any(is_loose(one, names, seen) for one in named)
    if isinstance(hint, list):
        return any(is_loose(one, names, seen) for one in hint)
    if isinstance(hint, typing.TypeVar):
        return is_loose(hint.__bound__, names, seen)
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is np.ndarray:
        arguments = typing.get_args(arguments[1])
    if arguments and typing.get_origin(hint) is not typing.Literal:
        return any(is_loose(one, names, seen) for one in arguments)
    if inspect.isclass(hint) and hint.__module__.startswith(("mile.", __name__)) and hint not in seen:
        seen.add(hint)
        inside = vars(sys.modules[hint.__module__])
        hints = [*inspect.get_annotations(hint).values(), *getattr(hint, "__orig_bases__", ())]
        return any(is_loose(one, inside, seen) for one in hints)
    return False


@pytest.mark.parametrize("hint", ["Any", "dict[str, Any]", "Nested | None", "Quoted", "list[Loose]", "Inherited", "NDArray[Any]", "typing.Any", "T", "Callable[[Any], int]", Callable[[Any], int]])
def test_any_is_found_wherever_it_hides(hint: Any) -> None:
    assert is_loose(hint, globals(), set())


@pytest.mark.parametrize("hint", ["Array", "NDArray[np.floating]", "dict[str, object]", 'typing.Literal["Any"]', "mile.Run"])
def test_other_types_are_no_any(hint: str) -> None:
    assert not is_loose(hint, globals(), set())


def hints_of(function: Any) -> dict[str, Any]:
    signature = inspect.signature(function)
    return {**{key: one.annotation for key, one in signature.parameters.items()}, "return": signature.return_annotation}


def test_arguments_and_results_have_types() -> None:
    """No function that a user calls takes or returns what may be anything, or has it in it."""
    modules = (mile, mile.torch)
    public = {f"{module.__name__}.{name}": getattr(module, name) for module in modules for name in module.__all__}
    public |= {"jax.Problem": mile.jax.Problem, "loggers.Logger": mile.loggers.Logger, "loggers.records": mile.loggers.records}
    public |= {name: one for name, one in vars(_results).items() if inspect.isclass(one) and one.__module__ == _results.__name__}
    loose: list[str] = []
    looked: list[str] = []

    def look(name: str, function: Any) -> None:
        looked.append(name)
        loose.extend(f"{name}: {key}" for key, hint in hints_of(function).items() if is_loose(hint, function.__globals__, set()))

    for name, one in public.items():
        if inspect.isfunction(one):
            look(name, one)
        elif inspect.isclass(one) and one.__module__ not in ("mile._mile", "mile"):
            loose += [name] if is_loose(one, {}, set()) else []
            methods = {key: value.fget if isinstance(value, property) else value for key, value in vars(one).items() if key[0] != "_" or key == "__init__"}
            for key, value in methods.items():
                if inspect.isfunction(value):
                    look(f"{name}.{key}", value)
        elif isinstance(one, types.GenericAlias):
            loose += [name] if is_loose(one, {}, set()) else []
    assert not loose
    assert {"mile.run", "mile.status", "mile.Run.config", "mile.Run.outcomes", "mile.torch.Problem.__init__", "jax.Problem.grad"} <= set(looked)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has a type of `_results`."""
    if isinstance(hint, (str, typing.ForwardRef)):
        return fits(value, typing.Union[None, bool, int, float, str, list, dict])
    if hint in (list, dict, bool, str):
        return type(value) is hint
    if hint in (None, type(None)):
        return value is None
    if hint is int:
        return type(value) is int
    if hint is float:
        return type(value) in (int, float)
    if typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint)
        return hint.__required_keys__ <= value.keys() <= hints.keys() and all(fits(one, hints[key]) for key, one in value.items())
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return value in arguments
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is list:
        return type(value) is list and all(fits(one, arguments[0]) for one in value)
    if origin is dict:
        return type(value) is dict and all(fits(one, arguments[1]) for one in value.values())
    return isinstance(value, origin)


def test_what_runs_and_agents_say_has_the_promised_types() -> None:
    def parts(**more: Any) -> dict[str, Any]:
        return {"problem": mile.Quadratic(dim=3), "network": {"agents": 3}, "algorithms": [mile.method("mile", lr=0.1, local_steps=3)], "rounds": 4, **more}

    run = mile.run(**parts(stop={"grad_norm": 1e-9}, agent_metrics=True, seeds=[0, 1]))
    assert fits(run.config, _results.Config)
    assert len(run.outcomes) == 2 and all(fits(one, _results.Outcome) for one in run.outcomes)
    for row in run.rows:
        texts = {key for key, value in row.items() if isinstance(value, str)}
        whole = {key for key, value in row.items() if isinstance(value, int)}
        assert type(row) is _results.Record and texts == {"algorithm", "label"}
        assert whole == {"seed", "round", "step", "vectors_sent", "bytes_sent", "gradient_evals"}
        assert all(isinstance(value, float) for key, value in row.items() if key not in texts | whole | {"agents"})
    mile.swarm(**parts(), out="there")
    answers = mile.status("there")
    assert len(answers) == 3 and all(fits(one, _results.Answer) for one in answers)
    assert all(set(one) == {"folder", "status"} for one in answers)
    found = mile.theory("ring", agents=5)
    hints = typing.get_type_hints(type(found), localns=vars(_results))
    # Not a name in Python.
    assert found.keys() == hints.keys() | {"lambda"}
    wrong = [key for key, hint in hints.items() if not fits(found[key], hint)]
    assert not wrong

