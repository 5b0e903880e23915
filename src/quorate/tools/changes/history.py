"""The changes of a metadata log that a user asks for, with the names of their topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.metadata.changes import Change, Value, changes
from quorate.metadata.framing import decode_record
from quorate.metadata.loader import Batch
from quorate.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from quorate.metadata.snapshot import read_snapshot
from quorate.protocol.config_resource import ConfigResourceType
from quorate.tools.shell.nodes import Control
from quorate.tools.shell.source import LogReader

if TYPE_CHECKING:
    from quorate.admin.quorum_log import SnapshotOfLeader

_OF_TOPICS = frozenset(
    cls.KEY for cls in (TopicRecord, PartitionRecord, PartitionChangeRecord, RemoveTopicRecord)
)


@dataclass(slots=True, frozen=True)
class Filter:
    """Which changes are asked for. None asks for all."""

    topic: str | None = None
    principal: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def has_time(self, timestamp_ms: int) -> bool:
        """Whether changes of this time are asked for."""
        return (self.since_ms is None or timestamp_ms >= self.since_ms) and (
            self.until_ms is None or timestamp_ms < self.until_ms
        )

    def has_author(self, change: Change) -> bool:
        """Whether changes of its principal are asked for. "ann" means "User:ann"."""
        if self.principal is None:
            return True
        found = None if change.cause is None else change.cause.principal
        return found is not None and found in (self.principal, f"User:{self.principal}")


Emit = Callable[[Change, Sequence[Value]], None]
"""Receives a change and those of its records that were asked for."""


class History:
    """Reads a log. It is the sink of a log that is fetched from a quorum, too."""

    def __init__(self, wanted: Filter, emit: Emit) -> None:
        self._wanted = wanted
        self._emit = emit
        self._log = LogReader(Control(), 0)
        self._epoch = 0
        self.topics: dict[bytes, str] = {}
        """The names of the topics that were seen, also of those that are deleted."""
        self._wanted_ids: set[bytes] = set()
        """The ids of topics with the name that was asked for."""

    @property
    def knows_topic(self) -> bool:
        """Whether the log has named the topic that was asked for, if one was."""
        return self._wanted.topic is None or bool(self._wanted_ids)

    # -- the interface of a sink

    @property
    def end_offset(self) -> int:
        """The offset that is read next."""
        return self._log.end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the record before it."""
        return self._epoch

    def take(self, data: bytes | memoryview, name: str, *, end: int | None = None) -> None:
        """Reads batches up to `end`. Raises MetadataError."""
        for batch in self._log.batches(data, name, end=end):
            self._epoch = batch.epoch
            self.read(batch)

    def load(self, data: memoryview, found: SnapshotOfLeader) -> None:
        """Takes the names of the topics, and continues with the oldest batch that the leader has.

        The log of the leader may begin before the end of the snapshot. The first batch is lost if it has only
        one record.
        """
        self.name_topics(read_snapshot(data).batches)
        start, epoch = found.end_offset, found.epoch
        if found.log_start_offset < start:
            start, epoch = found.first_readable_offset, found.leader_epoch
        if start > self._log.end_offset:
            self._log = LogReader(Control(), start)
            self._epoch = epoch

    # -- batches

    def name_topics(self, batches: Iterable[Batch]) -> None:
        """Takes the names of the topics in these batches."""
        for batch in batches:
            self._name_topics(batch.values)

    def _name_topics(self, values: Sequence[Value]) -> None:
        for value in values:
            if len(value) > 1 and value[1] == TopicRecord.KEY:
                record, _ = decode_record(value)
                if isinstance(record, TopicRecord):
                    self.topics[record.topic_id] = record.name
                    if record.name == self._wanted.topic:
                        self._wanted_ids.add(record.topic_id)

    def read(self, batch: Batch) -> None:
        """Emits the changes of a batch that were asked for. Raises MetadataError."""
        if not batch.values:
            return
        self._name_topics(batch.values)
        if not self._wanted.has_time(batch.timestamp_ms):
            return
        for change in changes(batch):
            if self._wanted.has_author(change):
                values = change.values
                if self._wanted.topic is None:
                    self._emit(change, values)
                elif found := [value for value in values if self._is_about_topic(value)]:
                    self._emit(change, found)

    def _is_about_topic(self, value: Value) -> bool:
        """Whether a record is about the topic that was asked for. Most records are not decoded."""
        if len(value) < 2:
            return False
        if value[1] in _OF_TOPICS:
            data = bytes(value)
            if not any(topic_id in data for topic_id in self._wanted_ids):
                return False
        elif value[1] not in (ConfigRecord.KEY, ClearElrRecord.KEY):
            return False
        record, _ = decode_record(value)
        if isinstance(record, TopicRecord | PartitionRecord | PartitionChangeRecord | RemoveTopicRecord):
            return record.topic_id in self._wanted_ids
        if isinstance(record, ConfigRecord):
            is_topic = record.resource_type == ConfigResourceType.TOPIC
            return is_topic and record.resource_name == self._wanted.topic
        return isinstance(record, ClearElrRecord) and record.topic_name == self._wanted.topic
