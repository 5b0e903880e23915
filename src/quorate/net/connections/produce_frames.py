"""Looks into a Produce request before it is decoded. Its size does not tell how long decoding takes: records
are not decoded one by one, but topics and partitions are."""

from __future__ import annotations

import struct

MANY = 500
"""Topics and partitions that are decoded in the event loop, in a millisecond."""

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_VERSION = 2
_CLIENT_ID = 8
_ACKS_AND_TIMEOUT = 6
_INDEX = 4
_UUID = 16
_FLEXIBLE_SINCE, _TOPIC_IDS_SINCE = 9, 13


def has_many_partitions(frame: memoryview) -> bool:
    """Whether a Produce request has more than `MANY` topics or partitions, or is malformed."""
    try:
        return _Frame(frame).has_many()
    except (IndexError, struct.error):
        return True


class _Frame:
    __slots__ = ("_at", "_data", "_flexible", "_version")

    def __init__(self, data: memoryview) -> None:
        self._data = data
        (self._version,) = _SHORT.unpack_from(data, _VERSION)
        self._flexible = self._version >= _FLEXIBLE_SINCE
        self._at = _CLIENT_ID

    def has_many(self) -> bool:
        (length,) = _SHORT.unpack_from(self._data, self._at)  # also in the flexible header
        self._at += 2 + max(length, 0)
        self._skip_tags()
        self._skip_string()  # the transactional id
        self._at += _ACKS_AND_TIMEOUT
        count = topics = self._length()
        for _ in range(topics):
            if count > MANY:
                return True
            if self._version >= _TOPIC_IDS_SINCE:
                self._at += _UUID
            else:
                self._skip_string()
            partitions = self._length()
            count += max(partitions, 0)
            if count > MANY:
                return True
            for _ in range(partitions):
                self._at += _INDEX
                size = self._length()
                self._at += max(size, 0)
                self._skip_tags()
            self._skip_tags()
        return False

    def _length(self) -> int:
        """Reads the length of an array or of records; -1 for null."""
        if self._flexible:
            return self._varint() - 1
        (length,) = _INT.unpack_from(self._data, self._at)
        self._at += 4
        return int(length)

    def _skip_string(self) -> None:
        if self._flexible:
            length = self._varint() - 1
        else:
            (length,) = _SHORT.unpack_from(self._data, self._at)
            self._at += 2
        self._at += max(length, 0)

    def _skip_tags(self) -> None:
        if self._flexible:
            for _ in range(min(self._varint(), MANY)):
                self._varint()
                size = self._varint()
                self._at += size

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80 or shift > 28:
                return value
            shift += 7
