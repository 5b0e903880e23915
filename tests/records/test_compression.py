"""Codecs of record batches: Kafka's framing in both directions, and limits."""

from __future__ import annotations

import gzip
import os
import struct

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.records.compression import Compression, compress, decompress
from quorate.records.errors import CorruptRecordError

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
BODIES = [b"", b"a", b"abc" * 20_000, os.urandom(5_000), os.urandom(70_000), b"x" * 1_000_000]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("body", BODIES, ids=len)
def test_what_is_compressed_comes_back(codec: Compression, body: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, body))) == body


@pytest.mark.parametrize(
    ("codec", "level"),
    [(Compression.GZIP, 1), (Compression.GZIP, 9), (Compression.LZ4, 1), (Compression.LZ4, 17), (Compression.ZSTD, 19)],
)  # fmt: skip
def test_levels_are_taken(codec: Compression, level: int) -> None:
    body = b"some text, some more text, " * 500
    packed = compress(codec, body, level)
    assert len(packed) < len(body) and bytes(decompress(codec, packed)) == body


@pytest.mark.parametrize("codec", CODECS)
def test_output_beyond_the_limit_is_rejected(codec: Compression) -> None:
    packed = compress(codec, bytes(1_000_000))
    assert len(decompress(codec, packed, limit=1_000_000)) == 1_000_000
    with pytest.raises(CorruptRecordError, match="beyond 999999 bytes"):
        decompress(codec, packed, limit=999_999)


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_refused_or_shorter(codec: Compression) -> None:
    body = b"hello, world; " * 30
    packed = compress(codec, body)
    for size in range(len(packed)):
        try:
            assert len(decompress(codec, packed[:size])) < len(body)
        except CorruptRecordError:
            pass


@given(st.sampled_from(CODECS), st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_garbage_raises_one_kind_of_error(codec: Compression, data: bytes) -> None:
    try:
        decompress(codec, data, limit=1 << 20)
    except CorruptRecordError:
        pass


def test_snappy_is_written_in_blocks_as_java_does() -> None:
    body = os.urandom(80_000)
    packed = compress(Compression.SNAPPY, body)
    assert packed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    position, sizes, parts = 16, [], []
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        part = bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size]))
        sizes.append(len(part))
        parts.append(part)
        position += 4 + size
    assert sizes == [32_768, 32_768, 14_464] and b"".join(parts) == body


def test_snappy_without_blocks_is_read_as_librdkafka_writes_it() -> None:
    body = b"abcdef" * 1000
    assert bytes(decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(body)))) == body


@pytest.mark.parametrize("size", [-1, 2**31 - 1, 5])
def test_a_snappy_block_that_passes_the_end_is_refused(size: int) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(Compression.SNAPPY, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, size) + b"abcd")


def test_an_impossible_snappy_length_is_not_allocated() -> None:
    with pytest.raises(CorruptRecordError, match="impossible"):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\x0f" + b"\0" * 20)  # says 32 MiB


def test_lz4_blocks_are_independent() -> None:
    packed = compress(Compression.LZ4, os.urandom(300_000))
    assert packed[:4] == bytes.fromhex("04224d18") and packed[4] & 0x20  # FLG: the block independence bit


def test_gzip_of_several_members_is_read() -> None:
    assert bytes(decompress(Compression.GZIP, gzip.compress(b"abc") + gzip.compress(b"def"))) == b"abcdef"
