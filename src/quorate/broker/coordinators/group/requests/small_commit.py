"""Answers OffsetCommits of one topic without metadata from their bytes.

All others, and those that get an error, go to the handler of the API.

A consumer of one topic sends only such requests, again and again with other offsets. What precedes the
partitions is therefore parsed once. Versions 8 (flexible) to 10; without tagged fields.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Protocol

from quorate.broker.coordinators.group.model import OffsetAndMetadata, OffsetRecord
from quorate.broker.coordinators.group.requests.known_requests import LONGEST, KnownRequests
from quorate.broker.coordinators.group.shard import GroupCoordinatorShard
from quorate.broker.coordinators.runtime import CoordinatorRuntime
from quorate.broker.handlers.small_requests import ONE, read_topic, version_and_client_id
from quorate.protocol.errors import DecodeError, KafkaError
from quorate.protocol.messages.offset_commit import OffsetCommitRequest

if TYPE_CHECKING:
    from quorate.net.dispatch import FrameAnswer

_FIRST_VERSION, _TOPIC_IDS_SINCE, _LAST_VERSION = 8, 10, 10
_CLIENT_ID = 8
_LENGTH = Struct(">h")
_GENERATION = Struct(">i")
_TOPIC_ID_BYTES = 16
_PARTITION = Struct(">iqi2s")
"""Index, offset, leader epoch; no metadata and no tags."""
_WITHOUT_METADATA = frozenset({b"\0\0", b"\1\0"})  # null, empty
_MOST_PARTITIONS = 100
"""Partitions of a request, which take half a millisecond of the event loop."""
_SHORT = 0x7F
"""Above this, the length of a string takes two bytes."""

_RESPONSE = Struct(">bib")  # no tags, throttle time, topics + 1
_RESPONSE_PARTITION = Struct(">ihb")  # index, error code, no tags
_NO_TAGS = b"\0\0"
"""No tags of the topic and of the request or the response."""
_SIZE = Struct(">i")

_RECORD_BYTES = 128
"""The most bytes of a record without the names in its key."""


class Topics(Protocol):
    """The members of the broker's metadata cache that are used here."""

    @property
    def image(self) -> Any: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def topic_id(self, name: str) -> bytes: ...

    def partition(self, topic: str, partition: int) -> Any: ...


class _Commit:
    """What repeated requests have in common."""

    __slots__ = (
        "coordinator",
        "name",
        "partitions",
        "record_bytes",
        "request",
        "resolved",
        "response",
        "topic_id",
        "version",
    )

    def __init__(
        self, version: int, request: OffsetCommitRequest, name: str, topic_id: bytes, topic: bytes
    ) -> None:
        self.version = version
        self.request = request
        """The request without its topics."""
        self.name = name
        self.topic_id = topic_id
        self.response = _RESPONSE.pack(0, 0, ONE) + topic
        """The response from the correlation id to the partitions."""
        self.resolved: Any = None
        """The topics of the metadata for which the following are valid, and the name and the id of
        the topic."""
        self.coordinator = -1
        """The partition of the group, or -1 if the topic does not exist."""
        self.record_bytes = 0
        """The most bytes of the record of one partition."""
        self.partitions: set[int] = set()
        """Partitions of the topic that exist."""


class SmallCommits:
    """Answers OffsetCommits of one topic without metadata, all partitions of which exist."""

    __slots__ = ("_commits", "_metadata", "_partition_for", "_runtime")

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupCoordinatorShard],
        metadata: Topics,
        partition_for: Callable[[str], int],
    ) -> None:
        """`partition_for` returns the partition of a group."""
        self._runtime = runtime
        self._metadata = metadata
        self._partition_for = partition_for
        self._commits = KnownRequests[bytes, _Commit]()
        """By the bytes from the client id up to the partitions."""

    def answer(self, frame: memoryview) -> FrameAnswer:
        """Adds the offsets to the batch of their partition of `__consumer_offsets`.

        Returns None for a request of another form, and for one that gets an error.
        """
        try:
            at = _skip_to_partitions(frame)
            count = frame[at] - 1
            end = at + 1 + count * _PARTITION.size
            if not 0 < count <= _MOST_PARTITIONS or frame[end:] != _NO_TAGS or frame[2]:
                return None
            commit = self._commits.get(bytes(frame[_CLIENT_ID:at]))
            if commit is None or commit.version != frame[3]:
                commit = parse(frame, at)
                if at - _CLIENT_ID <= LONGEST:
                    self._commits.keep(bytes(frame[_CLIENT_ID:at]), commit)
        except (struct_error, IndexError, UnicodeDecodeError, DecodeError):
            return None
        topics = self._metadata.image.topics
        if commit.resolved is not topics:
            self._resolve(commit)
            commit.resolved = topics
        if commit.coordinator < 0:
            return None
        runtime, request, name, topic_id = self._runtime, commit.request, commit.name, commit.topic_id
        now = runtime.step_time()
        head = _SIZE.pack(4 + len(commit.response) + 1 + count * _RESPONSE_PARTITION.size + len(_NO_TAGS))
        parts = [head, frame[4:8].tobytes(), commit.response, frame[at : at + 1].tobytes()]
        records = []
        for index, offset, leader_epoch, rest in _PARTITION.iter_unpack(frame[at + 1 : end]):
            if rest not in _WITHOUT_METADATA or not (
                index in commit.partitions or self._exists(commit, index)
            ):
                return None
            value = OffsetAndMetadata(offset, leader_epoch, "", now.wall_ms, None, topic_id)
            records.append(OffsetRecord(request.group_id, name, index, value))
            parts.append(_RESPONSE_PARTITION.pack(index, 0, 0))
        parts.append(_NO_TAGS)
        try:
            context = runtime.context(commit.coordinator)
            context.shard.offsets.validate_commit(request, commit.version, now)
        except KafkaError:
            return None
        context.shard.counts.offset_commits += count
        return runtime.batches.add(context, records, count * commit.record_bytes, b"".join(parts))

    def _resolve(self, commit: _Commit) -> None:
        """Finds the topic of a commit in the latest metadata, and the partition of its group."""
        metadata = self._metadata
        commit.partitions.clear()
        if commit.version >= _TOPIC_IDS_SINCE:
            commit.name = metadata.topic_name(commit.topic_id) or ""
        else:
            commit.topic_id = metadata.topic_id(commit.name)
        commit.record_bytes = (
            _RECORD_BYTES + len(commit.request.group_id.encode()) + len(commit.name.encode())
        )
        commit.coordinator = self._partition_for(commit.request.group_id) if commit.name else -1

    def _exists(self, commit: _Commit, partition: int) -> bool:
        """Whether the topic of a commit has this partition."""
        if self._metadata.partition(commit.name, partition) is None:
            return False
        commit.partitions.add(partition)
        return True


def _skip_to_partitions(frame: memoryview) -> int:
    """The position of the partitions of the first topic, if all lengths before it take one byte. Raises
    struct.error and IndexError, and DecodeError for another form. The fields are not checked."""
    (length,) = _LENGTH.unpack_from(frame, _CLIENT_ID)
    at = _CLIENT_ID + _LENGTH.size + (length if length > 0 else 0) + 1  # no tags
    at += frame[at] + _GENERATION.size  # the group
    at += frame[at]  # the member
    at += frame[at] or 1  # the static member
    if frame[at] != ONE:
        raise DecodeError("several topics")
    at += 1
    return at + (_TOPIC_ID_BYTES if frame[3] >= _TOPIC_IDS_SINCE else frame[at])


def parse(frame: memoryview, end: int) -> _Commit:
    """Parses a request up to its partitions at `end`.

    Raises struct.error, IndexError, UnicodeDecodeError, and DecodeError for a request of another
    form.
    """
    version, at = version_and_client_id(frame)
    if not _FIRST_VERSION <= version <= _LAST_VERSION or frame[at]:
        raise DecodeError("another version, or tagged fields")
    group_id, at = _read_string(frame, at + 1)
    (generation,) = _GENERATION.unpack_from(frame, at)
    member_id, at = _read_string(frame, at + _GENERATION.size)
    instance_id = None
    if frame[at]:
        instance_id, at = _read_string(frame, at)
    else:
        at += 1
    name, topic_id, topic, at = read_topic(frame, at + 1, by_id=version >= _TOPIC_IDS_SINCE)
    if at != end:
        raise DecodeError("another form")
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
    )
    return _Commit(version, request, name, topic_id, topic)


def _read_string(frame: memoryview, at: int) -> tuple[str, int]:
    """Returns a string and the position after it.

    Raises DecodeError for one that is null or long, IndexError and UnicodeDecodeError.
    """
    length = frame[at]
    if not 0 < length <= _SHORT:
        raise DecodeError(f"a string of {length - 1} bytes")
    return bytes(frame[at + 1 : at + length]).decode(), at + length
