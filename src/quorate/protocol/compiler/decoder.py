"""Generates the decoder of one version of a message."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packing
from typing import Any

from quorate.protocol import primitives as pr
from quorate.protocol.compiler.layout import FIXED, array_codec, check_version, minimum_element_size
from quorate.protocol.compiler.source import FunctionSource, default_expression
from quorate.protocol.errors import DecodeError
from quorate.protocol.fields import PRIMITIVES, Decoder, FieldSpec, MessageClass, StructClass

_READERS: dict[tuple[str, bool, bool], Callable[..., Any]] = {  # (kind, compact, nullable)
    ("str", False, False): pr.read_string,
    ("str", False, True): pr.read_nullable_string,
    ("str", True, False): pr.read_compact_string,
    ("str", True, True): pr.read_nullable_compact_string,
    ("bytes", False, False): pr.read_bytes,
    ("bytes", False, True): pr.read_nullable_bytes,
    ("bytes", True, False): pr.read_compact_bytes,
    ("bytes", True, True): pr.read_nullable_compact_bytes,
}


class _DecoderWriter:
    def __init__(self, root: MessageClass, version: int) -> None:
        self.root = root
        self.version = version
        self.compact = root.is_flexible(version)
        self.source = FunctionSource("b, p, end")
        self.source.constants |= {
            "new": object.__new__,
            "short": pr.short,
            "null": pr.null,
            "too_many": pr.too_many,
        }
        self.source.constants |= {"uvarint": pr.read_uvarint, "tags_mismatch": _size_mismatch}
        self.level = 0

    def write(self) -> Decoder:
        self.source.line(f"v0 = new({self.source.const(self.root)})")
        self.struct(self.root, "v0")
        self.source.line("return v0, p")
        decoder: Decoder = self.source.function(f"{self.root.class_name()} v{self.version} decoder")
        return decoder

    def struct(self, cls: StructClass, var: str) -> None:
        source = self.source
        run: list[FieldSpec] = []
        tagged = []
        for spec in cls.fields():
            present = spec.in_version(self.version)
            if not present or spec.tagged_in(self.version):
                source.line(f"{var}.{spec.name} = {default_expression(source, spec)}")
                if present:
                    tagged.append(spec)
            elif spec.kind in FIXED and not spec.array:
                run.append(spec)
            else:
                self.fixed(var, run)
                self.variable(var, spec)
        self.fixed(var, run)
        if not self.compact:
            source.line(f"{var}._tags = None")
        elif tagged:
            self.tags(var, sorted(tagged, key=lambda spec: spec.tag or 0))
        else:
            source.line(f"if b[p]: {var}._tags, p = {source.const(pr.read_tags)}(b, p, end)")
            source.line("else:")
            source.line(f"    {var}._tags = None; p += 1")

    def fixed(self, var: str, run: list[FieldSpec]) -> None:
        """Reads neighbouring fields of fixed size by one call of `struct.unpack_from`."""
        if not run:
            return
        unpack = self.source.const(Packing(">" + "".join([FIXED[spec.kind][0] for spec in run])).unpack_from)
        targets = "".join([f"{var}.{spec.name}, " for spec in run])
        self.source.line(f"{targets}= {unpack}(b, p)")
        self.source.line(f"p += {sum([FIXED[spec.kind][1] for spec in run])}")
        run.clear()

    def variable(self, var: str, spec: FieldSpec, tagged: bool = False) -> None:
        source = self.source
        target = f"{var}.{spec.name}"
        compact = self.compact and spec.flexible
        nullable = spec.nullable_in(self.version)
        if spec.array:
            self.array(target, spec, compact, nullable)
        elif (spec.kind, compact, nullable) in _READERS:
            source.line(f"{target}, p = {source.const(_READERS[spec.kind, compact, nullable])}(b, p, end)")
        elif spec.kind == "Records":
            source.line(
                f"{target}, p = {source.const(pr.read_compact_records if compact else pr.read_records)}(b, "
                "p, end)"
            )
            if not nullable:
                source.line(f"if {target} is None: raise null({spec.name!r})")
        elif nullable:
            # One byte in front of a nullable struct says whether it is null: -1 if untagged, 0 if tagged.
            if tagged:
                flag = source.temporary()
                source.line(f"{flag}, p = uvarint(b, p)")
                source.line(f"if not {flag}: {target} = None")
            else:
                source.line("p += 1")
                source.line(f"if b[p - 1] > 127: {target} = None")
            source.line("else:")
            source.depth += 1
            self.inline(target, spec)
            source.depth -= 1
        else:
            self.inline(target, spec)

    def inline(self, target: str, spec: FieldSpec) -> None:
        cls = self.root.struct_class(spec.kind)
        self.level += 1
        var = f"v{self.level}"
        self.source.line(f"{var} = {target} = new({self.source.const(cls)})")
        self.struct(cls, var)
        self.level -= 1

    def array(self, target: str, spec: FieldSpec, compact: bool, nullable: bool) -> None:
        source = self.source
        n = source.temporary()
        source.line(f"{n}, p = {source.const(pr.read_compact_length if compact else pr.read_length)}(b, p)")
        source.line(f"if {n} < 0: " + (f"{target} = None" if nullable else f"raise null({spec.name!r})"))
        if nullable:
            source.line("else:")
            source.depth += 1
        size = minimum_element_size(self.root, spec, self.version)
        source.line(
            f"if {n}{f' * {size}' if size > 1 else ''} > end - p: raise too_many({spec.name!r}, {n}, end - p)"
        )
        if spec.kind in FIXED:
            source.line(f"{target}, p = {source.const(array_codec(spec.kind)[0])}(b, p, end, {n})")
        else:
            items = source.temporary()
            source.line(f"{items} = {target} = []")
            source.line(f"for _ in range({n}):")
            source.depth += 1
            if spec.kind in PRIMITIVES:
                reader = source.const(_READERS[spec.kind, compact, False])
                source.line(f"x, p = {reader}(b, p, end)")
                source.line(f"{items}.append(x)")
            else:
                cls = self.root.struct_class(spec.kind)
                self.level += 1
                var = f"v{self.level}"
                source.line(f"{var} = new({source.const(cls)})")
                self.struct(cls, var)
                source.line(f"{items}.append({var})")
                self.level -= 1
            source.depth -= 1
        if nullable:
            source.depth -= 1

    def tags(self, var: str, tagged: list[FieldSpec]) -> None:
        """Reads a tagged section. A field must fill its size exactly. Of a repeated tag the last one
        counts."""
        source = self.source
        n, tag, stop, unknown = (source.temporary() for _ in range(4))
        source.line(f"{n}, p = uvarint(b, p)")
        source.line(f"{unknown} = None")
        source.line(f"for _ in range({n}):")
        source.depth += 1
        source.line(f"{tag}, p = uvarint(b, p)")
        source.line(f"{stop}, p = uvarint(b, p)")
        source.line(f"if p + {stop} > end: raise short('tagged field', {stop}, end - p)")
        source.line(f"{stop} += p")
        keyword = "if"
        for spec in tagged:
            source.line(f"{keyword} {tag} == {spec.tag}:")
            keyword = "elif"
            source.depth += 1
            if spec.kind in FIXED and not spec.array:
                self.fixed(var, [spec])
            else:
                self.variable(var, spec, tagged=True)
            source.line(f"if p != {stop}: raise tags_mismatch({spec.name!r}, {stop} - p)")
            source.depth -= 1
        source.line("else:")
        source.line(f"    if {unknown} is None: {unknown} = {{}}")
        source.line(f"    {unknown}[{tag}] = bytes(b[p:{stop}])")
        source.line(f"    p = {stop}")
        source.depth -= 1
        source.line(f"{var}._tags = {unknown}")


def _size_mismatch(name: str, difference: int) -> Exception:
    return DecodeError(
        f"tagged field {name} does not end where its size says, but {abs(difference)} bytes away"
    )


def compile_decoder(cls: MessageClass, version: int) -> Decoder:
    """The decoder of a version. Raises EncodeError if `cls` lacks the version."""
    check_version(cls, version)
    return _DecoderWriter(cls, version).write()
