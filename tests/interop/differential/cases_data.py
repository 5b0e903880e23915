"""Produce, InitProducerId, Fetch and its sessions, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

from quorate.protocol.messages.delete_records import DeleteRecordsRequest
from quorate.protocol.messages.describe_producers import DescribeProducersRequest
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest
from quorate.protocol.messages.list_offsets import ListOffsetsRequest
from quorate.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from quorate.protocol.messages.produce import ProduceRequest
from quorate.records.batch import TimestampType, build_control_batch, compute_crc
from quorate.records.compression import Compression
from tests.interop.differential.script import NOW, Script, batch, case, record

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
STRANGE_ID = bytes(range(16))


def of_magic(magic: int) -> bytes:
    """A message of a format before version 2 (magic 0 or 1)."""
    body = (
        struct.pack(">bb", magic, 0)
        + (struct.pack(">q", NOW) if magic else b"")
        + struct.pack(">i3si5s", 3, b"key", 5, b"value")
    )
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def patched(form: str, at: int, value: int) -> bytes:
    """A batch of two records with one changed header field and a correct checksum."""
    data = bytearray(batch(record(), record()))
    struct.pack_into(form, data, at, value)
    data[17:21] = struct.pack(">I", compute_crc(data))
    return bytes(data)


FIELDS: tuple[tuple[str, str, int, tuple[int, ...]], ...] = (
    ("base offset", ">q", 0, (77,)),
    ("length", ">i", 8, (10, -5)),
    ("leader epoch", ">i", 12, (5, -7)),
    ("attributes", ">h", 21, (0x20, 0x08, 0x40, 0x80, -32768)),
    ("last offset delta", ">i", 23, (5, -1, 0)),
    ("base timestamp", ">q", 27, (-5,)),
    ("greatest timestamp", ">q", 35, (NOW + 5,)),
    ("count", ">i", 57, (3, 1, 0, -1, INT_MAX)),
)


@case
def produce(s: Script) -> None:
    topic_id = s.topic("p")
    for version in range(3, 14):
        s.produce(f"good v{version}", "p", batch(), version=version, topic_id=topic_id)
    for magic in (0, 1):
        for version in (3, 9):
            s.produce(f"magic {magic} v{version}", "p", of_magic(magic), version=version)
    for label, at, value in (("magic 3", 16, 3), ("magic -1", 16, 255), ("crc", 17, 0)):
        data = bytearray(batch())
        data[at] = value
        s.produce(label, "p", bytes(data))
    s.produce("no bytes", "p", b"")
    s.produce("cut", "p", batch()[:-3])
    s.produce("two batches", "p", batch() + batch())
    for codec in Compression:
        for version in (3, 6, 7, 9):
            s.produce(f"{codec.name} v{version}", "p", batch(compression=codec), version=version)
    for name, form, at, values in FIELDS:
        for value in values:
            s.produce(f"{name} {value if value != NOW + 5 else 'late'}", "p", patched(form, at, value))
    s.produce("raft's control batch", "p", build_control_batch([(2, b"\0\0")], timestamp=NOW))
    s.produce(
        "transactional", "p", batch(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    times = {
        "future": NOW + 10**10,
        "past": 1,
        "none": -1,
        "-2": -2,
        "greatest": LONG_MAX,
        "least": -LONG_MAX - 1,
    }
    for label, at in times.items():
        s.produce(f"time {label}", "p", batch(record(at=at)))
    s.produce("one of three too late", "p", batch(record(), record(at=NOW + 10**10), record()))
    s.produce(
        "log append time", "p", batch(timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=NOW)
    )
    s.produce("too large", "p", batch(record(os.urandom(1_048_588))))
    s.produce(
        "large, small when compressed", "p", batch(record(b"x" * 3_000_000), compression=Compression.ZSTD)
    )
    for delta in (-2, -1, 0, 1, 2):
        s.produce(f"limit {delta}", "p", batch(record(b"x" * (1_048_588 - 72 + delta))))
    for partition in (5, -1, INT_MAX):
        s.produce(f"partition {partition}", "p", batch(), partition=partition)
    s.produce("no such topic", "nope", batch())
    for acks in (2, -2, 100, 1):
        s.produce(f"acks {acks}", "p", batch(), acks=acks)
    s.produce("unknown id", "p", batch(), version=13, topic_id=STRANGE_ID)
    s.produce("no id", "p", batch(), version=13)
    for label, name in (("internal", "__consumer_offsets"), ("empty name", "")):
        part = ProduceRequest.PartitionProduceData(index=0, records=batch())
        where = ProduceRequest.TopicProduceData(name=name, partition_data=[part])
        s.ask(label, ProduceRequest(acks=-1, timeout_ms=3000, topic_data=[where]), 9)
    s.ask("no topics", ProduceRequest(acks=-1, timeout_ms=3000), 9)
    s.list_offsets("end", "p", -1)


@case
def produce_by_topic_config(s: Script) -> None:
    s.topic("small", max_message_bytes=200)
    s.produce("over 200", "small", batch(record(b"x" * 200)))
    s.produce("under 200", "small", batch(record(b"x" * 100)))
    s.topic("append", message_timestamp_type="LogAppendTime")
    for label, options in (("plain", {}), ("gzip", {"compression": Compression.GZIP})):
        s.produce(f"append time {label}", "append", batch(record(at=5), record(at=NOW + 10**12), **options))
    s.topic("span", message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    s.produce("past", "span", batch(record(at=NOW - 10**6)))
    s.produce("future and past", "span", batch(record(at=NOW + 10**6), record(at=NOW - 10**6)))
    s.produce("no time", "span", batch(record(at=-1)))
    s.topic("compact", cleanup_policy="compact")
    s.produce("no key", "compact", batch())
    s.produce("key", "compact", batch(record(key=b"k")))
    s.produce("two without", "compact", batch(record(key=b"k"), record(), record(key=b"k"), record()))
    s.produce("lz4 without", "compact", batch(record(key=b"k"), record(), compression=Compression.LZ4))
    s.produce("tombstone", "compact", batch(record(None, key=b"k")))
    for target in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        s.topic(target, compression_type=target)
        for codec in Compression:
            s.produce(f"{codec.name} to {target}", target, batch(record(b"x" * 1000), compression=codec))
    s.topic("isr", min_insync_replicas=2)
    for acks in (-1, 1):
        s.produce(f"isr acks {acks}", "isr", batch(), acks=acks)


@case
def sequences(s: Script) -> None:
    s.topic("seq")
    own = s.producer_id()
    steps = (
        # label, sequence, records, epoch, producer id
        *((f"{i}", i, 1, 0, own) for i in (5, 0, 6)),
        *(
            (f"another {i}: {q} x{n}", q, n, 0, own + 50_000)
            for i, (q, n) in enumerate(((0, 1), (0, 1), (1, 3), (1, 3), (7, 1), (2, 1), (3, 2), (4, 1)))
        ),
        *((f"six more {q}", q, 1, 0, own + 50_000) for q in range(5, 11)),
        *((f"again {q}", q, 1, 0, own + 50_000) for q in (4, 5, 10, 7)),
        *(
            (f"epoch {e} at {q}", q, 1, e, own + 50_000)
            for e, q in ((2, 5), (1, 0), (0, 12), (3, 0), (-1, 0), (3, -1), (3, -5))
        ),
        ("unknown id at 9", 9, 1, 0, 123_456),
        ("greatest id", 0, 1, 0, LONG_MAX),
        ("id -2", 0, 1, 0, -2),
        ("greatest epoch", 0, 1, 32_767, 99_997),
        *((f"wraps {q} x{n}", q, n, 0, 99_998) for q, n in ((INT_MAX - 1, 1), (INT_MAX, 3), (2, 1))),
    )
    for label, sequence, count, epoch, producer in steps:
        data = batch(*[record()] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        s.produce(label, "seq", data)
    asked = DescribeProducersRequest.TopicRequest(name=s.name("seq"), partition_indexes=[0, 1, -1])
    s.ask("producers", DescribeProducersRequest(topics=[asked]), 0)
    for timeout_ms in (-1, 0, 1, INT_MAX):
        s.ask(
            f"init {timeout_ms} ms",
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms),
            4,
        )
    for version in range(6):
        s.ask(
            f"init v{version}",
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10),
            version,
        )
    for epoch in (3, -1):
        known: dict[str, Any] = {
            "transactional_id": None,
            "transaction_timeout_ms": 10,
            "producer_id": 5,
            "producer_epoch": epoch,
        }
        s.ask(f"init with id and epoch {epoch}", InitProducerIdRequest(**known), 4)
    s.ask("init with an empty name", InitProducerIdRequest(transactional_id="", transaction_timeout_ms=10), 4)


@case
def fetch(s: Script) -> None:
    topic_id = s.topic("f", 2)
    for i in range(5):
        s.produce(f"write {i}", "f", batch(*[record(b"x" * 1000)] * 10))
    at_start = s.fetch_topic("f", (0, 0))

    def by_id(identity: bytes) -> list[FetchRequest.FetchTopic]:
        where = s.fetch_topic("f", (0, 0))
        where.topic, where.topic_id = "", identity
        return [where]

    for version in range(4, 19):
        s.fetch(f"v{version}", by_id(topic_id) if version >= 13 else [at_start], version=version)
    for offset in (-1, -2, -100, 10, 15, 49, 50, 51, 2**62):
        s.fetch(f"offset {offset}", [s.fetch_topic("f", (0, offset))])
    for size in (0, 1, 15_000, INT_MAX):
        s.fetch(f"max bytes {size}", [at_start], max_bytes=size)
        s.fetch(f"partition max bytes {size}", [s.fetch_topic("f", (0, 0), max_bytes=size)])
    s.fetch("no such topic", [s.fetch_topic("nope", (0, 0))])
    for partition in (7, -1):
        s.fetch(f"partition {partition}", [s.fetch_topic("f", (partition, 0))])
    for label, identity in (("unknown", STRANGE_ID), ("zero", bytes(16))):
        s.fetch(f"{label} id", by_id(identity), version=15)
    for epoch in (0, 1, -2, 5):
        s.fetch(f"leader epoch {epoch}", [s.fetch_topic("f", (0, 0), current_leader_epoch=epoch)])
    for epoch, offset in ((0, 0), (5, 10), (-5, 10)):
        s.fetch(f"fetched epoch {epoch}", [s.fetch_topic("f", (0, offset), last_fetched_epoch=epoch)])
    s.fetch("committed", [at_start], isolation_level=1)
    s.fetch("waits", [s.fetch_topic("f", (0, 50))], wait_ms=100, min_bytes=1)
    s.fetch("waits for more than there is", [at_start], wait_ms=100, min_bytes=INT_MAX)
    s.fetch("waits -1", [s.fetch_topic("f", (0, 50))], wait_ms=-1, min_bytes=1)
    s.fetch("at least -1", [s.fetch_topic("f", (0, 50))], wait_ms=100, min_bytes=-1)
    s.fetch("partition twice", [s.fetch_topic("f", (0, 0), (0, 10))])
    s.fetch("little room for two", [s.fetch_topic("f", (1, 0), (0, 40))], max_bytes=100)
    s.fetch("nothing")
    for replica in (5, 1, -2, -3):
        s.fetch(f"replica {replica}", [at_start], replica_id=replica)
    s.fetch("another cluster", [at_start], cluster_id="nope")
    s.fetch("rack", [at_start], rack_id="r9")


@case
def fetch_sessions(s: Script) -> None:
    topic_id = s.topic("s", 3)
    for partition in range(3):
        s.produce(f"write {partition}", "s", batch(), partition=partition)

    def opened(label: str, **more: Any) -> int:
        answer = s.fetch(label, [s.fetch_topic("s", (0, 0), (1, 0))], session_id=0, session_epoch=0, **more)
        return int(answer.response.session_id)

    def on(session: int, epoch: int, label: str, *topics: FetchRequest.FetchTopic, **more: Any) -> None:
        s.fetch(label, topics, session_id=session, session_epoch=epoch, **more)

    session = opened("new")
    on(session, 1, "nothing new")
    on(session, 1, "epoch 1 again")
    on(session, 5, "epoch 5")
    on(session, 2, "add", s.fetch_topic("s", (2, 0)))
    on(session, 3, "move", s.fetch_topic("s", (0, 1)))
    forgotten = [FetchRequest.ForgottenTopic(topic=s.name("s"), partitions=[1, 9])]
    on(
        session,
        4,
        "forget",
        forgotten_topics_data=[*forgotten, FetchRequest.ForgottenTopic(topic="zz", partitions=[0])],
    )
    on(session, 5, "move another", s.fetch_topic("s", (2, 1)))
    s.produce("write again", "s", batch())
    on(session, 6, "news")
    on(session, 7, "unknown topic", s.fetch_topic("nope", (0, 0)))
    on(session, 8, "it stays unknown")
    on(session, 9, "ids from now on", version=13)
    on(session, 10, "and names again")
    on(424_242, 1, "no such session")
    on(session, 0, "a new one instead", s.fetch_topic("s", (0, 0)))
    on(session, 11, "the old one")
    session = opened("another")
    on(session, -1, "close")
    on(session, 1, "closed")
    on(0, 1, "none, epoch 1")
    on(0, -2, "none, epoch -2")
    on(0, 0, "empty")
    for identity, label in ((topic_id, "by id"), (STRANGE_ID, "by unknown id")):
        where = FetchRequest.FetchTopic(topic_id=identity, partitions=s.fetch_topic("s", (0, 0)).partitions)
        answer = s.fetch(label, [where], version=17, session_id=0, session_epoch=0)
        on(answer.response.session_id, 1, f"{label} again", version=17)
        on(answer.response.session_id, 2, f"{label}, then by name")


@case
def list_offsets(s: Script) -> None:
    s.topic("lo", 2)
    for at in (1000, 3000, 2000, 4000):
        s.produce(f"write {at}", "lo", batch(record(at=at), record(at=at + 500)))
    for version in range(1, 11):
        for at in (-1, -2, -3, -4, -5, -6, -100, 0, 1000, 1001, 2500, 3001, 4500, 4501, 2**62):
            s.list_offsets(f"{at} v{version}", "lo", at, version=version)
    for epoch in (0, 1, -2):
        s.list_offsets(f"epoch {epoch}", "lo", -1, epoch=epoch)
    s.list_offsets("greatest of none", "lo", -3, partition=1)
    for partition in (9, -1):
        s.list_offsets(f"partition {partition}", "lo", -1, partition=partition)
    s.list_offsets("no such topic", "nope", -1)
    s.list_offsets("committed", "lo", -1, isolation_level=1)
    for replica in (0, 1, -2, -3, 77):
        s.list_offsets(f"replica {replica}", "lo", -1, replica_id=replica)
    s.ask("nothing", ListOffsetsRequest(replica_id=-1), 7)
    part = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    for epoch in (-1, 0, 1, 2):
        asked = [
            part(partition=p, current_leader_epoch=now, leader_epoch=epoch)
            for p, now in ((0, -1), (9, -1), (1, epoch))
        ]
        where = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=s.name("lo"), partitions=asked)
        s.ask(f"end of epoch {epoch}", OffsetForLeaderEpochRequest(replica_id=-1, topics=[where]), 4)


@case
def delete_records(s: Script) -> None:
    def delete(label: str, partition: int, offset: int, topic: str = "dr", timeout_ms: int = 2000) -> None:
        part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
        where = DeleteRecordsRequest.DeleteRecordsTopic(name=s.name(topic), partitions=[part])
        s.ask(label, DeleteRecordsRequest(topics=[where], timeout_ms=timeout_ms), 2)

    s.topic("dr", 2)
    s.produce("write", "dr", batch(*[record()] * 10))
    for i, offset in enumerate((3, 3, 1, 11, -2, -5)):
        delete(f"{i}: to {offset}", 0, offset)
    for partition in (7, -1):
        delete(f"partition {partition}", partition, 1)
    delete("no such topic", 0, 1, "nope")
    for offset in (0, 1):
        delete(f"empty one to {offset}", 1, offset)
    delete("to the end", 0, -1)
    for timeout_ms in (0, -1):
        delete(f"timeout {timeout_ms}", 0, 10, timeout_ms=timeout_ms)
    s.list_offsets("start", "dr", -2)
    s.fetch("below", [s.fetch_topic("dr", (0, 0))])
    s.fetch("at the end", [s.fetch_topic("dr", (0, 10))])
    s.topic("compact", cleanup_policy="compact")
    s.produce("write a key", "compact", batch(record(key=b"k")))
    delete("compacted", 0, 1, "compact")
    s.ask("nothing", DeleteRecordsRequest(timeout_ms=1000), 2)
