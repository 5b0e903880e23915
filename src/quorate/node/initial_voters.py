"""The text of a quorum's first voters: `id@host:port:directoryId` or `id[-directoryId]@host:port`, comma separated.

The first is Kafka's, the second KIP-853's; both are accepted everywhere. KIP-853's may leave the directory id out: it is
then all zero in the VotersRecord, and the voter fills it in by UpdateRaftVoter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from quorate.config.listeners import shown_address
from quorate.protocol.uuids import ZERO_UUID, parse_uuid, uuid_text

K = TypeVar("K")

_VOTER = re.compile(
    r"(?P<id>[0-9]+)(?:-(?P<before>[A-Za-z0-9_-]{22}))?@"
    r"(?:\[(?P<v6>[^\]\s]+)\]|(?P<host>[^:\[\]\s]+)):(?P<port>[0-9]+)(?::(?P<after>[A-Za-z0-9_-]+={0,2}))?"
)
_RESERVED_DIRECTORY_IDS = 100
_MAX_NODE_ID = 2**31 - 1


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
        if node_id > _MAX_NODE_ID:
            raise ValueError(f"Node id {node_id} in {item!r} is too large: {_MAX_NODE_ID} is the largest")
        if node_id in voters:
            raise ValueError(f"Node id {node_id} was specified more than once.")
        voters[node_id] = InitialVoter(node_id, directory_id, match["v6"] or match["host"], port)
    if not voters:
        raise ValueError("No voters given.")
    return voters


def doubtful(voters: dict[int, InitialVoter], node_id: int, *, controller: bool) -> list[str]:
    """What is formatted all the same, as Kafka does, but can hardly be meant: warnings about a list of first voters, given to
    format the node `node_id`, which is a `controller` or not."""
    found = []
    if controller and node_id not in voters:
        ids = ", ".join(str(i) for i in sorted(voters))
        found.append(
            f"--initial-controllers does not name this controller, node.id {node_id} (it names {ids}): formatted as an observer "
            "of their quorum. Add it by kafka-metadata-quorum add-controller, or put it into the list and format every node again"
        )
    if not controller and node_id in voters:
        found.append(
            f"--initial-controllers names this node, node.id {node_id}, which has no controller role and will never vote: "
            "take it out of the list, or put controller into process.roles, and format every node again"
        )
    for (host, port), ids in _shared(voters, lambda v: (v.host.lower(), v.port)):
        found.append(
            f"--initial-controllers gives controllers {ids} the same endpoint {shown_address(host, port)}, where only one of "
            "them can listen: give each its own host:port, and format every node again"
        )
    for directory_id, ids in _shared(voters, lambda v: v.directory_id):
        if directory_id != ZERO_UUID:
            found.append(
                f"--initial-controllers gives controllers {ids} the same directory id {uuid_text(directory_id)}: "
                "give each its own (kafka-storage random-uuid makes one), and format every node again"
            )
    return found


def _shared(voters: dict[int, InitialVoter], key: Callable[[InitialVoter], K]) -> list[tuple[K, str]]:
    """What several voters have in common, with their ids."""
    owners: dict[K, list[int]] = {}
    for node_id in sorted(voters):
        owners.setdefault(key(voters[node_id]), []).append(node_id)
    return [(value, ", ".join(map(str, ids[:-1])) + f" and {ids[-1]}") for value, ids in owners.items() if len(ids) > 1]
