"""What is known of requests by their bytes, which clients repeat with another correlation id."""

from __future__ import annotations

from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

LONGEST: Final = 1024
"""The most bytes of a request that is kept."""
_KEPT: Final = 4096


class KnownRequests(dict[K, V]):
    """Decoded requests by their bytes."""

    __slots__ = ()

    def keep(self, key: K, request: V) -> None:
        """Adds a request.

        If there are too many, all others are forgotten: those in use are soon known again.
        """
        if len(self) >= _KEPT:
            self.clear()
        self[key] = request
