"""The assignments and records of new partitions. The assignments come from the request or from the
placer."""

from __future__ import annotations

from collections.abc import Sequence

from quorate.controller.changes.batched_change import STEP_ITEMS, ChangeSteps
from quorate.controller.context import Context, View
from quorate.controller.replication.placement import Racks, StripedPlacer, UsableBroker
from quorate.metadata.records import PartitionRecord
from quorate.protocol.errors import ErrorCode, KafkaError


def check_partition_total(view: View, total: int, what: str = "partitions") -> None:
    """Raises POLICY_VIOLATION if a request would create more partitions than one atomic change may
    create."""
    if total > view.max_records:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of {what} per request.",
            remedy=f"There are {total}, at most {view.max_records} are allowed: divide the request.",
        )


_UNCORDON = "Remove a directory from cordoned.log.dirs of the broker by kafka-configs."
Assignment = tuple[tuple[int, ...], tuple[int, ...]]
"""The replicas of a partition, and the active ones among them. The active ones are the first ISR, and
the first of them is the leader. The garbage collector does not track tuples of ints, and a request may
have hundreds of thousands."""


def manual_assignment(
    view: View, brokers: Sequence[int], factor: int | None, partition_id: int
) -> Assignment:
    """An assignment of the request. Raises INVALID_REPLICA_ASSIGNMENT."""
    check_manual_replicas(view, brokers, factor)
    isr = tuple([broker for broker in brokers if view.is_active(broker)])
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {partition_id} are "
            "fenced or in controlled shutdown.",
            remedy=view.broker_states(),
        )
    return tuple(brokers), isr


def check_manual_replicas(view: View, brokers: Sequence[int], factor: int | None) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT for an empty list, a broker that is unknown, repeated or has only
    cordoned directories, or a wrong number of replicas."""

    def invalid(why: str, remedy: str = "") -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {why}",
            remedy=remedy,
        )

    if not brokers:
        raise invalid("an empty replica list.")
    previous: int | None = None
    for broker in sorted(brokers):
        registration = view.broker(broker)
        if registration is None:
            raise invalid(f"broker {broker}, but no such broker is registered.", view.broker_states())
        if not registration.has_uncordoned_directory:
            raise invalid(f"broker {broker}, but all its log directories are cordoned.", _UNCORDON)
        if broker == previous:
            raise invalid(f"the broker {broker} more than once.")
        previous = broker
    if factor is not None and len(brokers) != factor:
        raise invalid(
            f"a partition with {len(brokers)} replica(s), but this is not consistent with previous "
            f"partitions, which have {factor} replica(s)."
        )


def usable_brokers(view: View) -> Racks:
    """The registered brokers that are not in controlled shutdown and have a directory that is not
    cordoned.

    A broker may be in controlled shutdown only according to its registration, if it began the shutdown
    just now or under another controller.
    """
    return Racks(
        UsableBroker(broker.id, broker.rack, not view.is_active(broker.id))
        for broker in view.image.cluster.brokers.values()
        if broker.id not in view.broker_sessions.shutdown_offsets
        and (broker.fenced or not broker.in_controlled_shutdown)
        and broker.has_uncordoned_directory
    )


def placed_assignments(
    view: View, usable: Racks, ctx: Context, count: int, factor: int
) -> ChangeSteps[list[Assignment]]:
    """Assignments chosen by the placer, in steps. Raises INVALID_REPLICATION_FACTOR."""
    placer = StripedPlacer(usable, ctx.rng)
    try:
        placer.check(factor)
    except KafkaError as error:
        raise KafkaError(error.code, error.message, remedy=view.broker_states()) from error
    assignments: list[Assignment] = []
    for _ in range(count):
        replicas = placer.place(factor)
        isr = tuple([broker for broker in replicas if view.is_active(broker)])
        if not isr:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "All brokers are currently fenced or in controlled shutdown.",
                remedy=view.broker_states(),
            )
        assignments.append((tuple(replicas), isr))
        if not len(assignments) % STEP_ITEMS:
            yield []
    return assignments


def new_partition_records(
    view: View, topic_id: bytes, first: int, assignments: Sequence[Assignment]
) -> list[PartitionRecord]:
    """The records of new partitions of one topic, from partition id `first` on."""
    return [
        _new_partition_record(view, topic_id, partition_id, replicas, isr)
        for partition_id, (replicas, isr) in enumerate(assignments, first)
    ]


def _new_partition_record(
    view: View, topic_id: bytes, partition_id: int, replicas: tuple[int, ...], isr: tuple[int, ...]
) -> PartitionRecord:
    """The record of a new partition."""
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(isr),
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=view.new_directories(replicas),
    )
