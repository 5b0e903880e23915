"""What each key does, for people: one sentence each, loaded only when somebody asks."""

from __future__ import annotations

from quorate.config.docs import broker, security, topic


def _parse(text: str) -> dict[str, str]:
    """`key  sentence` lines; an indented line goes on with the one before."""
    docs: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if line.startswith(" "):
            docs[key] += " " + line.strip()
        elif line:
            key, _, sentence = line.partition("  ")
            docs[key] = sentence.strip()
    return docs


DOCS: dict[str, str] = _parse(broker.TEXT) | _parse(security.TEXT) | _parse(topic.TEXT)
