"""The file `quorum-state`: epoch, leader and vote (Kafka's `FileQuorumStateStore`).

They are durable before any message names them. Version 0 of the file is written at kraft.version 0, and
version 1 from kraft.version 1 on. Both are read at any level.
"""

from __future__ import annotations

import json
from pathlib import Path

from quorate.log.files import write_atomically
from quorate.protocol.errors import DecodeError
from quorate.protocol.json import from_json, to_json
from quorate.raft.storage.quorum_state_data import QuorumStateData
from quorate.raft.types import QuorumState, RaftError, ReplicaKey

MAX_EPOCH = 2**31 - 1
MAX_FILE_BYTES = 1 << 20  # far more than a thousand voters take


class QuorumStateError(Exception):
    """The file does not hold a quorum state. The message names file, field and value."""


class QuorumStateSyntaxError(QuorumStateError):
    """The content of the file is not JSON."""


class QuorumStateVersionError(QuorumStateError):
    """The version of the file is unknown, or missing."""

    def __init__(self, message: str, version: object) -> None:
        self.version = version
        super().__init__(message)


class QuorumStateBehindError(RaftError):
    """The log has records of a later epoch than the file, which is saved before any record of its epoch."""


def encode_quorum_state(state: QuorumState, kraft_version: int, voter_ids: list[int]) -> bytes:
    """Encodes a state as Kafka does: JSON with the fields in Kafka's order, without a newline."""
    version = min(kraft_version, 1)
    data = QuorumStateData(
        leader_id=-1 if state.leader_id is None else state.leader_id,
        leader_epoch=state.epoch,
        voted_id=-1 if state.voted is None else state.voted.id,
    )
    if version == 0:
        data.current_voters = [QuorumStateData.Voter(voter_id=i) for i in voter_ids]
    elif state.voted is not None:
        data.voted_directory_id = state.voted.directory_id
    return json.dumps(to_json(data, version) | {"data_version": version}, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes, name: str = "quorum-state") -> QuorumState:
    """Decodes the content of the file `name`. Raises QuorumStateError."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise QuorumStateSyntaxError(f"{name}: not JSON: {e}") from None
    if not isinstance(fields, dict):
        raise QuorumStateError(f"{name}: not a JSON object")
    version = fields.pop("data_version", None)
    if isinstance(version, bool) or version not in (0, 1):
        text = f"{name}: data_version {version!r} is unknown (0 and 1 are)"
        raise QuorumStateVersionError(text, version)
    try:
        stored = from_json(QuorumStateData, fields, version)
    except DecodeError as e:
        raise QuorumStateError(f"{name}: {e.message}") from None
    except ValueError as e:
        raise QuorumStateError(f"{name}: {e}") from None
    if stored.leader_epoch < 0 or stored.leader_id < -1 or stored.voted_id < -1:
        what = f"leaderEpoch {stored.leader_epoch}, leaderId {stored.leader_id}, votedId {stored.voted_id}"
        raise QuorumStateError(f"{name}: {what}")
    if stored.leader_epoch >= MAX_EPOCH:
        raise QuorumStateError(
            f"{name}: leaderEpoch {stored.leader_epoch} is the last that there can be: nobody could be "
            "elected"
        )
    return QuorumState(
        stored.leader_epoch,
        None if stored.leader_id < 0 else stored.leader_id,
        None if stored.voted_id < 0 else ReplicaKey(stored.voted_id, stored.voted_directory_id),
    )


class QuorumStateFile:
    """Reads and writes the file. Writes are durable, except in a broker, which never votes."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path = path
        self._durable = durable

    def read(self) -> QuorumState | None:
        """Returns None if there is no file. Raises QuorumStateError, OSError.

        An empty file is refused, as in Kafka: it has held a vote, which could be given a second time.
        """
        try:
            if self.path.stat().st_size > MAX_FILE_BYTES:
                raise QuorumStateError(f"{self.path}: too large")
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        return decode_quorum_state(data, str(self.path))

    def write(self, state: QuorumState, kraft_version: int, voter_ids: list[int]) -> None:
        """Replaces the file atomically. Raises OSError, which the caller must treat as fatal."""
        write_atomically(
            str(self.path), encode_quorum_state(state, kraft_version, voter_ids), sync=self._durable
        )

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
