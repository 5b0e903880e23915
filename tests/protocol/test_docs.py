"""docs/wire.md is written from the registry; QUORATE_REWRITE_GOLDEN=1 writes it anew."""

from __future__ import annotations

import os
from pathlib import Path

from quorate.protocol import our_tags
from quorate.protocol.api import REGISTRY

DOCS = Path(__file__).parents[2] / "docs" / "wire.md"

HEAD = """\
# The wire

Written from `quorate.protocol.api.REGISTRY` and `quorate.protocol.our_tags`; a test compares.

Messages are declared once, in `src/quorate/protocol/messages/`, one module for each API with the
history of its versions on top, and compiled for a version when it is first used. Tests compare their
bytes and their JSON with Apache Kafka's own classes, in every version, and with kio.

The decoders differ from Java's in these points:

- Bytes after a message, and tagged fields that do not fill their size, are errors here. Java skips
  them.
- A tag that only later versions of a message know is kept as an unknown one. Java rejects the
  message.
- Unknown tagged fields are kept and written back, as in Java. If a tag is repeated, the last one
  counts.
- A frame takes at most 64 times its size in memory, whatever it holds.

As in Kafka 4.4, an array has at most 1,000,000 elements and a struct at most 10,000 tagged fields.

## APIs

Versions are the advertised ones. In brackets is a last version that may still change and is decoded
only on demand. B: broker listener, C: controller listener. Produce is advertised from version 0,
because librdkafka asks for it, but served from version 3.

| Key | API | Versions | Flexible from | Listeners | Forwarded to the controller |
|---|---|---|---|---|---|
"""

TAGS = """
## Our tagged fields

Apache Kafka skips them. Their defaults mean "not known", and no response depends on them.

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
