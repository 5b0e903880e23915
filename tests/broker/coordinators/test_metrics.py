"""What the metrics of the groups mean."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from immutables import Map

from quorate.broker.coordinators.group.classic.classic_group import ClassicGroup, ClassicGroupState
from quorate.broker.coordinators.group.model import ShardState, UnsupportedGroup, UnsupportedGroupType
from quorate.broker.metrics.coordinators import group_families
from quorate.protocol.errors import ErrorCode

S = ClassicGroupState
COUNTS = SimpleNamespace(
    offset_commits=11, offset_deletions=12, offset_expirations=13, completed_rebalances=14
)


def shard(state: ShardState, error: ErrorCode = ErrorCode.NONE) -> Any:
    """A partition of __consumer_offsets."""
    return SimpleNamespace(error=error, shard=SimpleNamespace(state=state))


def collected(*shards: Any) -> dict[str, dict[str, Any]]:
    """The series of each metric by the end of its name."""
    service: Any = SimpleNamespace(runtime=SimpleNamespace(contexts=lambda: iter(shards)), counts=COUNTS)
    families = [family for family in group_families(service) if family is not None]
    return {
        family.name.removeprefix("kafka_server_group_coordinator_metrics_")
        .removeprefix("kafka_coordinator_group_groupmetadatamanager_"): dict(family.series)
        for family in families
    }  # fmt: skip


def groups(*states: ClassicGroupState) -> Map[str, ClassicGroup | UnsupportedGroup]:
    return Map({f"g{i}": ClassicGroup(f"g{i}", state=state) for i, state in enumerate(states)})


def test_classic_groups_are_counted_by_their_state_under_both_names() -> None:
    every = (
        [S.EMPTY] + [S.STABLE] * 2 + [S.PREPARING_REBALANCE] * 3 + [S.COMPLETING_REBALANCE] * 4 + [S.DEAD] * 5
    )
    found = collected(shard(ShardState(groups(*every[:7]))), shard(ShardState(groups(*every[7:]))))
    assert found["classic_group_count"] == {
        'state="Empty"': 1,
        'state="Stable"': 2,
        'state="PreparingRebalance"': 3,
        'state="CompletingRebalance"': 4,
        'state="Dead"': 5,
    }
    old = ("empty", "stable", "preparingrebalance", "completingrebalance", "dead")
    assert [found[f"numgroups{name}"][""] for name in old] == [1, 2, 3, 4, 5]
    assert found["numgroups"] == {"": 15}
    assert found["group_count"] == {'protocol="classic"': 15}


def test_groups_of_other_protocols_are_counted_by_their_protocol_only() -> None:
    other = UnsupportedGroup("s", UnsupportedGroupType.STREAMS)
    found = collected(shard(ShardState(groups(S.EMPTY).set("s", other))))
    assert found["group_count"] == {'protocol="classic"': 1, 'protocol="streams"': 1}
    assert found["numgroups"] == {"": 2}
    assert sum(found["classic_group_count"].values()) == 1


def test_offsets_are_counted_for_each_partition_of_each_group() -> None:
    stored: Any = Map({"g": Map({("t", 0): None, ("t", 1): None}), "h": Map({("t", 0): None})})
    found = collected(shard(ShardState(offsets=stored)), shard(ShardState(offsets=stored)))
    assert found["offset_count"] == found["numoffsets"] == {"": 6}


def test_partitions_that_load_or_failed_count_no_groups() -> None:
    state = ShardState(groups(S.EMPTY))
    found = collected(
        shard(state),
        shard(state, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        shard(state, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        *[shard(state, ErrorCode.NOT_COORDINATOR)] * 3,
    )
    assert found["num_partitions"] == {'state="active"': 1, 'state="loading"': 2, 'state="failed"': 3}
    assert found["numgroups"] == {"": 1}


def test_what_has_happened_is_counted_since_the_start() -> None:
    found = collected()
    names = ("offset_commit_count", "offset_deletion_count", "offset_expiration_count")
    assert [found[name][""] for name in names] == [11, 12, 13]
    assert found["group_completed_rebalance_count"] == {"": 14}
