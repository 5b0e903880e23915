"""Fences brokers whose session has expired.

`brokers.sessions` decides which sessions have expired, and `periodic_tasks` calls this module.
`broker_changes` and `partition_change` move the leaderships of the broker.
"""

from __future__ import annotations

from collections.abc import Sequence

from quorate.controller.changes.batched_change import Continuation, cursor_of
from quorate.controller.context import View
from quorate.controller.replication.broker_changes import (
    ChangeBatch,
    fence,
)
from quorate.protocol.schema import Data


def fence_expired(
    view: View, sessions: Sequence[tuple[int, int]], continuation: Continuation | None = None
) -> tuple[list[Data], Continuation | None]:
    """The records that fence the brokers of expired sessions, and the continuation if changes remain
    for a later turn.

    A broker that has another broker epoch or is fenced already is left out.
    """
    brokers = []
    for broker_id, epoch in sessions:
        registration = view.broker(broker_id)
        if registration is not None and registration.epoch == epoch and not registration.fenced:
            brokers.append(broker_id)
    records: list[Data] = []
    if not brokers:
        return records, None
    leaving = tuple(brokers)
    batch = ChangeBatch(cursor_of(continuation))
    fence(view, leaving, records, batch)
    return records, None if batch.continuation is None else Continuation(batch.continuation, leaving=leaving)
