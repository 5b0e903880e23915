"""Requests that are generated from their declarations: for every served API and version, the same unusual
values in all fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quorate.protocol.api import REGISTRY, ApiSpec
from quorate.protocol.schema import PRIMITIVES, FieldSpec, Request, Struct
from quorate.records.batch import build_batch

FILLINGS = ("default", "empty", "ones", "negative", "greatest", "least", "twice", "real", "null")
_UNANSWERED = frozenset({(33, "twice")})
"""AlterConfigs with a resource twice: Kafka never answers, and waiting for that takes time."""
_WIDTH = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
_WAITS_MS = 100


def versions(spec: ApiSpec) -> list[int]:
    """The first and the last version, and those before and after the first flexible version."""
    low, high = spec.served_from, spec.max_version
    wanted = {low, high}
    if spec.flexible_from is not None:
        wanted |= {spec.flexible_from - 1, spec.flexible_from}
    return sorted(v for v in wanted if low <= v <= high)


class Filler:
    """Fills requests for one node: `topic` and `topic_id` are of a topic that it has."""

    def __init__(self, topic: str, topic_id: bytes) -> None:
        self.topic = topic
        self.topic_id = topic_id

    def requests(self, key: int, version: int) -> Iterator[tuple[str, Request]]:
        for filling in FILLINGS:
            if (key, filling) in _UNANSWERED:
                continue
            kind = REGISTRY[key].request
            request: Any = self._struct(kind, kind, version, filling)
            if key == 0 and request.acks == 0:  # which has no answer
                request.acks = 1
            yield filling, request

    def _struct(self, root: type[Request], kind: type[Struct], version: int, filling: str) -> Any:
        made = kind()
        for spec in kind.fields():
            if not spec.in_version(version) or filling == "default":
                continue
            if filling == "null" and spec.nullable_in(version):
                setattr(made, spec.name, None)
            elif not spec.array:
                setattr(made, spec.name, self._value(root, spec, version, filling))
            else:
                count = {"empty": 0, "twice": 2}.get(filling, 1)
                setattr(made, spec.name, [self._value(root, spec, version, filling) for _ in range(count)])
        return made

    def _value(self, root: type[Request], spec: FieldSpec, version: int, filling: str) -> Any:
        if spec.kind not in PRIMITIVES:
            return self._struct(root, getattr(root, spec.kind), version, filling)
        if spec.kind in _WIDTH:
            return self._number(spec, filling)
        if spec.kind == "str":
            return self._text(spec, filling)
        real = filling in ("real", "twice")
        match spec.kind:
            case "bool":
                return filling in ("ones", "greatest")
            case "float64":
                return {"negative": -1.0, "greatest": 1e300, "least": -1e300}.get(filling, 1.0)
            case "uuid":
                if filling == "empty":
                    return bytes(16)
                return self.topic_id if real and "topic" in spec.name else bytes(range(16))
            case "Records":
                if real:
                    return build_batch([(b"k", b"v", [], 1_700_000_000_000)])
                return b"" if filling == "empty" else b"garbage" * 10
        return b"" if filling == "empty" else b"abc"

    @staticmethod
    def _number(spec: FieldSpec, filling: str) -> int:
        if spec.name in ("timeout_ms", "max_wait_ms"):
            return 2000 if spec.name == "timeout_ms" else _WAITS_MS
        if spec.name == "isolation_level":
            return 0
        width, signed = _WIDTH[spec.kind], spec.kind[0] != "u"
        match filling:
            case "ones" | "null":
                return 1
            case "negative":
                return -1 if signed else 0
            case "greatest":
                return int((1 << (width - 1 if signed else width)) - 1)
            case "least":
                return -(1 << (width - 1)) if signed else 0
        return 0

    def _text(self, spec: FieldSpec, filling: str) -> str:
        match filling:
            case "empty":
                return ""
            case "greatest":
                return "x" * 300
            case "least":
                return "a b/ü"
            case "real" | "twice":
                if "topic" in spec.name or spec.name == "name":
                    return self.topic
                return (
                    "consumer"
                    if "type" in spec.name
                    else "127.0.0.1"
                    if "host" in spec.name
                    else f"{self.topic}-{spec.name}"
                )
        return "nope"
