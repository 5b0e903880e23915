"""Rules for the names of topics and nodes: which are valid, and which topic names collide because
metrics replace '.' by '_'."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Container

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")
MAX_LENGTH = 249
"""The name of a log directory is the topic, the partition and a suffix of 38 characters. Most file
systems limit it to 255 characters."""

_MAX_ENUMERATED = 6
"""A name with more '.' and '_' than this is compared with all topics. For other names, the 2^n possible
spellings are looked up."""


def invalid_reason(name: str) -> str | None:
    """The reason why a topic name is not valid, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    if not _LEGAL.match(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def shown(name: str) -> str:
    """A name for the message of one partition. A name that no topic can have is cut, since a short request
    can have it in the messages of very many partitions."""
    return name if len(name) <= MAX_LENGTH else name[: MAX_LENGTH - 3] + "..."


def unify_collision_chars(name: str) -> str:
    """The name with '_' in place of each '.', as in metrics. Source: Kafka's Topic.unifyCollisionChars."""
    return name.replace(".", "_")


class Collisions:
    """Finds existing topics whose names differ from a new name only by '.' and '_'. An object serves one
    request."""

    __slots__ = ("_by_unified", "_spellings", "_topics")

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics
        self._by_unified: dict[str, str] | None = None
        self._spellings = 0
        """The spellings tried so far. After as many spellings as topics, a comparison with all topics is
        cheaper."""

    def find(self, name: str) -> str | None:
        """An existing topic that collides with the name, or None."""
        count = name.count(".") + name.count("_")
        if not count:
            return None
        if self._by_unified is None and count <= _MAX_ENUMERATED and self._spellings <= len(self._topics):
            self._spellings += 1 << count
            return _find_spelling(name, self._topics)
        if self._by_unified is None:
            self._by_unified = {unify_collision_chars(topic): topic for topic in self._topics}
        return self._by_unified.get(unify_collision_chars(name))


def _find_spelling(name: str, topics: Container[str]) -> str | None:
    """A topic that has one of the spellings of the name, or None."""
    pieces = re.split("[._]", name)
    for separators in itertools.product("._", repeat=len(pieces) - 1):
        spelling = "".join(itertools.chain.from_iterable(zip(pieces, (*separators, ""), strict=True)))
        if spelling in topics:
            return spelling
    return None
