"""The text of a quorum's first voters: `id@host:port:directoryId` or `id[-directoryId]@host:port`, comma separated.

The first is Kafka's, the second KIP-853's; both are accepted everywhere. KIP-853's may leave the directory id out: it is
then all zero in the VotersRecord, and the voter fills it in by UpdateRaftVoter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from quorate.protocol.uuids import ZERO_UUID, parse_uuid

_VOTER = re.compile(
    r"(?P<id>[0-9]+)(?:-(?P<before>[A-Za-z0-9_-]{22}))?@"
    r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]+)(?::(?P<after>[A-Za-z0-9_-]+))?"
)
_RESERVED_DIRECTORY_IDS = 100


@dataclass(slots=True, frozen=True)
class InitialVoter:
    node_id: int
    directory_id: bytes
    host: str
    port: int


def parse_initial_voters(text: str) -> dict[int, InitialVoter]:
    """By node id. Raises ValueError naming the entry and what is wrong with it."""
    voters: dict[int, InitialVoter] = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        match = _VOTER.fullmatch(item)
        if match is None:
            raise ValueError(
                f"{item!r} is no controller: write id@host:port:directoryId, an IPv6 host in brackets "
                "(kafka-storage random-uuid makes a directory id)"
            )
        if match["before"] and match["after"]:
            raise ValueError(f"{item!r} has two directory ids")
        port = int(match["port"])
        if not 0 <= port <= 65535:
            raise ValueError(f"Invalid port {port} in {item!r}")
        directory_id = ZERO_UUID
        if directory_text := match["before"] or match["after"]:
            try:
                directory_id = parse_uuid(directory_text)
            except ValueError as e:
                raise ValueError(f"{item!r}: {directory_text} is no directory id: {e}") from None
            if int.from_bytes(directory_id, "big") < _RESERVED_DIRECTORY_IDS:
                raise ValueError(f"{item!r}: directory id {directory_text} is reserved")
        node_id = int(match["id"])
        if node_id in voters:
            raise ValueError(f"Node id {node_id} was specified more than once.")
        voters[node_id] = InitialVoter(node_id, directory_id, match["v6"] or match["host"], port)
    if not voters:
        raise ValueError("No voters given.")
    return voters
