"""Additions and removals of voters: what they wait for, and why they are refused (KIP-853)."""

from __future__ import annotations

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core.effects import Outgoing
from quorate.raft.core.events import Abandoned, Replied, Resign
from quorate.raft.types import OffsetEpoch, ReplicaKey, Role
from tests.raft.world import LISTENER, World, address, directory, voter
from tests.raft.world import Node as Replica


def key(i: int) -> ReplicaKey:
    return ReplicaKey(i, directory(i))


def quorum(voters: int, others: int = 0, seed: int = 1, **options: bool) -> World:
    """Voters that have elected a leader, and controllers that are not voters yet but run and have
    caught up."""
    world = World(voters, seed=seed, observers=others, kraft=1)
    for i in range(voters + 1, voters + others + 1):
        world.nodes[i].can_vote = True
        world.nodes[i].auto_join = options.get("auto_join", False)
    world.boot_all()
    world.elect()
    offset = world.settle("begin")
    world.run(8, lambda: all(n.committed > offset for n in world.nodes.values()))
    return world


def lead(world: World) -> Replica:
    assert world.leader is not None
    return world.leader


def ask(world: World, request: m.RaftRequest, seconds: float = 60.0) -> m.Reply:
    leader = lead(world)
    token = world.ask(leader, request)
    assert world.run(seconds, lambda: token in leader.answers)
    return leader.answers[token]


def timed_out(reply: m.Reply, words: str) -> bool:
    return reply.error == ErrorCode.REQUEST_TIMED_OUT and words in (reply.message or "")


# --- what an addition waits for -------------------------------------------------------------------


def test_an_addition_waits_until_the_new_replica_has_caught_up() -> None:
    world = quorum(1, others=1)
    world.kill(2)
    world.run(5)
    token = world.ask(lead(world), m.AddVoter(voter(2)))
    world.run(3)
    assert token not in lead(world).answers
    assert lead(world).core.state.voters.ids == [1]
    world.nodes[2].boot_up()
    assert world.run(10, lambda: token in lead(world).answers)
    assert lead(world).answers[token].error == ErrorCode.NONE
    assert lead(world).core.state.voters.ids == [1, 2]


@pytest.mark.parametrize(("alive", "words"), [(False, "it has not fetched"), (True, "its last fetch was")])
def test_an_addition_that_times_out_names_the_replica_that_does_not_fetch(alive: bool, words: str) -> None:
    world = quorum(1, others=1)
    if alive:
        world.kill(2)
        world.run(5)
    chosen = 2 if alive else 3
    asked = world.now
    reply = ask(world, m.AddVoter(voter(chosen), timeout_ms=3000))
    assert timed_out(reply, "to catch up"), reply.message
    assert words in (reply.message or "")
    assert world.now - asked == pytest.approx(3.0, abs=0.1)


def test_a_broker_cannot_be_made_a_voter(monkeypatch: pytest.MonkeyPatch) -> None:
    world = quorum(1, others=1)
    send = World.send

    def answer(self: World, sender: Replica, out: Outgoing) -> None:
        if isinstance(out.request, m.ProbeVersions):
            told = m.ProbeReply(kraft_versions=(0, 1), supports_vote=False)
            self.after(0.01, lambda: sender.step(Replied(out.to, out.request, told)))
        else:
            send(self, sender, out)

    monkeypatch.setattr(World, "send", answer)
    reply = ask(world, m.AddVoter(voter(2), timeout_ms=2000))
    assert reply.error == ErrorCode.INVALID_REQUEST
    assert "is not a listener of a controller" in (reply.message or "")


def test_an_addition_repeats_api_versions_and_names_it_when_it_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = quorum(1, others=1)
    send, probes = World.send, []

    def refuse(self: World, sender: Replica, out: Outgoing) -> None:
        if isinstance(out.request, m.ProbeVersions):
            probes.append(out)
            life = sender.generation
            self.after(
                0.01,
                lambda: (
                    life == sender.generation and sender.step(Replied(out.to, out.request, m.Failure.TIMEOUT))
                ),
            )
        else:
            send(self, sender, out)

    monkeypatch.setattr(World, "send", refuse)
    reply = ask(world, m.AddVoter(voter(2), timeout_ms=2000))
    assert timed_out(reply, f"ApiVersions of voter {key(2)}"), reply.message
    assert "timeout" in (reply.message or "")
    assert len(probes) > 10
    token = world.ask(lead(world), m.AddVoter(voter(2), timeout_ms=5000))
    world.run(1)
    monkeypatch.setattr(World, "send", send)
    assert world.run(3, lambda: token in lead(world).answers)
    assert lead(world).answers[token].error == ErrorCode.NONE


def test_a_voter_that_does_not_support_the_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = quorum(1, others=1)
    monkeypatch.setattr(m.ProbeReply, "__init__", _only_level_0)
    assert ask(world, m.AddVoter(voter(2))).error == ErrorCode.INVALID_REQUEST


def _only_level_0(self: m.ProbeReply, **values: object) -> None:
    m.Reply.__init__(self)
    self.kraft_versions, self.supports_vote = (0, 0), True


def test_a_change_waits_for_the_one_before_it() -> None:
    world = quorum(3, others=2)
    tokens = [world.ask(lead(world), m.AddVoter(voter(i))) for i in (4, 5)]
    assert world.run(10, lambda: all(t in lead(world).answers for t in tokens))
    assert [lead(world).answers[t].error for t in tokens] == [ErrorCode.NONE] * 2
    assert lead(world).core.state.voters.ids == [1, 2, 3, 4, 5]
    sets = [e.control[1] for e in lead(world).log.entries if e.control and e.control[0] == 6]
    sizes = [len(s.voters) for s in sets]
    assert sizes == [3, 4, 5]


def test_a_queued_change_that_times_out_names_the_earlier_change() -> None:
    world = quorum(1, others=1)
    first = world.ask(lead(world), m.AddVoter(voter(3), timeout_ms=10_000))
    second = ask(world, m.AddVoter(voter(2), timeout_ms=1000))
    assert timed_out(second, "an earlier change of voters")
    assert first not in lead(world).answers
    third = world.ask(lead(world), m.AddVoter(voter(2), timeout_ms=20_000))
    assert world.run(12, lambda: third in lead(world).answers)
    assert timed_out(lead(world).answers[first], "to catch up")
    assert lead(world).answers[third].error == ErrorCode.NONE


def test_too_many_changes_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.raft.core.membership.voter_changes.MAX_WAITING", 2)
    world = quorum(1, others=1)
    tokens = [world.ask(lead(world), m.AddVoter(voter(3))) for _ in range(4)]
    refused = [t for t in tokens if t in lead(world).answers]
    assert refused == tokens[3:]
    assert timed_out(lead(world).answers[tokens[3]], "too many")


def test_an_uncommitted_set_is_waited_for_and_named() -> None:
    world = quorum(3, others=1)
    leader = lead(world)
    followers = [i for i in (1, 2, 3) if i != leader.id]
    token = world.ask(leader, m.AddVoter(voter(4), timeout_ms=1000))
    assert world.run(5, lambda: len(leader.core.state.voters) == 4)
    for i in followers:
        world.isolate(i)
    late = world.ask(leader, m.RemoveVoter(key(followers[0])))
    world.run(1.2)
    assert timed_out(leader.answers[token], "the new voter set to be committed")
    assert leader.core.state.leading is not None
    assert leader.core.state.leading.voter_change is not None
    assert "to be committed" in leader.core.state.leading.voter_change.waits_for
    assert late not in leader.answers
    world.heal()
    assert world.run(10, lambda: late in leader.answers)


def test_waiting_changes_are_answered_when_leadership_is_lost() -> None:
    world = quorum(3, others=1)
    leader = lead(world)
    tokens = [world.ask(leader, m.AddVoter(voter(9))), world.ask(leader, m.RemoveVoter(key(2)))]
    leader.step(Resign(leader.core.state.epoch, "a test"))
    assert [leader.answers[t].error for t in tokens] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_an_addition_may_be_acknowledged_before_it_is_committed() -> None:
    world = quorum(3, others=1)
    token = world.ask(lead(world), m.AddVoter(voter(4), ack_when_committed=False))
    assert world.run(5, lambda: token in lead(world).answers)
    leader = lead(world)
    assert leader.answers[token].error == ErrorCode.NONE
    assert leader.core.state.hwm is not None
    assert leader.core.state.members.current_offset is not None
    assert leader.core.state.members.current_offset >= leader.core.state.hwm


@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_an_addition_whose_client_hangs_up_ends_and_the_next_one_follows(earlier: int) -> None:
    world = quorum(1, others=1)
    before = [world.ask(lead(world), m.AddVoter(voter(5 + i), timeout_ms=50_000)) for i in range(earlier)]
    gone = world.ask(lead(world), m.AddVoter(voter(9), timeout_ms=50_000))
    wanted = world.ask(lead(world), m.AddVoter(voter(2)))
    world.run(1)
    assert gone not in lead(world).answers
    lead(world).step(Abandoned(gone))
    assert timed_out(lead(world).answers[gone], "the client hung up, waiting for ")
    for token in before:
        lead(world).step(Abandoned(token))
    assert world.run(2, lambda: wanted in lead(world).answers)
    assert lead(world).answers[wanted].error == ErrorCode.NONE


def test_an_addition_that_is_written_is_completed_although_its_client_hangs_up() -> None:
    world = quorum(1, others=1)
    leader = lead(world)
    token = world.ask(leader, m.AddVoter(voter(2)))
    assert world.run(1, lambda: len(leader.core.state.voters) == 2)
    leader.step(Abandoned(token))
    assert world.run(1, lambda: token in leader.answers)
    assert leader.answers[token].error == ErrorCode.NONE


def test_a_hang_up_after_the_end_of_leadership_changes_nothing() -> None:
    world = quorum(3)
    leader = lead(world)
    token = world.ask(leader, m.AddVoter(voter(9)))
    leader.step(Resign(leader.core.state.epoch, "test"))
    assert leader.answers[token].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.step(Abandoned(token))
    assert leader.answers[token].error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_refusal_of_a_duplicate_names_the_command_that_removes_the_old_voter() -> None:
    world = quorum(3)
    replaced = voter(3)
    replaced = type(replaced)(ReplicaKey(3, directory(33)), replaced.endpoints, (0, 1))
    reply = ask(world, m.AddVoter(replaced))
    assert reply.error == ErrorCode.DUPLICATE_VOTER
    from quorate.protocol.uuids import uuid_text

    command = f"remove-controller --controller-id 3 --controller-directory-id {uuid_text(directory(3))}"
    assert command in (reply.message or "")


def test_a_removal_that_times_out_names_what_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.raft.core.membership.voter_changes.REMOVE_TIMEOUT_S", 1.0)
    world = quorum(3)
    leader = lead(world)
    first, second = (i for i in (1, 2, 3) if i != leader.id)
    removing = world.ask(leader, m.RemoveVoter(key(first)))
    assert world.run(1, lambda: len(leader.core.state.voters) == 2)
    for i in (first, second):
        world.isolate(i)
    late = world.ask(leader, m.RemoveVoter(key(second)))
    world.run(1.2)
    assert timed_out(leader.answers[removing], "the new voter set to be committed")
    assert timed_out(leader.answers[late], "the voter set at offset 4 to be committed")


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (ReplicaKey(1, directory(1)), ErrorCode.VOTER_NOT_FOUND, "it is the only one"),
        (
            ReplicaKey(1, directory(7)),
            ErrorCode.VOTER_NOT_FOUND,
            f"the voters are {ReplicaKey(1, directory(1))}",
        ),
        (
            ReplicaKey(7, directory(7)),
            ErrorCode.VOTER_NOT_FOUND,
            f"the voters are {ReplicaKey(1, directory(1))}",
        ),
        (ReplicaKey(1), ErrorCode.INVALID_REQUEST, "no directory id"),
        (ReplicaKey(7), ErrorCode.INVALID_REQUEST, "no directory id"),
    ],
    ids=["the last one", "another disk", "another id", "no disk", "neither"],
)
def test_removals_that_do_not_apply_are_refused_with_the_reason(
    asked: ReplicaKey, error: ErrorCode, words: str
) -> None:
    reply = ask(quorum(1), m.RemoveVoter(asked))
    assert reply.error == error
    assert words in (reply.message or "")


def test_a_voter_that_never_reported_its_directory_id_is_removed_without_one() -> None:
    world = World(3, kraft=1)
    unknown = voter(3)
    for node in world.nodes.values():
        node.boot = node.boot.with_voter(
            type(unknown)(ReplicaKey(3), unknown.endpoints, unknown.kraft_versions)
        )
    for i in (1, 2):
        world.nodes[i].boot_up()
    world.elect()
    world.settle("begin")
    assert ask(world, m.RemoveVoter(key(3))).error == ErrorCode.VOTER_NOT_FOUND
    duplicate = ask(world, m.AddVoter(voter(3)))
    assert duplicate.error == ErrorCode.DUPLICATE_VOTER
    assert "it reports its directory id when it starts" in (duplicate.message or "")
    assert ask(world, m.RemoveVoter(ReplicaKey(3))).error == ErrorCode.NONE
    assert lead(world).core.state.voters.ids == [1, 2]


# --- procedures -----------------------------------------------------------------------------------


def test_a_disk_is_replaced_under_the_same_id() -> None:
    world = quorum(3)
    node = next(n for n in world.nodes.values() if n is not lead(world))
    node.replace_disk(directory(50 + node.id))
    node.boot_up()
    assert ask(world, m.RemoveVoter(key(node.id))).error == ErrorCode.NONE
    entry = type(voter(1))(ReplicaKey(node.id, directory(50 + node.id)), {LISTENER: address(node.id)}, (0, 1))
    assert ask(world, m.AddVoter(entry)).error == ErrorCode.NONE
    assert lead(world).core.state.voters.by_id[node.id].key == entry.key
    assert world.run(10, lambda: node.core.state.is_voter)


def test_a_node_is_replaced_under_a_new_id() -> None:
    world = quorum(3, others=1)
    gone = next(i for i in (1, 2, 3) if world.nodes[i] is not lead(world))
    world.kill(gone)
    assert ask(world, m.AddVoter(voter(4))).error == ErrorCode.NONE
    assert ask(world, m.RemoveVoter(key(gone))).error == ErrorCode.NONE
    assert sorted(lead(world).core.state.voters.ids) == sorted({1, 2, 3, 4} - {gone})
    world.settle("afterwards")


def test_a_removed_leader_serves_snapshots_until_the_removal_is_committed() -> None:
    world = quorum(3)
    old = lead(world)
    world.ask(old, m.RemoveVoter(key(old.id)))
    assert world.run(1, lambda: not old.core.state.is_voter)
    others = [i for i in world.nodes if i != old.id]
    for i in others:
        world.kill(i)
    unknown = OffsetEpoch(1, 1)
    token = world.ask(old, m.FetchSnapshot(key(others[0]), old.core.state.epoch, unknown, 0, 60))
    assert world.run(1, lambda: token in old.answers)
    assert old.answers[token].error == ErrorCode.SNAPSHOT_NOT_FOUND  # and not NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_is_removed_does_not_count_itself_then_answers_and_resigns() -> None:
    world = quorum(3)
    old = lead(world)
    token = world.ask(old, m.RemoveVoter(key(old.id)))
    assert world.run(1, lambda: not old.core.state.is_voter)
    for i in world.nodes:
        if i != old.id:
            world.kill(i)
    world.run(1)
    assert token not in old.answers  # it has the record, but does not count
    assert old.core.state.role is Role.LEADER
    for i in world.nodes:
        if i != old.id:
            world.nodes[i].boot_up()
    assert world.run(10, lambda: token in old.answers)
    assert old.answers[token].error == ErrorCode.NONE
    assert world.run(5, lambda: world.leader is not None and world.leader is not old)
    world.settle("by the others")
    assert not old.core.state.is_voter
