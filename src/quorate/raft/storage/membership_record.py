"""Persists whether this replica is or was a voter.

A controller that joins by itself must not do so after it was removed (KIP-853).
The file `quorum-standing` lies beside the metadata log and holds JSON: version, directory id, standing.
Apache Kafka ignores it. A file with another directory id does not apply to this replica.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from quorate.log.files import write_atomically
from quorate.protocol.uuids import uuid_text
from quorate.raft.core.voters import MembershipRecord

logger = logging.getLogger(__name__)
FILE_NAME = "quorum-standing"
MAX_FILE_BYTES = 4096


class MembershipRecordFile:
    """The file of one metadata log directory."""

    def __init__(self, directory: Path, directory_id: bytes) -> None:
        self._path = directory / FILE_NAME
        self._directory_id = directory_id

    def read(self) -> MembershipRecord:
        """Reads the file. Raises OSError.

        Returns NEVER if there is no file or it has another directory id. Returns REMOVED if the file
        cannot be read: an operator can still add a replica that wrongly does not join by itself.
        """
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
            logger.warning(
                "[Raft] %s cannot be read (%s): this controller will not join by itself", self._path, e
            )
            return MembershipRecord.REMOVED

    def write(self, record: MembershipRecord) -> None:
        """Writes the file durably. Raises OSError."""
        text = json.dumps(
            {"version": 0, "directoryId": uuid_text(self._directory_id), "standing": record.value}
        )
        write_atomically(str(self._path), text.encode() + b"\n")
