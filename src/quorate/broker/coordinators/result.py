"""The result of one step of a coordinator's shard (`CoordinatorResult` in Kafka)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import field
from typing import Any, NamedTuple

from quorate.dataclass import dataclass
from quorate.protocol.errors import ErrorCode

Token = Hashable
"""Identifies a request that waits for its response. Opaque to shards; the runtime uses the future."""


class StepTime(NamedTuple):
    """The time of a step: the wall clock for timestamps that are stored, the monotonic one for timers."""

    wall_ms: int
    now: float


After = Callable[[ErrorCode, StepTime], "CoordinatorResult"]


@dataclass(slots=True)
class CoordinatorResult:
    """The effects of a step. The runtime carries them out in this order:

    1. Send `replies`: responses with the tokens of their requests.
    2. If `replay`, apply `records` with `CoordinatorShard.replay`. Append them as one batch. If that
       fails, restore the state before the step.
    3. Call `after(NONE)` when the high watermark has passed the batch, or `after(error)` if the batch was
       not written or not committed in time. Carry out the result of that call as well. A result without
       records waits for the end of the log instead, because its response may depend on records before it.
    """

    records: list[Any] = field(default_factory=list)
    """Records of the coordinator's own types."""
    replies: list[tuple[Token, Any]] = field(default_factory=list)
    after: After | None = None
    replay: bool = True
    atomic: bool = True
    """Whether the records must be in one batch. A large number of tombstones need not be."""


def operation_error(error: ErrorCode) -> ErrorCode:
    """The code that a client gets if an append failed with `error`, as in Kafka's
    `CoordinatorOperationExceptionHelper`."""
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.NOT_ENOUGH_REPLICAS | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error
