"""BrokerHeartbeat (63): extends the session of a broker and decides its next state (KIP-631). Source:
Kafka's BrokerHeartbeatManager."""

from __future__ import annotations

from quorate.controller.changes.batched_change import Continuation, cursor_of
from quorate.controller.context import Context, Result, Touch, View
from quorate.controller.replication.broker_changes import (
    ChangeBatch,
    begin_controlled_shutdown,
    fence,
    take_directories_offline,
    unfence,
)
from quorate.metadata.features import FIRST_CORDONED_DIRECTORIES, FIRST_DIRECTORIES
from quorate.metadata.image.cluster import BrokerRegistration
from quorate.metadata.records import BrokerRegistrationChangeRecord
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from quorate.protocol.schema import Data

FENCED, UNFENCED, CONTROLLED_SHUTDOWN, SHUTDOWN_NOW = (
    "fenced",
    "unfenced",
    "controlled shutdown",
    "shutdown now",
)


def broker_heartbeat(
    view: View, request: BrokerHeartbeatRequest, ctx: Context
) -> Result[BrokerHeartbeatResponse]:
    """Handles a heartbeat. Raises STALE_BROKER_EPOCH."""
    broker_id = request.broker_id
    registration = view.check_broker_epoch(broker_id, request.broker_epoch)
    present = state_of(view, registration)
    continuation = ctx.continuation
    following = (
        next_state(view, registration, present, request) if continuation is None else continuation.state
    )
    records: list[Data] = []
    if continuation is None or not continuation.failing:
        batch = ChangeBatch(cursor_of(continuation))
        if following != present or continuation is not None:
            _move(view, registration, following, records, batch)
        if batch.continuation is not None:
            leaving = (broker_id,) if following in (FENCED, SHUTDOWN_NOW) else ()
            left = Continuation(batch.continuation, leaving=leaving, state=following)
            return Result(BrokerHeartbeatResponse(), records, atomic=False, continuation=left)
        continuation = None
    if view.metadata_version >= FIRST_DIRECTORIES and request.offline_log_dirs:
        batch = ChangeBatch(cursor_of(continuation))
        take_directories_offline(view, broker_id, request.offline_log_dirs, records, batch)
        if batch.continuation is not None:
            left = Continuation(batch.continuation, failing=tuple(request.offline_log_dirs), state=following)
            return Result(BrokerHeartbeatResponse(), records, atomic=False, continuation=left)
    if view.metadata_version >= FIRST_CORDONED_DIRECTORIES:
        _cordon(registration, request.cordoned_log_dirs, records)
    if ctx.continuation is not None and following == UNFENCED and registration.fenced:
        following = FENCED  # it was fenced since, because its session expired or by a later heartbeat
    is_fenced = following in (FENCED, SHUTDOWN_NOW)
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= registration.registered_offset,
        is_fenced=is_fenced,
        should_shut_down=following == SHUTDOWN_NOW,
    )
    touch = Touch(
        broker_id,
        is_fenced,
        request.current_metadata_offset,
        in_controlled_shutdown=following == CONTROLLED_SHUTDOWN,
        leaving=following == SHUTDOWN_NOW,
    )
    return Result(response, records, atomic=False, touch=touch)


def _cordon(registration: BrokerRegistration, cordoned: list[bytes] | None, records: list[Data]) -> None:
    """Adds the record of cordoned log directories, if others are stored (KIP-1066). A broker names none,
    not even an empty list, before it has caught up."""
    stored = registration.cordoned_log_dirs
    if cordoned is None or (stored is not None and set(stored) == set(cordoned)):
        return
    records.append(
        BrokerRegistrationChangeRecord(
            broker_id=registration.id, broker_epoch=registration.epoch, cordoned_log_dirs=list(cordoned)
        )
    )


def _move(
    view: View, registration: BrokerRegistration, following: str, records: list[Data], batch: ChangeBatch
) -> None:
    """Adds the records of the transition to the next state: the changes of partitions and of the
    registration."""
    if following in (FENCED, SHUTDOWN_NOW):
        fence(view, (registration.id,), records, batch)
    elif following == CONTROLLED_SHUTDOWN:
        begin_controlled_shutdown(view, registration.id, records, batch)
    elif batch.resumed and registration.fenced:
        batch.end()  # the broker was fenced since, and stays fenced
    else:
        unfence(view, registration.id, records, batch)


def state_of(view: View, registration: BrokerRegistration) -> str:
    """The current state of a broker."""
    if registration.id in view.broker_sessions.shutdown_offsets:
        return CONTROLLED_SHUTDOWN
    return FENCED if registration.fenced else UNFENCED


def _reports_failure(view: View, registration: BrokerRegistration, request: BrokerHeartbeatRequest) -> bool:
    """Whether the heartbeat is the first one that reports the failure of a directory.

    The broker is then unfenced by its next heartbeat. Otherwise it would become the leader of partitions in
    this directory and remain it, since both changes are computed from the same view.
    """
    return view.metadata_version >= FIRST_DIRECTORIES and not set(registration.log_dirs).isdisjoint(
        request.offline_log_dirs
    )


def next_state(
    view: View, registration: BrokerRegistration, present: str, request: BrokerHeartbeatRequest
) -> str:
    """The next state of a broker: the transition table of KIP-631, except that a broker does not become
    unfenced while it reports a failed directory for the first time."""
    if present == FENCED:
        if request.want_shut_down:
            return SHUTDOWN_NOW
        caught_up = request.current_metadata_offset >= registration.registered_offset
        if request.want_fence or not caught_up or _reports_failure(view, registration, request):
            return FENCED
        return UNFENCED
    if present == UNFENCED:
        if request.want_fence:
            return SHUTDOWN_NOW if request.want_shut_down else FENCED
        if not request.want_shut_down:
            return UNFENCED
        return CONTROLLED_SHUTDOWN if view.image.topics.leads_any(registration.id) else SHUTDOWN_NOW
    if view.image.topics.leads_any(registration.id):
        return CONTROLLED_SHUTDOWN
    lowest = view.broker_sessions.lowest_active_offset(view.image.cluster.brokers.values())
    if lowest is None or view.broker_sessions.shutdown_offsets[registration.id] <= lowest:
        return SHUTDOWN_NOW
    return CONTROLLED_SHUTDOWN
