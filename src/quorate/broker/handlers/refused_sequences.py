"""The batches of idempotent producers that were refused before they were appended, and will be sent again.

A log accepts any sequence number of a producer that it does not know (KIP-360). If the first of two
pipelined batches is refused, because the broker does not lead the partition yet or the ISR is too small, and
the second one is appended, then the log begins with the second one. The first one can no longer be appended,
and librdkafka takes it for delivered, because a later batch was. Therefore a later batch of an unknown
producer is refused with OUT_OF_ORDER_SEQUENCE_NUMBER until the earlier one is appended, as if the producer
were known. (Kafka appends it.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from quorate.broker.topic_names import MAX_TOPIC_NAME_LENGTH
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import parse_header

if TYPE_CHECKING:
    from quorate.broker.replication.partition import Partition
    from quorate.protocol.schema import Records
    from quorate.records.batch import BatchHeader

MAX_ENTRIES = 10_000
REMEMBERED_S = 30.0
"""The default of request.timeout.ms. A later batch that was sent before the response to the refused one
arrives much sooner. A producer may also never send the refused batch again."""

_SENT_AGAIN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class _Refused(NamedTuple):
    producer_epoch: int
    first_sequence: int
    until: float


class RefusedSequences:
    """The lowest refused sequence number of each producer and partition."""

    __slots__ = ("_entries", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._entries: OrderedDict[tuple[str | bytes, int, int], _Refused] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, topic: str | bytes, partition: int, records: Records | None, error: ErrorCode) -> None:
        """Remembers a batch that was refused with `error`. The topic is the name or the id in the request."""
        if error not in _SENT_AGAIN or not isinstance(records, (memoryview, bytes)):
            return
        if len(topic) > MAX_TOPIC_NAME_LENGTH:  # no such topic will ever exist
            return
        try:
            header = parse_header(records)
        except KafkaError:
            return
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        key = (topic, partition, header.producer_id)
        known = self._entries.pop(key, None)
        first = header.base_sequence
        if known is not None and known.producer_epoch == header.producer_epoch:
            first = min(first, known.first_sequence)
        self._entries[key] = _Refused(header.producer_epoch, first, self._now() + REMEMBERED_S)
        if len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)

    def check(self, partition: Partition, header: BatchHeader, acks: int) -> None:
        """Raises OUT_OF_ORDER_SEQUENCE_NUMBER for a batch after a refused one, if the log does not know its
        producer. While the reason of the refusal lasts, raises that error as for the first batch: librdkafka
        answers a gap with a new producer epoch."""
        for topic in (partition.topic, partition.topic_id):
            key = (topic, partition.partition, header.producer_id)
            refused = self._entries.get(key)
            if refused is None:
                continue
            log = partition.check_append(acks)
            if (
                header.producer_epoch != refused.producer_epoch
                or header.base_sequence <= refused.first_sequence
                or self._now() > refused.until
                or header.producer_id in log.producers.producers
            ):
                del self._entries[key]
                continue
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id} in {partition.topic}-"
                f"{partition.partition}: {header.base_sequence} (incoming seq. number). The batch from "
                f"{refused.first_sequence} on was refused and has not been sent again.",
            )
