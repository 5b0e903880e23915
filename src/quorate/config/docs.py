"""What each key does, for people: one line each, loaded only when somebody asks."""

from __future__ import annotations

DOCS: dict[str, str] = {}
