"""Compression codecs of record batches (batch attribute bits 0 to 2): gzip, snappy, lz4, zstd.

The framing is that of Apache Kafka's Java client, which other clients follow. gzip is one RFC 1952
member or several. snappy is written in the "xerial" stream of snappy-java (a 16-byte header, then blocks
with a big-endian length), and read in this form or in raw form (librdkafka). lz4 is the frame format
with independent blocks, because Java rejects linked blocks. zstd is RFC 8878 frames.

Decompression is bounded: output beyond `limit` raises an error before it is allocated.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module
from quorate.records.errors import CorruptRecordError

if TYPE_CHECKING:
    import cramjam

    from quorate.records.varint import Buffer
else:
    cramjam = lazy_module("cramjam")  # loaded with the first compressed batch, not at start-up

MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024
"""The limit for one batch. It equals the default of socket.request.max.bytes, which limits an uncompressed
batch."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest compatible version
_XERIAL_BLOCK = 32 * 1024  # snappy-java's default block
_INT32 = struct.Struct(">i")
_FIRST_GUESS = 64 * 1024  # a smaller output buffer would only cause more attempts


class Compression(IntEnum):
    """The codecs, with the numbers in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The name in `compression.type`."""
        return "uncompressed" if self is Compression.NONE else self.name.lower()


@cache
def _codec(name: str) -> Any:
    """A codec of cramjam. It is cached because every compressed batch needs it."""
    return getattr(cramjam, name)


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compresses the records of a batch. `level` is on the scale of the codec; None is Kafka's default.
    snappy has no levels."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
            return packer.compress(data) + packer.flush()
        case Compression.SNAPPY:
            view = memoryview(data)
            raw = _codec("snappy").compress_raw
            parts = [_XERIAL_HEADER]
            for start in range(0, len(view), _XERIAL_BLOCK):
                block = bytes(raw(view[start : start + _XERIAL_BLOCK]))
                parts.append(_INT32.pack(len(block)))
                parts.append(block)
            return b"".join(parts)
        case Compression.LZ4:
            packer = _codec("lz4").Compressor(
                level=0 if level is None or level == 9 else level, content_checksum=False, block_linked=False
            )
            packer.compress(bytes(data))
            return bytes(packer.finish())
        case Compression.ZSTD:
            return bytes(_codec("zstd").compress(data, level=3 if level is None else level))


def decompress(
    codec: Compression, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES
) -> bytes | bytearray | memoryview:
    """Decompresses the records of a batch. Raises CorruptRecordError if the data is invalid or its
    output is longer than `limit` bytes."""
    match codec:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return _gunzip(data, limit)
        case Compression.SNAPPY:
            return _unsnap(memoryview(data), limit)
        case Compression.LZ4:
            return _into(_codec("lz4").decompress_into, data, limit, "lz4")
        case Compression.ZSTD:
            return _into(_codec("zstd").decompress_into, data, limit, "zstd")


def _too_big(name: str, limit: int) -> CorruptRecordError:
    return CorruptRecordError(f"Compressed batch ({name}) expands beyond {limit} bytes")


def _gunzip(data: Buffer, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    while rest or not parts:
        unpacker = zlib.decompressobj(31)
        try:
            part = unpacker.decompress(rest, limit - size + 1)
        except zlib.error as e:
            raise CorruptRecordError(f"gzip data of a batch does not decompress: {e}") from None
        size += len(part)
        if size > limit:
            raise _too_big("gzip", limit)
        if not unpacker.eof:
            raise CorruptRecordError("gzip data of a batch is truncated")
        parts.append(part)
        rest = unpacker.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unsnap(data: memoryview, limit: int) -> bytes | bytearray:
    snappy = _codec("snappy")
    if bytes(data[:8]) != _XERIAL_MAGIC:
        blocks = [data]
    else:
        if len(data) < 16:
            raise CorruptRecordError("snappy stream header of a batch is truncated")
        blocks = []
        pos, end = 16, len(data)
        while pos < end:
            if end - pos < 4:
                raise CorruptRecordError("snappy block length of a batch is truncated")
            (size,) = _INT32.unpack_from(data, pos)
            pos += 4
            if not 0 <= size <= end - pos:
                raise CorruptRecordError(f"snappy block length {size} of a batch passes its end")
            blocks.append(data[pos : pos + size])
            pos += size
    try:
        sizes = [int(snappy.decompress_raw_len(block)) for block in blocks]
        total = sum(sizes)
        if total > limit:
            raise _too_big("snappy", limit)
        # A snappy copy element yields at most 64 bytes for 3 bytes of input. A larger length is invalid
        # and must not be allocated.
        if total > 32 * len(data) + 64:
            raise CorruptRecordError(f"snappy length {total} of a batch is impossible for {len(data)} bytes")
        out = bytearray(total)
        view = memoryview(out)
        pos = 0
        for block, size in zip(blocks, sizes, strict=True):
            if snappy.decompress_raw_into(block, view[pos : pos + size]) != size:
                raise CorruptRecordError("snappy block of a batch is shorter than it says")
            pos += size
        return out
    except cramjam.DecompressionError as e:
        raise CorruptRecordError(f"snappy data of a batch does not decompress: {e}") from None


def _into(decompress_into: Any, data: Buffer, limit: int, name: str) -> memoryview:
    """Decompresses a frame. The frame does not contain the length of its output, so the buffer grows
    until the output fits or exceeds the limit."""
    room = min(limit, max(_FIRST_GUESS, 8 * len(data)))
    while True:
        out = bytearray(room)
        try:
            return memoryview(out)[: decompress_into(data, out)]
        except (cramjam.DecompressionError, OSError, ValueError) as e:
            if not _output_full(e):
                raise CorruptRecordError(f"{name} data of a batch does not decompress: {e}") from None
        if room >= limit:
            raise _too_big(name, limit)
        room = min(limit, room * 4)


def _output_full(error: Exception) -> bool:
    return "write whole buffer" in str(error)
