"""The text of a generated function and the constants that it uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from quorate.protocol.fields import FieldSpec


class FunctionSource:
    """The text of a function under construction and the constants that it uses."""

    def __init__(self, signature: str) -> None:
        self.lines = [f"def compiled({signature}):"]
        self.constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._depth = 1
        self._temporaries = 0
        self._structs = 0

    def line(self, text: str) -> None:
        """Appends a line at the current depth of indentation."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str | None) -> Iterator[None]:
        """Appends `head` and indents the lines that follow. Without a head it changes nothing."""
        if head is None:
            yield
            return
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def struct_variable(self) -> Iterator[str]:
        """The name of the variable of a nested struct: `v1`, `v2`, ... by depth."""
        self._structs += 1
        yield f"v{self._structs}"
        self._structs -= 1

    def const(self, value: Any) -> str:
        """The name of the constant `value` in the generated code."""
        if id(value) not in self._names:
            name = self._names[id(value)] = f"K{len(self._names)}"
            self.constants[name] = value  # which also keeps the id from being reused
        return self._names[id(value)]

    def temporary(self) -> str:
        """The name of a new local variable."""
        self._temporaries += 1
        return f"t{self._temporaries}"

    def function(self, title: str) -> Any:
        """Compiles the text. Tracebacks name the function by `title`."""
        scope = dict(self.constants)
        exec(compile("\n".join(self.lines), f"<compiled {title}>", "exec"), scope)
        return scope["compiled"]


def default_expression(source: FunctionSource, spec: FieldSpec) -> str:
    """An expression that gives a new default value of the field."""
    if spec.factory is list:
        return "[]"
    if spec.factory is not None:
        return f"{source.const(spec.factory)}()"
    if spec.default is None or isinstance(spec.default, bool | int | str):
        return repr(spec.default)
    return source.const(spec.default)
