"""Generates the encoder of one version of a message."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from quorate.protocol import primitives as pr
from quorate.protocol.compiler.layout import (
    FIXED,
    VALUE_CODECS,
    array_codec,
    check_version,
    is_fixed,
    length_codec,
    packing,
    struct_layout,
)
from quorate.protocol.compiler.source import FunctionSource, default_expression
from quorate.protocol.encoded import EncodedStructs
from quorate.protocol.errors import EncodeError
from quorate.protocol.fields import NEVER, PRIMITIVES, Encoder, FieldSpec, MessageClass, StructClass


class _EncoderWriter:
    """Writes the source text of an encoder. Each method appends the lines for one part of the message."""

    def __init__(self, root: MessageClass, version: int) -> None:
        self.root = root
        self.version = version
        self.compact = root.is_flexible(version)
        self.source = FunctionSource("v0, o, parts")
        self.source.constants |= {"absent": _absent, "bad_uuid": pr.bad_uuid}

    def write(self) -> Encoder:
        self.struct(self.root, "v0")
        self.source.line("parts.append(o)")
        encoder: Encoder = self.source.function(f"{self.root.class_name()} v{self.version} encoder")
        return encoder

    def struct(self, cls: StructClass, var: str) -> None:
        source = self.source
        layout = struct_layout(cls, self.version)
        for spec in layout.absent:
            if not spec.ignorable:
                source.line(f"if {self.is_set(spec, f'{var}.{spec.name}')}: raise absent({spec.name!r})")
        for part in layout.body:
            if isinstance(part, list):
                self.fixed(var, part)
            else:
                self.variable(f"{var}.{part.name}", part)
        if not self.compact:
            source.line(f"if {var}._tags: raise absent('unknown_tags')")
        elif layout.tagged:
            self.tags(var, layout.tagged)
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
        """Writes neighbouring fields of fixed size by one call of `struct.pack`."""
        for spec in run:
            if spec.kind == "uuid":
                value = f"{var}.{spec.name}"
                self.source.line(f"if len({value}) != 16: raise bad_uuid({value})")
        pack = self.source.const(packing(run).pack)
        self.source.line(f"o += {pack}({', '.join([f'{var}.{spec.name}' for spec in run])})")

    def variable(self, value: str, spec: FieldSpec, tagged: bool = False) -> None:
        source = self.source
        compact = self.compact and spec.flexible
        nullable = spec.nullable_in(self.version)
        codec = VALUE_CODECS.get((spec.kind, compact, nullable))
        if spec.array:
            self.array(value, spec, compact, nullable)
        elif codec is not None:
            source.line(f"{source.const(codec[1])}(o, {value})")
        elif spec.kind == "Records":
            length = source.const(length_codec(compact)[1])
            write = f"o = {source.const(pr.write_records)}(parts, o, {value}, {length})"
            if nullable:
                source.line(f"if {value} is None: {length}(o, -1)")
                source.line(f"else: {write}")
            else:
                source.line(write)
        elif nullable:
            source.line(f"if {value} is None: o.append({0 if tagged else 255})")
            with source.block("else:"):
                source.line("o.append(1)")
                self.nested(value, spec)
        else:
            self.nested(value, spec)

    def nested(self, value: str, spec: FieldSpec) -> None:
        """Writes the struct of a field."""
        with self.source.struct_variable() as var:
            self.source.line(f"{var} = {value}")
            self.struct(self.root.struct_class(spec.kind), var)

    def array(self, value: str, spec: FieldSpec, compact: bool, nullable: bool) -> None:
        source = self.source
        length = source.const(length_codec(compact)[1])
        items = source.temporary()
        source.line(f"{items} = {value}")
        if nullable:
            source.line(f"if {items} is None: {length}(o, -1)")
        with source.block("else:" if nullable else None):
            source.line(f"{length}(o, len({items}))")
            if spec.kind in FIXED:
                source.line(f"{source.const(array_codec(spec.kind)[1])}(o, {items})")
                return
            with source.struct_variable() as var:
                if spec.kind in PRIMITIVES:
                    write = source.const(VALUE_CODECS[spec.kind, compact, False][1])
                    with source.block(f"for {var} in {items}:"):
                        source.line(f"{write}(o, {var})")
                    return
                source.line(f"if type({items}) is {source.const(EncodedStructs)}: o += b''.join({items})")
                with source.block("else:"), source.block(f"for {var} in {items}:"):
                    self.struct(self.root.struct_class(spec.kind), var)

    def tags(self, var: str, tagged: list[FieldSpec]) -> None:
        """Writes each set field to a buffer of its own, whose size precedes it, then all tags in
        ascending order.
        """
        source = self.source
        found, outer = source.temporary(), source.temporary()
        source.line(f"{found} = None")
        for spec in tagged:
            value = f"{var}.{spec.name}"
            with source.block(f"if {self.is_set(spec, value)}:"):
                source.line(f"if {found} is None: {found} = []")
                source.line(f"{outer} = o; o = bytearray()")
                if is_fixed(spec):
                    self.fixed(var, [spec])
                else:
                    self.variable(value, spec, tagged=True)
                source.line(f"{found}.append(({spec.tag}, o)); o = {outer}")
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
