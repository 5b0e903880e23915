"""Persists that this directory has been a voter's, outside of the metadata log's own directory.

When `__cluster_metadata-0` as a whole is gone, nothing in it can distinguish a directory that was just
formatted from one whose log is lost. A voter that starts without its log has forgotten its votes and
what it has acknowledged, and may not vote again under the same directory id (KIP-853). So a controller
writes the file `quorum-voter` to the metadata directory before it votes or acknowledges a record as a
voter, and does not start when the file is there and the log is not. The file holds JSON: cluster id,
directory id and kraft.version. Formatting makes another directory id, so that a file left over from
before does not count. Apache Kafka ignores the file.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from quorate.dataclass import dataclass
from quorate.log.files import write_atomically
from quorate.protocol.uuids import uuid_text

logger = logging.getLogger(__name__)

FILE_NAME = "quorum-voter"
MAX_FILE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Marked:
    """The content of the file. `kraft_version` is None if the file cannot be read."""

    kraft_version: int | None


class VoterMarker:
    """The marker file of one metadata directory."""

    def __init__(self, metadata_dir: Path, cluster_id: str, directory_id: bytes) -> None:
        self.path = metadata_dir / FILE_NAME
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._written: int | None = None  # the kraft.version that this process knows to be in the file

    def read(self) -> Marked | None:
        """Returns None if there is no file, or one of another directory id or cluster. Raises OSError."""
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES)
        except FileNotFoundError:
            return None
        try:
            found = json.loads(data)
            if (found["clusterId"], found["directoryId"]) != (
                self._cluster_id,
                uuid_text(self._directory_id),
            ):
                return None
            level = found["kraftVersion"]
            if isinstance(level, bool) or not isinstance(level, int):
                raise TypeError(f"kraftVersion {level!r}")
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            logger.warning("[Raft] %s cannot be read: %s", self.path, e)
            return Marked(None)
        return Marked(level)

    def write(self, kraft_version: int) -> None:
        """Writes the file durably, unless it has this content already. Raises OSError."""
        if self._written == kraft_version:
            return
        if self._written is None and self.read() == Marked(kraft_version):
            self._written = kraft_version
            return
        text = json.dumps(
            {
                "version": 0,
                "clusterId": self._cluster_id,
                "directoryId": uuid_text(self._directory_id),
                "kraftVersion": kraft_version,
            }
        )
        write_atomically(str(self.path), text.encode() + b"\n")
        self._written = kraft_version
