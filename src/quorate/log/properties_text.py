"""Java's `.properties` text, read and written by the rules of `java.util.Properties`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_WHITE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of its first line, text) of each logical line: comments and blank lines left out, continuations joined."""
    number, pending, start = 0, "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_WHITE)
        if not pending and (not line or line[0] in "#!"):
            continue
        if not pending:
            start = number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1] or "\0"  # a lone backslash still opens a continuation
            continue
        yield start, (pending + line).replace("\0", "")
        pending = ""
    if pending:
        yield start, pending.replace("\0", "")


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
            try:
                if len(digits) != 4:
                    raise ValueError
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ValueError(f"\\u{digits} is not four hexadecimal digits") from None
            i += 4
        else:
            out.append(_ESCAPES.get(c, c))
    # an astral character is written as the two escapes of its surrogates
    return "".join(out).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def parse(text: str, repeated: dict[str, int] | None = None) -> dict[str, str]:
    """The keys and values, a later line winning over an earlier one; `repeated` is given how often each such key is there.

    Raises ValueError naming the line of a malformed escape.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        i = 0
        while i < len(line) and line[i] not in "=:" and line[i] not in _WHITE:
            i += 2 if line[i] == "\\" else 1
        key, rest = line[:i], line[i:].lstrip(_WHITE)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_WHITE)
        try:
            key, value = _unescape(key), _unescape(rest)
        except ValueError as e:
            raise ValueError(f"line {number}: {e}") from None
        if repeated is not None and key in found:
            repeated[key] = repeated.get(key, 1) + 1
        found[key] = value
    return found


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
