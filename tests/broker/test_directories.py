"""Several log directories: the placement of replicas, its report to the controller, and failed
directories."""

from __future__ import annotations

import asyncio
import errno
import gc
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.controller_channel import ControllerChannel
from quorate.broker.log_maintenance import LogMaintenance
from quorate.broker.replication.directory_assignments import DirectoryAssignments
from quorate.broker.replication.partition import Partition
from quorate.log.errors import LogDirFailure
from quorate.metadata.image import UNASSIGNED_DIRECTORY, MetadataImage, PartitionImage
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import EncodeError, ErrorCode
from quorate.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from quorate.protocol.messages.list_offsets import ListOffsetsRequest

from .controllers import Leader, ScriptedController, run
from .fakes import registration
from .world import Broker, batch_of, image_of, produce, topic_id_of, values_in

FIRST, SECOND = bytes([100]) * 16, bytes([101]) * 16


def in_directory(directory: bytes):
    return registration()._replace(directories=(directory,))


@pytest.fixture
def two(tmp_path: Path):
    image = image_of(
        {"t": {0: in_directory(FIRST), 1: in_directory(SECOND), 2: in_directory(UNASSIGNED_DIRECTORY)}}
    )
    made = Broker(tmp_path, image, extra_dirs=("b",))
    yield made
    made.close()


def outcome(answer: Any) -> int:
    return answer.responses[0].partition_responses[0].error_code


def test_a_replica_is_placed_in_the_directory_of_the_metadata(two):
    first, second = two.config.log_dirs
    for partition in (0, 1):
        two.ask(produce("t", (partition, batch_of(b"a"))))
    assert (first / "t-0").is_dir()
    assert (second / "t-1").is_dir()


def test_the_directory_of_an_unassigned_replica_is_reported(two):
    told: list[tuple[bytes, int, bytes]] = []
    two.replicas.directories.assign = lambda *where: told.append(where)
    for partition in (0, 1, 2):
        two.ask(produce("t", (partition, batch_of(b"a"))))
    ((topic_id, partition, directory),) = told
    assert (topic_id, partition) == (topic_id_of("t"), 2)
    assert (dict(zip((FIRST, SECOND), two.config.log_dirs, strict=True))[directory] / "t-2").is_dir()


GONE = bytes([99]) * 16


def without_leader(replicas: tuple[int, ...], directory: bytes, partition_epoch: int = 0) -> PartitionImage:
    """A partition whose only in-sync replica is this broker, in a directory of an earlier disk."""
    made = registration(replicas=replicas, isr=(1,), leader=-1, partition_epoch=partition_epoch)
    return made._replace(directories=(directory, *[bytes(16)] * (len(replicas) - 1)))


def come_back(tmp_path: Path, image: MetadataImage) -> tuple[Broker, list[tuple[bytes, int, bytes]]]:
    """Starts a broker with one directory, FIRST, on an image. Returns it and its reports to the
    controller."""
    world = Broker(tmp_path, image_of({}))
    told: list[tuple[bytes, int, bytes]] = []
    world.replicas.directories.assign = lambda *where: told.append(where)
    world.publish(image)
    return world, told


def test_the_only_replica_of_a_partition_moves_to_the_new_disk(tmp_path):
    world, told = come_back(tmp_path, image_of({"t": {0: without_leader((1,), GONE)}}))
    assert told == [(topic_id_of("t"), 0, FIRST)]
    world.close()


def test_the_only_replica_keeps_its_directory_while_that_may_return(tmp_path):
    world = Broker(tmp_path, image_of({}))
    told: list[tuple[bytes, int, bytes]] = []
    world.replicas.directories.assign = lambda *where: told.append(where)
    world.replicas.directories.online = frozenset([FIRST])  # another one could not be read at the start
    world.publish(image_of({"t": {0: without_leader((1,), GONE)}}))
    assert told == []
    world.close()


def test_the_only_replica_keeps_its_directory_if_that_could_not_be_loaded(tmp_path):
    """The directory still belongs to this broker: its disk was not replaced and has the records."""
    world = Broker(tmp_path, image_of({}), extra_dirs=("b",))
    told: list[tuple[bytes, int, bytes]] = []
    world.replicas.directories.assign = lambda *where: told.append(where)
    world.replicas.go_offline(world.logs.mark_offline(world.config.log_dirs[1]), SECOND)
    for image in (
        without_leader((1,), SECOND),
        registration(leader_epoch=1, partition_epoch=1)._replace(directories=(SECOND,)),
    ):
        world.publish(image_of({"t": {0: image}}))
        assert told == [] and world.logs.get("t", 0) is None
        assert outcome(world.ask(produce("t", (0, batch_of(b"a"))))) == ErrorCode.KAFKA_STORAGE_ERROR
    world.publish(image_of({}))
    world.publish(
        image_of({"t": {0: registration()}})
    )  # made anew, in a directory that is left to the broker
    assert outcome(world.ask(produce("t", (0, batch_of(b"a"))))) == ErrorCode.NONE
    world.close()


def test_a_replica_whose_directory_the_metadata_does_not_know_is_not_created_beside_an_unread_one(tmp_path):
    """Below the metadata.version of directories. Its records may be in the directory that was not read."""
    world = Broker(tmp_path, image_of({}), extra_dirs=("b",))
    world.logs.mark_offline(world.config.log_dirs[1])
    world.replicas.directories.has_unread = True
    world.replicas.go_offline((), SECOND)
    found = topic_id_of("f")
    world.logs.get_or_create("f", 0, found)
    for topics, outcomes in (
        ({"t": {0: registration()}, "f": {0: registration()}}, (ErrorCode.KAFKA_STORAGE_ERROR, 0)),
        ({"t": {0: registration(leader_epoch=1, partition_epoch=1)}}, (ErrorCode.KAFKA_STORAGE_ERROR,)),
    ):
        world.publish(image_of(topics))
        for name, expected in zip(topics, outcomes, strict=True):
            assert outcome(world.ask(produce(name, (0, batch_of(b"a"))))) == expected
    world.close()


def test_an_empty_replica_that_alone_is_in_sync_is_not_offered_as_a_leader(tmp_path, caplog):
    """The other replicas would truncate their logs to its empty one."""
    world, told = come_back(tmp_path, image_of({"t": {0: without_leader((1, 2), GONE)}}))
    assert told == []
    assert "t-0" in caplog.text and "unclean" in caplog.text
    led = registration(replicas=(1, 2), isr=(2,), leader=2, leader_epoch=1, partition_epoch=1)
    world.replicas.fetchers = FollowsByOpening()
    world.publish(image_of({"t": {0: led._replace(directories=(GONE, bytes(16)))}}))
    assert told == [(topic_id_of("t"), 0, FIRST)] * len(told) and told
    world.close()


class FollowsByOpening:
    """Fetchers that open the log, as the real ones do first."""

    def start_following(self, partition: Partition) -> None:
        assert partition.log.log_end_offset == 0

    def stop_following(self, partition: Partition) -> None:
        pass

    async def close(self) -> None:
        pass


def test_the_directory_of_a_found_log_is_reported_even_without_a_leader(tmp_path):
    """The directory has its content, but a new id, because its meta.properties was lost."""
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2))}}))
    world.ask(produce("t", (0, batch_of(b"a"))))
    told: list[tuple[bytes, int, bytes]] = []
    world.replicas.directories.assign = lambda *where: told.append(where)
    world.publish(image_of({"t": {0: without_leader((1, 2), GONE, partition_epoch=1)}}))
    assert told == [(topic_id_of("t"), 0, FIRST)]
    world.close()


def test_a_failed_directory_takes_only_its_replicas_offline(two):
    failed: list[LogDirFailure] = []

    def storage_failed(failure: LogDirFailure) -> None:
        failed.append(failure)
        two.replicas.go_offline(two.logs.mark_offline(Path(failure.directory)), SECOND)

    two.replicas.storage_failed = storage_failed
    _, second = two.config.log_dirs
    shutil.rmtree(second)
    second.write_text("no directory any more")
    assert outcome(two.ask(produce("t", (1, batch_of(b"a"))))) == ErrorCode.KAFKA_STORAGE_ERROR
    assert [Path(failure.directory) for failure in failed] == [second]
    assert outcome(two.ask(produce("t", (1, batch_of(b"a"))))) == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(failed) == 1
    assert outcome(two.ask(produce("t", (0, batch_of(b"a"))))) == ErrorCode.NONE
    assert not two.logs.is_online(second)


def test_a_log_that_was_moved_is_served_although_its_old_directory_fails(two):
    """The operator has moved it while the broker was stopped. The controller does not know that yet, and the
    log has not been used since the start."""
    first, second = two.config.log_dirs
    two.logs.get_or_create("t", 1, topic_id_of("t"), directory_id=FIRST)
    two.replicas.go_offline(two.logs.mark_offline(second), SECOND)
    assert outcome(two.ask(produce("t", (1, batch_of(b"a"))))) == ErrorCode.NONE
    assert (first / "t-1").is_dir()


class Follows(FollowsByOpening):
    """Notes the partitions that are copied."""

    def __init__(self) -> None:
        self.copied: list[int] = []

    def start_following(self, partition: Partition) -> None:
        super().start_following(partition)
        self.copied.append(partition.partition)


def taking_offline(world: Broker) -> list[str]:
    """Takes failed directories offline, as a broker does. Returns them."""
    failed: list[str] = []

    def storage_failed(failure: LogDirFailure) -> None:
        failed.append(failure.directory)
        directory = Path(failure.directory)
        world.replicas.go_offline(world.logs.mark_offline(directory), world.directory_ids[directory])

    world.replicas.storage_failed = storage_failed
    return failed


def test_a_new_replica_is_copied_into_another_directory_if_the_first_choice_fails(tmp_path):
    world = Broker(tmp_path, image_of({}), extra_dirs=("b",))
    failed, world.replicas.fetchers = taking_offline(world), Follows()
    first, second = world.config.log_dirs
    shutil.rmtree(first)
    first.write_text("no directory any more")
    led = registration(replicas=(1, 2), leader=2)._replace(directories=(UNASSIGNED_DIRECTORY,) * 2)
    world.publish(image_of({"t": {0: led}}))
    assert (failed, world.replicas.fetchers.copied) == ([str(first)], [0])
    assert world.replicas.partition("t", 0).log.dir.parent == second
    world.close()


def test_a_replica_is_copied_although_the_deleted_log_of_its_name_cannot_be_renamed(two, monkeypatch):
    """The deleted log was in another directory, which has failed."""
    failed, two.replicas.fetchers = taking_offline(two), Follows()
    first, second = two.config.log_dirs
    two.ask(produce("t", (1, batch_of(b"a"))))
    monkeypatch.setattr(two.logs.scheduler, "run_later", lambda *_: None)  # the disk is slow
    two.publish(image_of({}))
    (second / "t-1").rename(second / "lost")
    led = registration(replicas=(1, 2), leader=2)._replace(directories=(FIRST, bytes(16)))
    two.publish(image_of({"t": {1: led}}))
    assert (failed, two.replicas.fetchers.copied) == ([str(second)], [1])
    assert two.replicas.partition("t", 1).log.dir.parent == first


def test_a_lookup_that_cannot_read_the_log_takes_the_directory_offline(two, monkeypatch):
    def bad_sector(*_: object) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    failed: list[LogDirFailure] = []
    two.replicas.storage_failed = failed.append
    two.ask(produce("t", (1, batch_of(b"a"))))
    monkeypatch.setattr("quorate.log.partition.timestamp_search.find_timestamp", bad_sector)
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=1, timestamp=1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part])
    answer = two.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [Path(failure.directory) for failure in failed] == [two.config.log_dirs[1]]


def test_a_waiting_append_fails_with_its_directory(tmp_path):
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2))}}))
    future = world.ask(produce("t", (0, batch_of(b"a"))))
    world.replicas.go_offline([("t", 0)])
    assert outcome(world.wait(future, ApiKey.PRODUCE)) == ErrorCode.KAFKA_STORAGE_ERROR
    world.close()


def test_a_lost_replica_stays_offline_until_its_topic_is_created_again(two):
    two.replicas.go_offline([("t", 1)])
    two.publish(image_of({"t": {1: registration(leader_epoch=1, partition_epoch=1)}}))
    assert ("t", 1) not in two.replicas.partitions
    two.publish(image_of({}))
    two.publish(image_of({"t": {1: registration()}}))
    assert ("t", 1) in two.replicas.partitions


# -- telling the controller


FROM_THE_FUTURE = 30_000
"""An error code that this version does not know."""


def answering(*codes: int, partitions: Any = None) -> ScriptedController:
    """Answers requests with these codes, then with NONE. `partitions` are error codes of single
    partitions, by index, for the first answer; None omits the partition."""
    script = list(codes)
    first = dict(partitions or {})

    def answer(_context: Any, request: Any) -> AssignReplicasToDirsResponse:
        Response = AssignReplicasToDirsResponse  # noqa: N806
        wrong = first.copy()
        first.clear()
        return Response(
            error_code=script.pop(0) if script else 0,
            directories=[
                Response.DirectoryData(
                    id=directory.id,
                    topics=[
                        Response.TopicData(
                            topic_id=topic.topic_id,
                            partitions=[
                                Response.PartitionData(partition_index=p.partition_index, error_code=code)
                                for p in topic.partitions
                                if (code := wrong.get(p.partition_index, 0)) is not None
                            ],
                        )
                        for topic in directory.topics
                    ],
                )
                for directory in request.directories
            ],
        )

    return ScriptedController({ApiKey.ASSIGN_REPLICAS_TO_DIRS: answer})


async def told(
    controller: ScriptedController, count: int, broken_sends: tuple[Exception, ...] = ()
) -> list[list[int]]:
    """The partitions of each request, until all of `count` assignments were accepted."""
    loop = asyncio.get_running_loop()
    leader = Leader(loop)
    leader.set((1, "127.0.0.1", await controller.start()))
    channel = ControllerChannel("dirs", leader.locator, client_id="1", loop=loop)
    send, failures = channel.send, list(broken_sends)

    async def failing(*args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return await send(*args, **kwargs)

    channel.send = failing  # type: ignore[method-assign]
    assignments = DirectoryAssignments(1, channel, lambda: 7, loop)
    for partition in range(count):
        assignments.submit(topic_id_of("t"), partition, FIRST)
    assert assignments.unsettled == count, "what QueuedReplicaToDirAssignments shows"
    while assignments._task is not None:
        await asyncio.sleep(0.001)
    assert assignments.unsettled == 0
    channel.close()
    await controller.close()
    return [
        [
            part.partition_index
            for directory in request.directories
            for topic in directory.topics
            for part in topic.partitions
        ]
        for request in controller.asked
    ]


def test_an_unknown_error_code_of_an_assignment_is_retried():
    async def body() -> None:
        assert await told(answering(FROM_THE_FUTURE), 1) == [[0], [0]]

    run(body)


def test_an_assignment_that_could_not_be_sent_is_retried():
    async def body() -> None:
        assert await told(answering(), 1, (RuntimeError("unforeseen"), EncodeError("no such field"))) == [[0]]

    run(body)


def test_only_rejected_assignments_are_sent_again():
    """A partition that was deleted meanwhile is not sent again. One that the answer omits is, after a
    pause."""

    async def body() -> None:
        wrong = {
            1: ErrorCode.UNKNOWN_TOPIC_ID,
            2: ErrorCode.NOT_CONTROLLER,
            3: ErrorCode.UNKNOWN_SERVER_ERROR,
            4: FROM_THE_FUTURE,
            5: None,
            6: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }
        before = asyncio.get_running_loop().time()
        assert await told(answering(partitions=wrong), 8) == [list(range(8)), [2, 3, 4, 5]]
        assert asyncio.get_running_loop().time() - before >= 0.1

    run(body)


def test_simultaneous_assignments_are_sent_together_and_repeated_until_accepted():
    async def body() -> None:
        loop = asyncio.get_running_loop()
        controller = answering(ErrorCode.UNKNOWN_SERVER_ERROR)
        leader = Leader(loop)
        leader.set((1, "127.0.0.1", await controller.start()))
        channel = ControllerChannel("dirs", leader.locator, client_id="1", loop=loop)
        assignments = DirectoryAssignments(1, channel, lambda: 7, loop)
        for partition in range(3):
            assignments.submit(topic_id_of("t"), partition, FIRST)
        while assignments._task is not None:
            await asyncio.sleep(0.01)
        assert len(controller.asked) == 2
        request = controller.asked[1]
        assert (request.broker_id, request.broker_epoch) == (1, 7)
        ((topic,),) = [directory.topics for directory in request.directories]
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        channel.close()
        await controller.close()

    run(body)


@pytest.mark.parametrize(
    ("leader", "epoch", "values"), [(1, 8, [b"old"]), (1, 7, [b"old"]), (1, 6, []), (2, 8, []), (2, 6, [])]
)
def test_a_follower_copies_a_log_again_whose_topic_id_a_crash_has_lost(
    tmp_path: Path, leader: int, epoch: int, values: list[bytes]
) -> None:
    """It may be the log of a deleted topic of the same name. A leader keeps it, unless its epoch shows that
    it is."""
    replicas = registration(replicas=(1, 2), leader_epoch=7)
    before = Broker(tmp_path, image_of({"t": {0: replicas}}))
    before.ask(produce("t", (0, batch_of(b"old")), acks=1))
    before.logs._checkpoints.write_all(before.config.log_dirs[0])  # then the broker crashes
    (tmp_path / "data1" / "t-0" / "partition.metadata").unlink()
    again = Broker(tmp_path, image_of({}))
    again.logs.load()
    again.publish(image_of({"t": {0: replicas._replace(leader=leader, leader_epoch=epoch)}}))
    log = again.replicas.partition("t", 0).log
    assert values_in(log.read_bytes(0, 1000)) == values
    assert (log.log_end_offset, log.topic_id) == (len(values), topic_id_of("t"))
    again.close()


def test_a_directory_that_failed_before_the_periodic_jobs_start_is_reported_when_they_do(two):
    """For example at the removal of stray logs. The next periodic job would find it up to 30 s later."""
    first, _ = two.config.log_dirs

    def broken() -> None:
        raise OSError(errno.EIO, "Input/output error")

    two.logs.scheduler.run_later(broken, str(first))
    two.logs.scheduler.wait_idle()
    reported: list[LogDirFailure] = []
    jobs = LogMaintenance(two.config, two.logs, two.replicas, reported.append, two.loop)
    jobs.start()
    assert [failure.directory for failure in reported] == [str(first)]
    two.loop.run_until_complete(jobs.close())


def test_a_periodic_job_whose_disk_fails_while_the_broker_stops_is_one_line_in_the_log(
    two, monkeypatch, caplog
):
    working, may_fail = threading.Event(), threading.Event()

    def failing() -> None:
        working.set()
        assert may_fail.wait(10)
        raise LogDirFailure("data1", "the disk is gone")

    unexpected: list[dict] = []
    two.loop.set_exception_handler(lambda _, context: unexpected.append(context))
    jobs = LogMaintenance(two.config, two.logs, two.replicas, unexpected.append, two.loop)
    monkeypatch.setattr(jobs, "_jobs", [("flush", 1, lambda: [failing])])
    jobs.start()

    async def stop() -> None:
        assert await two.loop.run_in_executor(None, working.wait, 10)
        two.loop.call_soon(may_fail.set)
        await jobs.close()

    two.loop.run_until_complete(stop())
    gc.collect()  # asyncio reports an exception that nobody has asked for when its future is deleted
    two.loop.run_until_complete(asyncio.sleep(0))
    assert not unexpected
    lines = [record for record in caplog.records if "the disk is gone" in record.getMessage()]
    assert [line.exc_info for line in lines] == [None]
