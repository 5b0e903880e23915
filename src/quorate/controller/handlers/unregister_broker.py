"""UnregisterBroker (64): removes the registration of a broker that will not come back (KIP-631)."""

from __future__ import annotations

from quorate.controller.changes.batched_change import Continuation, cursor_of
from quorate.controller.context import Context, Result, View
from quorate.controller.replication.broker_changes import (
    ChangeBatch,
    unregister,
)
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from quorate.protocol.schema import Data


def unregister_broker(
    view: View, request: UnregisterBrokerRequest, ctx: Context
) -> Result[UnregisterBrokerResponse]:
    """Removes a registration, and the broker from every ISR and ELR. Raises BROKER_ID_NOT_REGISTERED."""
    registration = view.broker(request.broker_id)
    if registration is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"Broker ID {request.broker_id} is not currently registered",
            remedy=view.broker_states(),
        )
    records: list[Data] = []
    batch = ChangeBatch(cursor_of(ctx.continuation))
    epoch = registration.epoch if ctx.continuation is None else ctx.continuation.broker_epoch
    unregister(view, request.broker_id, epoch, records, batch)
    response = UnregisterBrokerResponse(error_message="")  # not null, as in Kafka
    if batch.continuation is not None:
        return Result(
            response,
            records,
            atomic=False,
            continuation=Continuation(batch.continuation, leaving=(request.broker_id,), broker_epoch=epoch),
        )
    return Result(response, records, atomic=False, registered=request.broker_id)
