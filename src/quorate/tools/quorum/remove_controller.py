"""`kafka-metadata-quorum remove-controller`: removes a voter from the quorum (KIP-853), and its
registration (KIP-1312)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, NetError, UnsupportedVersion, java_text
from quorate.protocol.uuids import parse_uuid, uuid_text
from quorate.tools.client.admin_client import with_admin
from quorate.tools.command_line import ToolError
from quorate.tools.quorum.leader_wait import with_leader


@contextmanager
def _explaining_unknown_outcome(args: argparse.Namespace, what: str) -> Iterator[None]:
    """Adds to an error that leaves the outcome of the change unknown how to find it out.

    The change may be in the leader's log and be committed later.
    """
    try:
        yield
    except (KafkaError, NetError) as error:
        if isinstance(error, KafkaError) and not _outcome_is_unknown(error):
            raise
        option = "--bootstrap-controller" if args.bootstrap_controller else "--bootstrap-server"
        where = args.bootstrap_controller or args.bootstrap_server
        raise ToolError(
            f"{java_text(error).rstrip('.')}. This leaves open what becomes of it: {what}, as soon as a "
            f"majority of the voters runs. To look: kafka-metadata-quorum {option} {where} describe "
            "--status (UncommittedRemovedVoter: not yet)"
        ) from error


def _outcome_is_unknown(error: KafkaError) -> bool:
    match error.code:
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.NOT_CONTROLLER:
            return True  # leadership was lost, perhaps after the change was appended
        case ErrorCode.REQUEST_TIMED_OUT:
            # A leader that does not append the change answers with this code, too, and with a reason.
            return not error.message or error.message.endswith("to be committed")
    return False


RECENT_FETCH_MS = 2000
"""A controller that fetched within this time is taken for running: it fetches at least every half second."""


def remove_controller(args: argparse.Namespace) -> int:
    """Runs the command and returns the exit status. Raises ToolError."""
    if args.controller_id < 0:
        raise ToolError(f"Invalid negative --controller-id: {args.controller_id}")
    directory_id = None
    if args.controller_directory_id is not None:
        try:
            directory_id = parse_uuid(args.controller_directory_id)
        except ValueError as error:
            raise ToolError(f"Failed to parse --controller-directory-id: {error}") from error
    if directory_id is not None and args.dry_run:
        _print_removed(args, directory_id)
        return 0
    return with_admin(args, lambda admin: remove_voter(admin, args, directory_id))


def _print_removed(args: argparse.Namespace, directory_id: bytes) -> None:
    verb = "DRY RUN of removing" if args.dry_run else "Removed"
    print(f"{verb} KRaft controller {args.controller_id} with directory id {uuid_text(directory_id)}")
    if args.dry_run and args.unregister:
        print(f"DRY RUN of unregistering KRaft controller {args.controller_id}")


async def _remove(admin: AdminClient, args: argparse.Namespace, directory_id: bytes) -> None:
    """Removes the voter. With `--unregister`, an error that leaves only the registration to be removed names
    the command for that."""
    try:
        await admin.remove_raft_voter(args.controller_id, directory_id)
    except (KafkaError, UnsupportedVersion) as error:
        left = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.VOTER_NOT_FOUND)
        if not args.unregister or (isinstance(error, KafkaError) and error.code not in left):
            raise
        raise _not_unregistered(args, f"Failed to remove KRaft voter {args.controller_id}", error) from error


async def _unregister(admin: AdminClient, args: argparse.Namespace) -> None:
    try:
        await admin.unregister_controller(args.controller_id)
    except (KafkaError, NetError) as error:
        what = f"Failed to unregister controller {args.controller_id}"
        raise _not_unregistered(args, what, error) from error
    print(f"Unregistered KRaft controller {args.controller_id}")


def _not_unregistered(args: argparse.Namespace, what: str, error: Exception) -> ToolError:
    reason = error.message if isinstance(error, KafkaError) and error.message else str(error)
    return ToolError(
        f"{what}: {reason.rstrip('.')}. To unregister the controller from the cluster, run `kafka-cluster "
        f"unregister-controller --id {args.controller_id}`."
    )


async def remove_voter(admin: AdminClient, args: argparse.Namespace, directory_id: bytes | None) -> int:
    """Removes the voter, and warns if it seems to run and may join again. Returns the exit status."""
    quorum = await with_leader(admin, args, admin.describe_quorum())
    voter = next((v for v in quorum.voters if v.replica_id == args.controller_id), None)
    if directory_id is None:
        if voter is None:
            ids = sorted(v.replica_id for v in quorum.voters)
            raise ToolError(f"Controller {args.controller_id} is not among the voters {ids}.")
        directory_id = voter.directory_id
    if not args.dry_run:
        with _explaining_unknown_outcome(args, f"controller {args.controller_id} may still be removed"):
            await _remove(admin, args, directory_id)
    _print_removed(args, directory_id)
    if args.unregister and not args.dry_run:
        await _unregister(admin, args)
    if voter is None or voter.directory_id != directory_id:
        return 0
    # The leader's own last fetch is the time of its response.
    ago_ms = max(v.last_fetch_ms for v in quorum.voters) - voter.last_fetch_ms
    if ago_ms < RECENT_FETCH_MS:
        print(
            f"Warning: controller {args.controller_id} fetched {ago_ms / 1000:.1f} s before it was "
            "removed. If it runs on and is one of Apache Kafka with controller.quorum.auto.join.enable, "
            "it joins again by itself (Quorate's remember that they were removed): stop it, or turn that "
            "off.",
            file=sys.stderr,
        )
    return 0
