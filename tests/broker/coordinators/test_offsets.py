"""Committed offsets in the shard: commits, expiry, transactions in a log, groups of unsupported types."""

from __future__ import annotations

import pytest

from quorate.broker.coordinators.group.config import GroupCoordinatorConfig
from quorate.broker.coordinators.group.group_deletion import GroupDeletion
from quorate.broker.coordinators.group.model import (
    Caller,
    GroupRecord,
    OffsetAndMetadata,
    OffsetRecord,
    StoredGroup,
    UnsupportedGroup,
    UnsupportedGroupRecord,
    UnsupportedGroupType,
)
from quorate.broker.coordinators.group.offset_metadata_manager import (
    DELETION_SLICE,
    EXPIRY_SLICE,
    TOMBSTONE_COST,
)
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.offset_commit import OffsetCommitRequest
from quorate.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.broker.coordinators.harness import START_MS, Harness

E = ErrorCode
DAY_MS = 24 * 60 * 60 * 1000


def commit(h: Harness, offset: int = 1, *, group: str = "g", topic: str = "t", version: int = 9, retention_ms: int = -1,
           member: str = "", generation: int = -1, instance: str | None = None, index: int = 0) -> ErrorCode:  # fmt: skip
    """Commits one offset. Returns the error of the request or of its partition."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset
    )
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    token = h.next_token()
    before = h.shard.state
    try:
        h.carry_out(h.shard.offsets.commit(request, Caller(version), token, h.at), before)
    except KafkaError as error:
        h.shard.state = before
        return error.code
    return ErrorCode(h.answers[token].topics[0].partitions[0].error_code)


def offsets(h: Harness, group: str = "g") -> dict[tuple[str, int], int]:
    request = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    answer = h.shard.offsets.fetch(h.shard.state, request, require_stable=False)
    return {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}


def test_committing_without_membership_makes_a_simple_group() -> None:
    h = Harness()
    assert commit(h, 5) == E.NONE
    group = h.shard.classic_group("g")
    assert group is not None and group.is_simple
    assert offsets(h) == {("t", 0): 5}


@pytest.mark.parametrize(
    ("version", "code"), [(9, E.GROUP_ID_NOT_FOUND), (8, E.ILLEGAL_GENERATION), (2, E.ILLEGAL_GENERATION)]
)
def test_a_member_of_an_unknown_group_may_not_commit(version: int, code: ErrorCode) -> None:
    assert commit(Harness(), generation=3, member="m", version=version) == code


@pytest.mark.parametrize(
    ("member", "generation", "instance", "code"),
    [
        ("LEADER", 1, None, E.NONE),
        ("LEADER", 7, None, E.ILLEGAL_GENERATION),
        ("stranger", 1, None, E.UNKNOWN_MEMBER_ID),
        ("", -1, None, E.UNKNOWN_MEMBER_ID),
        ("LEADER", 1, "i", E.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_the_generation_commit_to_a_live_group(
    member: str, generation: int, instance: str | None, code: ErrorCode
) -> None:
    h = Harness()
    (leader,) = h.stable_group(1)
    assert (
        commit(h, member=member.replace("LEADER", leader), generation=generation, instance=instance) == code
    )


def test_no_commit_is_accepted_before_the_assignment_is_stored() -> None:
    h = Harness()
    member_id, _ = h.new_member()
    h.advance(3.1)
    assert commit(h, member=member_id, generation=1) == E.REBALANCE_IN_PROGRESS


def test_members_may_commit_while_a_rebalance_prepares() -> None:
    h = Harness()
    leader, follower = h.stable_group(2)
    h.join(leader)
    assert commit(h, member=follower, generation=1) == E.NONE


def test_a_commit_keeps_the_session() -> None:
    h = Harness()
    (leader,) = h.stable_group(1)
    for _ in range(5):
        h.advance(8)
        assert commit(h, member=leader, generation=1) == E.NONE


def test_offsets_of_another_topic_of_the_same_name_are_not_returned() -> None:
    h = Harness()
    h.shard.replay(OffsetRecord("g", "t", 0, OffsetAndMetadata(5, topic_id=b"a" * 16)), 0)
    wanted = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", topic_id=b"b" * 16, partition_indexes=[0])
    request = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[wanted])
    answer = h.shard.offsets.fetch(h.shard.state, request, require_stable=False)
    assert answer.topics[0].partitions[0].committed_offset == -1


# -- expiry
# --------------------------------------------------------------------------------------------------


def test_offsets_of_a_simple_group_expire_after_their_last_commit_and_the_group_with_them() -> None:
    h = Harness(GroupCoordinatorConfig(offsets_retention_ms=DAY_MS))
    commit(h, 1)
    h.advance(DAY_MS / 1000 / 2)
    commit(h, 2, topic="u")
    h.advance(DAY_MS / 1000 / 2 + 600)
    assert offsets(h) == {("u", 0): 2}
    h.advance(DAY_MS / 1000 / 2)
    assert offsets(h) == {}
    assert h.shard.classic_group("g") is None
    assert h.log[-1] == GroupRecord("g", None)
    assert h.shard.counts.offset_expirations == 2


def test_retention_of_a_group_counts_from_when_it_is_empty() -> None:
    h = Harness(GroupCoordinatorConfig(offsets_retention_ms=DAY_MS))
    (leader,) = h.stable_group(1, session_ms=DAY_MS * 3)
    commit(h, 1, member=leader, generation=1)
    h.advance(DAY_MS / 1000 * 2)
    h.leave((leader, None))
    h.advance(DAY_MS / 1000 - 700)
    assert offsets(h) == {("t", 0): 1}
    h.advance(1400)
    assert offsets(h) == {}


def test_a_live_group_keeps_what_it_reads_and_loses_the_rest() -> None:
    h = Harness(GroupCoordinatorConfig(offsets_retention_ms=DAY_MS))
    subscription = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"
    kwargs = {"protocols": [("range", subscription)], "session_ms": DAY_MS * 3}
    (leader,) = h.stable_group(1, **kwargs)
    commit(h, 1, topic="t", member=leader, generation=1)
    commit(h, 1, topic="old", member=leader, generation=1)
    h.advance(DAY_MS / 1000 + 700)
    assert offsets(h) == {("t", 0): 1}


def test_a_group_with_unreadable_subscriptions_keeps_everything() -> None:
    h = Harness(GroupCoordinatorConfig(offsets_retention_ms=DAY_MS))
    (leader,) = h.stable_group(1, protocols=[("range", b"\0")], session_ms=DAY_MS * 3)
    commit(h, 1, member=leader, generation=1)
    h.advance(DAY_MS / 1000 * 2)
    assert offsets(h) == {("t", 0): 1}


def test_a_requested_retention_wins() -> None:
    h = Harness(GroupCoordinatorConfig(offsets_retention_ms=DAY_MS))
    commit(h, 1, topic="short", version=3, retention_ms=1000)
    commit(h, 1, topic="long", version=3, retention_ms=DAY_MS * 10)
    h.advance(1300)
    assert offsets(h) == {("long", 0): 1}
    h.advance(DAY_MS / 1000 * 2)
    assert offsets(h) == {("long", 0): 1}


def test_an_expiry_of_many_offsets_is_made_in_steps_that_see_what_changes_meanwhile() -> None:
    h = Harness(GroupCoordinatorConfig(offsets_retention_ms=1000))
    for group in ("a", "b", "c"):
        for partition in range(EXPIRY_SLICE - 100):
            value = OffsetAndMetadata(1, commit_timestamp_ms=h.at.wall_ms)
            h.shard.replay(OffsetRecord(group, "t", partition, value), len(h.log))
    h.now += 700
    steps = []
    while h.shard.next_expiry is not None and h.shard.next_expiry <= h.now:
        before = h.shard.state
        for outcome in h.shard.tick(h.at):
            steps.append(len(outcome.records))
            h.carry_out(outcome, before)
        if len(steps) == 1:
            left = next(
                group for group in "abc" if 0 < len(h.shard.state.offsets.get(group, ())) < EXPIRY_SLICE - 100
            )
            commit(h, 7, group=left)
    assert max(steps) <= EXPIRY_SLICE + 3 and len(steps) >= 3
    assert {
        group: {k: v.offset for k, v in offsets.items()} for group, offsets in h.shard.state.offsets.items()
    } == {left: {("t", 0): 7}}
    assert list(h.shard.state.groups) == [left]
    h.now += 700
    h.advance(0.1)
    assert not h.shard.state.offsets and not h.shard.state.groups


def test_offsets_of_deleted_topics_are_deleted_in_steps_but_not_those_of_a_new_topic() -> None:
    h = Harness()
    count = 3 * DELETION_SLICE // TOMBSTONE_COST
    for group in ("a", "b"):
        for topic in ("t", "u"):
            for partition in range(count):
                value = OffsetAndMetadata(1, commit_timestamp_ms=h.at.wall_ms)
                h.shard.replay(OffsetRecord(group, topic, partition, value), len(h.log))
    h.shard.topics_deleted(frozenset({"t"}))
    steps = []
    while h.shard.next_deadline() == 0.0:
        before = h.shard.state
        for outcome in h.shard.tick(h.at):
            steps.append(len(outcome.records))
            h.carry_out(outcome, before)
        if len(steps) == 1:
            # The topic is created again. The order of the deletion depends on the hashes of strings.
            index = next(p for topic, p in h.shard.state.offsets["a"] if topic == "t")
            commit(h, 7, group="a", index=index)
    assert max(steps) <= DELETION_SLICE / TOMBSTONE_COST + 1 and sum(steps) == 2 * count - 1
    assert {k: v.offset for k, v in h.shard.state.offsets["a"].items() if k[0] == "t"} == {("t", index): 7}
    assert {topic for topic, _ in h.shard.state.offsets["b"]} == {"u"}
    assert all(len(offsets) in (count, count + 1) for offsets in h.shard.state.offsets.values())


def test_a_failed_expiry_is_retried() -> None:
    h = Harness(GroupCoordinatorConfig(offsets_retention_ms=1000))
    commit(h, 1)
    h.fail_with = E.NOT_ENOUGH_REPLICAS
    h.advance(601)
    assert offsets(h) == {("t", 0): 1}
    h.fail_with = E.NONE
    h.advance(601)
    assert offsets(h) == {}


# -- transactions that a log holds
# --------------------------------------------------------------------------------------------------


def test_transactional_offsets_wait_for_their_marker() -> None:
    h = Harness()
    h.shard.replay(OffsetRecord("g", "t", 0, OffsetAndMetadata(5)), 0, producer_id=9)
    assert offsets(h) == {}
    request = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[
        OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    ])  # fmt: skip
    answer = h.shard.offsets.fetch(h.shard.state, request, require_stable=True)
    assert answer.topics[0].partitions[0].error_code == E.UNSTABLE_OFFSET_COMMIT
    h.shard.replay_end_transaction(9, committed=True)
    assert offsets(h) == {("t", 0): 5}
    assert not h.shard.state.pending


def test_aborted_offsets_are_dropped() -> None:
    h = Harness()
    h.shard.replay(OffsetRecord("g", "t", 0, OffsetAndMetadata(5)), 0, producer_id=9)
    h.shard.replay_end_transaction(9, committed=False)
    assert offsets(h) == {} and not h.shard.state.pending


def test_a_later_plain_commit_wins_over_an_older_transaction() -> None:
    h = Harness()
    h.shard.replay(OffsetRecord("g", "t", 0, OffsetAndMetadata(5)), 0, producer_id=9)
    h.shard.replay(OffsetRecord("g", "t", 0, OffsetAndMetadata(6)), 1)
    h.shard.replay_end_transaction(9, committed=True)
    assert offsets(h) == {("t", 0): 6}


def test_a_tombstone_removes_pending_offsets_too() -> None:
    h = Harness()
    h.shard.replay(OffsetRecord("g", "t", 0, OffsetAndMetadata(5)), 0, producer_id=9)
    h.shard.replay(OffsetRecord("g", "t", 0, None), 1)
    h.shard.replay_end_transaction(9, committed=True)
    assert offsets(h) == {}


def test_groups_with_an_open_transaction_do_not_expire() -> None:
    h = Harness(GroupCoordinatorConfig(offsets_retention_ms=1000))
    h.shard.replay(
        OffsetRecord("g", "t", 0, OffsetAndMetadata(5, commit_timestamp_ms=START_MS)), 0, producer_id=9
    )
    h.advance(2000)
    assert h.shard.classic_group("g") is not None


# -- groups of other protocols
# --------------------------------------------------------------------------------------------------


def foreign(
    h: Harness, *, member: bool, group_type: UnsupportedGroupType = UnsupportedGroupType.CONSUMER
) -> None:
    h.shard.replay(UnsupportedGroupRecord("n", group_type, 3, b"k3", b"v"), 0)
    h.shard.replay(UnsupportedGroupRecord("n", group_type, 6, b"k6", b"v"), 1)
    if member:
        h.shard.replay(UnsupportedGroupRecord("n", group_type, 5, b"k5", b"v", "m"), 2)


def test_a_live_foreign_group_is_listed_and_left_alone() -> None:
    h = Harness()
    foreign(h, member=True)
    listed = h.shard.list_groups(h.shard.state, frozenset(), frozenset())
    assert [(g.group_id, g.group_type, g.group_state) for g in listed] == [("n", "consumer", "Stable")]
    assert h.answers[h.join(group="n")].error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert commit(h, group="n", member="m", generation=4) == E.UNKNOWN_MEMBER_ID
    assert commit(h, group="n") == E.UNKNOWN_MEMBER_ID
    outcome = h.shard.delete_group(GroupDeletion("n", 10), 0, 1000)
    assert not outcome.records
    h.advance(10 * DAY_MS / 1000)
    assert not h.log


def test_offsets_of_unsupported_groups_are_returned_and_do_not_expire() -> None:
    h = Harness(GroupCoordinatorConfig(offsets_retention_ms=1000))
    foreign(h, member=True)
    h.shard.replay(OffsetRecord("n", "t", 0, OffsetAndMetadata(5)), 3)
    h.advance(3000)
    assert offsets(h, "n") == {("t", 0): 5}


def test_an_empty_foreign_group_may_be_deleted_with_all_its_records() -> None:
    h = Harness()
    foreign(h, member=False)
    h.shard.replay(OffsetRecord("n", "t", 0, OffsetAndMetadata(5)), 3)
    before = h.shard.state
    h.carry_out(h.shard.delete_group(GroupDeletion("n", 10), 1, 1000), before)
    assert "n" not in h.shard.state.groups
    deleted = [r.record_type for r in h.log if isinstance(r, UnsupportedGroupRecord)]
    assert deleted == [6, 3], "the group's own record goes last"


@pytest.mark.parametrize(
    ("group_type", "joins"), [(UnsupportedGroupType.CONSUMER, True), (UnsupportedGroupType.SHARE, False)]
)
def test_an_empty_consumer_group_becomes_classic_when_a_classic_member_joins(
    group_type: UnsupportedGroupType, joins: bool
) -> None:
    h = Harness()
    foreign(h, member=False, group_type=group_type)
    code = h.answers[h.join(group="n")].error_code
    assert code == (E.MEMBER_ID_REQUIRED if joins else E.INCONSISTENT_GROUP_PROTOCOL)
    assert isinstance(h.shard.state.groups["n"], UnsupportedGroup) is not joins


def test_leaving_members_of_a_foreign_group_are_seen() -> None:
    h = Harness()
    foreign(h, member=True)
    h.shard.replay(UnsupportedGroupRecord("n", UnsupportedGroupType.CONSUMER, 5, b"k5", None, "m"), 3)
    group = h.shard.state.groups["n"]
    assert isinstance(group, UnsupportedGroup) and group.is_empty


def test_tombstones_of_a_foreign_group_that_is_classic_now_change_nothing() -> None:
    h = Harness()
    h.shard.replay(GroupRecord("n", StoredGroup("consumer", 4, None, None, START_MS)), 0)
    h.shard.replay(UnsupportedGroupRecord("n", UnsupportedGroupType.CONSUMER, 3, b"k3", None), 1)
    assert h.shard.classic_group("n") is not None
