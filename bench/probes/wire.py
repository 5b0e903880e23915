"""Requests over plain sockets, encoded by kio, which belongs to neither implementation."""

from __future__ import annotations

import datetime
import io
import socket
import struct
import time
from typing import Any

import google_crc32c
from kio.schema.describe_quorum.v0.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v0.response import DescribeQuorumResponse
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.find_coordinator.v2.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v2.response import FindCoordinatorResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v9.response import ProduceResponse
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8, i16, i32, i64

CLIENT = "probe"


def frame(request: Any) -> bytes:
    """The request with its header and its length."""
    header_type = HeaderV2 if request.__flexible__ else HeaderV1
    header = header_type(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(7),
        client_id=CLIENT,
    )
    buffer = io.BytesIO()
    entity_writer(header_type)(buffer, header)
    entity_writer(type(request))(buffer, request)
    return struct.pack(">i", len(buffer.getvalue())) + buffer.getvalue()


def call(port: int, request: Any, response_type: Any, timeout_s: float = 5.0) -> Any:
    """Sends one request on a connection of its own."""
    return exchange(port, frame(request), response_type, timeout_s)


def exchange(port: int, request_frame: bytes, response_type: Any, timeout_s: float = 5.0) -> Any:
    """Sends one request that is encoded already."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(request_frame)
        (length,) = struct.unpack(">i", _exactly(connection, 4))
        data = _exactly(connection, length)
    header = 4 + (1 if response_type.__flexible__ else 0)
    answer = entity_reader(response_type)(data, header)
    return answer[0] if isinstance(answer, tuple) else answer


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("closed by the node")
        data += part
    return data


def describe_quorum_error(port: int, timeout_s: float = 2.0) -> int:
    """The error code of the metadata partition in a DescribeQuorum answer: 0 from the active controller."""
    partition = PartitionData(partition_index=i32(0))
    topic = TopicData(topic_name=TopicName("__cluster_metadata"), partitions=(partition,))
    answer = call(port, DescribeQuorumRequest(topics=(topic,)), DescribeQuorumResponse, timeout_s)
    return int(answer.topics[0].partitions[0].error_code)


def produce_error(port: int, topic: str, partition: int, records: bytes) -> int:
    """The error code of a Produce with acks=all: 0 if the records were acknowledged."""
    answer = exchange(port, produce_frame(topic, partition, records, acks=-1), ProduceResponse)
    return int(answer.responses[0].partition_responses[0].error_code)


def produce_frame(topic: str, partition: int, records: bytes, acks: int = 1) -> bytes:
    data = PartitionProduceData(index=i32(partition), records=records)
    topic_data = TopicProduceData(name=TopicName(topic), partition_data=(data,))
    timeout = datetime.timedelta(seconds=5)
    return frame(
        ProduceRequest(transactional_id=None, acks=i16(acks), timeout=timeout, topic_data=(topic_data,))
    )


def metadata_frame(topic: str) -> bytes:
    asked = MetadataRequestTopic(topic_id=None, name=TopicName(topic))
    return frame(
        MetadataRequest(
            topics=(asked,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
    )


def fetch_frame(topic: str, partition: int, offset: int) -> bytes:
    """A Fetch without a session, of at most one batch."""
    data = FetchPartition(partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(1))
    return frame(
        FetchRequest(
            max_wait=datetime.timedelta(0),
            min_bytes=i32(1),
            topics=(FetchTopic(topic=TopicName(topic), partitions=(data,)),),
            forgotten_topics_data=(),
        )
    )


def offset_commit_frame(group: str, topic: str, partition: int) -> bytes:
    """An OffsetCommit of a client that is no member of a group."""
    data = OffsetCommitRequestPartition(
        partition_index=i32(partition), committed_offset=i64(1), committed_metadata=None
    )
    return frame(
        OffsetCommitRequest(
            group_id=GroupId(group),
            member_id="",
            topics=(OffsetCommitRequestTopic(name=TopicName(topic), partitions=(data,)),),
        )
    )


def wait_for_offset_commit(port: int, group: str, topic: str, timeout_s: float = 30.0) -> None:
    """Returns when the coordinator of a group accepts a commit. Raises TimeoutError.

    The first FindCoordinator creates the topic of the offsets.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = call(port, FindCoordinatorRequest(key=group, key_type=i8(0)), FindCoordinatorResponse)
        if not found.error_code:
            answer = exchange(port, offset_commit_frame(group, topic, 0), OffsetCommitResponse)
            if not answer.topics[0].partitions[0].error_code:
                return
        time.sleep(0.05)
    raise TimeoutError(f"no coordinator for {group} after {timeout_s} s")


def batch_of_one(value: bytes) -> bytes:
    """A record batch v2 of one record without a key. `value` has 64 to 8,000 bytes: its length and the
    record's are varints of two bytes."""

    def varint(number: int) -> bytes:
        zigzag = number << 1
        return bytes([zigzag & 0x7F | 0x80, zigzag >> 7])

    body = b"\x00\x00\x00\x01" + varint(len(value)) + value + b"\x00"  # attributes, deltas, null key, headers
    now_ms = int(time.time() * 1e3)
    rest = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + varint(len(body)) + body
    crc = struct.pack(">I", google_crc32c.value(rest))
    return struct.pack(">qiib", 0, len(rest) + 9, -1, 2) + crc + rest
