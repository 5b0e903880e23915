"""The messages from a cluster to a node over the control socket. Each is a JSON object on a line.

The first message is a `Launch`. Each later one is a `DiskFault` or a `LinkFault`, which replaces the previous
one. The node confirms it with an empty line.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field

from quorate.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DiskFault:
    """The delay of each fsync and of each read that misses the page cache, how many bytes can still be
    written (None: no limit), and whether every access below `failing_under` fails.
    """

    fsync_ms: float = 0
    read_ms: float = 0
    free_bytes: int | None = None
    failing: bool = False
    failing_under: str = ""


@dataclass(frozen=True, slots=True)
class LinkFault:
    """The ports that a node cannot reach."""

    cut_ports: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Launch:
    """The properties file of the node and its first faults. `links` is None if its links are never cut.

    `redirects` (host, old port, new port) replace addresses in an older metadata log.
    """

    properties: str
    redirects: list[tuple[str, int, int]] = field(default_factory=list)
    disk: DiskFault = field(default_factory=DiskFault)
    links: LinkFault | None = None


Message = Launch | DiskFault | LinkFault

_KINDS: dict[str, type[Launch | DiskFault | LinkFault]] = {
    "launch": Launch,
    "disk": DiskFault,
    "links": LinkFault,
}


def encode(message: Message) -> bytes:
    """Returns the line of a message."""
    kind = next(name for name, cls in _KINDS.items() if type(message) is cls)
    return json.dumps({"kind": kind, **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Returns the message of a line."""
    values = json.loads(line)
    match values.pop("kind"):
        case "launch":
            return Launch(
                values["properties"],
                [(host, old, new) for host, old, new in values["redirects"]],
                DiskFault(**values["disk"]),
                LinkFault(**values["links"]) if values["links"] is not None else None,
            )
        case "disk":
            return DiskFault(**values)
        case "links":
            return LinkFault(**values)
        case kind:
            raise ValueError(f"unknown kind of message: {kind!r}")
