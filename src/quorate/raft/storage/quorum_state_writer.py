"""Schedules the saves of the quorum state.

A state on which a vote or an epoch depends is saved at once. A state that only adds the leader's name
is saved a little later, so that a new follower's first Fetch does not wait for an fsync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quorate.log.errors import LogDirFailure
from quorate.raft.core.voters import Membership
from quorate.raft.storage.quorum_state import QuorumStateFile
from quorate.raft.types import QuorumState

DEFERRED_SAVE_S = 0.2


class QuorumStateWriter:
    """Saves states in the format that belongs to the current kraft.version.

    `failed` is called with the OSError of a deferred save. The error of an immediate one is raised.
    """

    def __init__(
        self, file: QuorumStateFile, members: Membership, failed: Callable[[BaseException], None]
    ) -> None:
        self._file = file
        self._members = members
        self._failed = failed
        self._deferred: QuorumState | None = None

    def save(self, state: QuorumState, may_wait: bool) -> None:
        if not may_wait:
            self._deferred = None
            self._file.write(state, self._members.kraft_version, self._members.current.ids)
        elif self._deferred is None:
            self._deferred = state
            asyncio.get_running_loop().call_later(DEFERRED_SAVE_S, self.save_deferred)
        else:
            self._deferred = state

    def save_deferred(self) -> None:
        """Saves the deferred state now, if there is one."""
        if self._deferred is not None:
            try:
                self.save(self._deferred, False)
            except (OSError, LogDirFailure) as e:
                self._failed(e)

    def discard_deferred(self) -> None:
        self._deferred = None
