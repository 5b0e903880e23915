"""The warning of `remove-controller`: only where the controller seems to run, by the leader's clock."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import pytest

from quorate.admin.errors import ErrorCode, KafkaError, RequestTimedOut
from quorate.admin.types import QuorumInfo, QuorumReplica
from quorate.tools.command_line import ToolError
from quorate.tools.quorum.remove_controller import remove_voter

DISK = bytes([7] * 16)
LEADERS_NOW_MS = 5_000_000  # decades behind the clock here


class Admin:
    def __init__(self, fetched_ago_ms: int, error: Exception | None = None) -> None:
        self.ago_ms = fetched_ago_ms
        self.error = error
        self.unregister_error: Exception | None = None

    async def describe_quorum(self) -> QuorumInfo:
        leader = QuorumReplica(1, DISK, 9, LEADERS_NOW_MS)
        other = QuorumReplica(2, DISK, 9, LEADERS_NOW_MS - self.ago_ms)
        return QuorumInfo(1, 1, 9, (leader, other), (), {})

    async def remove_raft_voter(self, node_id: int, directory_id: bytes) -> None:
        if self.error is not None:
            raise self.error

    async def unregister_controller(self, controller_id: int) -> None:
        if self.unregister_error is not None:
            raise self.unregister_error


@pytest.mark.parametrize(
    ("ago_ms", "warning"), [(40, "fetched 0.0 s before"), (1_600, "fetched 1.6 s before"), (4_000, "")]
)
def test_only_a_controller_that_seems_to_run_is_warned_of(
    ago_ms: int, warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = argparse.Namespace(
        controller_id=2,
        controller_directory_id=None,
        dry_run=False,
        unregister=False,
        command_config=None,
    )
    admin: Any = Admin(ago_ms)
    assert asyncio.run(remove_voter(admin, args, None)) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Removed KRaft controller 2 with directory id")
    assert warning in shown.err
    assert bool(shown.err) is bool(warning)


@pytest.mark.parametrize(
    ("error", "is_open"),
    [
        (KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), True),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), True),
        (
            KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "timed out waiting for the new voter set to be committed"
            ),
            True,
        ),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nothing could be committed by them: start 1 first"), False),
        (RequestTimedOut("Timed out waiting for an answer to RemoveRaftVoter"), True),
        (KafkaError(ErrorCode.VOTER_NOT_FOUND, "no such voter"), False),
    ],
)
def test_an_error_that_leaves_open_whether_it_was_removed_says_so_and_how_to_look(
    error: Exception, is_open: bool
) -> None:
    args = argparse.Namespace(
        controller_id=2,
        controller_directory_id=None,
        dry_run=False,
        unregister=False,
        command_config=None,
        bootstrap_server=None,
        bootstrap_controller="h:1,i:2",
    )
    admin: Any = Admin(40, error)
    with pytest.raises(ToolError if is_open else KafkaError) as e:
        asyncio.run(remove_voter(admin, args, None))
    if is_open:
        assert str(e.value).startswith("org.apache.kafka.common.errors.")
        assert (
            "This leaves open what becomes of it: controller 2 may still be removed, as soon as a majority"
            in str(e.value)
        )
        assert "kafka-metadata-quorum --bootstrap-controller h:1,i:2 describe --status" in str(e.value)


HINT = "To unregister the controller from the cluster, run `kafka-cluster unregister-controller --id 2`."


def unregistering(dry_run: bool = False) -> argparse.Namespace:
    return argparse.Namespace(
        controller_id=2,
        controller_directory_id=None,
        dry_run=dry_run,
        unregister=True,
        command_config=None,
        bootstrap_server=None,
        bootstrap_controller="h:1",
    )


@pytest.mark.parametrize(
    ("dry_run", "lines"),
    [
        (False, ["Removed KRaft controller 2 with", "Unregistered KRaft controller 2"]),
        (
            True,
            ["DRY RUN of removing KRaft controller 2 with", "DRY RUN of unregistering KRaft controller 2"],
        ),
    ],
)
def test_the_registration_is_removed_with_the_voter(
    dry_run: bool, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    admin: Any = Admin(4_000)
    assert asyncio.run(remove_voter(admin, unregistering(dry_run), None)) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 2
    assert all(text.startswith(start) for text, start in zip(shown, lines, strict=True))


@pytest.mark.parametrize(
    ("removing", "unregister", "text"),
    [
        (
            KafkaError(ErrorCode.VOTER_NOT_FOUND, "cannot remove voter 2"),
            None,
            f"Failed to remove KRaft voter 2: cannot remove voter 2. {HINT}",
        ),
        (
            KafkaError(ErrorCode.UNSUPPORTED_VERSION, "kraft.version is 0."),
            None,
            f"Failed to remove KRaft voter 2: kraft.version is 0. {HINT}",
        ),
        (
            None,
            KafkaError(
                ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Controller ID 2 is not currently registered."
            ),
            f"Failed to unregister controller 2: Controller ID 2 is not currently registered. {HINT}",
        ),
    ],
)
def test_an_error_that_leaves_a_registration_names_the_command_for_it(
    removing: Exception | None, unregister: Exception | None, text: str
) -> None:
    admin: Any = Admin(4_000, removing)
    admin.unregister_error = unregister
    with pytest.raises(ToolError) as e:
        asyncio.run(remove_voter(admin, unregistering(), None))
    assert str(e.value) == text
