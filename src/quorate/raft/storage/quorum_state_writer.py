"""When the quorum state is written: at once where a vote or an epoch depends on it, soon where only a
leader's name is new."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from quorate.log.errors import LogDirFailure
from quorate.raft.core.raft import Raft
from quorate.raft.storage.quorum_state import QuorumState, QuorumStateError, QuorumStateFile

log = logging.getLogger(__name__)
LATE_SAVE_S = 0.2  # the name of a leader is written so long after it is known


class QuorumStateWriter:
    """`failed` gets the OSError of a late write; one at once is raised."""

    def __init__(self, file: QuorumStateFile, failed: Callable[[BaseException], None]) -> None:
        self._file = file
        self._failed = failed
        self._late: QuorumState | None = None  # to be written soon
        self.core: Raft

    @property
    def path(self) -> Path:
        return self._file.path

    def read(self, *, durable: bool, node_id: int) -> QuorumState | None:
        """A broker writes it without fsync, and needs it only to find the leader sooner: what a crash
        has torn is left alone. Raises QuorumStateError for a controller."""
        try:
            return self._file.read()
        except QuorumStateError as e:
            if durable:
                raise
            log.warning("[RaftClient id=%d] %s; doing without", node_id, e)
            return None

    def save(self, state: QuorumState, may_wait: bool) -> None:
        if not may_wait:
            self._late = None
            members = self.core.members
            self._file.write(state, members.kraft_version, members.current.ids)
        elif self._late is None:
            self._late = state
            asyncio.get_running_loop().call_later(LATE_SAVE_S, self.save_late)
        else:
            self._late = state

    def save_late(self) -> None:
        """What waits, now."""
        if self._late is not None:
            try:
                self.save(self._late, False)
            except (OSError, LogDirFailure) as e:
                self._failed(e)

    def forget(self) -> None:
        """Nothing is promised any more."""
        self._late = None
