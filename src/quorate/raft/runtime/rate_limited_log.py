"""Texts for the log that many messages would repeat: each kind at once, then now and then, with a count."""

from __future__ import annotations

AGAIN_S = 10.0  # what is complained of again and again is logged so often, and how often it came meanwhile


class RateLimitedLog:
    """What whoever reaches our listener, or every try, can cause anew: logged at once, then at most
    every `again_s`."""

    def __init__(self, again_s: float = AGAIN_S) -> None:
        self._again_s = again_s
        self._kept: dict[
            str, tuple[float, int]
        ] = {}  # by kind: when it was logged, how often it was not since

    @property
    def made(self) -> list[str]:
        """The kinds so far."""
        return list(self._kept)

    def due(self, kind: str, now: float) -> str | None:
        """None: not now. Else what is to be added to the text, mostly nothing. `kind` comes from the
        code, not from outside."""
        at, kept = self._kept.get(kind, (-self._again_s, 0))
        if now - at < self._again_s:
            self._kept[kind] = (at, kept + 1)
            return None
        self._kept[kind] = (now, 0)
        return f" ({kept} more like this in {now - at:.0f} s)" if kept else ""
