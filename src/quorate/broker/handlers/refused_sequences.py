"""The batches of idempotent producers that were refused before they were appended, and will be sent again.

A log accepts any sequence number of a producer that it does not know (KIP-360). If the first of two
pipelined batches is refused, because the broker does not lead the partition yet or the ISR is too small, and
the second one is appended, then the log begins with the second one. The first one can no longer be appended,
and librdkafka takes it for delivered, because a later batch was. Therefore a later batch of an unknown
producer gets the error of the earlier one until that one is appended. (Kafka appends it.)

The error is one after which clients send both batches again, in their order. Another leader may have
appended the refused batch since, of this topic or of a deleted one of the same name. librdkafka takes
OUT_OF_ORDER_SEQUENCE_NUMBER for a fatal error then. Only batches that may have been sent before the response
to the refused one arrived are refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from quorate.broker.topic_names import MAX_TOPIC_NAME_LENGTH
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import parse_header

if TYPE_CHECKING:
    from quorate.broker.replication.partition import Partition
    from quorate.net.dispatch import RequestCounter
    from quorate.protocol.schema import Records
    from quorate.records.batch import BatchHeader

MAX_ENTRIES = 10_000
MAX_IN_FLIGHT = 5
"""max.in.flight.requests.per.connection of an idempotent producer. So many requests of a connection, the
refused one among them, can have been sent before its response arrived."""
REMEMBERED_S = 1.0
"""For requests without a connection. Those of a connection that were in flight with a refused one may arrive
at any time after it: the link may stall between them, or this broker may stand still. A batch that was sent
later is refused at most `MAX_IN_FLIGHT` - 1 times by mistake, and its client sends it again."""

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
    error: ErrorCode
    producer_epoch: int
    first_sequence: int
    at: float
    connection: ref[RequestCounter] | None
    requests: int
    """The number of the refused request among those of its connection."""


class RefusedSequences:
    """The lowest refused sequence number of each producer and partition."""

    __slots__ = ("_entries", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._entries: OrderedDict[tuple[str | bytes, int, int], _Refused] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def remember(
        self,
        topic: str | bytes,
        partition: int,
        records: Records | None,
        error: ErrorCode,
        connection: RequestCounter | None,
    ) -> None:
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
        if (
            known is None
            or known.producer_epoch != header.producer_epoch
            or known.first_sequence >= header.base_sequence
            or not self._is_in_flight(known, connection)
        ):
            by = (None, 0) if connection is None else (ref(connection), connection.requests)
            known = _Refused(error, header.producer_epoch, header.base_sequence, self._now(), *by)
        self._entries[key] = known
        if len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)

    def _is_in_flight(self, refused: _Refused, connection: RequestCounter | None) -> bool:
        """Whether a request of `connection` can have been sent before the response to the refused one had
        arrived."""
        if refused.connection is None:
            return connection is None and self._now() <= refused.at + REMEMBERED_S
        return (
            refused.connection() is connection is not None
            and connection.requests < refused.requests + MAX_IN_FLIGHT
        )

    def check(
        self, partition: Partition, header: BatchHeader, acks: int, connection: RequestCounter | None
    ) -> None:
        """Raises the error of a refused batch for a later one that may have been in flight with it, if the
        log does not know their producer. Raises the errors of `Partition.check_append` first."""
        for topic in (partition.topic, partition.topic_id):
            key = (topic, partition.partition, header.producer_id)
            refused = self._entries.get(key)
            if refused is None:
                continue
            log = partition.check_append(acks)
            if (
                header.producer_epoch != refused.producer_epoch
                or header.base_sequence <= refused.first_sequence
                or not self._is_in_flight(refused, connection)
                or header.producer_id in log.producers.producers
            ):
                del self._entries[key]
                continue
            raise KafkaError(
                refused.error,
                f"The batch of producer {header.producer_id} with the sequence numbers from "
                f"{header.base_sequence} on comes before the one from {refused.first_sequence} on, which was "
                f"refused for {partition.topic}-{partition.partition}.",
            )
