"""The driver on a replica in memory: waiting responses, loss of leadership, kraft.version, snapshots."""

from __future__ import annotations

import asyncio

import pytest

from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY
from quorate.metadata.records import (
    NoOpRecord,
    TopicRecord,
)
from quorate.metadata.snapshot import SnapshotId, frame_batches, image_from_snapshot
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_partition import AlterPartitionRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest
from quorate.protocol.messages.update_features import UpdateFeaturesRequest
from quorate.raft.types import OffsetEpoch

from .requests import broker, run, topics
from .support import LATEST, FakeLog, FakeRaft, Harness, make_config, uid

# -- answers and commits


def test_no_response_depends_on_uncommitted_state() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        created = h.send(topics("a"))
        again = h.send(topics("a"))  # reads the first topic, which is not committed
        unknown = h.send(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="zzz")]))
        await asyncio.sleep(0)
        assert not created.done()
        assert not again.done()
        assert not unknown.done()
        assert h.controller.state.image.topics.get("a") is None
        assert h.controller.state.next_image.topics.get("a") is not None
        h.raft.commit()
        assert (await created).topics[0].error_code == ErrorCode.NONE
        assert (await again).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await unknown).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert h.controller.state.image.topics.get("a") is not None

    run(test())


def test_an_error_is_returned_at_once_if_all_state_is_committed() -> None:
    async def test() -> None:
        h = await Harness().start()
        response = h.send(topics("a"))  # no broker
        assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR

    run(test())


def test_many_writes_in_flight_are_answered_up_to_the_committed_offset() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        start = h.raft.log.end
        futures = [h.send(topics(f"t{index}")) for index in range(5)]
        h.raft.commit(start + 4)  # two topics of two records each
        await asyncio.sleep(0)
        assert [future.done() for future in futures] == [True, True, False, False, False]
        assert set(h.controller.state.image.topics.by_name) == {"t0", "t1"}
        assert h.controller.state.image.provenance.offset == start + 3
        h.raft.commit()
        assert len(h.controller.state.image.topics.by_name) == 5

    run(test())


def test_the_active_controllers_image_equals_that_of_a_standby() -> None:
    async def test() -> None:
        log = FakeLog()
        h = await Harness(FakeRaft(1, log, (1, 2))).start()
        await broker(h)
        await h.call(topics("a", "b"))
        standby = await Harness(FakeRaft(2, log, (1, 2)), node_id=2, listeners=[]).start(lead=False)
        standby.raft.commit()
        assert standby.controller.state.image == h.controller.state.image
        assert standby.controller.state.image.provenance.offset == h.controller.state.image.provenance.offset

    run(test())


def test_a_standby_answers_not_controller_and_reads() -> None:
    async def test() -> None:
        h = await Harness().start(lead=False)
        h.raft.follow(2, 5)
        with pytest.raises(KafkaError) as raised:
            h.send(topics("a"))
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
        assert "node 2" in (raised.value.message or "")
        with pytest.raises(KafkaError) as raised:  # it has no metadata from the leader yet
            h.send(DescribeClusterRequest(endpoint_type=2))
        assert (raised.value.code, "no metadata yet" in (raised.value.message or "")) == (
            ErrorCode.NOT_CONTROLLER,
            True,
        )

    run(test())


def test_losing_the_leadership_fails_pending_requests_and_reverts_their_records() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        future = h.send(topics("a"))
        committed = h.controller.state.image
        h.raft.follow(2, 2)
        with pytest.raises(KafkaError) as raised:
            await future
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
        assert h.controller.state.image is committed
        assert h.controller.state.next_image is committed
        h.raft.log.truncate(h.raft.delivered)
        h.raft.become_leader(3)
        assert (await h.call(topics("a"))).topics[0].error_code == ErrorCode.NONE

    run(test())


def test_a_write_that_raft_rejects_changes_nothing() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        h.raft.refuse = True
        with pytest.raises(KafkaError) as raised:
            h.send(topics("a"))
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
        assert not h.controller.state.is_active
        assert h.controller.state.image.topics.get("a") is None

    run(test())


def test_the_same_leader_in_a_new_epoch_begins_a_new_term() -> None:
    async def test() -> None:
        h = await Harness().start()
        h.raft.become_leader(7)
        assert (h.controller.state.is_active, h.controller.state.epoch) == (True, 7)

    run(test())


def test_a_request_times_out() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        quick, patient = h.send(topics("a", timeout_ms=500)), h.send(topics("b", timeout_ms=60_000))
        h.advance(1.2)
        with pytest.raises(KafkaError) as raised:
            await quick
        assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert not patient.done()
        h.raft.commit()
        assert (await patient).topics[0].error_code == ErrorCode.NONE

    run(test())


def test_closing_fails_pending_requests() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        future = h.send(topics("a"))
        await h.controller.close()
        with pytest.raises(KafkaError):
            await future

    run(test())


def test_a_record_that_cannot_be_replayed_is_fatal_on_a_standby() -> None:
    async def test() -> None:
        h = await Harness().start(lead=False)
        h.raft.log.add(1, [encode_record(TopicRecord(name="t", topic_id=uid(1000)), 0)] * 2)
        h.raft.commit()
        assert "offset 1" in str(h.fatal[0])
        assert h.controller.state.image is EMPTY

    run(test())


def test_an_unexpected_error_of_a_handler_changes_nothing() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        request = AlterPartitionRequest(broker_id=1, broker_epoch=None)  # type: ignore[arg-type]
        with pytest.raises(KafkaError):
            h.send(request)
        assert (await h.call(topics("a"))).topics[0].error_code == ErrorCode.NONE

    run(test())


# -- kraft.version


@pytest.mark.parametrize("failing", [False, True])
def test_an_upgrade_of_kraft_version_goes_through_raft_first(failing: bool) -> None:
    async def test() -> None:
        h = await Harness().start()
        h.raft.kraft_version = h.raft.kraft_version_finalised = 0
        if failing:
            h.raft.upgrade_error = KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION, "voter 3 has not said what it supports"
            )
        key = UpdateFeaturesRequest.FeatureUpdateKey
        request = UpdateFeaturesRequest(feature_updates=[key(feature="kraft.version", max_version_level=1)])
        before = len(h.records)
        response = await h.call(request)
        if failing:
            assert (response.error_code, len(h.records)) == (ErrorCode.INVALID_UPDATE_VERSION, before)
            assert "voter 3" in response.error_message
        else:
            assert (response.error_code, h.raft.upgrades) == (ErrorCode.NONE, [(1, False)])
            assert isinstance(h.records[-1], NoOpRecord)

    run(test())


# -- snapshots


def test_a_snapshot_is_written_by_bytes_and_gives_the_image_again() -> None:
    async def test() -> None:
        h = await Harness(snapshot_bytes=1000).start()
        await broker(h)
        for index in range(20):
            await h.call(topics(f"t{index}"))
            await h.controller.snapshots.settled()
        assert len(h.raft.snapshots) >= 2
        end, epoch, timestamp_ms, batches = h.raft.snapshots[-1]
        whole = b"".join(
            frame_batches(
                batches,
                epoch=epoch,
                last_contained_timestamp_ms=timestamp_ms,
                kraft_version=0,
                voters=None,
                now_ms=0,
            )
        )
        loaded = image_from_snapshot(whole, SnapshotId(end, epoch))
        assert loaded.cluster.brokers[1].epoch == h.controller.state.image.cluster.brokers[1].epoch
        assert set(loaded.topics.by_name) <= set(h.controller.state.image.topics.by_name)
        assert loaded.provenance.offset == end - 1

    run(test())


def test_a_snapshot_is_written_by_time_only_when_something_changed() -> None:
    async def test() -> None:
        h = await Harness(snapshot_interval_s=3600.0).start()
        h.advance(3601)
        await h.controller.snapshots.settled()
        assert h.raft.snapshots == []
        await broker(h)
        await h.controller.snapshots.settled()
        assert len(h.raft.snapshots) == 1

    run(test())


def test_a_snapshot_replaces_the_state_of_a_standby() -> None:
    async def test() -> None:
        h = await Harness(snapshot_bytes=100).start()
        await broker(h)
        await h.call(topics("a"))
        await h.controller.snapshots.settled()
        end, epoch, timestamp_ms, batches = h.raft.snapshots[-1]
        whole = b"".join(
            frame_batches(
                batches,
                epoch=epoch,
                last_contained_timestamp_ms=timestamp_ms,
                kraft_version=0,
                voters=None,
                now_ms=0,
            )
        )
        from quorate.metadata.snapshot import read_snapshot

        standby = await Harness(FakeRaft(2), node_id=2, listeners=[]).start(lead=False)
        for _ in standby.controller.on_snapshot(OffsetEpoch(end, epoch), iter(read_snapshot(whole).batches)):
            pass
        assert standby.controller.state.committed_offset == end - 1
        assert set(standby.controller.state.image.cluster.brokers) == {1}

    run(test())


def test_features_of_an_api_versions_response() -> None:
    async def test() -> None:
        h = await Harness().start()
        state = h.controller.features()
        assert ("metadata.version", LATEST) in state.finalized
        assert ("kraft.version", 1) in state.finalized
        assert ("metadata.version", 7, LATEST) in state.supported
        assert state.epoch == h.raft.delivered - 1
        assert make_config().features["group.version"] == (0, 1)

    run(test())
