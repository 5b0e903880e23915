"""A broker whose replica moves between two of its log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from immutables import Map

from quorate.log.errors import LogDirFailure
from quorate.log.partition.partition_log import PartitionLog
from quorate.metadata.features import FIRST_DIRECTORIES
from quorate.metadata.image import MetadataImage
from quorate.metadata.image.small_images import FeaturesImage
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest

from .fakes import registration
from .world import Broker, batch_of, image_of, produce, values_in

A, B, C = (bytes([100 + n]) * 16 for n in range(3))
RECORDS = [b"%d" % n * 50 for n in range(40)]


class Moves:
    """A broker with three directories and one partition, whose records are in the first one. The reports of
    directories are kept in `told`."""

    def __init__(self, tmp_path: Path, *, records: list[bytes] | None = None, **properties: str) -> None:
        self.tmp_path = tmp_path
        self.properties = {"replica_fetch_max_bytes": "500", "replica_fetch_backoff_ms": "10"} | properties
        self.assigned = A
        self.image_fields: dict[str, Any] = {}
        self.start()
        for value in RECORDS if records is None else records:
            self.world.ask(produce("t", (0, batch_of(value)), acks=1))

    def start(self) -> None:
        self.told: list[bytes] = []
        self.world = Broker(self.tmp_path, image_of({}), extra_dirs=("b", "c"), **self.properties)
        self.first, self.second, self.third = self.world.config.log_dirs
        ids = self.world.directory_ids
        assert list(ids.values()) == [A, B, C]
        self.world.replicas.directories.assign = lambda _topic, _partition, directory: self.told.append(
            directory
        )
        image = self.image()
        self.world.logs.load(is_stray=lambda *_: False, assigned_directory=lambda *_: self.assigned)
        self.world.publish(image)
        self.failed: list[str] = []
        self.world.replicas.storage_failed = self._storage_failed

    def _storage_failed(self, failure: LogDirFailure) -> None:
        """As `BrokerServer` does."""
        directory = Path(failure.directory)
        if not self.world.logs.is_online(directory):
            return
        self.failed.append(directory.name)
        lost = self.world.logs.mark_offline(directory)
        self.world.replicas.go_offline(lost, self.world.directory_ids[directory])
        self.world.moves.directory_failed(directory)

    def image(self) -> MetadataImage:
        partition = registration(**self.image_fields)
        directories = tuple(self.assigned if r == 1 else bytes(16) for r in partition.replicas)
        image = image_of({"t": {0: partition._replace(directories=directories)}})
        return replace(image, features=FeaturesImage(Map({"metadata.version": FIRST_DIRECTORIES})))

    def publish(self, **fields: Any) -> None:
        self.image_fields |= fields
        self.world.publish(self.image())

    def assign(self, directory: bytes) -> None:
        """The controller has accepted a directory: it is in the metadata."""
        self.assigned = directory
        self.publish(partition_epoch=self.image_fields.get("partition_epoch", 0) + 1)

    def alter(self, path: Path | str, topic: str = "t", partition: int = 0) -> ErrorCode:
        topics = [AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
        directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(path), topics=topics)
        answer = self.run(self.world.ask(AlterReplicaLogDirsRequest(dirs=[directory])))
        return ErrorCode.of(answer.results[0].partitions[0].error_code)

    def run(self, work: Any) -> Any:
        return self.world.loop.run_until_complete(asyncio.wait_for(work, 10))

    def until(self, what: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not what():
                await asyncio.sleep(0.001)

        self.run(wait())

    @property
    def current(self) -> PartitionLog:
        found = self.world.logs.get("t", 0)
        assert found is not None
        return found

    @property
    def future(self) -> PartitionLog | None:
        return self.world.logs.futures.get("t", 0)

    @property
    def values(self) -> list[bytes]:
        """The values of all records of the current log."""
        log, found = self.current, []
        offset = log.log_start_offset
        while data := log.read_bytes(offset, 1 << 20):
            found += values_in(data)
            offset = log.log_end_offset
        return found

    def futures_on_disk(self) -> list[str]:
        self.world.logs.scheduler.wait_idle()
        return [path.parent.name for path in self.tmp_path.glob("*/*-future")]

    def shut_down(self) -> None:
        self.run(self.world.moves.close())
        self.world.close()

    def kill(self) -> None:
        """Ends the broker with nothing but what it has written so far."""
        self.run(self.world.moves.close())
        self.world.loop.close()
