"""Generates the decoder of one version of a message."""

from __future__ import annotations

from quorate.protocol import primitives as pr
from quorate.protocol.compiler.layout import (
    FIXED,
    VALUE_CODECS,
    array_codec,
    check_version,
    is_fixed,
    length_codec,
    minimum_element_size,
    packing,
    struct_layout,
)
from quorate.protocol.compiler.source import FunctionSource, default_expression
from quorate.protocol.errors import DecodeError
from quorate.protocol.fields import PRIMITIVES, Decoder, FieldSpec, MessageClass, StructClass


class _DecoderWriter:
    """Writes the source text of a decoder. Each method appends the lines for one part of the message."""

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
            "too_many_tags": pr.too_many_tags,
            "parse_tags": pr.parse_tags,
            "uvarint": pr.read_uvarint,
            "tags_mismatch": _size_mismatch,
        }

    def write(self) -> Decoder:
        self.source.line(f"v0 = new({self.source.const(self.root)})")
        self.struct(self.root, "v0")
        self.source.line("return v0, p")
        decoder: Decoder = self.source.function(f"{self.root.class_name()} v{self.version} decoder")
        return decoder

    def struct(self, cls: StructClass, var: str) -> None:
        source = self.source
        layout = struct_layout(cls, self.version)
        for spec in [*layout.absent, *layout.tagged]:
            source.line(f"{var}.{spec.name} = {default_expression(source, spec)}")
        for part in layout.body:
            if isinstance(part, list):
                self.fixed(var, part)
            else:
                self.variable(var, part)
        if not self.compact:
            source.line(f"{var}._tags = None")
        elif layout.tagged:
            self.tags(var, layout.tagged)
        else:
            source.line(f"if b[p]: {var}._tags, p = {source.const(pr.read_tags)}(b, p, end)")
            source.line("else:")
            source.line(f"    {var}._tags = None; p += 1")

    def fixed(self, var: str, run: list[FieldSpec]) -> None:
        """Reads neighbouring fields of fixed size by one call of `struct.unpack_from`."""
        unpack = self.source.const(packing(run).unpack_from)
        targets = "".join([f"{var}.{spec.name}, " for spec in run])
        self.source.line(f"{targets}= {unpack}(b, p)")
        self.source.line(f"p += {sum([FIXED[spec.kind][1] for spec in run])}")

    def variable(self, var: str, spec: FieldSpec, tagged: bool = False) -> None:
        source = self.source
        target = f"{var}.{spec.name}"
        compact = self.compact and spec.flexible
        nullable = spec.nullable_in(self.version)
        codec = VALUE_CODECS.get((spec.kind, compact, nullable))
        if spec.array:
            self.array(target, spec, compact, nullable)
        elif codec is not None:
            source.line(f"{target}, p = {source.const(codec[0])}(b, p, end)")
        elif spec.kind == "Records":
            read = source.const(pr.read_compact_records if compact else pr.read_records)
            source.line(f"{target}, p = {read}(b, p, end)")
            if not nullable:
                source.line(f"if {target} is None: raise null({spec.name!r})")
        elif nullable:
            # One byte in front of a nullable struct shows whether it is null: -1 if untagged, 0 if tagged.
            if tagged:
                flag = source.temporary()
                source.line(f"{flag}, p = uvarint(b, p)")
                source.line(f"if not {flag}: {target} = None")
            else:
                source.line("p += 1")
                source.line(f"if b[p - 1] > 127: {target} = None")
            with source.block("else:"):
                self.nested(spec, target)
        else:
            self.nested(spec, target)

    def nested(self, spec: FieldSpec, target: str | None = None, append_to: str | None = None) -> None:
        """Reads a struct into an attribute or to the end of a list."""
        source = self.source
        cls = self.root.struct_class(spec.kind)
        with source.struct_variable() as var:
            targets = var if target is None else f"{var} = {target}"
            source.line(f"{targets} = new({source.const(cls)})")
            self.struct(cls, var)
            if append_to is not None:
                source.line(f"{append_to}.append({var})")

    def array(self, target: str, spec: FieldSpec, compact: bool, nullable: bool) -> None:
        source = self.source
        n = source.temporary()
        source.line(f"{n}, p = {source.const(length_codec(compact)[0])}(b, p)")
        source.line(f"if {n} < 0: " + (f"{target} = None" if nullable else f"raise null({spec.name!r})"))
        with source.block("else:" if nullable else None):
            size = minimum_element_size(self.root, spec, self.version)
            least = f"{n} * {size}" if size > 1 else n
            source.line(
                f"if {least} > end - p or {n} > {pr.MAX_ARRAY_LENGTH}: "
                f"raise too_many({spec.name!r}, {n}, end - p)"
            )
            if spec.kind in FIXED:
                source.line(f"{target}, p = {source.const(array_codec(spec.kind)[0])}(b, p, end, {n})")
                return
            items = source.temporary()
            source.line(f"{items} = {target} = []")
            with source.block(f"for _ in range({n}):"):
                if spec.kind in PRIMITIVES:
                    read = source.const(VALUE_CODECS[spec.kind, compact, False][0])
                    source.line(f"x, p = {read}(b, p, end)")
                    source.line(f"{items}.append(x)")
                else:
                    self.nested(spec, append_to=items)

    def tags(self, var: str, tagged: list[FieldSpec]) -> None:
        """Reads a tagged section. A field must fill its size exactly. Of a repeated tag the last one
        counts.
        """
        source = self.source
        n, begin, tag, stop, unknown = (source.temporary() for _ in range(5))
        source.line(f"{n}, p = uvarint(b, p)")
        source.line(f"if {n} > {pr.MAX_TAGGED_FIELD_COUNT}: raise too_many_tags({n})")
        source.line(f"{unknown} = None")
        with source.block(f"for _ in range({n}):"):
            source.line(f"{begin} = p")
            source.line(f"{tag}, p = uvarint(b, p)")
            source.line(f"{stop}, p = uvarint(b, p)")
            source.line(f"if p + {stop} > end: raise short('tagged field', {stop}, end - p)")
            source.line(f"{stop} += p")
            keyword = "if"
            for spec in tagged:
                with source.block(f"{keyword} {tag} == {spec.tag}:"):
                    if is_fixed(spec):
                        self.fixed(var, [spec])
                    else:
                        self.variable(var, spec, tagged=True)
                    source.line(f"if p != {stop}: raise tags_mismatch({spec.name!r}, {stop} - p)")
                keyword = "elif"
            with source.block("else:"):
                # A single unknown field stays a section of bytes, which takes less memory.
                source.line(f"if {unknown} is None: {unknown} = b'\\1' + bytes(b[{begin}:{stop}])")
                with source.block("else:"):
                    source.line(f"if type({unknown}) is bytes: {unknown} = parse_tags({unknown})")
                    source.line(f"{unknown}[{tag}] = bytes(b[p:{stop}])")
                source.line(f"p = {stop}")
        source.line(f"{var}._tags = {unknown}")


def _size_mismatch(name: str, difference: int) -> Exception:
    return DecodeError(
        f"tagged field {name} does not end where its size says, but {abs(difference)} bytes away"
    )


def compile_decoder(cls: MessageClass, version: int) -> Decoder:
    """The decoder of a version. Raises EncodeError if `cls` lacks the version."""
    check_version(cls, version)
    return _DecoderWriter(cls, version).write()
