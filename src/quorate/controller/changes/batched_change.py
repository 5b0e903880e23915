"""Changes that a handler does not make in one call or one batch.

A change of very many partitions that need not be atomic leaves a `Continuation` and is written in
portions. A change that must be atomic is prepared in steps and written as one batch, or in a metadata
transaction if it is too large for that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from quorate.dataclass import dataclass
from quorate.protocol.schema import Data

R = TypeVar("R")
T = TypeVar("T")

STEP_ITEMS = 200
"""The partitions, topics or other items of one step of a preparation, which takes one to two milliseconds."""

ChangeSteps = Generator[list[Data], None, R]
"""The preparation of an atomic change. Each step yields records that follow those of the step before it,
or an empty list."""


class HasRecords(Protocol):
    """A result of a handler, whose records are written."""

    records: list[Data]


RecordsT = TypeVar("RecordsT", bound=HasRecords)


def parts_of(items: list[T], size: int = STEP_ITEMS) -> Iterator[list[T]]:
    """The items in parts, each for one step."""
    return (items[start : start + size] for start in range(0, len(items), size))


def all_hold(items: Iterable[T], holds: Callable[[T], bool]) -> Generator[None, None, bool]:
    """Whether `holds` is true of all items. Looks at STEP_ITEMS of them in each step."""
    for number, item in enumerate(items):
        if not holds(item):
            return False
        if not number % STEP_ITEMS:
            yield
    return True


def in_one_turn(steps: ChangeSteps[RecordsT]) -> RecordsT:
    """Runs all steps. Returns the result with the records of all of them."""
    records: list[Data] = []
    while True:
        try:
            records += next(steps)
        except StopIteration as end:
            result: RecordsT = end.value
            result.records = records
            return result


@dataclass(slots=True, eq=False)
class Continuation:
    """What remains of a change of very many partitions after one call of its handler.

    The handler returns it in its `Result` and receives it again in the `Context` of its next call.

    Attributes:
        cursor: The position at which the handler continues. Only the handler interprets it.
        leaving: The ids of brokers that are being fenced, shut down or unregistered. No leadership and
            no replica is assigned to them until the change is complete.
        failing: The ids of log directories that are going offline. No replica is assigned to them until
            the change is complete.
        broker_epoch: The broker epoch of the registration that is being removed, or -1.
        state: The state that a broker enters by the heartbeat that began the change, decided once.
    """

    cursor: Any
    leaving: tuple[int, ...] = ()
    failing: tuple[bytes, ...] = ()
    state: str = ""
    broker_epoch: int = -1


def cursor_of(continuation: Continuation | None) -> Any:
    """The position at which the handler continues, or None on its first call."""
    return None if continuation is None else continuation.cursor
