"""Reads and writes `.properties` files by the rules of `java.util.Properties`.

This is not left to a library because none reads every file as Java does: javaproperties 0.8.2,
jproperties 2.1.2 and pyjavaproperties 0.7 differ from it in continued comments, blank continuations or
escapes. The tests compare this module with Java itself.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

MAX_BYTES = 16 << 20
"""The largest file that is read. A configuration has some thousand bytes."""
_WHITE = " \t\f"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


class MalformedEscapeError(ValueError):
    """An escape of a character has not four hexadecimal digits."""


def physical_lines(text: str) -> list[str]:
    """The lines of a file with their ends. Only CR and LF end a line, unlike for `str.splitlines`, which also
    takes bytes of UTF-8 (as 0x85 in "\u00c5" and "\u0445") and form feeds for line ends."""
    return _LINE.findall(text)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the logical lines without comments and blank lines, each with the number of its first line
    in the file.

    Follows `LineReader` of java.util.Properties in what its documentation leaves open: as long as a
    logical line is empty, a blank line or a comment may still follow a backslash at the end of a line,
    and a backslash at the end of the file's last line makes an empty key, unless CR LF ends that line.
    """
    pending, start = "", 0
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    last = len(lines) - (not lines[-1] and not text.endswith("\r\n"))
    for number, raw in enumerate(lines, 1):
        line = raw.lstrip(_WHITE)
        if not pending:
            if not line or line[0] in "#!":
                continue
            start = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            if number < last:
                continue
        else:
            pending += line
        yield start, pending
        pending = ""


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    i = 0
    while i < len(text):
        c = text[i]
        i += 1
        if c != "\\":
            out.append(c)
            continue
        if i >= len(text):
            break
        c = text[i]
        i += 1
        if c == "u":
            digits = text[i : i + 4]
            if len(digits) != 4 or not _HEX.issuperset(
                digits
            ):  # int() also takes signs, spaces and underscores
                raise MalformedEscapeError(f"\\u{digits} is not four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            i += 4
        else:
            out.append(_ESCAPES.get(c, c))
    # an astral character is written as the two escapes of its surrogates
    return "".join(out).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


class Entry(NamedTuple):
    """One setting, with the number of the line in which it begins."""

    line: int
    key: str
    value: str


def entries(text: str) -> Iterator[Entry]:
    """Yields the settings in the order of the file. Raises MalformedEscapeError naming the line."""
    for number, line in _logical_lines(text):
        i = 0
        while i < len(line) and line[i] not in "=:" and line[i] not in _WHITE:
            i += 2 if line[i] == "\\" else 1
        key, rest = line[:i], line[i:].lstrip(_WHITE)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_WHITE)
        try:
            yield Entry(number, _unescape(key), _unescape(rest))
        except MalformedEscapeError as e:
            raise MalformedEscapeError(f"line {number}: {e}") from None


def parse(text: str, repeated: dict[str, int] | None = None) -> dict[str, str]:
    """The keys and values. The last of several lines with the same key counts; `repeated` receives the
    number of lines of each such key. Raises ValueError naming the line of a malformed escape."""
    found: dict[str, str] = {}
    for _, key, value in entries(text):
        if repeated is not None and key in found:
            repeated[key] = repeated.get(key, 1) + 1
        found[key] = value
    return found


def decode(content: bytes) -> str:
    """The text of a file, which is ISO-8859-1, as `Properties.load(InputStream)` reads it.

    Ignores a byte order mark, which editors on Windows write. Java makes it a part of the first key.
    """
    return content.removeprefix(codecs.BOM_UTF8).decode("latin-1")


def read(path: Path) -> bytes:
    """The bytes of a file, which may be a pipe.

    Raises OSError, and ValueError for a file that does not end, like /dev/zero.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES >> 20} MB, and is no properties file")
    return content


def load(content: bytes, repeated: dict[str, int] | None = None) -> dict[str, str]:
    """Parses the bytes of a file. See `decode` and `parse`."""
    return parse(decode(content), repeated)


def was_utf8(text: str) -> bool:
    """Whether this text was UTF-8 before it was read as ISO-8859-1. False for ASCII, which is the same
    in both.
    """
    try:
        return not text.isascii() and not text.encode("latin-1").decode().isascii()
    except UnicodeError:
        return False


def _escape(text: str, *, key: bool) -> str:
    out: list[str] = []
    for i, c in enumerate(text):
        if c in _WRITTEN:
            out.append(_WRITTEN[c])
        elif c in "\\=:#!" or (c == " " and (key or i == 0)):
            out.append("\\" + c)
        elif " " <= c <= "~":
            out.append(c)
        else:
            units = c.encode("utf-16-be")
            out.extend(f"\\u{units[j]:02X}{units[j + 1]:02X}" for j in range(0, len(units), 2))
    return "".join(out)


def render(values: Mapping[str, str], comments: tuple[str, ...] = ()) -> str:
    """The text of a file that Java reads back as `values`, its comment lines first."""
    lines = [f"#{c}" for c in comments]
    lines += [f"{_escape(k, key=True)}={_escape(v, key=False)}" for k, v in values.items()]
    return "\n".join(lines) + "\n"
