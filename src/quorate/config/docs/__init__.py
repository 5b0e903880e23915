"""The documentation of the configuration keys: one sentence for each key.

  broker    keys of brokers and controllers, except those of security
  security  keys of TLS, SASL and delegation tokens
  topic     keys of topics, groups and client metrics subscriptions

`definitions` imports this package when the documentation of a key is first read.
"""

from __future__ import annotations

from quorate.config.docs import broker, security, topic


def _parse(text: str) -> dict[str, str]:
    """Parses lines of the form `key  sentence`. An indented line continues the previous line."""
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
