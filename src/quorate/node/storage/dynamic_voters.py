"""Parses the initial voters of a dynamic quorum, as `kafka-storage format --initial-controllers` takes
them.

A voter is `id@host:port:directoryId`, as in Kafka's DynamicVoter, or `id-directoryId@host:port`, as in
KIP-853. The second form may omit the directory id. It is then zero in the VotersRecord until the voter
sends UpdateRaftVoter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from quorate.config.listeners import shown_address
from quorate.dataclass import dataclass
from quorate.protocol.uuids import ZERO_UUID, is_reserved, parse_uuid, uuid_text

K = TypeVar("K")

_VOTER = re.compile(
    r"(?P<id>[0-9]+)(?:-(?P<before>[A-Za-z0-9_-]{22}))?@"
    r"(?:\[(?P<v6>[^\]\s]+)\]|(?P<host>[^:\[\]\s]+)):(?P<port>[0-9]+)(?::(?P<after>[A-Za-z0-9_-]+={0,2}))?"
)
_MAX_NODE_ID = 2**31 - 1


@dataclass(slots=True, frozen=True)
class DynamicVoter:
    """A voter of the first VotersRecord. `directory_id` is ZERO_UUID where it is not given."""

    node_id: int
    directory_id: bytes
    host: str
    port: int


def parse_dynamic_voters(text: str) -> dict[int, DynamicVoter]:
    """Parses a list of voters, separated by commas, into a map by node id. Raises ValueError."""
    voters: dict[int, DynamicVoter] = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        match = _VOTER.fullmatch(item)
        if match is None:
            raise ValueError(
                f"{item!r} is not a controller: write id@host:port:directoryId, an IPv6 host in brackets "
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
                raise ValueError(f"{item!r}: {directory_text} is not a directory id: {e}") from None
            if is_reserved(directory_id):
                raise ValueError(f"{item!r}: directory id {directory_text} is reserved")
        node_id = int(match["id"])
        if node_id > _MAX_NODE_ID:
            raise ValueError(f"Node id {node_id} in {item!r} is too large: {_MAX_NODE_ID} is the largest")
        if node_id in voters:
            raise ValueError(f"Node id {node_id} was specified more than once.")
        voters[node_id] = DynamicVoter(node_id, directory_id, match["v6"] or match["host"], port)
    if not voters:
        raise ValueError("No voters given.")
    return voters


def voter_warnings(voters: dict[int, DynamicVoter], node_id: int, *, controller: bool) -> list[str]:
    """Returns warnings about initial voters that are probably a mistake, although Kafka accepts them.

    `node_id` is the node that is formatted with these voters, and `controller` whether it has the
    controller role.
    """
    warnings = []
    if controller and node_id not in voters:
        ids = ", ".join(str(i) for i in sorted(voters))
        warnings.append(
            f"--initial-controllers does not name this controller, node.id {node_id} (it names {ids}): "
            "formatted as an observer of their quorum. Add it by kafka-metadata-quorum add-controller, or "
            "put it into the list and format every node again"
        )
    if not controller and node_id in voters:
        warnings.append(
            f"--initial-controllers names this node, node.id {node_id}, which has no controller role and "
            "will never vote: "
            "take it out of the list, or put controller into process.roles, and format every node again"
        )
    for (host, port), ids in _shared(voters, lambda v: (v.host.lower(), v.port)):
        warnings.append(
            f"--initial-controllers gives controllers {ids} the same endpoint {shown_address(host, port)}, "
            "where only one of them can listen: give each its own host:port, and format every node again"
        )
    for directory_id, ids in _shared(voters, lambda v: v.directory_id):
        if directory_id != ZERO_UUID:
            warnings.append(
                f"--initial-controllers gives controllers {ids} the same directory id "
                f"{uuid_text(directory_id)}: "
                "give each its own (kafka-storage random-uuid makes one), and format every node again"
            )
    return warnings


def _shared(voters: dict[int, DynamicVoter], key: Callable[[DynamicVoter], K]) -> list[tuple[K, str]]:
    """Returns each value of `key` that several voters share, with a text of their ids."""
    owners: dict[K, list[int]] = {}
    for node_id in sorted(voters):
        owners.setdefault(key(voters[node_id]), []).append(node_id)
    return [
        (value, ", ".join(map(str, ids[:-1])) + f" and {ids[-1]}")
        for value, ids in owners.items()
        if len(ids) > 1
    ]
