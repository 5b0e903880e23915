"""The values of the raft metrics."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.raft.runtime.metrics import RaftMeters, Windowed
from quorate.raft.types import Role
from tests.raft.nodes import Network, Node, context, dynamic, format_dynamic
from tests.raft.world import LISTENER, address, directory

LEADER_ONLY = {
    "number-of-observers", "duplicate-voter-ids", "number-of-offline-voters", "pending-add-voter", "pending-remove-voter",
    "uncommitted-voter-change", "replica-snapshot-end-offset",
}  # fmt: skip


def told(node: Node) -> dict[str, Any]:
    return {metric.name: metric.value for metric in node.client.metrics()}


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


async def quorum(path: Path, count: int) -> tuple[Network, list[Node], Node]:
    """Three voters that have elected the last of them as leader."""
    network = Network()
    ids = range(1, count + 1)
    for i in ids:
        format_dynamic(path / str(i), dynamic(*ids))
    nodes = [await Node(network, path / str(i), i).start() for i in ids]
    await until(lambda: any(n.client.is_leader for n in nodes))
    leader = next(n for n in nodes if n.client.is_leader)
    await leader.commit(b"first")
    await until(lambda: all(n.machine.hwm > 0 for n in nodes))
    return network, nodes, leader


def test_metrics_of_an_only_voter(tmp_path: Path) -> None:
    async def test() -> None:
        began = time.monotonic()
        _, _, leader = await quorum(tmp_path, 1)
        for i in range(5):
            await leader.commit(b"%d" % i)
        now = told(leader)
        took = time.monotonic() - began
        client = leader.client
        assert now["current-state"] == "leader"
        assert (now["current-leader"], now["current-vote"], now["current-epoch"]) == (1, 1, client.epoch)
        assert now["high-watermark"] == now["log-end-offset"] == client.log.end_offset
        assert (now["number-of-voters"], now["is-observer"], now["ignored-static-voters"]) == (
            1,
            False,
            False,
        )
        assert 0 < float(now["commit-latency-avg"]) <= float(now["commit-latency-max"]) < 5000
        assert 0 <= float(now["election-latency-avg"]) <= float(now["election-latency-max"]) < 5000
        end, window_s = client.log.end_offset, 30
        assert end / (window_s + took) * 0.99 <= float(now["append-records-rate"]) <= end / window_s * 1.01
        assert now["fetch-records-rate"] == 0
        assert 0 < float(now["poll-idle-ratio-avg"]) <= 1
        assert set(now) >= LEADER_ONLY
        snapshots = {"replica-snapshot-end-offset": {"1": 0}}
        assert {name: now[name] for name in LEADER_ONLY} == dict.fromkeys(LEADER_ONLY, 0) | snapshots
        await leader.stop()

    run(test)


def test_a_follower_an_observer_of_a_broker_and_a_controller_that_is_no_voter(tmp_path: Path) -> None:
    async def test() -> None:
        network, nodes, leader = await quorum(tmp_path, 3)
        bootstrap = (address(1), address(2), address(3))
        broker = await Node(
            network, tmp_path / "8", 8, is_controller=False, bootstrap_servers=bootstrap
        ).start()
        spare = await Node(network, tmp_path / "9", 9, bootstrap_servers=bootstrap).start()
        await until(lambda: broker.machine.hwm > 0 and spare.machine.hwm > 0)
        follower = next(n for n in nodes if n is not leader)
        assert [told(n)["current-state"] for n in (follower, broker, spare)] == [
            "follower",
            "observer",
            "observer",
        ]
        assert [told(n).get("is-observer") for n in (follower, broker, spare)] == [False, None, True]
        for node in (follower, broker, spare):
            now = told(node)
            assert now["current-leader"] == leader.id
            assert float(now["fetch-records-rate"]) > 0
            assert now["append-records-rate"] == 0
            assert math.isnan(float(now["commit-latency-avg"]))
            assert not LEADER_ONLY & set(now)
        assert told(leader)["number-of-observers"] == 2
        assert told(leader)["number-of-voters"] == 3
        for node in (broker, spare, *nodes):
            await node.kill()

    run(test)


def test_a_voter_that_does_not_fetch_is_offline(tmp_path: Path) -> None:
    async def test() -> None:
        _, nodes, leader = await quorum(tmp_path, 3)
        assert told(leader)["number-of-offline-voters"] == 0
        silent = next(n for n in nodes if n is not leader)
        await silent.kill()
        await until(lambda: told(leader)["number-of-offline-voters"] == 1)
        back = await Node(silent.network, silent.path, silent.id).start()
        await until(lambda: told(leader)["number-of-offline-voters"] == 0)
        for node in (*nodes, back):
            if node is not silent:
                await node.kill()

    run(test)


def test_the_leader_knows_the_newest_snapshot_and_the_start_of_each_replica(tmp_path: Path) -> None:
    async def test() -> None:
        network, nodes, leader = await quorum(tmp_path, 3)
        bootstrap = (address(1), address(2), address(3))
        broker = await Node(
            network, tmp_path / "8", 8, is_controller=False, bootstrap_servers=bootstrap, start_time_ms=123
        ).start()
        await until(lambda: broker.machine.hwm > 0)
        follower = next(n for n in nodes if n is not leader)
        end = follower.machine.hwm
        assert told(leader)["replica-snapshot-end-offset"] == {"1": 0, "2": 0, "3": 0}
        assert await follower.client.create_snapshot(end, follower.client.leader_and_epoch.epoch, 1, [])
        await leader.commit(b"makes the follower fetch")
        await until(lambda: told(leader)["replica-snapshot-end-offset"][str(follower.id)] == end)

        part, topic = DescribeQuorumRequest.PartitionData, DescribeQuorumRequest.TopicData
        request = DescribeQuorumRequest(topics=[topic(topic_name=METADATA_TOPIC, partitions=[part()])])
        facts: dict[int, list[tuple[int, int]]] = {}
        for version in (1, 2):
            answer = leader.client.handle(context(55, version), request)
            assert isinstance(answer, DescribeQuorumResponse)
            [found] = DescribeQuorumResponse.decode(answer.encode(version), version).topics[0].partitions
            for replica in (*found.current_voters, *found.observers):
                facts.setdefault(replica.replica_id, []).append(
                    (replica.snapshot_end_offset, replica.start_time_ms)
                )
        # Clients of version 1 may refuse what they do not know.
        known = {1: (0, 0), 2: (0, 0), 3: (0, 0), 8: (-1, 123)} | {follower.id: (end, 0)}
        assert facts == {replica: [(-1, 0), value] for replica, value in known.items()}
        for node in (broker, *nodes):
            await node.kill()

    run(test)


def test_pending_and_uncommitted_changes_of_voters_are_counted(tmp_path: Path) -> None:
    async def test() -> None:
        _, nodes, leader = await quorum(tmp_path, 2)
        request = AddRaftVoterRequest(
            cluster_id=None, timeout_ms=100, voter_id=7, voter_directory_id=directory(7)
        )
        request.listeners = [AddRaftVoterRequest.Listener(name=LISTENER, host="n7", port=9007)]
        adding = leader.client.handle(context(80, 0), request)
        assert (told(leader)["pending-add-voter"], told(leader)["pending-remove-voter"]) == (True, False)
        assert told(leader)["uncommitted-voter-change"] is False
        await adding  # type: ignore[misc]
        assert told(leader)["pending-add-voter"] is False
        other = next(n for n in nodes if n is not leader)
        remove = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=leader.id, voter_directory_id=directory(leader.id)
        )
        removing = leader.client.handle(context(81, 0), remove)
        assert (told(leader)["pending-add-voter"], told(leader)["pending-remove-voter"]) == (False, True)
        # A leader that removes itself needs the other one to commit that.
        while leader.client.driver.state.is_voter:
            await asyncio.sleep(0)
        assert (told(leader)["uncommitted-voter-change"], told(leader)["is-observer"]) == (True, True)
        await other.kill()
        await leader.kill()
        del removing

    run(test)


def test_a_second_replica_under_a_voters_id_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        network, _, leader = await quorum(tmp_path, 1)
        twin = Node(network, tmp_path / "twin", 1, is_controller=False)
        with monkeypatch.context() as other_disk:
            other_disk.setattr("tests.raft.nodes.directory", lambda i: directory(44))
            await twin.start()
        await until(lambda: told(leader)["duplicate-voter-ids"] == 1)
        await twin.client.shutdown(0)
        await leader.kill()

    run(test)


@pytest.mark.parametrize("kraft", [0, 1])
def test_static_voters_are_ignored_once_the_log_has_voters(tmp_path: Path, kraft: int) -> None:
    async def test() -> None:
        if kraft:
            format_dynamic(tmp_path, dynamic(1))
        node = await (await Node(Network(), tmp_path, 1, voters={1: address(1)}).start()).lead()
        assert told(node)["ignored-static-voters"] is bool(kraft)
        assert (tmp_path / f"{METADATA_TOPIC}-0").exists()
        await node.stop()

    run(test)


# --- the meters -----------------------------------------------------------------------------------


def test_averages_and_maxima_are_of_the_last_two_windows() -> None:
    w = Windowed(100.0, 30.0)
    assert math.isnan(w.average(100))
    assert math.isnan(w.maximum(100))
    w.record(10, 101)
    w.record(20, 129)
    assert (w.average(129), w.maximum(129)) == (15, 20)
    w.record(60, 131)  # a new window: the old one counts still
    assert (w.average(131), w.maximum(131)) == (30, 60)
    assert (w.average(161), w.maximum(161)) == (60, 60)
    assert math.isnan(w.average(191))
    w.record(1, 1000)
    assert (w.average(1001), w.maximum(1001)) == (1, 1)


def test_a_rate_is_computed_over_the_time_of_its_samples() -> None:
    w = Windowed(0.0, 30.0)
    for second in range(60):
        w.record(5, float(second))
    assert w.per_second(60.0) == pytest.approx(5 * 30 / 30)  # the window before, and the new one just begun
    assert w.per_second(75.0) == pytest.approx(150 / 45)
    assert w.per_second(200.0) == 0


def test_election_latency_is_from_the_first_pre_vote_to_a_leader() -> None:
    meters = RaftMeters(0.0)
    for role, at in (
        (Role.PROSPECTIVE, 1.0),
        (Role.CANDIDATE, 1.2),
        (Role.UNATTACHED, 1.3),
        (Role.PROSPECTIVE, 1.4),
    ):
        meters.role(role, at)
    assert math.isnan(meters.election_ms.average(1.5))
    meters.role(Role.FOLLOWER, 1.5)
    assert meters.election_ms.average(1.5) == pytest.approx(500)
    meters.role(Role.FOLLOWER, 9.0)
    assert meters.election_ms.maximum(9.0) == pytest.approx(500)


def test_commit_latency_is_from_the_append_until_the_high_watermark_passes_it() -> None:
    meters = RaftMeters(0.0)
    meters.leader_appended(10, 10, 1.0)
    meters.leader_appended(20, 10, 1.1)
    meters.committed(15, 1.5)
    assert meters.commit_ms.average(2) == pytest.approx(500)
    meters.committed(20, 2.1)
    assert (meters.commit_ms.average(3), meters.commit_ms.maximum(3)) == (
        pytest.approx(750),
        pytest.approx(1000),
    )
    meters.leader_appended(30, 10, 3.0)
    meters.role(Role.RESIGNED, 3.1)  # what it appended may never commit
    meters.committed(30, 9.0)
    assert meters.commit_ms.maximum(9) == pytest.approx(1000)


def test_idle_is_the_share_of_time_without_work() -> None:
    meters = RaftMeters(0.0)
    for second in range(10):
        meters.busy.record(0.25, float(second))
    assert meters.idle_ratio(10.0) == pytest.approx(0.75)
