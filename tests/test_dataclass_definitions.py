"""Definitions of classes that the two decorators treat alike: the same source, decorated by either
of them."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from textwrap import dedent
from typing import Any
from unittest import mock

import pytest

from quorate.dataclass import dataclass

HEAD = """
from __future__ import annotations
import copy, dataclasses, inspect, pickle
from dataclasses import KW_ONLY, InitVar, asdict, astuple, field, fields, replace
from typing import ClassVar, Generic, TypeVar
"""

_numbers = itertools.count()


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[str, Any], str]]:
    """Executes a source in a module of its own and returns its `result()`, or the error."""
    made: list[str] = []

    def execute(source: str, decorator: Any) -> str:
        name = f"definitions_{next(_numbers)}"
        module = types.ModuleType(name)
        made.append(name)
        sys.modules[name] = module
        module.__dict__["dataclass"] = decorator
        module.__dict__["standard"] = dataclasses.dataclass
        try:
            exec(HEAD + dedent(source), module.__dict__)
            return repr(module.__dict__["result"]()).replace(name, "")
        except Exception as error:
            return f"{type(error).__name__}: {error}".replace(name, "")

    yield execute
    for name in made:
        del sys.modules[name]


DEFINITIONS = {
    "a field without a parameter and with a default": """
        @dataclass(slots=True)
        class A:
            a: int
            b: int = field(default=7, init=False)
        def result(): return A(1), A(1).b
        """,
    "a parameter that is no field": """
        @dataclass(slots=True)
        class A:
            a: int
            scale: InitVar[int]
            more: InitVar[int] = 2
            def __post_init__(self, scale, more): self.a *= scale * more
        @dataclass(slots=True)
        class B(A):
            b: int = 3
        def result(): return A(1, 5), A(1, 5, more=3), B(1, 2, 3, 4), [f.name for f in fields(B)]
        """,
    "a parameter that is no field, frozen": """
        @dataclass(slots=True, frozen=True)
        class A:
            a: int
            scale: InitVar[int] = 2
            def __post_init__(self, scale): object.__setattr__(self, "a", self.a * scale)
        def result(): return A(1), A(1, 7), replace(A(1), a=4, scale=3), copy.copy(A(1))
        """,
    "fields with keywords only": """
        @dataclass(slots=True)
        class A:
            x: int = field(default=1, kw_only=True)
            y: int
            _: KW_ONLY
            z: int
        def result(): return A(2, z=3), A.__match_args__, inspect.signature(A).parameters.keys(), A(1, 2, 3)
        """,
    "a hash that leaves a field out": """
        @dataclass(slots=True, frozen=True)
        class A:
            a: int
            b: list = field(hash=False)
        @dataclass(slots=True, frozen=True)
        class B:
            a: int
            b: int = field(compare=False, hash=True)
        def result(): return hash(A(1, [])) == hash((1,)), hash(B(1, 2)) == hash((1, 2)), B(1, 2) == B(1, 3)
        """,
    "a field without a default after one with": """
        @dataclass(slots=True)
        class A:
            a: int = 1
            b: int
        def result(): return "defined"
        """,
    "the same in a subclass": """
        @dataclass(slots=True)
        class A:
            a: int = 1
        @dataclass(slots=True)
        class B(A):
            b: int
        def result(): return "defined"
        """,
    "an order without eq": """
        @dataclass(slots=True, order=True, eq=False)
        class A:
            a: int
        def result(): return "defined"
        """,
    "an order beside one of the class": """
        @dataclass(slots=True, order=True)
        class A:
            a: int
            def __lt__(self, other): return True
        def result(): return "defined"
        """,
    "frozen beside an assignment of the class": """
        @dataclass(slots=True, frozen=True)
        class A:
            a: int
            def __setattr__(self, name, value): object.__setattr__(self, name, value)
        def result(): return "defined"
        """,
    "frozen beside a deletion of the class": """
        @dataclass(slots=True, frozen=True)
        class A:
            a: int
            def __delattr__(self, name): pass
        def result(): return "defined"
        """,
    "frozen below one that is not": """
        @dataclass(slots=True)
        class A:
            a: int
        @dataclass(slots=True, frozen=True)
        class B(A):
            b: int
        def result(): return "defined"
        """,
    "not frozen below one that is": """
        @dataclass(slots=True, frozen=True)
        class A:
            a: int
        @dataclass(slots=True)
        class B(A):
            b: int
        def result(): return "defined"
        """,
    "frozen below frozen": """
        @dataclass(slots=True, frozen=True, order=True)
        class A:
            a: int
        @dataclass(slots=True, frozen=True, order=True)
        class B(A):
            b: int
        def assign():
            b = B(1, 2)
            try: b.a = 3
            except dataclasses.FrozenInstanceError as error: return str(error)
        def result():
            return B(1, 2), B(1, 2) < B(1, 3), pickle.loads(pickle.dumps(B(1, 2))), assign(), {B(1, 2): 3}
        """,
    "a standard subclass of a frozen class": """
        @dataclass(slots=True, frozen=True)
        class A:
            a: int
        @standard(slots=True, frozen=True)
        class B(A):
            b: int = 2
        def result(): return B(1), {B(1): 1}[B(1, 2)], replace(B(1), b=4), pickle.loads(pickle.dumps(B(4)))
        """,
    "a standard subclass that is not frozen": """
        @dataclass(slots=True, frozen=True)
        class A:
            a: int
        @standard(slots=True)
        class B(A):
            b: int = 2
        def result(): return B(1)
        """,
    "a subclass of a standard class": """
        @standard
        class A:
            a: int
            b: list = field(default_factory=list)
            def __post_init__(self): self.b.append(self.a)
        @dataclass(slots=True)
        class B(A):
            c: int = 2
        def result(): return B(1), asdict(B(1)), astuple(B(1)), B(1) == B(1), copy.deepcopy(B(3, [1]))
        """,
    "a subclass replaces a field": """
        @dataclass(slots=True)
        class A:
            a: int
            b: int = 1
        @dataclass(slots=True)
        class B(A):
            a: str = "x"
        def result(): return B(), B("y", 2), [f.type for f in fields(B)], fields(A)[0].default
        """,
    "a generic class": """
        T = TypeVar("T")
        @dataclass(slots=True)
        class Box(Generic[T]):
            value: T
        @dataclass(slots=True)
        class Numbers(Box[int]):
            count: ClassVar[int] = 1
        def result(): return Box(1), Box[int](2), Numbers(3), Numbers.count, copy.copy(Box(4)), Box(1) == Box[int](1)
        """,
    "a constructor of the class": """
        @dataclass(slots=True)
        class A:
            a: int
            def __init__(self): self.a = 5
        @dataclass(slots=True)
        class B(A):
            b: int = 0
        def result(): return A(), B(1)
        """,
    "a state of the class": """
        @dataclass(slots=True, frozen=True)
        class A:
            a: int
            def __getstate__(self): return [self.a + 1]
        def result(): return copy.copy(A(1))
        """,
    "a hash of the class": """
        @dataclass(slots=True)
        class A:
            a: int
            def __hash__(self): return 3
        @dataclass(slots=True)
        class B(A):
            b: int = 0
        def result(): return hash(A(1)), B.__hash__
        """,
    "no fields": """
        @dataclass(slots=True, frozen=True, order=True)
        class A:
            pass
        def result(): return A(), A() == A(), hash(A()) == hash(()), A() < A(), A() <= A(), copy.copy(A()), A(1)
        """,
    "a mutable default": """
        @dataclass(slots=True)
        class A:
            a: list = []
        def result(): return A()
        """,
    "a signature": """
        @dataclass(slots=True)
        class A:
            a: int
            b: str = "x"
        def result():
            init = A.__init__
            return inspect.signature(A), init.__annotations__, init.__qualname__, init.__module__, A.__init__ is init
        """,
    "the parameters of the decorator": """
        @dataclass(slots=True, frozen=True, repr=False, order=True)
        class A:
            a: int
        def result():
            params = A.__dataclass_params__
            return [getattr(params, n) for n in ("init", "repr", "eq", "order", "unsafe_hash", "frozen")]
        """,
    "a constructor called through super": """
        @dataclass(slots=True)
        class A:
            a: int
            names: list = field(default_factory=list)
        class B(A):
            def __init__(self):
                super().__init__(4)
        def result(): return B(), B().names is not B().names, A(1)
        """,
    "a subclass without calling the constructor of its base": """
        @dataclass(slots=True)
        class A:
            a: int
        class B(A):
            pass
        def result(): return B(1), A(2), B.__init__ is A.__init__, isinstance(B(1), A)
        """,
    "a field named like what a constructor uses": """
        @dataclass(slots=True)
        class A:
            self: int
            cls: int = 1
            object: list = field(default_factory=list)
            args: int = 2
        def result(): return A(3), A(self=1, args=4)
        """,
    "a class without an attribute of a weak reference": """
        import weakref
        @dataclass(slots=True)
        class A:
            a: int
        def result(): return weakref.ref(A(1))
        """,
}


@pytest.mark.parametrize("source", DEFINITIONS.values(), ids=DEFINITIONS)
def test_a_definition_means_what_it_means_for_the_standard_library(
    source: str, run: Callable[[str, Any], str]
) -> None:
    assert run(source, dataclass) == run(source, dataclasses.dataclass)


@pytest.mark.parametrize("word", ["init", "unsafe_hash", "match_args", "kw_only", "weakref_slot"])
def test_parameters_that_are_not_supported_are_refused(word: str) -> None:
    with pytest.raises(TypeError, match=word):
        dataclass(slots=True, **{word: True})


def test_the_first_constructors_of_several_threads_make_whole_objects() -> None:
    for _ in range(20):

        @dataclass(slots=True)
        class Shared:
            value: int
            scale: dataclasses.InitVar[int]
            parts: list[int] = dataclasses.field(default_factory=list)

            def __post_init__(self, scale: int) -> None:
                self.value *= scale

        start = threading.Barrier(8)
        made: list[Shared] = []

        def construct(number: int, start: Any = start, made: Any = made, cls: Any = Shared) -> None:
            start.wait()
            made.append(cls(number, 2))

        threads = [threading.Thread(target=construct, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(one.value for one in made) == [number * 2 for number in range(8)]


def test_an_error_in_the_first_call_does_not_change_the_class() -> None:
    @dataclass(slots=True)
    class Strict:
        value: int

        def __post_init__(self) -> None:
            if self.value < 0:
                raise ValueError("negative")

    with pytest.raises(ValueError, match="negative"):
        Strict(-1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'value'"):
        Strict()  # type: ignore[call-arg]
    assert Strict(3).value == 3


def test_a_replaced_constructor_stays_replaced_when_the_first_one_is_called() -> None:
    @dataclass(slots=True)
    class Patched:
        value: int

    original = Patched.__init__
    calls = []

    def noted(self: Patched, value: int) -> None:
        calls.append(value)
        original(self, value)

    with mock.patch.object(Patched, "__init__", noted):
        assert [Patched(1).value, Patched(2).value] == [1, 2]
    assert calls == [1, 2] and Patched(3).value == 3 and calls == [1, 2]
    assert list(inspect.signature(Patched).parameters) == ["value"]
