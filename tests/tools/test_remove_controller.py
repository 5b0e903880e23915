"""The warning of `remove-controller`: only where the controller seems to run, by the leader's clock."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import pytest

from quorate.admin.types import QuorumInfo, QuorumReplica
from quorate.tools.metadata_quorum import _remove_voter

DISK = bytes([7] * 16)
LEADERS_NOW_MS = 5_000_000  # decades behind the clock here


class Admin:
    def __init__(self, fetched_ago_ms: int) -> None:
        self.ago_ms = fetched_ago_ms

    async def describe_quorum(self) -> QuorumInfo:
        leader = QuorumReplica(1, DISK, 9, LEADERS_NOW_MS)
        other = QuorumReplica(2, DISK, 9, LEADERS_NOW_MS - self.ago_ms)
        return QuorumInfo(1, 1, 9, (leader, other), (), {})

    async def remove_raft_voter(self, node_id: int, directory_id: bytes) -> None: ...


@pytest.mark.parametrize(("ago_ms", "warning"), [(40, "fetched 0.0 s before"), (1_600, "fetched 1.6 s before"), (4_000, "")])
def test_only_a_controller_that_seems_to_run_is_warned_of(ago_ms: int, warning: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = argparse.Namespace(controller_id=2, controller_directory_id=None, dry_run=False)
    admin: Any = Admin(ago_ms)
    assert asyncio.run(_remove_voter(admin, args, None)) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Removed  KRaft controller 2 with directory id")
    assert warning in shown.err
    assert bool(shown.err) is bool(warning)
