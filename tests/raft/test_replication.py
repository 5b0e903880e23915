"""Raft clients on real files: observers, and quorums of three voters."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.raft.core.messages import NONE
from quorate.raft.types import NotLeaderError, OffsetEpoch
from quorate.records.batch import build_metadata_batch
from tests.raft.nodes import Network, Node, context, dynamic, format_dynamic, leader_of, metadata, sole
from tests.raft.world import address, directory

# --- observers ------------------------------------------------------------------------------------


def state(node: Node) -> list[bytes]:
    values = node.machine.values
    return [build_metadata_batch(values, base_offset=0, leader_epoch=0, timestamp=1)]


@pytest.mark.parametrize("kraft", [0, 1])
def test_an_observer_follows_and_survives_the_leaders_restart(tmp_path: Path, kraft: int) -> None:
    async def main() -> None:
        leader = await sole(tmp_path / "1", kraft)
        await leader.commit(b"a")
        observer = await Node(leader.network, tmp_path / "2", 2, is_controller=False).start()
        await observer.machine.until(lambda: observer.machine.values == [b"a"])
        assert observer.machine.leaders[-1].leader_id == 1
        assert observer.client.leader_address() == address(1)
        at = asyncio.get_running_loop().time()
        last = await leader.commit(b"b")
        await observer.machine.until(lambda: observer.machine.hwm > last)
        assert asyncio.get_running_loop().time() - at < 0.4, "the long poll was answered at once"
        await leader.kill()
        await leader.start()
        await leader.lead()
        last = await leader.commit(b"c")
        await observer.machine.until(lambda: observer.machine.hwm > last)
        assert observer.machine.values == [b"a", b"b", b"c"]
        await observer.stop()
        await observer.start()
        await observer.machine.until(lambda: observer.machine.values == [b"a", b"b", b"c"])
        await observer.stop()
        await leader.stop()
        assert not leader.fatal
        assert not observer.fatal

    asyncio.run(main())


def test_a_new_observer_loads_the_leaders_snapshot(tmp_path: Path) -> None:
    async def main() -> None:
        leader = await sole(tmp_path / "1")
        for i in range(100):
            await leader.commit(b"%d" % i + b"x" * 1000)
        end = leader.client.high_watermark
        await leader.client.create_snapshot(end, 1, 1, state(leader))
        await leader.commit(b"after")
        observer = await Node(leader.network, tmp_path / "2", 2, is_controller=False).start()
        await observer.machine.until(lambda: observer.machine.values[-1:] == [b"after"])
        assert observer.machine.snapshots == [OffsetEpoch(end, 1)]
        assert observer.machine.values == leader.machine.values
        assert observer.client.voters == leader.client.voters
        assert observer.client.log.start_offset == end
        await observer.stop()
        await observer.start()
        await observer.machine.until(lambda: observer.machine.values[-1:] == [b"after"])
        assert observer.machine.values == leader.machine.values
        await observer.stop()
        await leader.stop()

    asyncio.run(main())


@pytest.mark.parametrize("version", [15, 16, 17, 18])
def test_an_observer_uses_the_fetch_versions_of_kafka_4(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        dynamic = version >= 17  # before, an answer does not say where the leader is: the configuration must
        leader = await sole(tmp_path / "1", int(dynamic))
        leader.network.versions[1] = version
        await leader.commit(b"a")
        voters = None if dynamic else {1: address(1)}
        observer = await Node(leader.network, tmp_path / "2", 2, is_controller=False, voters=voters).start()
        await observer.machine.until(lambda: observer.machine.values == [b"a"])
        await observer.stop()
        await leader.stop()

    asyncio.run(main())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_quorum_shows_voters_and_observers(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        leader = await sole(tmp_path / "1")
        await leader.commit(b"a")
        observer = await Node(leader.network, tmp_path / "2", 2, is_controller=False).start()
        await observer.machine.until(lambda: observer.machine.values == [b"a"])
        part, topic = DescribeQuorumRequest.PartitionData, DescribeQuorumRequest.TopicData
        request = DescribeQuorumRequest(topics=[topic(topic_name=METADATA_TOPIC, partitions=[part()])])
        answer = leader.client.handle(context(55, version), request)
        assert isinstance(answer, DescribeQuorumResponse)
        answer = DescribeQuorumResponse.decode(answer.encode(version), version)
        [p] = answer.topics[0].partitions
        assert (p.error_code, p.leader_id, p.leader_epoch) == (NONE, 1, 1)
        assert p.high_watermark == leader.client.high_watermark
        assert [v.replica_id for v in p.current_voters] == [1]
        assert [(o.replica_id, o.log_end_offset) for o in p.observers] == [(2, p.high_watermark)]
        if version >= 1:
            assert p.observers[0].last_fetch_timestamp > 1_600_000_000_000
        if version >= 2:
            assert p.current_voters[0].replica_directory_id == directory(1)
            assert [n.node_id for n in answer.nodes] == [1]
        # A client of an older version, which may refuse what it does not know, sees Kafka's fields alone.
        assert p.uncommitted_added_voters == p.uncommitted_removed_voters == ([] if version >= 2 else None)
        await observer.stop()
        await leader.stop()

    asyncio.run(main())


# --- quorums --------------------------------------------------------------------------------------


async def trio(path: Path) -> list[Node]:
    network = Network()
    nodes = []
    for i in (1, 2, 3):
        format_dynamic(path / str(i), dynamic(1, 2, 3))
        nodes.append(Node(network, path / str(i), i, bootstrap_servers=(address(1), address(2), address(3))))
    for node in nodes:
        await node.start()
    return nodes


def test_three_voters_replicate_and_replace_a_killed_leader(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = await trio(tmp_path)
        leader = await leader_of(nodes)
        last = await leader.commit(b"a")
        for node in nodes:
            await node.machine.until(lambda node=node: node.machine.hwm > last)  # type: ignore[misc]
        await leader.kill()
        rest = [n for n in nodes if n is not leader]
        second = await leader_of(rest)
        await second.commit(b"b")
        await leader.start()
        last = await second.commit(b"c")
        for node in nodes:
            await node.machine.until(lambda node=node: node.machine.hwm > last)  # type: ignore[misc]
            assert node.machine.values == [b"a", b"b", b"c"]
        await second.stop()
        third = await leader_of([n for n in nodes if n is not second])
        await third.commit(b"d")
        for node in nodes:
            if node is not second:
                await node.stop()
            assert not node.fatal

    asyncio.run(main())


def test_pending_proposals_of_a_deposed_leader_are_dropped(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = await trio(tmp_path)
        leader = await leader_of(nodes)
        await leader.commit(b"a")
        others = [n for n in nodes if n is not leader]
        leader.client.resign(leader.client.epoch)
        with pytest.raises(NotLeaderError):
            leader.client.append(leader.client.epoch, [b"x"])
        second = await leader_of(nodes)
        await second.commit(b"b")
        assert others
        for node in nodes:
            await node.machine.until(lambda node=node: node.machine.values == [b"a", b"b"])  # type: ignore[misc]
        for node in nodes:
            await node.stop()

    asyncio.run(main())


def test_kraft_version_upgrade_of_a_sole_static_voter(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(tmp_path, 0)
        await node.commit(b"a")
        await node.client.upgrade_kraft_version(node.client.epoch, 1, validate_only=True)
        assert node.client.kraft_version == 0
        await node.client.upgrade_kraft_version(node.client.epoch, 1)
        assert node.client.kraft_version_finalised == 1
        with pytest.raises(KafkaError) as refused:
            await node.client.upgrade_kraft_version(node.client.epoch, 0)
        assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION
        await node.stop()
        assert b'"data_version":1' in (metadata(tmp_path) / "quorum-state").read_bytes()
        node = await sole(tmp_path, 1)  # no static voters any more: the log has them
        assert node.client.voters.by_id[1].key.directory_id == directory(1)
        assert node.machine.values == [b"a"]
        await node.stop()

    asyncio.run(main())
