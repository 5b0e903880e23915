"""Fences brokers whose session has expired.

`brokers.sessions` decides which sessions have expired, and `periodic_tasks` calls this module.
`broker_changes` and `partition_change` move the leaderships of the broker.
"""

from __future__ import annotations

from quorate.controller.batched_change import Continuation, cursor_of
from quorate.controller.context import View
from quorate.controller.replication.broker_changes import (
    ChangeBatch,
    fence,
)
from quorate.protocol.schema import Data


def fence_expired(
    view: View, session: tuple[int, int], continuation: Continuation | None = None
) -> tuple[list[Data], Continuation | None]:
    """The records that fence the broker of an expired session, and the continuation if changes remain
    for a later turn.

    There are no records if the broker has another broker epoch or is fenced already.
    """
    broker_id, epoch = session
    registration = view.broker(broker_id)
    records: list[Data] = []
    if registration is None or registration.epoch != epoch or registration.fenced:
        return records, None
    batch = ChangeBatch(cursor_of(continuation))
    fence(view, broker_id, records, batch)
    return records, None if batch.continuation is None else Continuation(
        batch.continuation, leaving=broker_id
    )
