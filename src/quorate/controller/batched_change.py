"""The rest of a change that a handler makes in several batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class Continuation:
    """What remains of a change of very many partitions after one call of its handler.

    The handler returns it in its `Result` and receives it again in the `Context` of its next call.

    Attributes:
        cursor: The position at which the handler continues. Only the handler interprets it.
        leaving: The id of a broker that is being fenced, shut down or unregistered. No leadership and
            no replica is assigned to it until the change is complete.
        failing: The ids of log directories that are going offline. No replica is assigned to them until
            the change is complete.
        state: The state that a broker enters by the heartbeat that began the change, decided once.
    """

    cursor: Any
    leaving: int | None = None
    failing: tuple[bytes, ...] = ()
    state: str = ""


def cursor_of(continuation: Continuation | None) -> Any:
    """The position at which the handler continues, or None on its first call."""
    return None if continuation is None else continuation.cursor
