"""Parses a line of standard input into key, value and headers of a record."""

from __future__ import annotations

from collections.abc import Mapping

from quorate.dataclass import dataclass
from quorate.tools.command_line import ToolError

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class LineReader:
    """Parses lines, as Kafka's LineMessageReader does. The separators are bytes, because a line need not be
    UTF-8.
    """

    parse_key: bool = False
    key_separator: bytes = b"\t"
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    ignore_error: bool = False
    null_marker: bytes | None = None
    line_number: int = 0

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LineReader:
        """Creates a reader. Raises ToolError if two separators are equal."""

        def flag(name: str) -> bool:
            return properties.get(name, "").strip().lower() == "true"

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        reader = cls(
            flag("parse.key"),
            text("key.separator", "\t"),
            flag("parse.headers"),
            text("headers.delimiter", "\t"),
            text("headers.separator", ","),
            text("headers.key.separator", ":"),
            flag("ignore.error"),
            text("null.marker", "") if "null.marker" in properties else None,
        )
        pairs = [
            ("headers.delimiter", reader.headers_delimiter, "headers.separator", reader.headers_separator),
            (
                "headers.delimiter",
                reader.headers_delimiter,
                "headers.key.separator",
                reader.headers_key_separator,
            ),
            (
                "headers.separator",
                reader.headers_separator,
                "headers.key.separator",
                reader.headers_key_separator,
            ),
            ("null.marker", reader.null_marker, "key.separator", reader.key_separator),
            ("null.marker", reader.null_marker, "headers.separator", reader.headers_separator),
            ("null.marker", reader.null_marker, "headers.delimiter", reader.headers_delimiter),
            ("null.marker", reader.null_marker, "headers.key.separator", reader.headers_key_separator),
        ]
        for one, a, other, b in pairs:
            if a == b:
                raise ToolError(f"{one} and {other} may not be equal")
        return reader

    def parse(self, line: bytes) -> tuple[bytes | None, bytes | None, Headers]:
        """Returns key, value and headers of a line. Raises ToolError, which names the line."""
        self.line_number += 1
        headers: Headers = ()
        if self.parse_headers:
            text, line = self._cut(line, self.headers_delimiter, "headers delimiter")
            if text is not None and text != self.null_marker:
                headers = tuple(self._header(pair) for pair in text.split(self.headers_separator))
        key = None
        if self.parse_key:
            key, line = self._cut(line, self.key_separator, "key separator")
        return self._null(key), self._null(line), headers

    def _null(self, field: bytes | None) -> bytes | None:
        return None if field == self.null_marker else field

    def _cut(self, line: bytes, separator: bytes, what: str) -> tuple[bytes | None, bytes]:
        head, found, rest = line.partition(separator)
        if found:
            return head, rest
        if self.ignore_error:
            return None, line
        raise ToolError(
            f"No {what} found on line number {self.line_number}: '{line.decode(errors='replace')}'"
        )

    def _header(self, pair: bytes) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self.headers_key_separator)
        text = name.decode(errors="replace")
        if not found:
            if self.ignore_error:
                return text, None
            raise ToolError(
                f"No header key separator found in pair '{text}' on line number {self.line_number}"
            )
        if name == self.null_marker:
            raise ToolError(
                f"Header keys should not be equal to the null marker '{text}' as they can't be null"
            )
        return text, self._null(value)
