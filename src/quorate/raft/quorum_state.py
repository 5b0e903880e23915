"""The file `quorum-state`: epoch, leader and vote, durable before they are spoken of (kraft-facts 2.4).

Version 0 is written while kraft.version is 0, version 1 from kraft.version 1 on; both are read at any level.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from quorate.protocol.uuids import parse_uuid, uuid_text
from quorate.raft.types import NO_DIRECTORY, ReplicaKey

MAX_FILE_BYTES = 1 << 20  # a thousand voters fit many times; anything larger is not this file


@dataclass(frozen=True, slots=True)
class QuorumState:
    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


class QuorumStateError(Exception):
    """The file holds something that is not a quorum state: names file, field and value."""


def encode_quorum_state(state: QuorumState, kraft_version: int, voter_ids: list[int]) -> bytes:
    """Kafka's JSON, fields in Kafka's order, no newline."""
    leader = -1 if state.leader_id is None else state.leader_id
    voted = -1 if state.voted is None else state.voted.id
    fields: dict[str, object]
    if kraft_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": leader,
            "leaderEpoch": state.epoch,
            "votedId": voted,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": i} for i in voter_ids],
            "data_version": 0,
        }
    else:
        directory = NO_DIRECTORY if state.voted is None else state.voted.directory_id
        fields = {
            "leaderId": leader,
            "leaderEpoch": state.epoch,
            "votedId": voted,
            "votedDirectoryId": uuid_text(directory),
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes, name: str = "quorum-state") -> QuorumState:
    """Raises QuorumStateError."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise QuorumStateError(f"{name}: not JSON: {e}") from None
    if not isinstance(fields, dict):
        raise QuorumStateError(f"{name}: not a JSON object")
    version = fields.get("data_version")
    if isinstance(version, bool) or version not in (0, 1):
        raise QuorumStateError(f"{name}: data_version {version!r} is unknown (0 and 1 are)")

    def integer(key: str, lowest: int) -> int:
        value = fields.get(key, -1)
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value < 1 << 31:
            raise QuorumStateError(f"{name}: {key} is {value!r}")
        return value

    epoch, leader, voted = integer("leaderEpoch", 0), integer("leaderId", -1), integer("votedId", -1)
    directory = NO_DIRECTORY
    if version == 1:
        text = fields.get("votedDirectoryId", uuid_text(NO_DIRECTORY))
        try:
            directory = parse_uuid(text)
        except (ValueError, TypeError, AttributeError):
            raise QuorumStateError(f"{name}: votedDirectoryId is {text!r}") from None
    return QuorumState(epoch, None if leader < 0 else leader, None if voted < 0 else ReplicaKey(voted, directory))


class QuorumStateFile:
    """Reads and writes the file; a write is on the platter when it returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> QuorumState | None:
        """None when there is none. Raises QuorumStateError, OSError."""
        try:
            if self.path.stat().st_size > MAX_FILE_BYTES:
                raise QuorumStateError(f"{self.path}: too large")
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if not data.strip():
            return None  # Kafka treats an empty file as absent
        return decode_quorum_state(data, str(self.path))

    def write(self, state: QuorumState, kraft_version: int, voter_ids: list[int]) -> None:
        """Temporary file, fsync, rename, fsync of the directory. Raises OSError, which the caller must treat as fatal."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            view = memoryview(encode_quorum_state(state, kraft_version, voter_ids))
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
