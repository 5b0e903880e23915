"""What the clients of a run observed. Each list has one writer, or its `add` may be called in any thread."""

from __future__ import annotations

import threading
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

Partition = tuple[str, int]
"""Topic and partition number."""

_SEQUENCE_BITS = 40


def token(producer: int, sequence: int) -> int:
    """Returns the number that identifies a record: the producer, and its sequence in the partition."""
    return producer << _SEQUENCE_BITS | sequence


def producer_and_sequence(value: int) -> tuple[int, int]:
    """Returns the arguments of `token`."""
    return value >> _SEQUENCE_BITS, value & ((1 << _SEQUENCE_BITS) - 1)


def shown(value: int) -> str:
    """Returns the text for a record in messages."""
    producer, sequence = producer_and_sequence(value)
    return f"record {sequence} of producer {producer}"


class Records:
    """Records in the order in which they were observed, in 16 bytes each."""

    def __init__(self, records: list[tuple[int, int]] | None = None) -> None:
        self.offsets, self.tokens = array("q"), array("q")
        self._lock = threading.Lock()
        for offset, value in records or ():
            self.add(offset, value)

    def add(self, offset: int, value: int) -> None:
        with self._lock:
            self.offsets.append(offset)
            self.tokens.append(value)

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return zip(self.offsets, self.tokens, strict=True)


class Watermark(NamedTuple):
    """The end of a partition in a response to ListOffsets."""

    start: float
    end: float
    leader_epoch: int
    offset: int


class Commit(NamedTuple):
    """A committed offset that was acknowledged, or that was fetched."""

    start: float
    end: float
    offset: int


@dataclass(slots=True)
class PartitionHistory:
    sent: Counter[int] = field(default_factory=Counter)
    """producer -> records that were given to it"""
    acknowledged: Records = field(default_factory=Records)
    """with the offset -1 if the response was only that the record had been there before
    (DUPLICATE_SEQUENCE_NUMBER)"""
    read: dict[str, Records] = field(default_factory=dict)
    """by each reader; they read without a group"""
    consumed: bytearray = field(default_factory=bytearray)
    """for each offset, whether a member of the group got the record"""
    watermarks: list[Watermark] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    fetched_commits: list[Commit] = field(default_factory=list)
    delete_requested: int = 0
    """the largest offset below which a DeleteRecords was requested"""
    delete_acknowledged: int = 0

    def consume(self, offset: int) -> None:
        if offset >= len(self.consumed):
            self.consumed.extend(bytes(max(4096, offset + 1 - len(self.consumed))))
        self.consumed[offset] = 1


@dataclass(slots=True)
class TopicHistory:
    created: bool = False
    delete_requested: bool = False
    deleted: bool = False
    config: dict[str, str] = field(default_factory=dict)
    """acknowledged values; the last request of each name was acknowledged"""


@dataclass(slots=True)
class History:
    partitions: defaultdict[Partition, PartitionHistory] = field(
        default_factory=lambda: defaultdict(PartitionHistory)
    )
    topics: dict[str, TopicHistory] = field(default_factory=dict)
    client_errors: list[str] = field(default_factory=list)
    """errors that reached a client although it retried as often as it does by default"""
    retried: Counter[str] = field(default_factory=Counter)
    """errors after which a client of the run tried again"""
    read_from_followers: Counter[str] = field(default_factory=Counter)
    """reader -> records that it got while it fetched their partition from a follower, as it reports every
    200 ms"""
    cut_off: list[tuple[float, float]] = field(default_factory=list)
    """When links of a broker were cut. Clients still reach such a broker. It may answer from a past that
    it takes for the present, as Apache Kafka's does, so reads in these intervals prove nothing."""

    def in_cut(self, start: float, end: float) -> bool:
        return any(start <= healed and end >= cut for cut, healed in self.cut_off)


@dataclass(slots=True)
class FinalPartition:
    """A partition after all faults were healed and all clients were served."""

    log_start: int = 0
    log_end: int = 0
    records: Records = field(default_factory=Records)
    committed: int | None = None
    """of the group"""
    producer_epochs: dict[int, int] = field(default_factory=dict)
    """of the offsets whose producer epoch is not 0"""
    differences: list[str] = field(default_factory=list)
    """between the replicas"""


@dataclass(slots=True)
class FinalState:
    partitions: dict[Partition, FinalPartition] = field(default_factory=dict)
    topics: dict[int, set[str]] = field(default_factory=dict)
    """broker -> the topics in its metadata"""
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """topic -> its configuration"""
