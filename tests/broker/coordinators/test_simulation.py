"""Random histories of groups: members join, sync, heartbeat, stall, fail and leave, and appends fail. The
invariants of the group hold after every step."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorate.broker.coordinators.group.classic.classic_group import ClassicGroup, ClassicGroupState
from quorate.broker.coordinators.group.config import GroupCoordinatorConfig
from quorate.broker.coordinators.group.model import GroupRecord, group_from_record
from quorate.broker.coordinators.group.shard import GroupCoordinatorShard
from quorate.protocol.errors import ErrorCode
from tests.broker.coordinators.harness import Harness

E = ErrorCode
SESSION_MS = 10_000


class Client:
    """A member that behaves as a client library: it retries retriable errors and syncs after a join."""

    def __init__(self, number: int, instance: str | None) -> None:
        self.number = number
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.join: int | None = None
        self.sync: int | None = None
        self.assignment: tuple[int, bytes] | None = None
        self.alive = True
        self.members: list[str] = []

    def step(self, h: Harness) -> None:
        if not self.alive:
            return
        if self.join is not None:
            self.joined(h)
        elif self.sync is not None:
            self.synced(h)
        elif self.generation < 0:
            self.rejoin(h)
        else:
            self.beat(h)

    def rejoin(self, h: Harness) -> None:
        self.generation = -1
        self.assignment = None
        self.sync = None
        self.join = h.join(self.member_id, instance=self.instance, session_ms=SESSION_MS, rebalance_ms=20_000)

    def joined(self, h: Harness) -> None:
        assert self.join is not None
        answer = h.answers.get(self.join)
        if answer is None:
            return
        self.join = None
        if answer.error_code == E.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            assignments = None
            if answer.leader == self.member_id and not answer.skip_assignment:
                assignments = {m.member_id: b"%d" % answer.generation_id for m in answer.members}
            self.sync = h.sync(self.member_id, self.generation, assignments)
        elif answer.error_code == E.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error_code in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
            self.member_id = ""

    def synced(self, h: Harness) -> None:
        assert self.sync is not None
        answer = h.answers.get(self.sync)
        if answer is None:
            return
        self.sync = None
        if answer.error_code == E.NONE:
            self.assignment = (self.generation, bytes(answer.assignment))
        else:
            self.lost(answer.error_code)

    def beat(self, h: Harness) -> None:
        code = h.heartbeat(self.member_id, self.generation)
        if code:
            self.lost(code)

    def lost(self, code: int) -> None:
        self.generation = -1
        self.assignment = None
        if code == E.UNKNOWN_MEMBER_ID:
            self.member_id = ""


def check(h: Harness, clients: list[Client]) -> None:
    group = h.shard.classic_group("g")
    if group is None:
        return
    waiting = [m for m in group.members.values() if m.join_token is not None]
    assert group.awaiting_join_count == len(waiting)
    assert (group.leader_id is None) == (not group.members), "somebody leads if and only if somebody is there"
    if group.leader_id is not None:
        assert group.leader_id in group.members
    assert set(group.static_members.values()) == {m.member_id for m in group.members.values() if m.is_static}
    if group.state is ClassicGroupState.EMPTY:
        assert not group.members
    if group.state is ClassicGroupState.STABLE:
        # A static member that replaced itself waits for its record alone.
        assert not waiting or (h.held and all(m.is_static for m in waiting))
        assert not [m for m in group.members.values() if m.sync_token is not None]
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        assert h.shard.timer.next_deadline() is not None, "a rebalance always ends"
    # No two live clients hold different generations that the coordinator still accepts.
    current = [c for c in clients if c.assignment is not None and c.member_id in group.members]
    accepted = [c for c in current if c.generation == group.generation_id]
    for client in accepted:
        assert (
            client.assignment == (group.generation_id, b"%d" % group.generation_id)
            or client.instance is not None
        )


def stored(h: Harness) -> ClassicGroup | None:
    """The group as loaded after a restart."""
    shard = GroupCoordinatorShard(h.config)
    for offset, record in enumerate(h.log):
        shard.replay(record, offset)
    return shard.classic_group("g")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 6),
    static=st.integers(0, 3),
    delay=st.sampled_from([0, 3000]),
)
def test_any_history_keeps_the_invariants_and_settles(seed: int, count: int, static: int, delay: int) -> None:
    rng = random.Random(seed)
    h = Harness(GroupCoordinatorConfig(initial_rebalance_delay_ms=delay, max_size=rng.choice([3, 100])))
    clients = [Client(i, f"i{i}" if i < static else None) for i in range(count)]
    for _ in range(120):
        client = rng.choice(clients)
        action = rng.random()
        if action < 0.7:
            client.step(h)
        elif action < 0.78:
            client.alive = not client.alive
            if client.alive and rng.random() < 0.5:
                client.__init__(client.number, client.instance)  # type: ignore[misc] # its process started anew
        elif action < 0.83 and client.member_id and client.join is None and client.sync is None:
            h.leave((client.member_id, client.instance))
            client.__init__(client.number, client.instance)  # type: ignore[misc]
        elif action < 0.86:
            h.fail_with = rng.choice([E.NONE, E.NONE, E.NOT_LEADER_OR_FOLLOWER, E.REQUEST_TIMED_OUT])
        elif action < 0.9:
            h.hold = not h.hold
            if not h.hold:
                h.release()
        else:
            h.advance(rng.choice([0.1, 1, 4, 11, 25]))
        check(h, clients)
    # Nothing fails any more: whoever is alive ends up in one generation.
    h.fail_with, h.hold = E.NONE, False
    h.release()
    for client in clients:
        client.alive = True
    for _ in range(60):
        for client in clients:
            for _ in range(3):
                client.step(h)
            check(h, clients)
        h.advance(1.5)
    group = h.shard.classic_group("g")
    assert group is not None
    if h.config.max_size >= count:
        assert group.state is ClassicGroupState.STABLE
        assert {c.generation for c in clients} == {group.generation_id}
        assert {c.member_id for c in clients} == set(group.members)
        loaded = stored(h)
        assert loaded is not None
        assert (loaded.generation_id, set(loaded.members)) == (group.generation_id, set(group.members))
        assert {m: v.assignment for m, v in loaded.members.items()} == {
            m: v.assignment for m, v in group.members.items()
        }


@pytest.mark.parametrize("count", [1, 2, 5])
def test_dead_members_are_removed_after_their_session_timeout(count: int) -> None:
    h = Harness()
    members = h.stable_group(count, session_ms=SESSION_MS)
    h.advance(SESSION_MS / 1000 + 61)
    group = h.shard.classic_group("g")
    assert group is not None and not group.members, members
    assert group.state is ClassicGroupState.EMPTY


def test_members_of_a_loaded_group_get_a_full_session() -> None:
    h = Harness()
    first, second = h.stable_group(2)
    shard = GroupCoordinatorShard(h.config)
    for offset, record in enumerate(h.log):
        shard.replay(record, offset)
    h.shard = shard
    for outcome in shard.loaded(h.at):
        h.carry_out(outcome, shard.state)
    h.advance(9)
    assert h.heartbeat(first, 1) == E.NONE
    h.advance(2)
    assert h.heartbeat(first, 1) == E.REBALANCE_IN_PROGRESS
    assert h.heartbeat(second, 1) == E.UNKNOWN_MEMBER_ID


def test_a_loaded_group_over_capacity_rebalances() -> None:
    h = Harness()
    h.stable_group(3)
    shard = GroupCoordinatorShard(GroupCoordinatorConfig(max_size=2))
    for offset, record in enumerate(h.log):
        shard.replay(record, offset)
    for outcome in shard.loaded(h.at):
        assert not outcome.records
    group = shard.classic_group("g")
    assert group is not None and group.state is ClassicGroupState.PREPARING_REBALANCE


def test_every_group_record_is_loaded_with_the_same_content() -> None:
    h = Harness()
    h.stable_group(3)
    for record in h.log:
        assert isinstance(record, GroupRecord) and record.value is not None
        loaded: Any = group_from_record("g", record.value)
        assert loaded.generation_id == record.value.generation
        assert [m.member_id for m in record.value.members] == list(loaded.members)
