"""Fencing of brokers whose session has expired."""

from __future__ import annotations

from quorate.controller.context import Rest, View, places_of
from quorate.controller.replication.broker_changes import (
    Portion,
    fence,
)
from quorate.protocol.schema import Data


def fence_expired(view: View, session: tuple[int, int], rest: Rest | None = None) -> tuple[list[Data], Rest | None]:
    """Records that fence a broker whose session ran out, and what is left for a later turn to do.

    None when that session is not its present one. rest: what an earlier turn left.
    """
    broker_id, epoch = session
    registration = view.broker(broker_id)
    records: list[Data] = []
    if registration is None or registration.epoch != epoch or registration.fenced:
        return records, None
    portion = Portion(places_of(rest))
    fence(view, broker_id, records, portion)
    return records, None if portion.rest is None else Rest(portion.rest, leaving=broker_id)
