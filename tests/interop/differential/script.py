"""A case: labelled requests to one node, whose responses are recorded for the comparison."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from quorate.protocol.errors import EncodeError
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.heartbeat import HeartbeatRequest
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest
from quorate.protocol.messages.list_offsets import ListOffsetsRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.produce import ProduceRequest
from quorate.protocol.schema import Request
from quorate.records.batch import build_batch
from tests.support.cluster import wait_for
from tests.support.differential import Answer, Peer

NOW = int(time.time() * 1000)
NOT_READY = frozenset(
    {14, 15, 16}
)  # COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR

RecordTuple = tuple[bytes | None, bytes | None, list[Any], int]


def record(value: bytes | None = b"v", key: bytes | None = None, at: int = NOW) -> RecordTuple:
    return key, value, [], at


def batch(*records: RecordTuple, **options: Any) -> bytes:
    return build_batch(list(records) or [record()], **options)


class Script:
    """One run of a case against one node. `name` gives names that no other case uses."""

    def __init__(self, peer: Peer, prefix: str) -> None:
        self.peer = peer
        self.prefix = prefix
        self.steps: list[tuple[str, Answer]] = []

    def name(self, short: str) -> str:
        return f"{self.prefix}-{short}"

    def ask(self, label: str, request: Request, version: int, **options: Any) -> Answer:
        """Sends a request and records the response under the label."""
        try:
            answer = self.peer.ask(request, version, **options)
        except EncodeError as e:
            answer = Answer(None, f"cannot be said: {e}")
        self.steps.append((label, answer))
        return answer

    def later(self, label: str, request: Request, version: int, via: str) -> Answer:
        """Records the response to the request that `peer.send` has sent on another connection."""
        answer = self.peer.answer(request, version, via=via)
        self.steps.append((label, answer))
        return answer

    # -- preparations, whose answers are not compared

    def topic(self, short: str, partitions: int = 1, **configs: object) -> bytes:
        """Creates a topic and waits until its leaders answer. Returns its id."""
        name = self.name(short)
        config = CreateTopicsRequest.CreatableTopicConfig
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[config(name=k.replace("_", "."), value=str(v)) for k, v in configs.items()],
        )
        made = self.peer.ask(CreateTopicsRequest(topics=[topic]), 7).response.topics[0]
        assert made.error_code == 0, made

        def led() -> bool:
            asked = MetadataRequest(
                topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
            )
            found = self.peer.ask(asked, 12).response.topics[0]
            if (
                found.error_code
                or len(found.partitions) != partitions
                or any(p.leader_id < 0 for p in found.partitions)
            ):
                return False
            parts = [
                ListOffsetsRequest.ListOffsetsPartition(partition_index=i, timestamp=-1)
                for i in range(partitions)
            ]
            ends = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=parts)]
            )
            return all(p.error_code == 0 for p in self.peer.ask(ends, 7).response.topics[0].partitions)

        wait_for(f"the leaders of {name} on {self.peer.name}", led)
        topic_id: bytes = made.topic_id
        return topic_id

    def group(self, short: str) -> str:
        """Waits until the coordinator of a group answers. Returns the name of the group."""
        name = self.name(short)

        def ready() -> bool:
            if self.peer.ask(FindCoordinatorRequest(key=name, key_type=0), 3).response.error_code:
                return False
            beat = HeartbeatRequest(group_id=name, generation_id=1, member_id="x")
            return self.peer.ask(beat, 3).response.error_code not in NOT_READY

        wait_for(f"the coordinator of {name} on {self.peer.name}", ready)
        return name

    def producer_id(self) -> int:
        def ready() -> bool:
            asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            return self.peer.ask(asked, 4).response.error_code == 0

        wait_for(f"producer ids of {self.peer.name}", ready)
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        found: int = self.peer.ask(asked, 4).response.producer_id
        return found

    # -- the requests that most cases are made of

    def produce(
        self,
        label: str,
        topic: str,
        data: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        topic_id: bytes = bytes(16),
    ) -> Answer:
        part = ProduceRequest.PartitionProduceData(index=partition, records=data)
        where = ProduceRequest.TopicProduceData(partition_data=[part])
        if version >= 13:
            where.topic_id = topic_id
        else:
            where.name = self.name(topic)
        return self.ask(label, ProduceRequest(acks=acks, timeout_ms=3000, topic_data=[where]), version)

    def fetch_topic(
        self, topic: str, *positions: tuple[int, int], max_bytes: int = 1 << 20, **part: Any
    ) -> FetchRequest.FetchTopic:
        parts = [
            FetchRequest.FetchPartition(
                partition=p, fetch_offset=offset, partition_max_bytes=max_bytes, **part
            )
            for p, offset in positions
        ]
        return FetchRequest.FetchTopic(topic=self.name(topic), partitions=parts)

    def fetch(
        self,
        label: str,
        topics: Sequence[FetchRequest.FetchTopic] = (),
        *,
        version: int = 12,
        wait_ms: int = 0,
        **fields: Any,
    ) -> Answer:
        return self.ask(label, FetchRequest(max_wait_ms=wait_ms, topics=list(topics), **fields), version)

    def list_offsets(
        self,
        label: str,
        topic: str,
        at: int,
        *,
        partition: int = 0,
        version: int = 7,
        epoch: int = -1,
        **fields: Any,
    ) -> Answer:
        part = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition, timestamp=at, current_leader_epoch=epoch
        )
        where = ListOffsetsRequest.ListOffsetsTopic(name=self.name(topic), partitions=[part])
        return self.ask(label, ListOffsetsRequest(**{"replica_id": -1, "topics": [where], **fields}), version)


Case = Callable[[Script], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Registers a case under its function's name."""
    CASES[function.__name__] = function
    return function
