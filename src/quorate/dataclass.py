"""`dataclasses.dataclass` with slots, whose constructors are compiled when they are first called.

A node makes about 150 dataclasses when it starts. The standard decorator compiles source text for each method
of each class, which would be a third of a node's start. Here `__init__` is compiled by the first call, and the
other methods are ordinary functions over the names of the fields. `dataclasses.fields`, `replace` and `asdict`
work as usual.
"""

from __future__ import annotations

import dataclasses
import operator
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_not_compiled: dict[type[Any], bool] = {}
"""The classes whose constructor was not called yet, and whether they are frozen."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        *, slots: bool, frozen: bool = False, eq: bool = True, order: bool = False, repr: bool = True
    ) -> Any:
        """Makes a dataclass. The parameters mean what they mean in `dataclasses.dataclass`.

        `slots` must be true.
        """
        if not slots:
            raise TypeError("A dataclass of this package has slots: write @dataclass(slots=True).")

        def make(cls: type) -> type:
            own = cls.__dict__
            cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise its signature is formatted
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
            fields = dataclasses.fields(made)
            methods: dict[str, Any] = {}
            if "__init__" not in own:
                methods["__init__"] = _first_init(made, frozen)
                _not_compiled[made] = frozen
            if repr:
                methods["__repr__"] = _repr_of([field.name for field in fields if field.repr])
            if eq:
                values = _values_of([field.name for field in fields if field.compare])
                methods["__eq__"] = _eq_of(values)
                if "__hash__" not in own or (own["__hash__"] is None and "__eq__" in own):
                    made.__hash__ = _hash_of(values) if frozen else None
            if order:
                values = _values_of([field.name for field in fields if field.compare])
                for compare in (operator.lt, operator.le, operator.gt, operator.ge):
                    methods[f"__{compare.__name__}__"] = _order_of(values, compare)
            if frozen:
                names = [field.name for field in fields]
                methods |= {"__getstate__": _getstate_of(names), "__setstate__": _setstate_of(names)}
                methods |= {"__setattr__": _refuse_to_assign, "__delattr__": _refuse_to_delete}
            for name, method in methods.items():
                if name not in own:
                    setattr(made, name, method)
            return made

        return make


def _first_init(cls: type[Any], frozen: bool) -> Callable[..., None]:
    """Returns a constructor that replaces itself by the compiled one when it is called."""

    def first_init(self: Any, *args: Any, **kwargs: Any) -> None:
        _compile_init(cls, frozen)
        cls.__init__(self, *args, **kwargs)

    return first_init


def compile_constructors(package: str) -> Iterator[None]:
    """Compiles the constructors of a package that were not called yet, one in each step."""
    for cls, frozen in list(_not_compiled.items()):
        if cls.__module__.startswith(package) and cls in _not_compiled:
            _compile_init(cls, frozen)
            yield


def _compile_init(cls: type[Any], frozen: bool) -> None:
    cls.__init__ = _compiled_init(cls, frozen)
    _not_compiled.pop(cls, None)


def _compiled_init(cls: type[Any], frozen: bool) -> Callable[..., None]:
    """Compiles the constructor. It works on objects of any class with these fields, so another class with the
    same fields serves for it."""
    fields = dataclasses.fields(cls)
    body: dict[str, Any] = {field.name: field for field in fields}
    body["__annotations__"] = {field.name: field.type for field in fields}
    body |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    if (after := getattr(cls, "__post_init__", None)) is not None:
        body["__post_init__"] = after
    twin: Any = dataclasses.dataclass(repr=False, eq=False, frozen=frozen)(type(cls.__name__, (), body))
    init: Callable[..., None] = twin.__init__
    return init


def _values_of(names: list[str]) -> Callable[[Any], Any]:
    """Returns a function that reads the fields of an object."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    def shown(self: Any) -> str:
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({values})"

    return recursive_repr()(shown)


def _eq_of(values: Callable[[Any], Any]) -> Callable[[Any, object], Any]:
    def equals(self: Any, other: object) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return equals


def _order_of(
    values: Callable[[Any], Any], compare: Callable[[Any, Any], bool]
) -> Callable[[Any, object], Any]:
    def ordered(self: Any, other: object) -> Any:
        return compare(values(self), values(other)) if type(other) is type(self) else NotImplemented

    return ordered


def _hash_of(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    def hashed(self: Any) -> int:
        return hash(values(self))

    return hashed


def _getstate_of(names: list[str]) -> Callable[[Any], list[Any]]:
    def state(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    return state


def _setstate_of(names: list[str]) -> Callable[[Any, list[Any]], None]:
    def restore(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return restore


def _refuse_to_assign(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
