"""Whether this replica has been a voter, and was removed: one small file beside the metadata log, of ours.

`quorum-standing` holds JSON: version, directory id, standing. Kafka leaves files that it does not know
alone. A file of another directory id says nothing of this one.
"""

from __future__ import annotations

import json
import logging
from enum import Enum
from pathlib import Path

from quorate.log.files import write_atomically
from quorate.protocol.uuids import uuid_text
from quorate.raft.core.voters import VoterSet
from quorate.raft.types import NO_DIRECTORY, ReplicaKey

log = logging.getLogger(__name__)
FILE_NAME = "quorum-standing"
MAX_FILE_BYTES = 4096


class MembershipRecord(Enum):
    """By the committed voter sets that this replica has seen."""

    NEVER = "never a voter"
    UNNAMED = "voter without a directory id"
    VOTER = "voter"
    REMOVED = "removed"

    def after(self, voters: VoterSet, me: ReplicaKey) -> MembershipRecord:
        """The standing by one more voter set.

        An entry without a directory id may be this disk's or that of another disk of the same node. The
        set in which the entry gets its directory id tells; where the entry goes without ever having got
        one, this disk counts as removed.
        """
        entry = voters.by_id.get(me.id)
        if entry is not None and entry.key == me:
            return MembershipRecord.VOTER
        if entry is not None and entry.key.directory_id == NO_DIRECTORY:
            return MembershipRecord.UNNAMED if self is MembershipRecord.NEVER else self
        match self:
            case MembershipRecord.VOTER:
                return MembershipRecord.REMOVED
            case MembershipRecord.UNNAMED:
                return MembershipRecord.REMOVED if entry is None else MembershipRecord.NEVER
        return self


class MembershipRecordFile:
    def __init__(self, directory: Path, directory_id: bytes) -> None:
        self._path = directory / FILE_NAME
        self._directory_id = directory_id

    def read(self) -> MembershipRecord:
        """NEVER where there is no file, or one of another directory. What cannot be read counts as
        REMOVED: whoever is wrongly kept from joining by itself can be added. Raises OSError."""
        try:
            with self._path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES)
        except FileNotFoundError:
            return MembershipRecord.NEVER
        try:
            found = json.loads(data)
            if found["directoryId"] != uuid_text(self._directory_id):
                return MembershipRecord.NEVER
            return MembershipRecord(found["standing"])
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            log.warning(
                "[Raft] %s cannot be read (%s): this controller will not join by itself", self._path, e
            )
            return MembershipRecord.REMOVED

    def write(self, standing: MembershipRecord) -> None:
        """Durable when it returns. Raises OSError."""
        text = json.dumps(
            {"version": 0, "directoryId": uuid_text(self._directory_id), "standing": standing.value}
        )
        write_atomically(str(self._path), text.encode() + b"\n")
