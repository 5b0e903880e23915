"""Remembers which addresses do not answer Raft requests, since when and why, for log messages."""

from __future__ import annotations

import os
import socket

from quorate.clock import Clock
from quorate.dataclass import dataclass
from quorate.raft.types import Address

MAX_ADDRESSES = 1000  # far more than a quorum has; a limit is needed, since messages name endpoints


@dataclass(slots=True)
class _Unanswered:
    """An address that does not answer: since when, in monotonic seconds, and why."""

    since: float
    cause: str


class Reachability:
    """The outcome of the last completed request to each address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answered: dict[Address, None] = {}
        self._unanswered: dict[Address, _Unanswered] = {}

    def answered(self, address: Address) -> None:
        self._unanswered.pop(address, None)
        if address not in self._answered:
            self._make_room()
            self._answered[address] = None

    def failed(self, address: Address, error: BaseException) -> None:
        """Records a failure. The time of the first in a row is kept, and the cause of the last."""
        self._answered.pop(address, None)
        found = self._unanswered.get(address)
        if found is not None:
            found.cause = cause_of(error)
            return
        self._make_room()
        self._unanswered[address] = _Unanswered(self._clock.now(), cause_of(error))

    def cause(self, address: Address) -> str | None:
        """Why the last request was not answered; None if it was, or if there was none."""
        found = self._unanswered.get(address)
        return None if found is None else found.cause

    def describe(self, address: Address) -> str:
        """Describes an address by a predicate such as "cannot be reached for 12 s: connection refused"."""
        found = self._unanswered.get(address)
        if found is not None:
            return f"cannot be reached for {self._clock.now() - found.since:.0f} s: {found.cause}"
        return "answers" if address in self._answered else "has not answered yet"

    def _make_room(self) -> None:
        for kept in (self._answered, self._unanswered):
            while len(kept) >= MAX_ADDRESSES:
                del kept[next(iter(kept))]


def cause_of(error: BaseException) -> str:
    """The cause of a failed request in a few words, without the address."""
    cause = error.__cause__ if error.__cause__ is not None else error
    match cause:
        case socket.gaierror():
            return f"the host name cannot be resolved ({cause.strerror or cause})"
        case TimeoutError():
            return "timed out"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
    return str(cause) or type(cause).__name__
