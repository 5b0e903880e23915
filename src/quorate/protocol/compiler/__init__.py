"""Compiles declared messages to straight-line Python: a constructor, and for each version an encoder
and a decoder.

The compilers write the source text of one function for each (message, version). Structs become nested
loops, a run of fixed-size fields becomes one call of a `struct.Struct`, an array of numbers becomes one
call. The generated functions do not look at the schema.

Names in the generated code: `b` is the buffer, `p` the position, `end` the end of the buffer; `o` is
the bytearray under construction, `parts` the finished ones; `v0`, `v1`, ... are structs by depth; `K3`
and the like are constants.

Modules:
    source       the text of a generated function
    layout       the fields of a version in wire order, and their readers and writers
    constructor  `compile_constructor`
    decoder      `compile_decoder`
    encoder      `compile_encoder`, `struct_encoder`

`schema` calls the compilers. Other modules need `struct_encoder` only.
"""

from __future__ import annotations

from quorate.protocol.compiler.constructor import compile_constructor
from quorate.protocol.compiler.decoder import compile_decoder
from quorate.protocol.compiler.encoder import compile_encoder, struct_encoder

__all__ = ["compile_constructor", "compile_decoder", "compile_encoder", "struct_encoder"]
