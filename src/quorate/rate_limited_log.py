"""Limits how often a message of the same kind is logged."""

from __future__ import annotations

INTERVAL_S = 10.0


class RateLimitedLog:
    """Admits the first message of each kind at once, and then one in each `interval_s`.

    For messages that peers, or repeated attempts, can cause again and again.
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        # By kind: when a message was last logged, and how many have been suppressed since.
        self._kinds: dict[str, tuple[float, int]] = {}

    @property
    def logged_kinds(self) -> list[str]:
        return list(self._kinds)

    def due(self, kind: str, now: float) -> str | None:
        """Returns None if a message must not be logged now, and otherwise a suffix for its text.

        The suffix names the number of suppressed messages, or is empty. All kinds are kept, so a peer must
        not be able to make up new ones.
        """
        at, suppressed = self._kinds.get(kind, (-self._interval_s, 0))
        if now - at < self._interval_s:
            self._kinds[kind] = (at, suppressed + 1)
            return None
        self._kinds[kind] = (now, 0)
        return f" ({suppressed} more like this in {now - at:.0f} s)" if suppressed else ""
