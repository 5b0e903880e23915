"""Generates `__init__` of a struct."""

from __future__ import annotations

from collections.abc import Callable

from quorate.protocol.compiler.source import FunctionSource, default_expression
from quorate.protocol.fields import StructClass


def compile_constructor(cls: StructClass) -> Callable[..., None]:
    """Generates `__init__`: every field is a keyword argument, and each instance gets lists and structs
    of its own."""
    source = FunctionSource("")
    parameters = ["self"]
    if specs := cls.fields():
        parameters.append("*")
    for spec in specs:
        shared = "ABSENT" if spec.factory is not None else default_expression(source, spec)
        parameters.append(f"{spec.name}={shared}")
        fresh = (
            f"{default_expression(source, spec)} if {spec.name} is ABSENT else "
            if spec.factory is not None
            else ""
        )
        source.line(f"self.{spec.name} = {fresh}{spec.name}")
    source.line("self._tags = unknown_tags")
    if not specs:
        parameters.append("*")
    parameters.append("unknown_tags=None")
    source.lines[0] = f"def compiled({', '.join(parameters)}):"
    source.constants["ABSENT"] = object()
    compiled: Callable[..., None] = source.function(f"{cls.class_name()}.__init__")
    return compiled
