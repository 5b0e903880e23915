"""Every declared message, and random values for them."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable, Iterator
from typing import Any

import quorate.protocol.messages
from quorate.broker.coordinators import records as coordinator_records
from quorate.metadata.records import RECORD_TYPES
from quorate.protocol import headers
from quorate.protocol.schema import PRIMITIVES, FieldSpec, Message, Struct
from quorate.raft.storage import quorum_state_data
from quorate.records import control


def all_messages() -> list[type[Message]]:
    """All concrete message classes of the project, in a fixed order."""
    modules = [
        importlib.import_module(f"quorate.protocol.messages.{m.name}")
        for m in pkgutil.iter_modules(quorate.protocol.messages.__path__)
    ]
    found: dict[str, type[Message]] = {}
    for module in [*modules, headers, control, quorum_state_data]:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value.MAX_VERSION >= 0:
                found[value.__name__] = value
    for record in RECORD_TYPES.values():
        found[record.__name__] = record
    for registry in (
        coordinator_records.GROUP_RECORDS,
        coordinator_records.TRANSACTION_RECORDS,
        coordinator_records.SHARE_RECORDS,
    ):
        for pair in registry.values():
            for record in pair:
                found[record.__name__] = record
    return [found[name] for name in sorted(found)]


def all_versions() -> Iterator[tuple[type[Message], int]]:
    for cls in all_messages():
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            yield cls, version


_INTS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
_LETTERS = "abc-_.ABC019 äß€中\U0001f600"

Special = Callable[[FieldSpec], Callable[[random.Random], Any] | None]
"""For a field, another generator than the one of its kind, or None."""


def random_primitive(kind: str, rng: random.Random) -> Any:
    if kind in _INTS:
        low, high = _INTS[kind]
        return rng.choice([0, 1, low, high, rng.randint(low, high), rng.randint(0, 100), max(low, -1)])
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.choice([0.0, -1.5, rng.random() * 1e9, 1e-300])
    if kind == "uuid":
        return rng.choice([bytes(16), rng.randbytes(16)])
    if kind == "str":
        size = rng.choice([0, 1, 2, 7, 30, 127, 130]) if rng.random() < 0.9 else 300
        return "".join(rng.choices(_LETTERS, k=size))
    size = rng.choice([0, 1, 5, 40, 126, 127, 128, 300])
    data = rng.randbytes(size)
    return memoryview(data) if kind == "Records" else data


def random_struct(
    root: type[Message], cls: type[Struct], version: int, rng: random.Random, *, unknown_tags: bool = False
) -> Any:
    """A random instance that `version` can carry; fields that it lacks have their default."""
    values: dict[str, Any] = {}
    for spec in cls.fields():
        if not spec.in_version(version):
            continue
        if spec.tagged_in(version) and rng.random() < 0.4:
            continue
        if spec.nullable_in(version) and rng.random() < 0.25:
            values[spec.name] = None
        elif spec.array:
            size = (
                rng.choice([0, 1, 1, 2, 3]) if spec.kind not in PRIMITIVES else rng.choice([0, 1, 3, 40, 130])
            )
            values[spec.name] = [_value(root, spec, version, rng, unknown_tags) for _ in range(size)]
        else:
            values[spec.name] = _value(root, spec, version, rng, unknown_tags)
    instance = cls(**values)
    if unknown_tags and root.is_flexible(version) and rng.random() < 0.5:
        known = {spec.tag for spec in cls.fields() if spec.tagged_in(version)}
        tags = {rng.choice([rng.randint(0, 40), rng.randint(100, 100_000)]) for _ in range(rng.randint(1, 3))}
        instance.unknown_tags = {
            tag: rng.randbytes(rng.choice([0, 1, 200])) for tag in sorted(tags - known)
        } or None
    return instance


def _value(root: type[Message], spec: FieldSpec, version: int, rng: random.Random, unknown_tags: bool) -> Any:
    if spec.kind in PRIMITIVES:
        return random_primitive(spec.kind, rng)
    return random_struct(root, root.struct_class(spec.kind), version, rng, unknown_tags=unknown_tags)
