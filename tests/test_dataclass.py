"""Dataclasses with lazily compiled constructors behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import asdict, field, replace
from typing import Any, ClassVar

import pytest

from quorate import dataclass as ours
from quorate.dataclass import dataclass


@dataclass(slots=True)
class Point:
    """Mutable, with defaults."""

    LIMIT: ClassVar[int] = 3
    x: int
    y: int = 2
    notes: list[str] = field(default_factory=list)
    hidden: int = field(default=0, repr=False, compare=False)


@dataclasses.dataclass(slots=True)
class StandardPoint:
    LIMIT: ClassVar[int] = 3
    x: int
    y: int = 2
    notes: list[str] = field(default_factory=list)
    hidden: int = field(default=0, repr=False, compare=False)


@dataclass(slots=True, frozen=True, order=True)
class Key:
    name: str
    number: int = 0


@dataclasses.dataclass(slots=True, frozen=True, order=True)
class StandardKey:
    name: str
    number: int = 0


@dataclass(slots=True, frozen=True)
class Single:
    value: float


@dataclass(slots=True)
class Sum:
    parts: list[int]
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.parts)


@dataclass(slots=True)
class Longer(Sum):
    name: str = "sum"


@dataclass(slots=True, eq=False)
class Identity:
    value: int


@dataclass(slots=True)
class Own:
    value: int

    def __repr__(self) -> str:
        return "own"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


def outcome(call: Callable[[], Any]) -> str:
    """The result or the error of a call, without the name of the class."""
    try:
        shown = repr(call())
    except Exception as error:
        shown = f"{type(error).__name__}: {error}"
    return shown.replace("Standard", "")


@pytest.mark.parametrize(
    "call",
    [
        lambda point, key: point(1),
        lambda point, key: point(1, 2, ["a"], 4),
        lambda point, key: point(y=1, x=3),
        lambda point, key: point(),
        lambda point, key: point(1, z=3),
        lambda point, key: point(1) == point(1, hidden=9),
        lambda point, key: point(1) == point(2),
        lambda point, key: point(1) == (1, 2, [], 0),
        lambda point, key: hash(point(1)),
        lambda point, key: point(1).__class__.__match_args__,
        lambda point, key: [f.name for f in dataclasses.fields(point)],
        lambda point, key: asdict(point(1, notes=["n"])),
        lambda point, key: replace(point(1), y=5),
        lambda point, key: setattr(point(1), "z", 1),
        lambda point, key: copy.deepcopy(point(1, notes=["a"])),
        lambda point, key: point.LIMIT,
        lambda point, key: key("a"),
        lambda point, key: {key("a"), key("a", 0), key("b")} == {key("a"), key("b")},
        lambda point, key: [
            key("a", 1) < key("a", 2),
            key("b") <= key("a"),
            key("b") > key("a", 5),
            key("a") >= key("a"),
        ],
        lambda point, key: key("a") < 3,
        lambda point, key: point(1) < point(2),
        lambda point, key: hash(key("a", 1)) == hash(("a", 1)),
        lambda point, key: setattr(key("a"), "name", "b"),
        lambda point, key: delattr(key("a"), "name"),
        lambda point, key: replace(key("a"), number=3),
        lambda point, key: copy.copy(key("a", 2)),
        lambda point, key: pickle.loads(pickle.dumps(key("a", 2))) == key("a", 2),
    ],
)
def test_a_class_behaves_like_one_of_the_standard_library(call: Callable[[Any, Any], Any]) -> None:
    assert outcome(lambda: call(Point, Key)) == outcome(lambda: call(StandardPoint, StandardKey))


def test_the_fields_of_a_base_class_come_first() -> None:
    assert repr(Longer([1, 2])) == "Longer(parts=[1, 2], total=3, name='sum')"
    assert Longer([1]) != Sum([1])


def test_a_class_without_comparison_compares_by_identity() -> None:
    one = Identity(1)
    assert one == one and one != Identity(1) and hash(one) == object.__hash__(one)


def test_methods_of_the_class_itself_are_kept() -> None:
    assert repr(Own(1)) == "own" and Own(1) == 5 and hash(Own(1)) == 7


def test_one_field_compares_like_several() -> None:
    nan = float("nan")
    assert Single(nan) == Single(nan) and hash(Single(1.0)) == hash((1.0,))


def test_an_object_that_contains_itself_is_shown() -> None:
    point = Point(1)
    point.notes.append(point)  # type: ignore[arg-type]
    assert repr(point) == "Point(x=1, y=2, notes=[...])"


def test_constructors_are_compiled_in_advance_one_by_one() -> None:
    @dataclass(slots=True)
    class Early:
        value: int

    first = Early.__dict__["__init__"]
    steps = sum(1 for _ in ours.compile_constructors(Early.__module__))
    assert steps >= 1 and Early.__dict__["__init__"] is not first
    assert Early(3).value == 3
    assert not list(ours.compile_constructors(Early.__module__))


def test_slots_are_required() -> None:
    with pytest.raises(TypeError, match="slots"):
        dataclass(slots=False)
