"""The metrics of the groups that this broker coordinates (`GroupCoordinatorMetrics` in Kafka)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from quorate.broker.coordinators.group.classic.classic_group import ClassicGroup, ClassicGroupState
from quorate.metrics import Family, gauge, labels
from quorate.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from quorate.broker.coordinators.group.service import GroupCoordinatorService

PIECE = 500
"""Groups that are counted without a pause."""

_OLD_NAMES = {
    ClassicGroupState.PREPARING_REBALANCE: "NumGroupsPreparingRebalance",
    ClassicGroupState.COMPLETING_REBALANCE: "NumGroupsCompletingRebalance",
    ClassicGroupState.STABLE: "NumGroupsStable",
    ClassicGroupState.DEAD: "NumGroupsDead",
    ClassicGroupState.EMPTY: "NumGroupsEmpty",
}
"""kafka.coordinator.group:type=GroupMetadataManager, which dashboards of older releases draw."""


def group_families(groups: GroupCoordinatorService) -> Iterator[Family | None]:
    """The numbers of groups by protocol and state, of offsets, and of partitions by their loading."""
    protocols: Counter[str] = Counter({"classic": 0})
    states: Counter[ClassicGroupState] = Counter()
    partitions = {"active": 0, "loading": 0, "failed": 0}
    offsets = 0
    counted = 0
    for context in groups.runtime.contexts():
        if context.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            partitions["loading"] += 1
            continue
        if context.error is not ErrorCode.NONE:
            partitions["failed"] += 1
            continue
        partitions["active"] += 1
        state = context.shard.state
        for group in state.groups.values():
            if isinstance(group, ClassicGroup):
                protocols["classic"] += 1
                states[group.state] += 1
            else:
                protocols[group.group_type.value] += 1
            counted += 1
            if counted % PIECE == 0:
                yield None
        for stored in state.offsets.values():
            offsets += len(stored)
            counted += 1
            if counted % PIECE == 0:
                yield None
    new, old = "server.group-coordinator-metrics", "coordinator.group.GroupMetadataManager"
    yield gauge(
        f"{new}.group-count",
        "Groups by rebalance protocol.",
        [(labels(protocol=name), count) for name, count in sorted(protocols.items())],
    )
    yield gauge(
        f"{new}.classic-group-count",
        "Classic groups by state.",
        [(labels(state=one.value), states[one]) for one in _OLD_NAMES],
    )
    yield gauge(f"{new}.offset-count", "Committed offsets that are kept.", offsets)
    yield gauge(
        f"{new}.num-partitions",
        "Partitions of __consumer_offsets that this broker leads, by state.",
        [(labels(state=name), count) for name, count in partitions.items()],
    )
    counts = groups.counts
    yield gauge(f"{new}.offset-commit-count", "Offsets that were committed.", counts.offset_commits)
    yield gauge(
        f"{new}.offset-deletion-count", "Offsets that OffsetDelete has removed.", counts.offset_deletions
    )
    yield gauge(
        f"{new}.offset-expiration-count",
        "Offsets that were removed after offsets.retention.minutes.",
        counts.offset_expirations,
    )
    yield gauge(
        f"{new}.group-completed-rebalance-count",
        "Rebalances of classic groups that were completed.",
        counts.completed_rebalances,
    )
    yield gauge(f"{old}.NumGroups", "Groups.", sum(protocols.values()))
    yield gauge(f"{old}.NumOffsets", "Committed offsets that are kept.", offsets)
    for group_state, name in _OLD_NAMES.items():
        text = f"Classic groups in the state {group_state.value}."
        yield gauge(f"{old}.{name}", text, states[group_state])
