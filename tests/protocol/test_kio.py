"""Byte for byte as kio, an independent implementation generated from Apache Kafka's schemas, writes and
reads them."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import types
import typing
import uuid
from pkgutil import resolve_name
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from quorate.protocol.api import REGISTRY
from quorate.protocol.json import default_of
from quorate.protocol.schema import PRIMITIVES, FieldSpec, Message, Struct
from tests.protocol.values import all_messages, random_primitive

VALUES_PER_VERSION = 16

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
CODES = [int(code) for code in ErrorCode]


def kio_classes() -> dict[str, dict[int, Any]]:
    """kio's entities by Kafka's name and version."""
    found: dict[str, dict[int, Any]] = {}
    for versions in schema_name_map.values():
        for version, entities in versions.items():
            for path in entities.values():
                found.setdefault(path.rpartition(":")[2], {})[int(version)] = path
    return found


KIO = kio_classes()
OURS = {cls.__name__: cls for cls in all_messages()}
KIO_ONLY = {"ControlRecordTypeSchema"}  # an enumeration written as a schema: ControlRecordType here


def test_kio_has_no_message_that_we_lack() -> None:
    assert set(KIO) - set(OURS) - KIO_ONLY == set()


def test_kio_has_nearly_all_of_our_requests_and_responses() -> None:
    """So that the comparison below cannot become empty without being noticed."""
    ours = {f"{spec.name}{kind}" for spec in REGISTRY.values() for kind in ("Request", "Response")}
    assert len(ours & set(KIO)) >= 170


def fields_in(spec_owner: type[Struct], version: int) -> list[FieldSpec]:
    """Our fields that kio can know: without our own tags."""
    return [s for s in spec_owner.fields() if s.in_version(version) and (s.tag is None or s.tag < 10_000)]


def both(
    root: type[Message], cls: type[Struct], entity: Any, version: int, rng: random.Random
) -> tuple[Any, Any]:
    """The same random value as ours and as kio's; the fields of both stand in the same order."""
    hints = typing.get_type_hints(entity)
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    specs = fields_in(cls, version)
    their_fields = dataclasses.fields(entity)
    assert len(specs) == len(their_fields), (
        cls,
        version,
        [s.name for s in specs],
        [f.name for f in their_fields],
    )
    for spec, their_field in zip(specs, their_fields, strict=True):
        tagged = their_field.metadata.get("tag")
        assert tagged == (spec.tag if spec.tagged_in(version) else None), spec
        hint = hints[their_field.name]
        has_default = their_field.default is not dataclasses.MISSING
        if spec.tagged_in(version) and has_default and rng.random() < 0.4:
            continue
        if spec.nullable_in(version) and rng.random() < 0.25:
            ours[spec.name] = theirs[their_field.name] = None
        elif spec.array:
            items = [
                one(root, spec, element_of(hint), their_field.metadata, version, rng)
                for _ in range(
                    rng.choice([0, 1, 2, 3]) if spec.kind not in PRIMITIVES else rng.choice([0, 1, 3, 130])
                )
            ]
            ours[spec.name] = [mine for mine, _ in items]
            theirs[their_field.name] = tuple(their for _, their in items)
        else:
            ours[spec.name], theirs[their_field.name] = one(
                root, spec, without_none(hint), their_field.metadata, version, rng
            )
            if spec.tagged_in(version) and not has_default:
                # Where kio knows no default it writes it; by KIP-482 it is left out. Not to be compared.
                while ours[spec.name] == default_of(spec):
                    ours[spec.name], theirs[their_field.name] = one(
                        root, spec, without_none(hint), their_field.metadata, version, rng
                    )
    return cls(**ours), entity(**theirs)


def without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def element_of(hint: Any) -> Any:
    return typing.get_args(without_none(hint))[0]


def one(
    root: type[Message], spec: FieldSpec, hint: Any, metadata: Any, version: int, rng: random.Random
) -> tuple[Any, Any]:
    if spec.kind not in PRIMITIVES:
        return both(root, root.struct_class(spec.kind), without_none(hint), version, rng)
    match metadata.get("kafka_type"):
        case "timedelta_i32" | "timedelta_i64":
            ms = rng.choice([0, 1, -1, 60_000, (1 << 31) - 1])
            return ms, datetime.timedelta(milliseconds=ms)
        case "datetime_i64":
            ms = rng.choice([0, 1, 1_700_000_000_123, rng.randint(0, 1 << 41)])
            when = EPOCH + datetime.timedelta(milliseconds=ms)
            if type(None) in typing.get_args(hint) and rng.random() < 0.2:
                return -1, None
            return ms, when
        case "error_code":
            code = rng.choice(CODES)
            return code, ErrorCode(code)
    value = random_primitive(spec.kind, rng)
    if spec.kind == "uuid":
        return value, uuid.UUID(bytes=value) if any(value) else None
    if spec.kind == "Records":
        return value, bytes(value)
    return value, value


@pytest.mark.parametrize("name", sorted(set(KIO) & set(OURS)))
def test_bytes_equal_both_ways(name: str) -> None:
    cls = OURS[name]
    compared = 0
    for version, path in KIO[name].items():
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            continue
        entity = resolve_name(path)
        write, read = entity_writer(entity), entity_reader(entity)
        rng = random.Random(f"kio {name} {version}")
        for _ in range(VALUES_PER_VERSION):
            mine, their = both(cls, cls, entity, version, rng)
            buffer = io.BytesIO()
            write(buffer, their)
            data = buffer.getvalue()
            assert mine.encode(version) == data, (version, mine)
            assert cls.decode(data, version) == mine
            decoded, size = read(mine.encode(version), 0)
            assert size == len(data)
            assert decoded == their
            compared += 1
    assert compared > 0
