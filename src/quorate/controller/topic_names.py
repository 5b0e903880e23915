"""Topic names: which are legal, and which collide because metrics turn '.' into '_'."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Container

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")
MAX_LENGTH = 249
"""A directory is named after topic, partition and a suffix of 38 characters; 255 is the usual limit of
file systems."""

_MAX_ENUMERATED = 6
"""Names with more of '.' and '_' than this are looked for by a walk over all topics, not by their 2^n
spellings."""


def why_invalid(name: str) -> str | None:
    """None for a legal name."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    if not _LEGAL.match(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


_NODE_ID = re.compile(r"[+-]?[0-9]{1,10}\Z")


def parse_node_id(name: str) -> int | None:
    """The number that a broker resource's name stands for; None for what is no 32-bit integer in base 10."""
    if not _NODE_ID.match(name):
        return None
    number = int(name)
    return number if -(2**31) <= number < 2**31 else None


def unified(name: str) -> str:
    return name.replace(".", "_")


class Collisions:
    """Finds an existing topic that differs from a new name only by '.' against '_'. Lives for one request."""

    __slots__ = ("_by_unified", "_spellings", "_topics")

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics
        self._by_unified: dict[str, str] | None = None
        self._spellings = 0
        """Tried so far. Once they are as many as there are topics, a walk over the topics would have
        been cheaper."""

    def find(self, name: str) -> str | None:
        count = name.count(".") + name.count("_")
        if not count:
            return None
        if self._by_unified is None and count <= _MAX_ENUMERATED and self._spellings <= len(self._topics):
            self._spellings += 1 << count
            return _find_spelling(name, self._topics)
        if self._by_unified is None:
            self._by_unified = {unified(topic): topic for topic in self._topics}
        return self._by_unified.get(unified(name))


def _find_spelling(name: str, topics: Container[str]) -> str | None:
    pieces = re.split("[._]", name)
    for separators in itertools.product("._", repeat=len(pieces) - 1):
        spelling = "".join(itertools.chain.from_iterable(zip(pieces, (*separators, ""), strict=True)))
        if spelling in topics:
            return spelling
    return None
