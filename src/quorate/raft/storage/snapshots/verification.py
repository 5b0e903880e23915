"""Verifies a snapshot in one pass: framing, checksums, offsets, header and footer.

`download` installs only a snapshot that is verified here.

Two replicas may write different files under the same snapshot id, since each writes at its own time and
in its own order. So a download continues from another replica only if both files begin with the same
batches, which is verified by comparing digests.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

import google_crc32c

from quorate.raft.core.control_records import SNAPSHOT_FOOTER, SNAPSHOT_HEADER
from quorate.records.batch import (
    ATTRIBUTES,
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptRecordError,
    InvalidRecordError,
    control_records,
    parse_header,
)

MAX_SNAPSHOT_BATCH_BYTES = 64 << 20  # writers end a batch at 8 MiB
MAX_CONTROL_BATCH_BYTES = 1 << 20  # kept in memory: header, version and voters
CHECK_BYTES = 256 << 10  # added to the checksum at a time, since they are copied for it


class SnapshotError(Exception):
    """A snapshot is damaged. The message names the file and the reason."""


class _Mark(NamedTuple):
    position: int
    offset: int
    digest: hashlib._Hash


class SnapshotVerifier:
    """Verifies bytes that arrive in pieces of any size. Raises SnapshotError.

    It keeps at most one batch header or control batch in memory.
    """

    def __init__(self) -> None:
        self.position = 0  # bytes read
        self.complete = False  # they end with the footer
        self._whole = _Mark(0, 0, hashlib.sha256())  # after the last complete batch
        self._before_footer: _Mark | None = None
        self._head = bytearray()  # of the current batch; of a control batch all bytes
        self._header: BatchHeader | None = None
        self._crc = 0
        self._left = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        view, at = memoryview(data), 0
        while at < len(view):
            at += self._begin(view[at:]) if self._header is None else self._continue(view[at:])

    def digest(self) -> bytes:
        """The digest of the headers of all complete batches, which contain their checksums."""
        return self._whole.digest.digest()

    def back_to_whole(self) -> int:
        """Forgets an incomplete batch and the footer. Returns the position at which to continue."""
        if self.complete and self._before_footer is not None:
            self._whole, self.complete = self._before_footer, False
        self.position = self._whole.position
        self._header = None
        self._head.clear()
        return self.position

    def _begin(self, view: memoryview) -> int:
        if self.complete:
            raise SnapshotError(f"something follows the footer at byte {self.position}")
        taken = min(len(view), BATCH_OVERHEAD - len(self._head))
        self._head += view[:taken]
        self.position += taken
        if len(self._head) < BATCH_OVERHEAD:
            return taken
        where = f"batch at byte {self._whole.position}"
        try:
            header = parse_header(self._head)
        except CorruptRecordError as e:
            raise SnapshotError(f"{where}: {e}") from e
        if header.size_bytes > (MAX_CONTROL_BATCH_BYTES if header.is_control else MAX_SNAPSHOT_BATCH_BYTES):
            raise SnapshotError(f"{where}: {header.size_bytes} bytes")
        if header.base_offset != self._whole.offset or header.last_offset_delta < 0:
            raise SnapshotError(
                f"{where}: offset {header.base_offset} where {self._whole.offset} was expected"
            )
        if self._whole.position == 0 and not header.is_control:
            raise SnapshotError("it does not begin with a snapshot header")
        self._header, self._left = header, header.size_bytes - BATCH_OVERHEAD
        self._crc = google_crc32c.value(bytes(self._head[ATTRIBUTES:]))
        if not self._left:
            self._end()
        return taken

    def _continue(self, view: memoryview) -> int:
        header = self._header
        assert header is not None
        taken = min(len(view), self._left, CHECK_BYTES)
        part = bytes(view[:taken])
        self._crc = google_crc32c.extend(self._crc, part)
        if header.is_control:
            self._head += part
        self.position += taken
        self._left -= taken
        if not self._left:
            self._end()
        return taken

    def _end(self) -> None:
        header, whole = self._header, self._whole
        assert header is not None
        where = f"batch at byte {whole.position}"
        if self._crc != header.crc:
            raise SnapshotError(f"{where}: wrong checksum")
        digest = whole.digest.copy()
        digest.update(self._head[:BATCH_OVERHEAD])
        if header.is_control:
            self._control(where)
        self._whole = _Mark(whole.position + header.size_bytes, header.next_offset, digest)
        self._header = None
        self._head.clear()

    def _control(self, where: str) -> None:
        try:
            kinds = [kind for kind, _ in control_records(self._head)]
        except (CorruptRecordError, InvalidRecordError) as e:
            raise SnapshotError(f"{where}: {e}") from e
        if self._whole.position == 0 and kinds[:1] != [SNAPSHOT_HEADER]:
            raise SnapshotError("it does not begin with a snapshot header")
        if SNAPSHOT_FOOTER in kinds:
            self.complete, self._before_footer = True, self._whole


def prefix_digest(fd: int, end: int) -> bytes:
    """`SnapshotVerifier.digest` of the first `end` bytes of a complete file. Raises OSError."""
    digest, position = hashlib.sha256(), 0
    while position + BATCH_OVERHEAD <= end:
        head = os.pread(fd, BATCH_OVERHEAD, position)
        if len(head) < BATCH_OVERHEAD:
            break
        size = int.from_bytes(head[8:12], "big", signed=True) + LOG_OVERHEAD
        if size < BATCH_OVERHEAD or position + size > end:
            break
        digest.update(head)
        position += size
    return digest.digest()
