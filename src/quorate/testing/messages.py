"""What a cluster tells a node over its control socket: one JSON object per line, each answered with an
empty line.

The first line is a `Launch`. Every further line is a `DiskFault` or a `LinkFault` that replaces the one
before.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class DiskFault:
    """How the disk of a node behaves: additional time of each fsync and of each read that misses the
    page cache, and how many bytes can still be written (None: no limit)."""

    fsync_ms: float = 0
    read_ms: float = 0
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LinkFault:
    """The ports that a node cannot reach."""

    cut_ports: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Launch:
    """The properties file of the node, its faults from the start on, and `redirects` (host, port, port
    in use now) for addresses that an older metadata log names."""

    properties: str
    redirects: list[tuple[str, int, int]] = field(default_factory=list)
    disk: DiskFault = field(default_factory=DiskFault)
    links: LinkFault = field(default_factory=LinkFault)


Message = Launch | DiskFault | LinkFault

_KINDS: dict[str, type[Launch | DiskFault | LinkFault]] = {
    "launch": Launch,
    "disk": DiskFault,
    "links": LinkFault,
}


def encode(message: Message) -> bytes:
    """One line."""
    kind = next(name for name, cls in _KINDS.items() if type(message) is cls)
    return json.dumps({"kind": kind, **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message of one line that `encode` wrote."""
    values = json.loads(line)
    match values.pop("kind"):
        case "launch":
            return Launch(
                values["properties"],
                [(host, old, new) for host, old, new in values["redirects"]],
                DiskFault(**values["disk"]),
                LinkFault(**values["links"]),
            )
        case "disk":
            return DiskFault(**values)
        case "links":
            return LinkFault(**values)
        case kind:
            raise ValueError(f"unknown kind of message: {kind!r}")
