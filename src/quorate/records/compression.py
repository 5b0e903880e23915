"""Compression codecs of record batches (batch attribute bits 0 to 2): gzip, snappy, lz4, zstd.

Framing follows Apache Kafka's Java client, which others follow: gzip is one RFC 1952 member or several;
snappy is written in the "xerial" stream of snappy-java (16-byte header, then blocks with a big-endian
length) and read in that or in raw form (librdkafka); lz4 is the frame format with independent blocks
(Java refuses linked ones); zstd is RFC 8878 frames.

Decompression is bounded: output beyond `limit` raises before it is allocated.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from quorate.records.errors import CorruptRecordError

if TYPE_CHECKING:
    from quorate.records.varint import Buffer

MAX_DECOMPRESSED_BYTES = (
    100 * 1024 * 1024
)  # one batch; equals socket.request.max.bytes, the most that could have come uncompressed

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest compatible version
_XERIAL_BLOCK = 32 * 1024  # snappy-java's default block
_INT32 = struct.Struct(">i")
_FIRST_GUESS = 64 * 1024  # a smaller output buffer would only add attempts


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """As in `compression.type`."""
        return "uncompressed" if self is Compression.NONE else self.name.lower()


@cache
def _cramjam() -> Any:
    import cramjam  # loaded with the first compressed batch, not at start

    return cramjam


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compresses the record section of a batch. `level` is the codec's own scale; None is Kafka's
    default (snappy has none)."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
            return packer.compress(data) + packer.flush()
        case Compression.SNAPPY:
            view = memoryview(data)
            raw = _cramjam().snappy.compress_raw
            parts = [_XERIAL_HEADER]
            for start in range(0, len(view), _XERIAL_BLOCK):
                block = bytes(raw(view[start : start + _XERIAL_BLOCK]))
                parts.append(_INT32.pack(len(block)))
                parts.append(block)
            return b"".join(parts)
        case Compression.LZ4:
            packer = _cramjam().lz4.Compressor(
                level=0 if level is None or level == 9 else level, content_checksum=False, block_linked=False
            )
            packer.compress(bytes(data))
            return bytes(packer.finish())
        case Compression.ZSTD:
            return bytes(_cramjam().zstd.compress(data, level=3 if level is None else level))


def decompress(
    codec: Compression, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES
) -> bytes | bytearray | memoryview:
    """Raises CorruptRecordError when the data does not decompress or its output would pass `limit` bytes."""
    match codec:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return _gunzip(data, limit)
        case Compression.SNAPPY:
            return _unsnap(memoryview(data), limit)
        case Compression.LZ4:
            return _into(_cramjam().lz4.decompress_into, data, limit, "lz4")
        case Compression.ZSTD:
            return _into(_cramjam().zstd.decompress_into, data, limit, "zstd")


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
            raise CorruptRecordError("gzip data of a batch is cut")
        parts.append(part)
        rest = unpacker.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unsnap(data: memoryview, limit: int) -> bytes | bytearray:
    snappy = _cramjam().snappy
    if bytes(data[:8]) != _XERIAL_MAGIC:
        blocks = [data]
    else:
        if len(data) < 16:
            raise CorruptRecordError("snappy stream header of a batch is cut")
        blocks = []
        pos, end = 16, len(data)
        while pos < end:
            if end - pos < 4:
                raise CorruptRecordError("snappy block length of a batch is cut")
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
        # A snappy copy element yields at most 64 bytes for 3 bytes of input: more cannot be true, and
        # is not allocated.
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
    except _cramjam().DecompressionError as e:
        raise CorruptRecordError(f"snappy data of a batch does not decompress: {e}") from None


def _into(decompress_into: Any, data: Buffer, limit: int, name: str) -> memoryview:
    """The frame does not say how long its output is, so the output buffer doubles until it fits or
    passes the limit."""
    room = min(limit, max(_FIRST_GUESS, 8 * len(data)))
    while True:
        out = bytearray(room)
        try:
            return memoryview(out)[: decompress_into(data, out)]
        except (_cramjam().DecompressionError, OSError, ValueError) as e:
            if not _output_full(e):
                raise CorruptRecordError(f"{name} data of a batch does not decompress: {e}") from None
        if room >= limit:
            raise _too_big(name, limit)
        room = min(limit, room * 4)


def _output_full(error: Exception) -> bool:
    return "write whole buffer" in str(error)
