"""docs/wire.md is generated from the registry. QUORATE_REWRITE_GOLDEN=1 writes it again."""

from __future__ import annotations

import os
from pathlib import Path

from quorate.protocol import our_tags
from quorate.protocol.api import REGISTRY

DOCS = Path(__file__).parents[2] / "docs" / "wire.md"

HEAD = """\
# The wire

This page is generated from `quorate.protocol.api.REGISTRY` and `quorate.protocol.our_tags`; a test
compares them.

Each message is declared once, in `src/quorate/protocol/messages/`. There is one module for each
API, which begins with the history of its versions. A message is compiled for a version when that
version is first used. Tests compare bytes and JSON of all versions with Apache Kafka's own classes
and with kio.

Unknown tagged fields are kept and written back, as in Java. The decoders differ from Java's in
these points:

- Bytes after a message, and tagged fields that do not fill their size, are errors. Java skips them.
  Only bytes after a request are ignored on a listener, because librdkafka sends some.
- A tag that belongs to a later version of the message is kept as an unknown tag. Java rejects the
  message.
- If a tag is repeated, the last one counts.
- A decoded frame takes at most 64 times its size in memory.

As in Kafka 4.4, an array has at most 1,000,000 elements and a struct at most 10,000 tagged fields.

As in Kafka 4.4, an array has at most 1,000,000 elements and a struct at most 10,000 tagged fields.

## APIs

The versions are those that ApiVersions advertises. A version in brackets may still change and is
decoded only on demand. B: broker listener, C: controller listener. Produce is advertised from
version 0, because librdkafka requires it, but served from version 3.

| Key | API | Versions | Flexible from | Listeners | Forwarded to the controller |
|---|---|---|---|---|---|
"""

TAGS = """
## Our tagged fields

Apache Kafka skips these fields. Their defaults mean "not known"; every protocol works without them.

| Tag | Where | Meaning |
|---|---|---|
"""


def render() -> str:
    lines = [HEAD]
    for key, spec in sorted(REGISTRY.items()):
        versions = (
            str(spec.min_version)
            if spec.min_version == spec.max_version
            else f"{spec.min_version}-{spec.max_version}"
        )
        if spec.max_version < spec.min_version:
            versions = "none"
        if spec.latest_version > spec.max_version:
            versions += f" [{spec.latest_version}]"
        listeners = " ".join(sorted(name[0].upper() for name in spec.listeners))
        flexible = "never" if spec.flexible_from is None else spec.flexible_from
        forwarded = "yes" if spec.forwardable else ""
        lines.append(f"| {key} | {spec.name} | {versions} | {flexible} | {listeners} | {forwarded} |\n")
    lines.append(TAGS)
    for number, (places, meaning) in our_tags.REGISTRY.items():
        where = ", ".join(f"`{place}`" for place in places)
        lines.append(f"| {number} | {where} | {meaning} |\n")
    return "".join(lines)


def test_the_page_says_what_the_registry_says() -> None:
    if os.environ.get("QUORATE_REWRITE_GOLDEN"):
        DOCS.write_text(render())
    assert DOCS.read_text() == render()
