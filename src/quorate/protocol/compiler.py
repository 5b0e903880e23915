"""Turns declared messages into straight-line Python: constructors, and for each version an encoder and a decoder.

What is written here is a source text for each (message, version): structs are inlined as nested loops, a run of
fixed-size fields is one call of a `struct.Struct`, an array of numbers is one call. Nothing looks at a schema while
messages are read or written.

Names in the generated code: b buffer, p position, end the buffer's end, o the bytearray under construction, parts the
finished ones; v0, v1, ... structs by depth. `K3` and the like are constants handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct as Packing
from typing import Any

from quorate.protocol import primitives as pr
from quorate.protocol.encoded import EncodedStructs
from quorate.protocol.errors import DecodeError, EncodeError
from quorate.protocol.schema import PRIMITIVES, Decoder, Encoder, FieldSpec, Message, Struct

FIXED: dict[str, tuple[str, int]] = {
    "int8": ("b", 1), "int16": ("h", 2), "uint16": ("H", 2), "int32": ("i", 4), "uint32": ("I", 4),
    "int64": ("q", 8), "float64": ("d", 8), "bool": ("?", 1), "uuid": ("16s", 16),
}  # fmt: skip
"""The format character of `struct` and the size in bytes of each kind with one size."""

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
_array_codecs: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {"uuid": (pr.read_uuids, pr.write_uuids)}


def _array_codec(kind: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    if kind not in _array_codecs:
        _array_codecs[kind] = pr.int_array_codec(*FIXED[kind])
    return _array_codecs[kind]


class _Source:
    """A function's text under construction, and the constants it needs."""

    def __init__(self, signature: str) -> None:
        self.lines = [f"def compiled({signature}):"]
        self.constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self.depth = 1
        self._temporaries = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def const(self, value: Any) -> str:
        """The name under which the generated code sees `value`."""
        if id(value) not in self._names:
            name = self._names[id(value)] = f"K{len(self._names)}"
            self.constants[name] = value  # which also keeps the id from being reused
        return self._names[id(value)]

    def temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def function(self, title: str) -> Any:
        scope = dict(self.constants)
        exec(compile("\n".join(self.lines), f"<compiled {title}>", "exec"), scope)
        return scope["compiled"]


# -- constructors ---------------------------------------------------------------------------------------------------


def _default(source: _Source, spec: FieldSpec) -> str:
    """An expression for a fresh default value."""
    if spec.factory is list:
        return "[]"
    if spec.factory is not None:
        return f"{source.const(spec.factory)}()"
    if spec.default is None or isinstance(spec.default, bool | int | str):
        return repr(spec.default)
    return source.const(spec.default)


def compile_constructor(cls: type[Struct]) -> Callable[..., None]:
    """`__init__` of a struct: every field by keyword, lists and structs fresh for each instance."""
    source = _Source("")
    parameters = ["self"]
    if specs := cls.fields():
        parameters.append("*")
    for spec in specs:
        shared = "ABSENT" if spec.factory is not None else _default(source, spec)
        parameters.append(f"{spec.name}={shared}")
        fresh = f"{_default(source, spec)} if {spec.name} is ABSENT else " if spec.factory is not None else ""
        source.line(f"self.{spec.name} = {fresh}{spec.name}")
    source.line("self._tags = unknown_tags")
    if not specs:
        parameters.append("*")
    parameters.append("unknown_tags=None")
    source.lines[0] = f"def compiled({', '.join(parameters)}):"
    source.constants["ABSENT"] = object()
    compiled: Callable[..., None] = source.function(f"{cls.__qualname__}.__init__")
    return compiled


# -- what a version looks like --------------------------------------------------------------------------------------


def _check_version(cls: type[Message], version: int) -> None:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise EncodeError(f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}")


def struct_of(root: type[Message], kind: str) -> type[Struct]:
    """The struct that an annotation names."""
    found: type[Struct] = getattr(root, kind)
    return found


def smallest(root: type[Message], cls: type[Struct], version: int) -> int:
    """The least number of bytes that a struct takes in a version; what an array's count is checked against."""
    compact = root.is_flexible(version)
    total = 1 if compact else 0
    for spec in cls.fields():
        if not spec.in_version(version) or spec.tagged_in(version):
            continue
        if spec.array or spec.kind in ("bytes", "Records"):
            total += 1 if compact else 4
        elif spec.kind == "str":
            total += 1 if compact and spec.flexible else 2
        elif spec.kind in FIXED:
            total += FIXED[spec.kind][1]
        elif spec.nullable_in(version):
            total += 1
        else:
            total += smallest(root, struct_of(root, spec.kind), version)
    return total


def _smallest_element(root: type[Message], spec: FieldSpec, version: int) -> int:
    if spec.kind in FIXED:
        return FIXED[spec.kind][1]
    compact = root.is_flexible(version)
    if spec.kind in PRIMITIVES:
        return 1 if compact else 2 if spec.kind == "str" else 4
    return max(1, smallest(root, struct_of(root, spec.kind), version))


# -- decoders -------------------------------------------------------------------------------------------------------


class _DecoderWriter:
    def __init__(self, root: type[Message], version: int) -> None:
        self.root = root
        self.version = version
        self.compact = root.is_flexible(version)
        self.source = _Source("b, p, end")
        self.source.constants |= {"new": object.__new__, "short": pr.short, "null": pr.null, "too_many": pr.too_many}
        self.source.constants |= {"uvarint": pr.read_uvarint, "tags_mismatch": _mismatch}
        self.level = 0

    def write(self) -> Decoder:
        self.source.line(f"v0 = new({self.source.const(self.root)})")
        self.struct(self.root, "v0")
        self.source.line("return v0, p")
        decoder: Decoder = self.source.function(f"{self.root.__name__} v{self.version} decoder")
        return decoder

    def struct(self, cls: type[Struct], var: str) -> None:
        source = self.source
        run: list[FieldSpec] = []
        tagged = []
        for spec in cls.fields():
            present = spec.in_version(self.version)
            if not present or spec.tagged_in(self.version):
                source.line(f"{var}.{spec.name} = {_default(source, spec)}")
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
        """One unpacking for neighbouring fields of fixed size."""
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
            source.line(f"{target}, p = {source.const(pr.read_compact_records if compact else pr.read_records)}(b, p, end)")
            if not nullable:
                source.line(f"if {target} is None: raise null({spec.name!r})")
        elif nullable:
            # A single struct says by one byte (untagged: sign, tagged: zero or not) whether it is there.
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
        cls = struct_of(self.root, spec.kind)
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
        size = _smallest_element(self.root, spec, self.version)
        source.line(f"if {n}{f' * {size}' if size > 1 else ''} > end - p: raise too_many({spec.name!r}, {n}, end - p)")
        if spec.kind in FIXED:
            source.line(f"{target}, p = {source.const(_array_codec(spec.kind)[0])}(b, p, end, {n})")
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
                cls = struct_of(self.root, spec.kind)
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
        """A tagged section with known tags; each must fill its size exactly. The last of a repeated tag counts."""
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


def _mismatch(name: str, difference: int) -> Exception:
    return DecodeError(f"tagged field {name} does not end where its size says, but {abs(difference)} bytes away")


def compile_decoder(cls: type[Message], version: int) -> Decoder:
    """(buffer, position, end) to (message, position behind it). Raises EncodeError for a version that `cls` lacks."""
    _check_version(cls, version)
    return _DecoderWriter(cls, version).write()


# -- encoders -------------------------------------------------------------------------------------------------------


class _EncoderWriter:
    def __init__(self, root: type[Message], version: int) -> None:
        self.root = root
        self.version = version
        self.compact = root.is_flexible(version)
        self.source = _Source("v0, o, parts")
        self.source.constants |= {"absent": _absent, "bad_uuid": pr.bad_uuid}
        self.level = 0

    def write(self) -> Encoder:
        self.struct(self.root, "v0")
        self.source.line("parts.append(o)")
        encoder: Encoder = self.source.function(f"{self.root.__name__} v{self.version} encoder")
        return encoder

    def struct(self, cls: type[Struct], var: str) -> None:
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
        """A condition: the field differs from its default, and so must not be lost."""
        source = self.source
        if spec.factory is None and spec.default is None:
            return f"{value} is not None"
        if spec.array:
            return f"{value} is None or {value}" if spec.nullable != (1, 0) else value
        if spec.is_struct:
            return self.struct_is_set(spec, value)
        if spec.default is False or spec.default is True:
            return f"{'not ' if spec.default else ''}{value}"
        return f"{value} != {_default(source, spec)}"

    def struct_is_set(self, spec: FieldSpec, value: str) -> str:
        cls = struct_of(self.root, spec.kind)
        if all(inner.kind in PRIMITIVES and not inner.array for inner in cls.fields()):
            tests = [self.is_set(inner, f"{value}.{inner.name}") for inner in cls.fields()]
            return " or ".join([*tests, f"{value}._tags"])
        return f"{value} != {_default(self.source, spec)}"

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
        self.struct(struct_of(self.root, spec.kind), f"v{self.level}")
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
            source.line(f"{source.const(_array_codec(spec.kind)[1])}(o, {items})")
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
                self.struct(struct_of(self.root, spec.kind), var)
                source.depth -= 1
            else:
                source.line(f"{source.const(_WRITERS[spec.kind, compact, False])}(o, {var})")
            source.depth -= 1
            self.level -= 1
        if nullable:
            source.depth -= 1

    def tags(self, var: str, tagged: list[FieldSpec]) -> None:
        """Each set field is written aside, to know its size, then all with the unknown ones in order."""
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


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    """(message, part under construction, finished parts). Raises EncodeError for a version that `cls` lacks."""
    _check_version(cls, version)
    return _EncoderWriter(cls, version).write()


@cache
def struct_encoder(root: type[Message], struct: type[Struct], version: int) -> Callable[[Any], bytes]:
    """Encodes one struct of a message alone, for `EncodedStructs`. It may raise what encoders do besides EncodeError."""
    _check_version(root, version)
    writer = _EncoderWriter(root, version)
    writer.struct(struct, "v0")
    writer.source.line("parts.append(o)")
    encode: Encoder = writer.source.function(f"{struct.__qualname__} v{version} encoder")

    def encoded(value: Any) -> bytes:
        parts: list[Any] = []
        encode(value, bytearray(), parts)
        return b"".join(parts)

    return encoded
