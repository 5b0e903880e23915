"""The interface between the runtime and the state machine of one partition (`CoordinatorShard` in Kafka)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from quorate.broker.coordinators.result import CoordinatorResult, StepTime

NO_PRODUCER_ID = -1


class UnknownRecordTypeError(Exception):
    """A record has a type that this version does not know. The loader skips the record."""

    def __init__(self, record_type: int) -> None:
        super().__init__(f"unknown record type {record_type}")
        self.record_type = record_type


class CoordinatorShard(Protocol):
    """The state of one partition of an internal topic.

    A shard is pure: it takes the time as an argument and returns effects. `state` is a value with shared
    structure. The runtime keeps earlier values of it, to restore one after a failed append and to answer
    reads from the committed one.
    """

    @property
    def state(self) -> Any: ...

    @state.setter
    def state(self, state: Any) -> None: ...

    @property
    def summary(self) -> str:
        """The size of the state, for the log."""
        ...

    def replay(self, record: Any, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies a record at `offset` of the log."""
        ...

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Applies a transaction marker of the log."""
        ...

    def loaded(self, at: StepTime, has_topic: Callable[[str], bool]) -> Iterable[CoordinatorResult]:
        """Ends the loading of the log in steps. The runtime carries out the result of each step, and lets the
        event loop run between them. `has_topic` tells whether the cluster has a topic."""
        ...

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """Removes the state about topics that were deleted, in the next calls of `tick`."""
        ...

    def next_deadline(self) -> float | None:
        """The monotonic time of the next call of `tick`, or None."""
        ...

    def tick(self, at: StepTime) -> Iterator[CoordinatorResult]:
        """Yields one result for each timer that has expired. The runtime carries out each result before
        it takes the next one. It may stop after any result; the next call yields the rest."""
        ...
