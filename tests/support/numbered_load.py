"""A load of numbered records, and the check that a partition's logs hold each of them once and in order.

The producer is idempotent and waits for all in-sync replicas. Record n of a partition has the value "n".
So lost, doubled and reordered records are visible in the log alone.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from quorate.records.batch import decode_records
from tests.support.ledger import QUIET
from tests.support.metadata_disk import Disk

UNKNOWN_OFFSET = -1
FILLER = b" " + b"." * 90


@dataclass
class PartitionRecord:
    """The acknowledgements of one partition: the offset of each record, by its number."""

    produced: int = 0
    offsets: list[int] = field(default_factory=list)


class NumberedLoad:
    """Produces records to all partitions of a topic, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_s: int = 300, **conf: object) -> None:
        """Starts at once. `conf` has further settings of the producer."""
        self.topic = topic
        self.partitions = [PartitionRecord() for _ in range(partitions)]
        self.failure: str | None = None
        self._answered = [time.monotonic()] * partitions
        self._gaps_s = [0.0] * partitions
        self._pause_s = 1 / per_s
        self._go, self._over = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 0,
                **QUIET,
                **conf,
            }
        )
        self._thread = threading.Thread(target=self._main, name="load", daemon=True)
        self._go.set()
        self._thread.start()

    @property
    def acknowledged(self) -> int:
        """The number of records that were acknowledged."""
        return sum(len(p.offsets) for p in self.partitions)

    @property
    def unanswered(self) -> int:
        return sum(p.produced for p in self.partitions) - self.acknowledged

    def _main(self) -> None:
        turn = 0
        while not self._over.is_set():
            if not self._go.is_set() or self.unanswered > 5000:
                self._producer.poll(0.02)
                if not self._go.is_set() and self.unanswered == 0:
                    self._idle.set()
                continue
            turn += 1
            partition = turn % len(self.partitions)
            record = self.partitions[partition]
            if record.produced and not record.offsets:
                # The first batch goes alone. A broker of Kafka that refuses it, because it has not applied
                # the new topic yet, may take the second one, and librdkafka then counts both as delivered.
                self._producer.poll(self._pause_s)
                continue
            number = record.produced
            record.produced += 1
            self._producer.produce(
                self.topic, b"%d" % number + FILLER, partition=partition, on_delivery=self._delivered
            )
            self._producer.poll(self._pause_s)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, value = message.partition(), message.value()
        assert partition is not None and value is not None
        if error is not None:
            self.failure = self.failure or f"{self.topic}-{partition}: {error}"
            return
        record, number = self.partitions[partition], int(value.split()[0])
        if number != len(record.offsets):
            self.failure = self.failure or (
                f"{self.topic}-{partition}: record {number} acknowledged instead of {len(record.offsets)}"
            )
        offset = message.offset()
        record.offsets.append(UNKNOWN_OFFSET if offset is None or offset < 0 else offset)
        now = time.monotonic()
        self._gaps_s[partition] = max(self._gaps_s[partition], now - self._answered[partition])
        self._answered[partition] = now

    def pause(self, timeout_s: float = 60) -> None:
        """Stops producing and returns when all records are acknowledged. AssertionError after an error, or
        if that takes longer."""
        self._idle.clear()
        self._go.clear()
        self._idle.wait(timeout_s)
        assert self.failure is None, self.failure
        assert self.unanswered == 0, f"{self.unanswered} records were not acknowledged in {timeout_s} s"

    def resume(self) -> None:
        self._idle.clear()
        self.forget_gaps()
        self._go.set()

    def forget_gaps(self) -> None:
        """Starts to measure `longest_gap_s` anew."""
        now = time.monotonic()
        for partition in range(len(self.partitions)):
            self._answered[partition], self._gaps_s[partition] = now, 0.0

    @property
    def longest_gap_s(self) -> float:
        """The longest time between two acknowledgements of one partition."""
        return max(self._gaps_s)

    def flows(self, timeout_s: float = 60) -> None:
        """Until each partition has acknowledged a record that was produced after the call."""
        wanted = [p.produced + 1 for p in self.partitions]
        deadline = time.monotonic() + timeout_s
        while any(len(p.offsets) < want for p, want in zip(self.partitions, wanted, strict=True)):
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, (
                f"no acknowledgements in {timeout_s} s: {[len(p.offsets) for p in self.partitions]} "
                f"of {wanted}"
            )
            time.sleep(0.01)  # polls the producer's thread

    def stop(self) -> None:
        self._over.set()
        self._thread.join(30)


class NumberedReader:
    """Reads all partitions from their start, in a thread, and checks that no number is missing or comes
    twice. `rack` lets it read from a follower in that rack."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rack: str = "") -> None:
        self.next = [0] * partitions
        self.read_from: list[int] = [-1] * partitions
        """The broker that each partition is fetched from, as librdkafka reports it."""
        self.failure: str | None = None
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"numbered-{rack}",
                "client.rack": rack,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "statistics.interval.ms": 200,
                "stats_cb": self._statistics,
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        self._topic = topic
        self._thread = threading.Thread(target=self._main, name=f"reader-{rack}", daemon=True)
        self._thread.start()

    def _statistics(self, text: str) -> None:
        found = json.loads(text)["topics"].get(self._topic, {}).get("partitions", {})
        for p in range(len(self.next)):
            self.read_from[p] = found.get(str(p), {}).get("broker", -1)

    def _main(self) -> None:
        while not self._over.is_set() and self.failure is None:
            for message in self._consumer.consume(500, 0.05):
                error = message.error()
                if error is not None:
                    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                        self.failure = str(error)
                    continue
                partition, value = message.partition(), message.value()
                assert partition is not None and value is not None
                number = int(value.split()[0])
                if number != self.next[partition]:
                    self.failure = (
                        f"{self._topic}-{partition}: read record {number} at offset {message.offset()}, "
                        f"expected {self.next[partition]}"
                    )
                    break
                self.next[partition] += 1
        self._consumer.close()

    def reaches(self, counts: Sequence[int], timeout_s: float = 60) -> None:
        """Until so many records of each partition are read, and no more."""
        deadline = time.monotonic() + timeout_s
        while self.failure is None and any(n < c for n, c in zip(self.next, counts, strict=True)):
            assert time.monotonic() < deadline, f"read {self.next} of {list(counts)} in {timeout_s} s"
            time.sleep(0.02)  # polls the reader's thread
        assert self.failure is None, self.failure
        assert self.next == list(counts)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(30)


@dataclass
class LogChecker:
    """Compares the logs of a partition's replicas with each other and with the acknowledgements. Remembers a
    checksum of each batch, so that later bytes are also compared with earlier ones."""

    name: str
    sums: dict[int, int] = field(default_factory=dict)
    next_offset: int = 0
    next_number: int = 0

    def check(
        self, replicas: Mapping[int, Disk], high_watermark: int, acknowledged: Sequence[int]
    ) -> list[str]:
        """Returns the violations. All produced records must have been answered."""
        wrong = []
        for broker, disk in replicas.items():
            at = 0
            for batch in disk.batches:
                if batch.base_offset >= high_watermark:
                    break
                if batch.base_offset != at:
                    wrong.append(
                        f"{self.name}: broker {broker} has offset {batch.base_offset} after {at - 1}"
                    )
                at = batch.last_offset + 1
                known = self.sums.setdefault(batch.base_offset, zlib.crc32(batch.data))
                if zlib.crc32(batch.data) != known:
                    wrong.append(f"{self.name}: other bytes at offset {batch.base_offset} of broker {broker}")
            if at != high_watermark:
                wrong.append(
                    f"{self.name}: the log of broker {broker} ends at {at}, the high watermark is "
                    f"{high_watermark}"
                )
        if wrong or not replicas:
            return wrong or [f"{self.name}: no replica"]
        for batch in next(iter(replicas.values())).batches:
            if not self.next_offset <= batch.base_offset < high_watermark:
                continue
            found = [
                each
                for record in decode_records(batch.data)
                for each in self._record(record.offset, record.value or b"", acknowledged)
            ]
            header = batch.header
            by = f"(producer {header.producer_id} epoch {header.producer_epoch} from sequence {header.base_sequence})"
            wrong += [f"{each} {by}" for each in found]
        if self.next_number != len(acknowledged):
            wrong.append(
                f"{self.name}: {len(acknowledged)} records were acknowledged, the log has {self.next_number}"
            )
        self.next_offset = high_watermark
        return wrong

    def _record(self, offset: int, value: bytes, acknowledged: Sequence[int]) -> list[str]:
        number, expected = int(value.split()[0]), self.next_number
        self.next_number = number + 1
        if number != expected:
            what = "lost before it" if number > expected else "doubled or reordered"
            return [f"{self.name}: record {number} at offset {offset}, expected {expected}: {what}"]
        if number < len(acknowledged) and acknowledged[number] not in (offset, UNKNOWN_OFFSET):
            return [
                f"{self.name}: record {number} was acknowledged at offset {acknowledged[number]}, "
                f"is at {offset}"
            ]
        return []
