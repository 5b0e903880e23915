"""Readers and writers of single values and of arrays of values, which the compiled codecs call.

Readers take a buffer (bytes or memoryview), a position and the end of the buffer, and return the value and
the position after it. They may raise IndexError and struct.error for truncated input; `Message.decode`
converts these to DecodeError. Lengths are compared with the remaining bytes before memory is allocated.
Writers append to a bytearray. Source: Kafka's protocol guide, and KIP-482 for the compact forms.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from struct import Struct
from typing import TypeAlias

from quorate.protocol.errors import DecodeError, EncodeError
from quorate.protocol.file_region import FileRegion

Buffer: TypeAlias = bytes | bytearray | memoryview
Records: TypeAlias = (
    "bytes | bytearray | memoryview | FileRegion | list[bytes | bytearray | memoryview | FileRegion]"
)

MAX_STRING_BYTES = 0x7FFF
"""The maximum in Java, for compact strings, too."""

MAX_ARRAY_LENGTH = 1_000_000
"""The most elements of an array that are read (Kafka 4.4, `MessageUtil`)."""

MAX_TAGGED_FIELD_COUNT = 10_000
"""The most tagged fields of a struct that are read (Kafka 4.4, `MessageUtil`)."""

_I16 = Struct(">h")
_I32 = Struct(">i")
_read_i16 = _I16.unpack_from
_read_i32 = _I32.unpack_from
_write_i16 = _I16.pack
_write_i32 = _I32.pack


# -- variable-length integers
# --------------------------------------------------------------------------------------------------


def read_uvarint(b: Buffer, p: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits.

    Raises DecodeError when it is longer, IndexError when it is truncated.
    """
    x = b[p]
    if x < 128:
        return x, p + 1
    p += 1
    x &= 127
    shift = 7
    while True:
        c = b[p]
        p += 1
        x |= (c & 127) << shift
        if c < 128:
            if x > 0xFFFFFFFF:
                raise DecodeError("varint of more than 32 bits")
            return x, p
        shift += 7
        if shift > 28:
            raise DecodeError("varint of more than 5 bytes")


def write_uvarint(o: bytearray, x: int) -> None:
    """Appends an unsigned varint. Raises EncodeError when `x` is negative or over 64 bits."""
    if x < 128:
        if x < 0:
            raise EncodeError("a varint cannot be negative")
        o.append(x)
        return
    if x > 0xFFFFFFFFFFFFFFFF:
        raise EncodeError("varint of more than 64 bits")
    while x > 127:
        o.append(x & 127 | 128)
        x >>= 7
    o.append(x)


# -- lengths
# --------------------------------------------------------------------------------------------------


def short(what: str, wanted: int, left: int) -> DecodeError:
    """The error of a length that runs over the end."""
    return DecodeError(f"{what} of {wanted} bytes, but only {left} are left")


def null(what: str) -> DecodeError:
    """The error of a null where the schema has none."""
    return DecodeError(f"{what} is null")


def too_many(what: str, count: int, left: int) -> DecodeError:
    """The error of an array that cannot fit into what is left, or is longer than allowed."""
    if count > MAX_ARRAY_LENGTH and count <= left:
        return DecodeError(f"{what} has {count} elements: {MAX_ARRAY_LENGTH} at most")
    return DecodeError(f"{what} has {count} elements, but only {left} bytes are left")


def too_many_tags(count: int) -> DecodeError:
    """The error of a tagged section with more fields than allowed."""
    return DecodeError(f"{count} tagged fields: {MAX_TAGGED_FIELD_COUNT} at most")


def read_length(b: Buffer, p: int) -> tuple[int, int]:
    """The int32 length of an array or of bytes; -1 is null."""
    return _read_i32(b, p)[0], p + 4


def read_compact_length(b: Buffer, p: int) -> tuple[int, int]:
    """A varint of length + 1; -1 is null."""
    n = b[p]
    if n < 128:
        return n - 1, p + 1
    n, p = read_uvarint(b, p)
    return n - 1, p


def write_length(o: bytearray, n: int) -> None:
    """The counterpart of `read_length`."""
    o += _write_i32(n)


def write_compact_length(o: bytearray, n: int) -> None:
    """The counterpart of `read_compact_length`."""
    if n < 127:
        o.append(n + 1)
    else:
        write_uvarint(o, n + 1)


# -- strings
# --------------------------------------------------------------------------------------------------

_LENIENT = "quorate-java-replace"
"""The error handler for bytes that are not UTF-8. Java's `new String(bytes, UTF_8)`, which Apache Kafka uses
for every string, replaces malformed bytes by U+FFFD.
"""


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Returns U+FFFD for a malformed sequence, and the position after it.

    Java and Python divide malformed bytes equally, except for encoded surrogates (ED A0..BF and a
    continuation byte), which are one sequence in Java.
    """
    assert isinstance(error, UnicodeDecodeError)
    data, begin = error.object, error.start
    if data[begin] == 0xED and 0xA0 <= data[begin + 1 : begin + 2].ljust(1)[0] <= 0xBF:
        third = data[begin + 2 : begin + 3]
        return "\ufffd", begin + (3 if third and 0x80 <= third[0] <= 0xBF else 2)
    return "\ufffd", error.end


codecs.register_error(_LENIENT, _replace_as_java)


def text(data: Buffer) -> str:
    """Decodes bytes as Java does."""
    return str(data, "utf-8", _LENIENT)


def read_string(b: Buffer, p: int, end: int) -> tuple[str, int]:
    (n,) = _read_i16(b, p)
    p += 2
    q = p + n
    if n < 0:
        raise null("string")
    if q > end:
        raise short("string", n, end - p)
    return str(b[p:q], "utf-8", _LENIENT), q


def read_nullable_string(b: Buffer, p: int, end: int) -> tuple[str | None, int]:
    if b[p] >= 128:
        if p + 2 > end:
            raise short("string", 2, end - p)
        return None, p + 2
    return read_string(b, p, end)


def read_compact_string(b: Buffer, p: int, end: int) -> tuple[str, int]:
    n = b[p]
    if n < 128:
        p += 1
    else:
        n, p = read_uvarint(b, p)
        if n > MAX_STRING_BYTES + 1:
            raise DecodeError(f"string of {n - 1} bytes")
    q = p + n - 1
    if q > end:
        raise short("string", n - 1, end - p)
    if n == 0:
        raise null("string")
    return str(b[p:q], "utf-8", _LENIENT), q


def read_nullable_compact_string(b: Buffer, p: int, end: int) -> tuple[str | None, int]:
    if b[p] == 0:
        return None, p + 1
    return read_compact_string(b, p, end)


def write_string(o: bytearray, s: str) -> None:
    e = s.encode()
    o += _write_i16(len(e))
    o += e


def write_nullable_string(o: bytearray, s: str | None) -> None:
    if s is None:
        o += b"\xff\xff"
    else:
        e = s.encode()
        o += _write_i16(len(e))
        o += e


def write_compact_string(o: bytearray, s: str) -> None:
    e = s.encode()
    n = len(e)
    if n < 127:
        o.append(n + 1)
    elif n > MAX_STRING_BYTES:
        raise EncodeError(f"string of {n} bytes: {MAX_STRING_BYTES} at most")
    else:
        write_uvarint(o, n + 1)
    o += e


def write_nullable_compact_string(o: bytearray, s: str | None) -> None:
    if s is None:
        o.append(0)
    else:
        write_compact_string(o, s)


# -- bytes and records
# --------------------------------------------------------------------------------------------------


def read_bytes(b: Buffer, p: int, end: int) -> tuple[bytes, int]:
    (n,) = _read_i32(b, p)
    p += 4
    q = p + n
    if n < 0:
        raise null("bytes")
    if q > end:
        raise short("bytes", n, end - p)
    return bytes(b[p:q]), q


def read_nullable_bytes(b: Buffer, p: int, end: int) -> tuple[bytes | None, int]:
    (n,) = _read_i32(b, p)
    if n < 0:
        return None, p + 4
    return read_bytes(b, p, end)


def read_compact_bytes(b: Buffer, p: int, end: int) -> tuple[bytes, int]:
    n, p = read_compact_length(b, p)
    q = p + n
    if n < 0:
        raise null("bytes")
    if q > end:
        raise short("bytes", n, end - p)
    return bytes(b[p:q]), q


def read_nullable_compact_bytes(b: Buffer, p: int, end: int) -> tuple[bytes | None, int]:
    if b[p] == 0:
        return None, p + 1
    return read_compact_bytes(b, p, end)


def read_records(b: Buffer, p: int, end: int) -> tuple[memoryview | None, int]:
    """Returns a view into the buffer, or None for null. The generated code checks whether null is allowed."""
    (n,) = _read_i32(b, p)
    p += 4
    if n < 0:
        return None, p
    q = p + n
    if q > end:
        raise short("records", n, end - p)
    return memoryview(b)[p:q], q


def read_compact_records(b: Buffer, p: int, end: int) -> tuple[memoryview | None, int]:
    n, p = read_compact_length(b, p)
    if n < 0:
        return None, p
    q = p + n
    if q > end:
        raise short("records", n, end - p)
    return memoryview(b)[p:q], q


def write_bytes(o: bytearray, x: Buffer) -> None:
    o += _write_i32(len(x))
    o += x


def write_nullable_bytes(o: bytearray, x: Buffer | None) -> None:
    if x is None:
        o += b"\xff\xff\xff\xff"
    else:
        o += _write_i32(len(x))
        o += x


def write_compact_bytes(o: bytearray, x: Buffer) -> None:
    write_compact_length(o, len(x))
    o += x


def write_nullable_compact_bytes(o: bytearray, x: Buffer | None) -> None:
    if x is None:
        o.append(0)
    else:
        write_compact_length(o, len(x))
        o += x


def write_records(
    parts: list[Buffer | FileRegion], o: bytearray, x: Records, write_len: Callable[[bytearray, int], None]
) -> bytearray:
    """Appends the length of `x` to the current part, adds `x` as parts without a copy, and returns a new
    part. Empty records need no part: a Fetch response may have hundreds of thousands of them.
    """
    pieces = x if isinstance(x, list) else [x]
    size = sum([len(piece) for piece in pieces])
    write_len(o, size)
    if not size:
        return o
    parts.append(o)
    parts += pieces
    return bytearray()


# -- arrays of values
# --------------------------------------------------------------------------------------------------

_SMALL = 33
"""Shorter arrays (replica lists) use a prepared `Struct`. To format and look one up would double the time."""


def int_array_codec(
    code: str, size: int
) -> tuple[
    Callable[[Buffer, int, int, int], tuple[list[int], int]],
    Callable[[bytearray, list[int]], None],
]:
    """Returns a reader and a writer of the elements of an array of fixed-size numbers."""
    packs = [Struct(f">{n}{code}").pack for n in range(_SMALL)]
    unpacks = [Struct(f">{n}{code}").unpack_from for n in range(_SMALL)]

    def read(b: Buffer, p: int, end: int, n: int) -> tuple[list[int], int]:
        if n < _SMALL:
            return list(unpacks[n](b, p)), p + n * size
        q = p + n * size
        if q > end:
            raise too_many("array", n, end - p)
        return list(Struct(f">{n}{code}").unpack_from(b, p)), q

    def write(o: bytearray, xs: list[int]) -> None:
        n = len(xs)
        o += packs[n](*xs) if n < _SMALL else Struct(f">{n}{code}").pack(*xs)

    return read, write


def read_uuids(b: Buffer, p: int, end: int, n: int) -> tuple[list[bytes], int]:
    q = p + 16 * n
    if q > end:
        raise too_many("uuids", n, end - p)
    return [bytes(b[i : i + 16]) for i in range(p, q, 16)], q


def write_uuids(o: bytearray, xs: list[bytes]) -> None:
    for x in xs:
        if len(x) != 16:
            raise bad_uuid(x)
        o += x


def bad_uuid(x: object) -> EncodeError:
    return EncodeError(f"{x!r} is no uuid: 16 bytes are needed")


# -- tagged fields
# --------------------------------------------------------------------------------------------------


def read_tags(b: Buffer, p: int, end: int) -> tuple[bytes | dict[int, bytes] | None, int]:
    """Reads the tagged section of a struct that declares no tags.

    Returns its bytes if the tags are in ascending order, as the protocol requires, and otherwise a
    dictionary.
    """
    begin = p
    n, p = read_uvarint(b, p)
    if n > MAX_TAGGED_FIELD_COUNT:
        raise too_many_tags(n)
    last = -1
    ascending = True
    for _ in range(n):
        tag, p = read_uvarint(b, p)
        size, p = read_uvarint(b, p)
        if p + size > end:
            raise short(f"tagged field {tag}", size, end - p)
        p += size
        ascending = ascending and tag > last
        last = tag
    if n == 0:
        return None, p
    section = bytes(b[begin:p])
    return section if ascending else parse_tags(section), p


def parse_tags(section: bytes) -> dict[int, bytes]:
    """Parses a section that `read_tags` has checked. Of a repeated tag the last one counts."""
    n, p = read_uvarint(section, 0)
    tags = {}
    for _ in range(n):
        tag, p = read_uvarint(section, p)
        size, p = read_uvarint(section, p)
        tags[tag] = section[p : p + size]
        p += size
    return tags


def write_tags(
    o: bytearray, known: list[tuple[int, bytes | bytearray]], unknown: bytes | dict[int, bytes] | None
) -> None:
    """Writes a tagged section, with all tags in ascending order. Raises EncodeError if a tag is in both."""
    if type(unknown) is bytes:
        if not known:
            o += unknown
            return
        unknown = parse_tags(unknown)
    if unknown:
        assert isinstance(unknown, dict)
        for tag, _ in known:
            if tag in unknown:
                raise EncodeError(f"tag {tag} is among the unknown tags and declared")
        known = sorted([*known, *unknown.items()])
    write_uvarint(o, len(known))
    for tag, payload in known:
        write_uvarint(o, tag)
        write_uvarint(o, len(payload))
        o += payload
