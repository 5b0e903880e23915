"""`dataclasses.dataclass` with slots, whose constructors are compiled when they are first called.

A node makes about 150 dataclasses when it starts. The standard decorator compiles source text for
each method of each class, which would be a third of a node's start. Here `__init__` is compiled by
the first call, and the other methods are ordinary functions over the names of the fields.
`dataclasses.fields`, `replace` and `asdict` work as usual.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        *, slots: bool, frozen: bool = False, eq: bool = True, order: bool = False, repr: bool = True
    ) -> Any:
        """Makes a dataclass. The parameters mean what they mean in `dataclasses.dataclass`.

        `slots` must be true. A definition that the standard decorator refuses is refused with the same error.
        """
        if not slots:
            raise TypeError("A dataclass of this package has slots: write @dataclass(slots=True).")
        if order and not eq:
            raise ValueError("eq must be true if order is true")

        def make(cls: type) -> type:
            own = dict(cls.__dict__)
            cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise its signature is formatted
            # The standard decorator checks whether frozen classes inherit from frozen ones only.
            inherits = any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
            standard = dataclasses.dataclass(
                init=False, repr=False, eq=False, frozen=frozen and inherits, slots=True
            )
            made = standard(cls)
            params = made.__dataclass_params__
            params.init, params.repr, params.eq, params.order, params.frozen = True, repr, eq, order, frozen
            fields = dataclasses.fields(made)
            _check_defaults(made)
            lazy = _LazyInit(made, frozen)
            methods: dict[str, Any] = {"__init__": lazy}
            if "__init__" not in own:
                _not_compiled[id(lazy)] = lazy
            if repr:
                methods["__repr__"] = _repr_of([field.name for field in fields if field.repr])
            values = _values_of([field.name for field in fields if field.compare])
            if eq:
                methods["__eq__"] = _eq_of(values)
                if "__hash__" not in own or (own["__hash__"] is None and "__eq__" in own):
                    made.__hash__ = _hash_of(fields, values) if frozen else None
            if order:
                for compare in (operator.lt, operator.le, operator.gt, operator.ge):
                    name = f"__{compare.__name__}__"
                    _refuse_own(cls, own, name, ". Consider using functools.total_ordering")
                    methods[name] = _order_of(values, compare)
            if frozen:
                _refuse_own(cls, own, "__setattr__")
                _refuse_own(cls, own, "__delattr__")
                names = [field.name for field in fields]
                methods |= {"__getstate__": _getstate_of(names), "__setstate__": _setstate_of(names)}
                methods |= {"__setattr__": _refuse_to_assign, "__delattr__": _refuse_to_delete}
            for name, method in methods.items():
                if name not in own:
                    setattr(made, name, method)
            return made

        return make


def _refuse_own(cls: type, own: dict[str, Any], name: str, advice: str = "") -> None:
    if name in own:
        raise TypeError(f"Cannot overwrite attribute {name} in class {cls.__name__}{advice}")


def _check_defaults(cls: Any) -> None:
    """Raises TypeError if a parameter without a default follows one that has one."""
    seen = False
    for field in _parameters(cls):
        if field.init and not field.kw_only:
            if field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING:
                seen = True
            elif seen:
                raise TypeError(f"non-default argument {field.name!r} follows default argument")


def _is_init_var(field: Any) -> bool:
    return field._field_type is dataclasses._FIELD_INITVAR  # type: ignore[attr-defined]


def _parameters(cls: Any) -> list[dataclasses.Field[Any]]:
    """The fields of a class and its parameters that are no fields (`InitVar`), in the order of definition."""
    fields = dataclasses.fields(cls)
    every = cls.__dataclass_fields__
    if len(every) == len(fields):
        return list(fields)
    return [field for field in every.values() if field in fields or _is_init_var(field)]


class _LazyInit:
    """The constructor of a class until it is looked up for the first time: it replaces itself by the compiled
    one. Several threads may do so at once, since each of their constructors serves."""

    __slots__ = ("__weakref__", "cls", "frozen", "init")

    def __init__(self, cls: type[Any], frozen: bool) -> None:
        self.cls = cls
        self.frozen = frozen
        self.init: Callable[..., None] | None = None

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self.compile().__get__(instance, owner)

    def compile(self) -> Callable[..., None]:
        """Returns the constructor. It becomes that of the class unless the class has another one now."""
        if self.init is None:
            self.init = _compiled_init(self.cls, self.frozen)
        if self.cls.__dict__.get("__init__") is self:
            self.cls.__init__ = self.init
        return self.init


_not_compiled: WeakValueDictionary[int, _LazyInit] = WeakValueDictionary()
"""The constructors that were not looked up yet. They vanish when they are replaced."""


def compile_constructors(package: str) -> Iterator[None]:
    """Compiles the constructors of a package that were not called yet, one in each step."""
    for reference in _not_compiled.valuerefs():
        lazy = reference()
        if lazy is not None and lazy.init is None and lazy.cls.__module__.startswith(package):
            lazy.compile()
            yield


def _compiled_init(cls: type[Any], frozen: bool) -> Callable[..., None]:
    """Compiles the constructor. It works on objects of any class with these fields, so another class with the
    same fields serves for it. That class gets copies of the fields, because its decorator changes them, and
    annotations that mean the same in each module."""
    parameters = _parameters(cls)
    body: dict[str, Any] = {field.name: copy.copy(field) for field in parameters}
    body["__annotations__"] = {
        field.name: dataclasses.InitVar[object] if _is_init_var(field) else object for field in parameters
    }
    body |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    if (after := getattr(cls, "__post_init__", None)) is not None:
        body["__post_init__"] = after
    # A default without a parameter is assigned by a class with slots only.
    slots = any(not field.init for field in parameters)
    decorator: Any = dataclasses.dataclass(repr=False, eq=False, frozen=frozen, slots=slots)
    init: Callable[..., None] = decorator(type(cls.__name__, (), body)).__init__
    init.__annotations__ |= {field.name: field.type for field in parameters if field.init}
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


_HASHED = ((None, True), (True, True), (True, False))
"""What `hash` and `compare` are for a field that is a part of the hash."""


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


def _hash_of(
    fields: tuple[dataclasses.Field[Any], ...], compared: Callable[[Any], Any]
) -> Callable[[Any], int]:
    values = compared
    if any(field.hash is not None for field in fields):
        values = _values_of([field.name for field in fields if (field.hash, field.compare) in _HASHED])

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
