"""Generates the encoder of one version of a message."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct as Packing
from typing import Any

from quorate.protocol import primitives as pr
from quorate.protocol.compiler.layout import FIXED, array_codec, check_version
from quorate.protocol.compiler.source import FunctionSource, default_expression
from quorate.protocol.encoded import EncodedStructs
from quorate.protocol.errors import EncodeError
from quorate.protocol.fields import NEVER, PRIMITIVES, Encoder, FieldSpec, MessageClass, StructClass

_WRITERS: dict[tuple[str, bool, bool], Callable[..., Any]] = {
    ("str", False, False): pr.write_string,
    ("str", False, True): pr.write_nullable_string,
    ("str", True, False): pr.write_compact_string,
    ("str", True, True): pr.write_nullable_compact_string,
    ("bytes", False, False): pr.write_bytes,
    ("bytes", False, True): pr.write_nullable_bytes,
    ("bytes", True, False): pr.write_compact_bytes,
    ("bytes", True, True): pr.write_nullable_compact_bytes,
}


class _EncoderWriter:
    def __init__(self, root: MessageClass, version: int) -> None:
        self.root = root
        self.version = version
        self.compact = root.is_flexible(version)
        self.source = FunctionSource("v0, o, parts")
        self.source.constants |= {"absent": _absent, "bad_uuid": pr.bad_uuid}
        self.level = 0

    def write(self) -> Encoder:
        self.struct(self.root, "v0")
        self.source.line("parts.append(o)")
        encoder: Encoder = self.source.function(f"{self.root.class_name()} v{self.version} encoder")
        return encoder

    def struct(self, cls: StructClass, var: str) -> None:
        source = self.source
        run: list[FieldSpec] = []
        tagged = []
        for spec in cls.fields():
            if not spec.in_version(self.version):
                if not spec.ignorable:
                    source.line(f"if {self.is_set(spec, f'{var}.{spec.name}')}: raise absent({spec.name!r})")
            elif spec.tagged_in(self.version):
                tagged.append(spec)
            elif spec.kind in FIXED and not spec.array:
                run.append(spec)
            else:
                self.fixed(var, run)
                self.variable(f"{var}.{spec.name}", spec)
        if not self.compact:
            self.fixed(var, run)
            source.line(f"if {var}._tags: raise absent('unknown_tags')")
            return
        self.fixed(var, run)
        if tagged:
            self.tags(var, sorted(tagged, key=lambda spec: spec.tag or 0))
        else:
            source.line(f"if {var}._tags is None: o.append(0)")
            source.line(f"else: {source.const(pr.write_tags)}(o, [], {var}._tags)")

    def is_set(self, spec: FieldSpec, value: str) -> str:
        """An expression that is true if the field differs from its default and so must not be lost."""
        source = self.source
        if spec.factory is None and spec.default is None:
            return f"{value} is not None"
        if spec.array:
            return f"{value} is None or {value}" if spec.nullable != NEVER else value
        if spec.is_struct:
            return self.struct_is_set(spec, value)
        if spec.default is False or spec.default is True:
            return f"{'not ' if spec.default else ''}{value}"
        return f"{value} != {default_expression(source, spec)}"

    def struct_is_set(self, spec: FieldSpec, value: str) -> str:
        cls = self.root.struct_class(spec.kind)
        if all(inner.kind in PRIMITIVES and not inner.array for inner in cls.fields()):
            tests = [self.is_set(inner, f"{value}.{inner.name}") for inner in cls.fields()]
            return " or ".join([*tests, f"{value}._tags"])
        return f"{value} != {default_expression(self.source, spec)}"

    def fixed(self, var: str, run: list[FieldSpec]) -> None:
        if not run:
            return
        for spec in run:
            if spec.kind == "uuid":
                value = f"{var}.{spec.name}"
                self.source.line(f"if len({value}) != 16: raise bad_uuid({value})")
        pack = self.source.const(Packing(">" + "".join([FIXED[spec.kind][0] for spec in run])).pack)
        self.source.line(f"o += {pack}({', '.join([f'{var}.{spec.name}' for spec in run])})")
        run.clear()

    def variable(self, value: str, spec: FieldSpec, tagged: bool = False) -> None:
        source = self.source
        compact = self.compact and spec.flexible
        nullable = spec.nullable_in(self.version)
        if spec.array:
            self.array(value, spec, compact, nullable)
        elif (spec.kind, compact, nullable) in _WRITERS:
            source.line(f"{source.const(_WRITERS[spec.kind, compact, nullable])}(o, {value})")
        elif spec.kind == "Records":
            length = source.const(pr.write_compact_length if compact else pr.write_length)
            write = f"o = {source.const(pr.write_records)}(parts, o, {value}, {length})"
            if nullable:
                source.line(f"if {value} is None: {length}(o, -1)")
                source.line(f"else: {write}")
            else:
                source.line(write)
        elif nullable:
            source.line(f"if {value} is None: o.append({0 if tagged else 255})")
            source.line("else:")
            source.depth += 1
            source.line("o.append(1)")
            self.inline(value, spec)
            source.depth -= 1
        else:
            self.inline(value, spec)

    def inline(self, value: str, spec: FieldSpec) -> None:
        self.level += 1
        self.source.line(f"v{self.level} = {value}")
        self.struct(self.root.struct_class(spec.kind), f"v{self.level}")
        self.level -= 1

    def array(self, value: str, spec: FieldSpec, compact: bool, nullable: bool) -> None:
        source = self.source
        length = source.const(pr.write_compact_length if compact else pr.write_length)
        items = source.temporary()
        source.line(f"{items} = {value}")
        if nullable:
            source.line(f"if {items} is None: {length}(o, -1)")
            source.line("else:")
            source.depth += 1
        source.line(f"{length}(o, len({items}))")
        if spec.kind in FIXED:
            source.line(f"{source.const(array_codec(spec.kind)[1])}(o, {items})")
        else:
            self.level += 1
            var = f"v{self.level}"
            nested = spec.kind not in PRIMITIVES
            if nested:
                source.line(f"if type({items}) is {source.const(EncodedStructs)}: o += b''.join({items})")
                source.line("else:")
                source.depth += 1
            source.line(f"for {var} in {items}:")
            source.depth += 1
            if nested:
                self.struct(self.root.struct_class(spec.kind), var)
                source.depth -= 1
            else:
                source.line(f"{source.const(_WRITERS[spec.kind, compact, False])}(o, {var})")
            source.depth -= 1
            self.level -= 1
        if nullable:
            source.depth -= 1

    def tags(self, var: str, tagged: list[FieldSpec]) -> None:
        """Writes each set field to a buffer of its own, whose size stands before it, then all tags in
        ascending order."""
        source = self.source
        found, outer = source.temporary(), source.temporary()
        source.line(f"{found} = None")
        for spec in tagged:
            value = f"{var}.{spec.name}"
            source.line(f"if {self.is_set(spec, value)}:")
            source.depth += 1
            source.line(f"if {found} is None: {found} = []")
            source.line(f"{outer} = o; o = bytearray()")
            if spec.kind in FIXED and not spec.array:
                self.fixed(var, [spec])
            else:
                self.variable(value, spec, tagged=True)
            source.line(f"{found}.append(({spec.tag}, o)); o = {outer}")
            source.depth -= 1
        source.line(f"if {found} or {var}._tags:")
        source.line(f"    {source.const(pr.write_tags)}(o, {found} or [], {var}._tags)")
        source.line("else: o.append(0)")


def _absent(name: str) -> EncodeError:
    return EncodeError(f"{name} is set, but not part of this version")


def compile_encoder(cls: MessageClass, version: int) -> Encoder:
    """The encoder of a version. Raises EncodeError if `cls` lacks the version."""
    check_version(cls, version)
    return _EncoderWriter(cls, version).write()


@cache
def struct_encoder(root: MessageClass, struct: StructClass, version: int) -> Callable[[Any], bytes]:
    """An encoder of one struct of a message, for `EncodedStructs`. It raises the same errors as a
    compiled encoder."""
    check_version(root, version)
    writer = _EncoderWriter(root, version)
    writer.struct(struct, "v0")
    writer.source.line("parts.append(o)")
    encode: Encoder = writer.source.function(f"{root.class_name()}.{struct.class_name()} v{version} encoder")

    def encoded(value: Any) -> bytes:
        parts: list[Any] = []
        encode(value, bytearray(), parts)
        return b"".join(parts)

    return encoded
