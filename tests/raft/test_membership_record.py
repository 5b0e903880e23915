"""Auto-join (KIP-853): which controllers join by themselves. A voter that was removed does not rejoin;
Quorate persists this in its own file."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.raft.config import RaftConfig
from quorate.raft.core import messages as m
from quorate.raft.core.effects import Outgoing
from quorate.raft.core.events import Replied
from quorate.raft.core.membership.auto_join import PUT_OFF_S
from quorate.raft.core.voters import MembershipRecord, Voter, VoterSet
from quorate.raft.storage.membership_record import FILE_NAME, MembershipRecordFile
from quorate.raft.storage.quorum_state import QuorumStateFile
from quorate.raft.storage.recovery import recover_replica
from quorate.raft.storage.voter_marker import VoterMarker
from quorate.raft.types import ReplicaKey, Role
from tests.raft.nodes import (
    CLUSTER,
    Network,
    Node,
    context,
    dynamic,
    format_dynamic,
    metadata,
    stopped_with_a_snapshot,
)
from tests.raft.test_membership import ask, key, lead, quorum
from tests.raft.test_rules import started
from tests.raft.world import LISTENER, World, address, directory, voter
from tests.raft.world import Node as Replica

# --- joining by itself ----------------------------------------------------------------------------


def test_controllers_join_by_themselves_one_after_the_other() -> None:
    world = quorum(1, others=2, auto_join=True)
    assert world.run(60, lambda: lead(world).core.state.voters.ids == [1, 2, 3])
    assert world.run(
        10, lambda: all(world.nodes[i].membership_record is MembershipRecord.VOTER for i in (1, 2, 3))
    )
    world.settle("together")


def test_a_controller_that_joins_by_itself_gives_its_addition_30_seconds() -> None:
    world = quorum(1, others=1)
    joining = world.nodes[2]
    joining.core.state.params = dataclasses.replace(joining.core.state.params, auto_join=True)
    assert world.run(10, lambda: lead(world).core.state.leading.voter_change is not None)
    change = lead(world).core.state.leading.voter_change
    assert change is not None
    assert change.adding is not None
    assert change.adding.key == joining.core.state.me
    assert change.deadline == pytest.approx(world.now + 30.0, abs=0.1)


def test_without_the_setting_no_controller_joins() -> None:
    world = quorum(1, others=1)
    world.run(60)
    assert lead(world).core.state.voters.ids == [1]


def test_a_brokers_replica_never_joins() -> None:
    world = World(1, observers=1, kraft=1)
    world.nodes[2].auto_join = True
    world.boot_all()
    world.elect()
    world.run(60)
    assert lead(world).core.state.voters.ids == [1]


def test_a_controller_with_a_new_disk_takes_the_place_of_its_old_one() -> None:
    world = quorum(3)
    node = next(n for n in world.nodes.values() if n is not lead(world))
    node.auto_join = True
    node.replace_disk(directory(50 + node.id))
    node.boot_up()
    wanted = ReplicaKey(node.id, directory(50 + node.id))
    assert world.run(60, lambda: lead(world).core.state.voters.has_key(wanted))
    world.settle("afterwards")


def test_a_controller_with_a_new_disk_removes_its_old_voter_once_while_it_catches_up() -> None:
    """Until it has fetched the new voter set, its own one still has the voter that is removed."""
    world = quorum(3)
    node = next(n for n in world.nodes.values() if n is not lead(world))
    removals = 0
    send = world.send

    def count_and_delay_fetches(sender: Replica, out: Outgoing) -> None:
        nonlocal removals
        removals += isinstance(out.request, m.RemoveVoter)
        if sender is node and isinstance(out.request, m.Fetch):
            world.after(0.5, lambda: send(sender, out))
        else:
            send(sender, out)

    world.send = count_and_delay_fetches  # type: ignore[method-assign]
    node.auto_join = True
    node.replace_disk(directory(50 + node.id))
    node.boot_up()
    wanted = ReplicaKey(node.id, directory(50 + node.id))
    assert world.run(60, lambda: lead(world).core.state.voters.has_key(wanted))
    assert removals == 1


def test_a_removed_voter_does_not_rejoin_even_after_a_restart() -> None:
    world = quorum(1, others=1, auto_join=True)
    node = world.nodes[2]
    assert world.run(60, lambda: node.membership_record is MembershipRecord.VOTER)
    assert ask(world, m.RemoveVoter(key(2))).error == ErrorCode.NONE
    assert world.run(10, lambda: node.membership_record is MembershipRecord.REMOVED)
    world.run(30)
    world.kill(2)
    node.boot_up()
    world.run(60)
    assert lead(world).core.state.voters.ids == [1]
    assert ask(world, m.AddVoter(voter(2))).error == ErrorCode.NONE
    assert world.run(10, lambda: node.membership_record is MembershipRecord.VOTER)


def test_an_uncommitted_removal_does_not_count() -> None:
    world = quorum(3)
    leader = lead(world)
    other = next(n for n in world.nodes.values() if n is not leader)
    third = next(n for n in world.nodes.values() if n not in (leader, other))
    world.ask(leader, m.RemoveVoter(key(other.id)))
    assert world.run(5, lambda: len(leader.core.state.voters) == 2)
    world.isolate(third.id)
    assert world.run(5, lambda: not other.core.state.is_voter)
    assert other.membership_record is MembershipRecord.VOTER
    assert other.committed <= (other.core.state.members.current_offset or 0)


def test_a_removal_that_is_only_in_a_snapshot_is_remembered_too() -> None:
    world = quorum(3)
    gone = next(n for n in world.nodes.values() if n is not lead(world))
    assert gone.membership_record is MembershipRecord.VOTER
    world.kill(gone.id)
    assert ask(world, m.RemoveVoter(key(gone.id))).error == ErrorCode.NONE
    for i in range(5):
        world.settle(i)
    world.run(2)
    for node in world.nodes.values():
        if node.alive:
            node.take_snapshot(cut=True)
    gone.auto_join = True
    gone.boot_up()
    assert world.run(20, lambda: gone.log.start > 0)
    assert world.run(10, lambda: gone.membership_record is MembershipRecord.REMOVED)
    world.run(30)
    assert gone.id not in lead(world).core.state.voters.ids


def test_a_replica_that_receives_its_addition_and_removal_together_does_not_rejoin() -> None:
    world = quorum(1, others=1)
    node = world.nodes[2]
    token = world.ask(lead(world), m.AddVoter(voter(2)))
    assert world.run(5, lambda: len(lead(world).core.state.voters) == 2)
    world.isolate(2)  # its last Fetch is on its way: it has the record, but does not know it committed
    assert world.run(5, lambda: node.core.state.is_voter)
    world.heal()
    assert world.run(5, lambda: token in lead(world).answers)
    world.kill(2)
    assert node.membership_record is MembershipRecord.NEVER
    assert ask(world, m.RemoveVoter(key(2))).error == ErrorCode.NONE
    node.auto_join = True
    node.boot_up()
    assert world.run(10, lambda: node.membership_record is MembershipRecord.REMOVED)
    world.run(30)
    assert lead(world).core.state.voters.ids == [1]


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_formatted_voter_that_was_removed_before_its_start_does_not_join(snapshot: bool) -> None:
    world = World(3, kraft=1)
    for i in (1, 2):
        world.nodes[i].boot_up()
    world.elect()
    world.settle("begin")
    assert ask(world, m.RemoveVoter(key(3))).error == ErrorCode.NONE
    world.settle("more")
    world.run(2)
    for i in (1, 2):
        if snapshot:
            world.nodes[i].take_snapshot(cut=True)
    late = world.nodes[3]
    late.auto_join = True
    late.boot_up()
    assert late.membership_record is MembershipRecord.VOTER
    assert world.run(10, lambda: late.membership_record is MembershipRecord.REMOVED)
    assert (late.log.start > 0) == snapshot
    world.run(30)
    assert lead(world).core.state.voters.ids == [1, 2]
    assert ask(world, m.AddVoter(voter(3))).error == ErrorCode.NONE
    assert world.run(10, lambda: late.membership_record is MembershipRecord.VOTER)


def test_an_uncommitted_voter_record_that_a_snapshot_replaces_counts() -> None:
    world = quorum(3, others=1)
    node = world.nodes[4]
    world.ask(lead(world), m.AddVoter(voter(4)))
    assert world.run(5, lambda: node.core.state.is_voter)
    node.durable_end = node.log.end_offset
    world.kill(4)
    assert node.membership_record is MembershipRecord.NEVER
    world.run(1)
    assert ask(world, m.RemoveVoter(key(4))).error == ErrorCode.NONE
    world.settle("more")
    world.run(2)
    for i in (1, 2, 3):
        world.nodes[i].take_snapshot(cut=True)
    node.auto_join = True
    node.boot_up()
    assert world.run(10, lambda: node.log.start > 0)
    world.run(30)
    assert node.membership_record is MembershipRecord.REMOVED
    assert lead(world).core.state.voters.ids == [1, 2, 3]


# --- first voters without directory ids -----------------------------------------------------------


def nameless(i: int) -> Voter:
    return Voter(ReplicaKey(i), {LISTENER: address(i)}, (0, 1))


def first_voters_without_ids(*running: int) -> World:
    """Three voters that were formatted with a list without directory ids. Those that run have reported their
    ids."""
    world = World(3, kraft=1)
    for node in world.nodes.values():
        node.boot = VoterSet.of(nameless(i) for i in (1, 2, 3))
    for i in running:
        world.nodes[i].boot_up()
    world.elect()
    world.settle("begin")
    assert world.run(60, lambda: all(lead(world).core.state.voters.has_key(key(i)) for i in running))
    world.settle("named")
    world.run(2)
    return world


def cut(world: World) -> None:
    for node in world.nodes.values():
        if node.alive:
            node.take_snapshot(cut=True)


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_disk_takes_the_place_of_one_that_had_no_directory_id_at_first(
    snapshot: bool, restarts: bool
) -> None:
    world = first_voters_without_ids(1, 2, 3)
    node = next(n for n in world.nodes.values() if n is not lead(world))
    node.auto_join = True
    node.replace_disk(directory(50 + node.id))
    wanted = ReplicaKey(node.id, directory(50 + node.id))
    if snapshot:
        cut(world)
    node.boot_up()
    if restarts:  # when it has some of the log, and has judged by the sets in it
        assert world.run(10, lambda: node.log.end_offset > 0)
        world.kill(node.id)
        node.boot_up()
    assert world.run(60, lambda: lead(world).core.state.voters.has_key(wanted))
    assert world.run(10, lambda: node.membership_record is MembershipRecord.VOTER)
    world.settle("afterwards")


def test_a_controller_with_a_new_disk_does_not_count_as_removed(caplog: pytest.LogCaptureFixture) -> None:
    world = first_voters_without_ids(1, 2, 3)
    node = next(n for n in world.nodes.values() if n is not lead(world))
    node.replace_disk(directory(50 + node.id))
    caplog.clear()
    caplog.set_level("INFO")
    node.boot_up()
    assert world.run(10, lambda: node.committed == lead(world).committed)
    world.run(10)
    assert node.membership_record is MembershipRecord.NEVER
    assert "removed" not in caplog.text


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_voter_without_directory_id_that_was_removed_before_its_start_does_not_join(
    snapshot: bool,
) -> None:
    world = first_voters_without_ids(1, 2)
    assert ask(world, m.RemoveVoter(ReplicaKey(3))).error == ErrorCode.NONE
    world.settle("more")
    world.run(2)
    if snapshot:
        cut(world)
    late = world.nodes[3]
    late.auto_join = True
    late.boot_up()
    assert late.membership_record is MembershipRecord.UNNAMED
    assert world.run(10, lambda: late.membership_record is MembershipRecord.REMOVED)
    world.run(30)
    assert lead(world).core.state.voters.ids == [1, 2]


def test_voters_report_their_directory_ids_without_a_refused_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    world = first_voters_without_ids(1, 2, 3)
    assert "REQUEST_TIMED_OUT" not in caplog.text
    assert "has not taken" not in caplog.text
    world.settle("afterwards")


def test_an_update_that_a_leader_keeps_refusing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    r = started(Role.FOLLOWER)
    assert r.state.following is not None
    r.state.following.fetch_deadline = float("inf")
    entry = Voter(r.state.me, r.state.params.endpoints, r.state.params.kraft_versions)
    for at in (0.0, 5.0, PUT_OFF_S, PUT_OFF_S + 1):
        request = m.UpdateVoter(entry, r.state.epoch, r.state.params.cluster_id)
        reply = m.VoterReply(ErrorCode.REQUEST_TIMED_OUT, leader_id=2, epoch=r.state.epoch)
        r.step(Replied(m.Peer(2, address(2)), request, reply), 100.0 + at)
        told = [
            x.getMessage()
            for x in caplog.records
            if "has not taken this voter's endpoints for 10 s" in x.getMessage()
        ]
        assert len(told) == (at >= PUT_OFF_S)


@pytest.mark.parametrize("before", list(MembershipRecord))
def test_how_a_voter_set_changes_the_membership_record(before: MembershipRecord) -> None:
    def after(*voters: Voter) -> MembershipRecord:
        return before.after(VoterSet.of(voters), key(2))

    other = Voter(ReplicaKey(2, directory(52)), {LISTENER: address(2)}, (0, 1))
    assert after(voter(1), voter(2)) is MembershipRecord.VOTER
    if before is MembershipRecord.VOTER or before is MembershipRecord.REMOVED:
        assert after(voter(1), nameless(2)) is before
        assert after(voter(1), other) is after(voter(1)) is MembershipRecord.REMOVED
    else:
        assert after(voter(1), nameless(2)) is MembershipRecord.UNNAMED
        assert after(voter(1), other) is MembershipRecord.NEVER
        assert after(voter(1)) is (
            MembershipRecord.NEVER if before is MembershipRecord.NEVER else MembershipRecord.REMOVED
        )


# --- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("standing", list(MembershipRecord))
def test_the_membership_record_belongs_to_one_directory(tmp_path: Path, standing: MembershipRecord) -> None:
    MembershipRecordFile(tmp_path, directory(1)).write(standing)
    assert MembershipRecordFile(tmp_path, directory(1)).read() is standing
    assert MembershipRecordFile(tmp_path, directory(2)).read() is MembershipRecord.NEVER


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"version":0}', b"\xff"])
def test_a_broken_file_keeps_the_controller_from_joining(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(text)
    assert MembershipRecordFile(tmp_path, directory(1)).read() is MembershipRecord.REMOVED


# --- clients on files -----------------------------------------------------------------------------


def test_a_controller_joins_by_itself_over_the_wire_and_is_barred_after_its_removal(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        format_dynamic(tmp_path / "1", dynamic(1))
        first = await (await Node(network, tmp_path / "1", 1).start()).lead()
        second = await Node(network, tmp_path / "2", 2, auto_join=True, fetch_timeout_s=0.2).start()
        async with asyncio.timeout(15):
            while first.client.voters.ids != [1, 2] or not second.client.core.state.is_voter:
                await asyncio.sleep(0.01)
            where = tmp_path / "2" / f"{METADATA_TOPIC}-0"
            while not (where / FILE_NAME).exists():
                await asyncio.sleep(0.01)
        assert MembershipRecordFile(where, directory(2)).read() is MembershipRecord.VOTER
        request = AddRaftVoterRequest(
            cluster_id=None, timeout_ms=500, voter_id=7, voter_directory_id=directory(7)
        )
        request.listeners = [AddRaftVoterRequest.Listener(name=LISTENER, host="n7", port=9007)]
        answer = await first.client.handle(context(80, 0), request)  # type: ignore[misc]
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "has not fetched" in answer.error_message
        await second.kill()
        await first.kill()
        assert not first.fatal + second.fatal

    asyncio.run(main())


def test_a_removal_is_remembered_over_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        format_dynamic(tmp_path / "1", dynamic(1, 2))
        format_dynamic(tmp_path / "2", dynamic(1, 2))
        where = tmp_path / "2" / f"{METADATA_TOPIC}-0"
        where.joinpath(FILE_NAME).unlink(missing_ok=True)
        MembershipRecordFile(where, directory(2)).write(MembershipRecord.REMOVED)
        node = await Node(network, tmp_path / "2", 2).start()
        assert node.client.core.state.membership_record is MembershipRecord.REMOVED
        await node.kill()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("node_id", "auto_join", "formatting", "standing"),
    [
        (1, True, True, MembershipRecord.VOTER),
        (1, True, False, MembershipRecord.VOTER),
        (2, True, True, MembershipRecord.NEVER),
        (1, False, True, MembershipRecord.NEVER),
    ],
    ids=["was there", "was there by the log alone", "was not", "does not join by itself"],
)
def test_without_the_file_the_voter_sets_before_the_snapshot_are_read(
    tmp_path: Path, node_id: int, auto_join: bool, formatting: bool, standing: MembershipRecord
) -> None:
    asyncio.run(stopped_with_a_snapshot(tmp_path))
    where = metadata(tmp_path)
    (where / FILE_NAME).unlink()
    if not formatting:
        next(where.glob("*-0000000000.checkpoint")).write_bytes(b"damaged")
    config = RaftConfig(node_id, directory(node_id), CLUSTER, tmp_path, LISTENER, auto_join=auto_join)
    marker = VoterMarker(tmp_path, CLUSTER, directory(node_id))
    opened = recover_replica(config, where, QuorumStateFile(where / "quorum-state"), marker, None, 1)
    assert opened.membership_record is standing
    opened.log.close()
