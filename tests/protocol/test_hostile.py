"""Cut, extended, mutated and invented bytes end in DecodeError, soon, and in bounded memory."""

from __future__ import annotations

import itertools
import random
import struct
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from quorate.protocol.api import decode_request
from quorate.protocol.errors import DecodeError, KafkaError
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.protocol.primitives import write_uvarint
from quorate.protocol.schema import PRIMITIVES, FieldSpec, Message, Struct
from tests.protocol.values import all_messages, random_struct

MESSAGES = pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)

MEMORY_FACTOR = 64
"""What a frame may take in memory, as a multiple of its size."""


def versions_that_differ(cls: type[Message]) -> list[int]:
    """The first, the last, and the first flexible version: encodings differ there, fields come in between."""
    versions = {cls.MIN_VERSION, cls.MAX_VERSION}
    if cls.MIN_VERSION <= cls.FLEXIBLE[0] <= cls.MAX_VERSION:
        versions.add(cls.FLEXIBLE[0])
    return sorted(versions)


def survives(cls: type[Message], data: bytes, version: int) -> None:
    """Decodes, or raises DecodeError and nothing else; what decodes can be written again."""
    try:
        message = cls.decode(data, version)
    except DecodeError:
        return
    again = message.encode(version)
    assert cls.decode(again, version).encode(version) == again


@MESSAGES
def test_every_cut_is_refused(cls: type[Message]) -> None:
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        rng = random.Random(f"cut {cls.__name__} {version}")
        data = random_struct(cls, cls, version, rng, unknown_tags=True).encode(version)
        cuts = range(len(data)) if len(data) < 60 else sorted(rng.sample(range(len(data)), 60))
        for cut in cuts:
            with pytest.raises(DecodeError):
                cls.decode(data[:cut], version)
            with pytest.raises(DecodeError):
                cls.decode(memoryview(data)[:cut], version)


@MESSAGES
def test_bytes_left_behind_are_refused(cls: type[Message]) -> None:
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        data = random_struct(cls, cls, version, random.Random(version)).encode(version)
        with pytest.raises(DecodeError, match="1 bytes are left"):
            cls.decode(data + b"\0", version)


@MESSAGES
def test_mutated_and_random_bytes_decode_or_raise_decode_error(cls: type[Message]) -> None:
    for version in versions_that_differ(cls):
        rng = random.Random(f"mutate {cls.__name__} {version}")
        for _ in range(12):
            data = bytearray(random_struct(cls, cls, version, rng, unknown_tags=True).encode(version))
            for _ in range(rng.randint(1, 4)):
                if data:
                    data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            survives(cls, bytes(data), version)
            survives(cls, rng.randbytes(rng.randint(0, 60)), version)
            survives(cls, bytes(rng.choices([0, 1, 2, 3, 0x7F, 0x80, 0xFF], k=rng.randint(0, 60))), version)


# -- memory
# --------------------------------------------------------------------------------------------------


def element(root: type[Message], cls: type[Struct], version: int, variant: str, depth: int = 0) -> Any:
    """One element of a hostile array: as many objects for as few bytes as can be."""
    built = cls()
    for spec in cls.fields():
        if not spec.in_version(version):
            continue
        if spec.tagged_in(version) and variant != "tagged":
            continue
        if spec.kind == "str" and not spec.array and variant == "strings":
            setattr(built, spec.name, "ab")
        elif spec.array and variant in ("nested", "tagged") and depth < 4:
            setattr(built, spec.name, [item(root, spec, version, variant, depth + 1)])
        elif spec.kind == "Records" and variant != "plain":
            setattr(built, spec.name, b"")
    if variant == "unknown" and root.is_flexible(version):
        built.unknown_tags = {100: b""}
    return built


def item(root: type[Message], spec: FieldSpec, version: int, variant: str, depth: int = 0) -> Any:
    if spec.kind in PRIMITIVES:
        return {"str": "ab" if variant == "strings" else "", "uuid": bytes(16), "bytes": b""}.get(
            spec.kind, 1000 % 127
        )
    return element(root, root.struct_class(spec.kind), version, variant, depth)


def amplifiers(root: type[Message], cls: type[Struct], version: int, count: int) -> Iterator[tuple[str, Any]]:
    """Instances of `cls` in which one array has `count` elements, however deep it is."""
    for spec in cls.fields():
        if not spec.in_version(version):
            continue
        if spec.array:
            variants = ["plain", "strings"]
            if spec.kind not in PRIMITIVES:
                variants += ["nested", "tagged", "unknown"]
            for variant in variants:
                built = cls()
                setattr(built, spec.name, list(itertools.repeat(item(root, spec, version, variant), count)))
                yield f"{spec.name} {variant}", built
        if spec.kind not in PRIMITIVES:
            for name, inner in amplifiers(root, root.struct_class(spec.kind), version, count):
                built = cls()
                setattr(built, spec.name, [inner] if spec.array else inner)
                yield f"{spec.name}.{name}", built


def peak_of_decoding(cls: type[Message], data: bytes, version: int) -> int:
    tracemalloc.start()
    try:
        kept = cls.decode(data, version)
        peak = tracemalloc.get_traced_memory()[1]
        del kept
        return peak
    finally:
        tracemalloc.stop()


@pytest.mark.slow  # all messages together
@MESSAGES
def test_no_array_takes_more_than_its_share_of_memory(cls: type[Message]) -> None:
    for version in versions_that_differ(cls):
        cls.decoder(version)
        for name, message in amplifiers(cls, cls, version, 120):
            data = message.encode(version)
            peak = peak_of_decoding(cls, data, version)
            # 4 KiB: what a message takes whatever its size.
            assert peak <= MEMORY_FACTOR * len(data) + 4096, (version, name, peak / len(data))


def test_a_large_frame_takes_its_share_of_memory() -> None:
    message = MetadataResponse(
        topics=[MetadataResponse.MetadataResponseTopic(unknown_tags={99: b""})] * 8_000
    )
    data = message.encode(12)
    assert peak_of_decoding(MetadataResponse, data, 12) <= MEMORY_FACTOR * len(data)


@pytest.mark.parametrize("count", [0x7FFFFFFF, 0x7FFFFFF, 100_000])
def test_a_count_without_elements_allocates_nothing(count: int) -> None:
    hostile = count.to_bytes(4, "big") + bytes(8)
    MetadataRequest.decoder(1)  # compiled before the memory is counted
    tracemalloc.start()
    with pytest.raises(DecodeError, match="topics has"):
        MetadataRequest.decode(hostile, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000


def test_counts_of_tags_without_tags_end_at_once() -> None:
    data = FetchRequest().encode(13)[:-1] + b"\xff\xff\xff\xff\x0f"
    begin = time.perf_counter()
    with pytest.raises(DecodeError):
        FetchRequest.decode(data, 13)
    assert time.perf_counter() - begin < 0.5


@pytest.mark.parametrize(
    ("cls", "version", "head"),
    [
        (MetadataRequest, 1, b""),
        (MetadataRequest, 9, b""),
        (ElectLeadersRequest, 0, struct.pack(">ih", 1, 1) + b"t"),
    ],
    ids=["structs", "structs, compact", "numbers"],
)
def test_an_array_of_more_than_a_million_elements_is_refused(
    cls: type[Message], version: int, head: bytes
) -> None:
    """Kafka's limit since 4.4 (CVE-2026-111108): a million pass, one more does not."""
    for count, refused in ((1_000_001, True), (1_000_000, False)):
        size = struct.pack(">i", count) if version < 9 else varint_of(count + 1)
        reason = ""
        try:
            cls.decode(head + size + b"\xff" * 4_000_008, version)
        except DecodeError as e:
            reason = str(e)
        assert ("1000000 at most" in reason) is refused, reason


@pytest.mark.parametrize("cls", [FetchRequest, ApiVersionsRequest], ids=["declares tags", "declares none"])
def test_a_section_of_more_than_ten_thousand_tags_is_refused(cls: type[Message]) -> None:
    """Kafka's limit since 4.4 (CVE-2026-111115)."""
    version = cls.MAX_VERSION
    head = cls().encode(version)[:-1]

    def section(count: int) -> bytes:
        return varint_of(count) + b"".join([varint_of(20_000 + tag) + b"\0" for tag in range(count)])

    message = cls.decode(head + section(10_000), version)
    assert len(message.unknown_tags or ()) == 10_000
    with pytest.raises(DecodeError, match="10001 tagged fields: 10000 at most"):
        cls.decode(head + section(10_001), version)


def varint_of(value: int) -> bytes:
    written = bytearray()
    write_uvarint(written, value)
    return bytes(written)


@pytest.mark.parametrize("varint", [b"\xff\xff\xff\xff\xff\x01", b"\x80" * 40, b"\xff\xff\xff\xff\x7f"])
def test_overlong_varints_are_refused(varint: bytes) -> None:
    with pytest.raises(DecodeError):
        MetadataRequest.decode(varint + bytes(4), 9)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"caf\xe9", "caf\ufffd"),
        (b"\xc3\x28", "\ufffd("),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0\x80\xed\xb0\x80", "\ufffd\ufffd"),
        (b"\xed\xbfA", "\ufffdA"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed", "\ufffd"),
        ("grüße 😀".encode(), "grüße 😀"),
    ],
)
def test_strings_that_are_not_utf8_are_read_as_java_reads_them(data: bytes, text: str) -> None:
    """The expected values are those of `new String(data, UTF_8)` in Java 17."""
    for version, sized in ((5, len(data).to_bytes(2, "big") + data), (9, bytes([len(data) + 1]) + data)):
        head = b"\0\0\0\1" if version == 5 else b"\2"
        tail = b"\1" if version == 5 else b"\0\1\0\0\0"
        (topic,) = MetadataRequest.decode(head + sized + tail, version).topics or ()
        assert topic.name == text


def test_a_client_id_that_is_not_utf8_is_read() -> None:
    header, _ = decode_request(struct.pack(">hhih", 3, 5, 7, 3) + b"a\xffb" + b"\0\0\0\0\1")
    assert header.client_id == "a\ufffdb"


def test_a_tagged_field_that_does_not_fill_its_size_is_refused() -> None:
    good = FetchRequest(cluster_id="abc").encode(13)
    at = good.index(b"\x00\x04\x04abc")
    for size in (3, 5):
        with pytest.raises(DecodeError):
            FetchRequest.decode(good[:at] + bytes([0, size]) + good[at + 2 :] + b"\0" * 4, 13)


def test_random_frames_raise_kafka_errors_only() -> None:
    rng = random.Random(7)
    for _ in range(5000):
        head = rng.choice([rng.randbytes(4), bytes([0, rng.randrange(93), 0, rng.randrange(14)])])
        try:
            decode_request(memoryview(head + rng.randbytes(rng.randint(0, 40))))
        except KafkaError:
            pass
