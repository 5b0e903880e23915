"""The fields that small requests have in common, at fixed positions."""

from __future__ import annotations

from struct import Struct

from quorate.protocol.errors import DecodeError
from quorate.protocol.uuids import ZERO_UUID

ONE = 2
"""The length of an array with one element."""

_CLIENT_ID = 8
_VERSION_AND_CLIENT_ID = Struct(">h4xh")  # from byte 2 on, with the correlation id between them
_UUID_BYTES = 16
_SHORT_NAME = 0x7F
"""Above this, the length of a name takes two bytes."""


def version_and_client_id(frame: memoryview) -> tuple[int, int]:
    """Returns the version of a request and the position after its client id.

    Raises struct.error for a frame that is too short, and DecodeError for a client id that may be malformed:
    only ASCII is sure to be UTF-8.
    """
    version, length = _VERSION_AND_CLIENT_ID.unpack_from(frame, 2)
    at = _CLIENT_ID + 2 + max(length, 0)
    if length < -1 or not bytes(frame[_CLIENT_ID + 2 : at]).isascii():
        raise DecodeError("the client id may be malformed")
    return version, at


def read_topic(frame: memoryview, at: int, *, by_id: bool) -> tuple[str, bytes, bytes, int]:
    """Returns the name of a topic, its id, the one of them that the request has as it is encoded, and the
    position after it. Without a name it is empty, and without an id the id is zeros.

    Raises IndexError, UnicodeDecodeError, and DecodeError for a name that is empty or long.
    """
    if by_id:
        topic = bytes(frame[at : at + _UUID_BYTES])
        return "", topic, topic, at + _UUID_BYTES
    length = frame[at]
    if not 1 < length <= _SHORT_NAME:
        raise DecodeError(f"a name of {length - 1} bytes")
    topic = bytes(frame[at : at + length])
    return topic[1:].decode(), ZERO_UUID, topic, at + length
