"""What identifies a custom method when a run is resumed: its code and attributes, or its `version`."""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import inspect
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property)
_SHOWN = 80

FILES: dict[str, str] = {}
"""Modules that are loaded from a file under a name of their own, and what the file is called: it lies elsewhere on each machine."""


def facts(method: object, base: type) -> dict[str, str]:
    """Facts about a method, by key, which are equal if and only if the methods are the same.

    The code is that of its class and of all classes between it and `base`, with the functions and numbers of its module that they use. Comments and formatting do not count.
    The attributes are those of the object and of these classes.
    """
    version = getattr(method, "version", None)
    if version is not None:
        return {"version": str(version)}
    classes = [kind for kind in type(method).__mro__ if kind not in (base, object)]
    attributes: dict[str, Any] = {}
    for kind in reversed(classes):
        attributes.update({name: value for name, value in _members(kind) if not isinstance(value, _FUNCTIONS)})
    attributes.update(_state(method))
    code = _Digest()
    for kind in classes:
        code.add_functions(kind)
    found = {"code": code.text()}
    found.update({f"attribute.{name}": shown(value) for name, value in sorted(attributes.items())})
    return found


_VERBS = {"pull", "mix"}


def exchanges(method: object, base: type) -> bool:
    """Whether a method may exchange vectors: whether its code names a verb that does, or uses something whose code is not looked at. A method that never exchanges would
    step for ever in its first round."""
    if getattr(type(method), "step", None) is getattr(base, "step", None):
        return True
    todo: list[Any] = [*_state(method).values(), type(method)]
    seen = {id(method)}
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, type):
            kinds = [kind for kind in one.__mro__ if kind not in (base, object)] if one is type(method) or _is_own(one) else []
            todo.extend(value for kind in kinds for _, value in _members(kind))
        elif isinstance(one, (staticmethod, classmethod)):
            todo.append(one.__func__)
        elif isinstance(one, property):
            todo.extend((one.fget, one.fset))
        elif isinstance(one, types.MethodType):
            todo.extend((one.__func__, one.__self__))
        elif isinstance(one, (functools.partial, functools.partialmethod)):
            todo.extend((one.func, *one.args, *one.keywords.values()))
        elif isinstance(one, types.FunctionType):
            if _names_in(one.__code__) & _VERBS:
                return True
            todo.extend(_used(one).values())
        elif isinstance(one, (list, tuple, set, frozenset)):
            todo.extend(one)
        elif isinstance(one, dict):
            todo.extend(one.values())
        elif hasattr(one, "__wrapped__"):
            todo.append(one.__wrapped__)
        elif not _is_foreign(one):
            return True
    return False


def _is_foreign(value: object) -> bool:
    """Whether a value is a plain one, or belongs to Python or an installed library, which know nothing of exchanges."""
    if isinstance(value, (*_PLAIN, np.ndarray, np.generic)):
        return True
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in (*sys.stdlib_module_names, "mile") or "site-packages" in (value.__file__ or "")
    return not _is_own(type(value))


def _names_in(code: types.CodeType) -> set[str]:
    """All names and words in the code of a function and of those inside it."""
    words = {word for word in code.co_consts if isinstance(word, str)}
    inner = (_names_in(part) for part in code.co_consts if isinstance(part, types.CodeType))
    return (words | set(code.co_names)).union(*inner)


def _state(value: object) -> dict[str, Any]:
    """The attributes of an object, in its dictionary and in its slots."""
    slots = (name for kind in type(value).__mro__ for name in _names(kind.__dict__.get("__slots__", ())))
    found = {name: getattr(value, name) for name in slots if name[:2] != "__" and hasattr(value, name)}
    return found | getattr(value, "__dict__", {})


def _names(slots: str | Iterable[str]) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The functions and attributes of a class, without what Python adds to it."""
    for name, value in sorted(vars(kind).items()):
        added = name.startswith("__") and name.endswith("__") and not isinstance(value, _FUNCTIONS)
        if not added and not isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
            yield name, value


def shown(value: object) -> str:
    """A short value as its `repr`, any other as its type and a digest."""
    if isinstance(value, np.generic):
        return f"{value.dtype} {value.item()!r}"
    if isinstance(value, _PLAIN) and len(repr(value)) <= _SHOWN:
        return repr(value)
    digest = _Digest()
    digest.add(value)
    return f"{type(value).__name__} {digest.text()}"


def code_of(module: Any) -> str:
    """The code, the attributes and the modes of a PyTorch module and of its parts, without their tensors."""
    digest = _Digest()
    digest.add_module(module)
    return digest.text()


class _Digest:
    """A digest of values of any type, the same in every process."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        # Keeps objects alive while the digest is made, so that no other object gets the same id.
        self._seen: dict[int, tuple[int, object]] = {}

    def text(self) -> str:
        return self._hash.hexdigest()[:16]

    def _write(self, *words: object) -> None:
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            self._hash.update(len(data).to_bytes(8, "little") + data)

    def add(self, value: Any) -> None:
        if isinstance(value, _PLAIN) and not isinstance(value, np.generic):
            self._write(type(value).__name__, repr(value))
            return
        if id(value) in self._seen:
            self._write("seen", self._seen[id(value)][0])
            return
        self._seen[id(value)] = (len(self._seen), value)
        if isinstance(value, (np.ndarray, np.generic)):
            self._array(np.asarray(value))
        elif isinstance(value, (list, tuple)):
            self._write(type(value).__name__, len(value))
            for item in value:
                self.add(item)
        elif isinstance(value, dict):
            self.add([part for item in value.items() for part in item])
        elif isinstance(value, (set, frozenset)):
            self._write("set", *sorted(shown(item) for item in value))
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
        elif _is_tensor(value):
            self._tensor(value)
        elif _is_array(value):
            self._array(np.asarray(value))
        else:
            self._object(value)

    def _array(self, array: np.ndarray[Any, Any]) -> None:
        self._write("array", array.dtype.str, array.shape)
        if array.dtype.hasobject:
            self.add(array.tolist())
        else:
            self._write(np.ascontiguousarray(array).tobytes())

    def _tensor(self, tensor: Any) -> None:
        """A PyTorch tensor, on any device and of any dtype."""
        self._write("tensor", tensor.dtype, tuple(tensor.shape))
        self._write(tensor.detach().cpu().contiguous().reshape(-1).view(sys.modules["torch"].uint8).numpy().tobytes())

    def add_module(self, module: Any) -> None:
        """What a PyTorch module consists of, apart from its tensors."""
        for name, part in module.named_modules():
            kind = type(part)
            # A module as a whole may be in either mode.
            self._write(name, _home(kind), kind.__qualname__, part.extra_repr(), part.training or not module.training)
            for own in (one for one in kind.__mro__ if _is_own(one)):
                self.add(own)
            # Other libraries keep paths and versions there.
            if _is_own(kind) or kind.__module__.startswith("torch."):
                self.add(sorted((key, value) for key, value in vars(part).items() if key[0] != "_" and key != "training" and _is_value(value)))

    def _module(self, module: Any) -> None:
        self.add_module(module)
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            self._write(name)
            self._tensor(tensor)

    def _object(self, value: object) -> None:
        """An object that can be copied is identified by what its copy would be made of, any other by its type and attributes."""
        self._write("object", _home(type(value)), type(value).__qualname__)
        try:
            parts = value.__reduce_ex__(4)
        except Exception:  # noqa: BLE001
            self.add(sorted(_state(value).items()))
            return
        if isinstance(parts, str):
            self._write(parts)
        else:
            function, arguments, state, *items = (*parts, None, None, None)[:5]
            self._write(getattr(function, "__qualname__", ""))
            self.add([arguments, state, *(None if item is None else list(item) for item in items)])

    def _class(self, kind: type) -> None:
        self._write("class", _home(kind), kind.__qualname__)
        if _is_own(kind):
            self.add_functions(kind)
            for name, value in _members(kind):
                if not isinstance(value, _FUNCTIONS):
                    self._write(name)
                    self.add(value)

    def add_functions(self, kind: type) -> None:
        """The code of all functions of a class."""
        for name, value in _members(kind):
            if isinstance(value, property):
                parts = [value.fget, value.fset, value.fdel]
            else:
                parts = [value.__func__ if isinstance(value, (staticmethod, classmethod)) else value]
            for part in parts:
                if isinstance(part, types.FunctionType):
                    self._write(name, type(value).__name__)
                    self.add(part)

    def _function(self, function: types.FunctionType) -> None:
        self._write("function", _source(function))
        self.add([function.__defaults__, function.__kwdefaults__])
        for name, value in sorted(_used(function).items()):
            is_code = isinstance(value, (types.FunctionType, type)) and value.__module__ == function.__module__
            if is_code or _is_value(value):
                self._write(name)
                self.add(value)
            elif hasattr(value, "named_modules") and not isinstance(value, type):
                self._write(name)
                self._module(value)


def _home(kind: type) -> str:
    """The module of a class, the same on every machine."""
    return FILES.get(kind.__module__, kind.__module__)


def _is_tensor(value: object) -> bool:
    return hasattr(value, "detach") and hasattr(value, "tolist") and not isinstance(value, type)


def _is_array(value: object) -> bool:
    """Whether a value is an array of another library, such as JAX or pandas."""
    return hasattr(value, "__array__") and hasattr(value, "shape") and not isinstance(value, type)


def _is_value(value: object) -> bool:
    """Whether a value is plain, an array or a tensor, or a tuple or a dictionary of these. Lists are where functions put down what they see."""
    if isinstance(value, tuple):
        return all(map(_is_value, value))
    if isinstance(value, dict):
        return all(map(_is_value, value.values()))
    return isinstance(value, _PLAIN) or _is_tensor(value) or _is_array(value)


def _is_own(kind: type) -> bool:
    """Whether a class is the user's own, not part of Python or of an installed library."""
    if kind.__module__.partition(".")[0] in (*sys.stdlib_module_names, "mile"):
        return False
    return "site-packages" not in (getattr(inspect.getmodule(kind), "__file__", None) or "")


def _source(function: types.FunctionType) -> str:
    if function.__name__ != "<lambda>":
        try:
            return ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(function))))
        except (OSError, TypeError, SyntaxError):
            pass
    return _compiled(function.__code__)


def _compiled(code: types.CodeType) -> str:
    """The bytecode of a function whose source is unknown or shares its line with another function."""
    constants = [_compiled(part) if isinstance(part, types.CodeType) else repr(part) for part in code.co_consts]
    return repr((code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars))


def _used(function: types.FunctionType) -> dict[str, Any]:
    """What a function uses from its module and from enclosing functions, by name."""
    def names(code: types.CodeType) -> set[str]:
        inner = (names(part) for part in code.co_consts if isinstance(part, types.CodeType))
        own = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        return own.union(*inner)

    found = {name: function.__globals__[name] for name in names(function.__code__) if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    found.pop("__class__", None)
    return found
