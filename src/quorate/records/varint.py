"""Zig-zag variable-length integers of the record format (sint32 and sint64 of protocol buffers).

Decoders return ``(value, next position)`` and raise `InvalidRecordError` if the number is incomplete or
too long. Hot loops in other modules inline the one-byte case and call these functions for other numbers.
"""

from __future__ import annotations

from quorate.records.errors import InvalidRecordError

Buffer = bytes | bytearray | memoryview

_ONE_BYTE = [bytes([n]) for n in range(128)]


def encode_unsigned(value: int) -> bytes:
    """The base-128 form of a non-negative integer."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_LENGTHS = [encode_unsigned(n << 1) for n in range(1024)]
"""The zig-zag forms of small numbers, as the lengths and offsets in most records."""


def encode(value: int) -> bytes:
    """The zig-zag form of a signed integer."""
    if 0 <= value < 1024:
        return _LENGTHS[value]
    return encode_unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def decode(buf: Buffer, pos: int, end: int, max_bytes: int = 5) -> tuple[int, int]:
    """Reads a zig-zag integer from ``buf[pos:end]``. `max_bytes` is 5 for int32 and 10 for int64."""
    if pos < end and (byte := buf[pos]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    raw = shift = 0
    limit = min(end, pos + max_bytes)
    while pos < limit:
        byte = buf[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> (32 if max_bytes == 5 else 64):
                raise InvalidRecordError(f"Variable-length integer at byte {pos} exceeds its type")
            return (raw >> 1) ^ -(raw & 1), pos
        shift += 7
    if limit == end:
        raise InvalidRecordError(f"Variable-length integer truncated at byte {end}")
    raise InvalidRecordError(f"Variable-length integer longer than {max_bytes} bytes at byte {pos}")


def decode_long(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Reads a zig-zag int64."""
    return decode(buf, pos, end, 10)
