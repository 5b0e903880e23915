"""kafka-consumer-groups: lists, describes, deletes consumer groups, and resets or deletes their offsets."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, NetError, error_text
from quorate.admin.operations.topics import LATEST
from quorate.admin.types import GroupDescription, MemberDescription, OffsetAndMetadata, TopicPartition
from quorate.tools.client.admin_client import add_connection, with_admin
from quorate.tools.client.options import tool_parser
from quorate.tools.command_line import Parser, ToolError, run
from quorate.tools.groups.reset_offsets import SCENARIOS, add_reset_options, reset

MISSING = "-"
STATES = (
    "Assigning",
    "CompletingRebalance",
    "Dead",
    "Empty",
    "PreparingRebalance",
    "Reconciling",
    "Stable",
    "Unknown",
)
OFFSET_COLUMNS = (
    "GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
    "CONSUMER-ID", "HOST", "CLIENT-ID",
)  # fmt: skip
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser(
        "kafka-consumer-groups",
        "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, "
        "or reset consumer group offsets.",
    )
    add_connection(parser)
    add = parser.add_argument
    add("--list", action="store_true", help="List all consumer groups.")
    add("--describe", action="store_true", help="Describe groups and how far they are behind.")
    add("--delete", action="store_true", help="Delete groups that have no members, with their offsets.")
    add("--reset-offsets", action="store_true", help="Reset the offsets of groups that have no members.")
    add("--delete-offsets", action="store_true", help="Delete offsets of one group.")
    add("--validate-regex", metavar="<String: regex>", help="Tell whether a regular expression is valid.")
    add(
        "--group",
        action="append",
        default=[],
        metavar="<String: consumer group>",
        help="The group; may be repeated.",
    )
    add("--all-groups", action="store_true", help="All groups.")
    add(
        "--topic",
        action="append",
        default=[],
        metavar="<String: topic>",
        help="A topic, or topic:0,1,2 for some partitions.",
    )
    add("--members", action="store_true", help="With --describe: the members of the group.")
    add("--offsets", action="store_true", help="With --describe: the offsets of the group (default).")
    add("--verbose", action="store_true", help="With --describe: more of each.")
    add(
        "--state", nargs="?", const="", metavar="String",
        help="With --describe: the state of the group. With --list: the states, or only groups in the given "
        "states (stable,empty).",
    )  # fmt: skip
    add(
        "--type",
        nargs="?",
        const="",
        metavar="String",
        help="With --list: the types, or groups of some types (classic,consumer).",
    )
    add(
        "--timeout",
        type=int,
        default=5000,
        metavar="<Long: timeout (ms)>",
        help="How long to wait for answers (default 5000).",
    )
    add_reset_options(parser)
    return parser


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.validate_regex is not None:
        return _validate_regex(args.validate_regex)
    actions = [
        a for a in ("list", "describe", "delete", "reset_offsets", "delete_offsets") if getattr(args, a)
    ]
    if len(actions) != 1:
        parser.error(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, "
            "--delete-offsets, --validate-regex"
        )
    action = actions[0]
    _check(parser, args, action)
    try:
        return with_admin(args, lambda admin: _ACTIONS[action](admin, args))
    except (KafkaError, NetError) as error:
        raise ToolError(
            f"Error: Executing consumer group command failed due to {error_text(error)}"
        ) from error


def _check(parser: Parser, args: argparse.Namespace, action: str) -> None:
    if not args.bootstrap_server:
        parser.error('Missing required argument "[bootstrap-server]"')
    if args.group and args.all_groups:
        parser.error('Option "[group]" can\'t be used with option "[all-groups]"')
    if action in ("describe", "delete", "reset_offsets") and not (args.group or args.all_groups):
        parser.error(f"Option [{action.replace('_', '-')}] takes one of these options: [group], [all-groups]")
    if action == "describe":
        if sum((args.members, args.offsets, args.state is not None)) > 1:
            parser.error(
                "Option [describe] takes at most one of these options: [members], [offsets], [state]"
            )
        if args.state:
            parser.error("Option [describe] does not take a value for [state]")
    if action == "delete" and args.topic:
        parser.error("The consumer does not support topic-specific offset deletion from a consumer group.")
    if action == "delete_offsets" and not (len(args.group) == 1 and args.topic):
        parser.error("Option [delete-offsets] takes the following options: [group], [topic]")
    if action == "list" and (args.group or args.topic):
        parser.error('Option "[group]" or "[topic]" can\'t be used with option "[list]"')
    if action == "reset_offsets":
        if args.dry_run and args.execute:
            parser.error("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        given = [name for name in SCENARIOS if getattr(args, name) not in (None, False)]
        if len(given) != 1:
            shown = ", ".join(f"[{name.replace('_', '-')}]" for name in SCENARIOS)
            parser.error(f"Option '[reset-offsets]' requires one of the following scenarios: {shown}")
        if not args.from_file and not (args.topic or args.all_topics):
            parser.error("One of the reset scopes should be defined: --all-topics, --topic.")


def _validate_regex(text: str) -> int:
    try:
        re.compile(text)
    except re.error as error:
        print(f"The regular expression `{text}` is invalid: {error}.")
    else:
        print(f"The regular expression `{text}` is valid.")
    return 0


# -- list
# --------------------------------------------------------------------------------------------------


def _filter(text: str | None, valid: Sequence[str], what: str) -> list[str]:
    """Parses a list of names without regard to case. Raises ToolError for an unknown name."""
    if not text:
        return []
    known = {name.lower(): name for name in valid}
    wanted = [part.strip().lower() for part in text.split(",")]
    if not all(part in known for part in wanted):
        raise ToolError(f"Invalid {what} list '{text}'. Valid {what} are: {', '.join(valid)}")
    return [known[part] for part in wanted]


async def _list(admin: AdminClient, args: argparse.Namespace) -> int:
    states = _filter(args.state, STATES, "states")
    types = _filter(args.type, ("Classic", "Consumer"), "types") or ["Consumer", "Classic"]
    found = [
        g for g in await admin.list_groups(states=states, types=types) if g.protocol_type in ("consumer", "")
    ]
    if args.state is None and args.type is None:
        for group in found:
            print(group.group_id)
        return 0
    width = max((len(g.group_id) for g in found), default=0)
    rows = [
        ["GROUP", "TYPE", "STATE"],
        *([g.group_id, g.group_type.capitalize() or "Unknown", g.state or "Unknown"] for g in found),
    ]
    for group_id, kind, state in rows:
        line = group_id.ljust(max(15, width) + 10)
        if args.type is not None:
            line += f" {kind:<20}"
        if args.state is not None:
            line += f" {state:<20}"
        print(line)
    return 0


# -- describe
# --------------------------------------------------------------------------------------------------


async def group_ids(admin: AdminClient, args: argparse.Namespace) -> list[str]:
    """Returns the ids of the selected groups without duplicates."""
    if args.all_groups:
        return [g.group_id for g in await admin.list_groups() if g.protocol_type in ("consumer", "")]
    return list(dict.fromkeys(args.group))


async def _describe(admin: AdminClient, args: argparse.Namespace) -> int:
    status = 0
    described = await admin.describe_groups(await group_ids(admin, args))
    for group_id, group in sorted(described.items()):
        if isinstance(group, KafkaError):
            if group.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise group
            _error(f"Consumer group '{group_id}' does not exist.")
            status = 1
        elif args.members:
            _print_members(group, args.verbose)
        elif args.state is not None:
            _print_state(group, args.verbose)
        else:
            await _print_offsets(admin, group, args.verbose)
    return status


def _error(text: str) -> None:
    print(f"\nError: {text}", file=sys.stderr)


def _print_state_note(group: GroupDescription, rows: int) -> bool:
    """Prints a note about the state of the group, and returns whether there are rows to print."""
    sys.stdout.flush()
    if group.state == "Dead":
        _error(f"Consumer group '{group.group_id}' does not exist.")
        return False
    if group.state == "Empty":
        print(f"\nConsumer group '{group.group_id}' has no active members.", file=sys.stderr)
    elif group.state in REBALANCING:
        print(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", file=sys.stderr)
    return rows > 0


async def _print_offsets(admin: AdminClient, group: GroupDescription, verbose: bool) -> None:
    committed = {
        tp: known
        for tp, known in (await admin.list_group_offsets(group.group_id)).items()
        if isinstance(known, OffsetAndMetadata)
    }
    owned: set[TopicPartition] = set()
    rows: list[tuple[TopicPartition | None, str, str, str]] = []
    for member in sorted((m for m in group.members if m.assignment), key=lambda m: -len(m.assignment)):
        owned.update(member.assignment)
        ordered = sorted(member.assignment, key=lambda tp: tp.partition)
        rows += [(tp, member.member_id, member.host, member.client_id) for tp in ordered]
    free = sorted((tp for tp in committed if tp not in owned), key=lambda tp: (tp.partition, tp.topic))
    rows += [(tp, MISSING, MISSING, MISSING) for tp in free]
    if not _print_state_note(group, len(rows)):
        return
    ends = await log_ends(admin, [tp for tp, *_ in rows if tp is not None])
    cells = [list(OFFSET_COLUMNS)]
    for tp, member_id, host, client_id in rows:
        assert tp is not None
        known, end = committed.get(tp), ends.get(tp)
        epoch = MISSING if known is None or known.leader_epoch < 0 else str(known.leader_epoch)
        offset = MISSING if known is None else str(known.offset)
        lag = MISSING if known is None or end is None else str(end - known.offset)
        shown_end = MISSING if end is None else str(end)
        cells.append(
            [
                group.group_id,
                tp.topic,
                str(tp.partition),
                epoch,
                offset,
                shown_end,
                lag,
                member_id,
                host,
                client_id,
            ]
        )
    widths = [15, 15, 10, 15, 15, 15, 15, 15, 15, 0]
    for column in (0, 1, 7, 8):
        widths[column] = max(15, *(len(row[column]) for row in cells[1:]))
    _print_rows(cells, widths, skip=() if verbose else (3,))


def _print_rows(cells: Sequence[Sequence[str]], widths: Sequence[int], skip: Iterable[int] = ()) -> None:
    hidden = set(skip)
    for row in cells:
        shown = (
            cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            if index not in hidden
        )
        print("\n" + " ".join(shown), end="")
    print()


async def log_ends(
    admin: AdminClient, partitions: Iterable[TopicPartition], at: int = LATEST
) -> dict[TopicPartition, int]:
    """Returns the offset of each partition at a time. Partitions with an error are left out."""
    found = await admin.list_offsets(dict.fromkeys(partitions, at))
    return {tp: offset.offset for tp, offset in found.items() if not isinstance(offset, KafkaError)}


def _print_members(group: GroupDescription, verbose: bool) -> None:
    if not _print_state_note(group, len(group.members)):
        return
    static = any(m.instance_id for m in group.members)
    header = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    more = ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    cells = [header + more]
    cells += [
        [
            group.group_id, m.member_id, m.instance_id or "", m.host, m.client_id, str(len(m.assignment)),
            MISSING, _assignment(m) or MISSING, MISSING, MISSING,
        ]
        for m in group.members
    ]  # fmt: skip
    least = [15, 15, 17, 15, 15, 15, 15, 20, 15, 20]
    widths = [max(width, *(len(row[i]) for row in cells[1:])) for i, width in enumerate(least)]
    widths[5] = 15
    for row in cells:
        shown = [
            cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            if (i != 2 or static) and i < 6
        ]
        line = ("\n" if row is cells[0] else "") + " ".join(shown) + " "
        if verbose:
            line += " ".join(cell.ljust(w) for cell, w in zip(row[6:], widths[6:], strict=True))
        print(line)


def _assignment(member: MemberDescription) -> str:
    topics: dict[str, list[int]] = {}
    for tp in member.assignment:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return ";".join(
        sorted(f"{topic}:{','.join(map(str, sorted(partitions)))}" for topic, partitions in topics.items())
    )


def _print_state(group: GroupDescription, verbose: bool) -> None:
    if not _print_state_note(group, 1):
        return
    coordinator = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.id})"
    header = [
        "GROUP",
        "COORDINATOR (ID)",
        "ASSIGNMENT-STRATEGY",
        "STATE",
        "GROUP-EPOCH",
        "TARGET-ASSIGNMENT-EPOCH",
        "#MEMBERS",
    ]
    row = [
        group.group_id,
        coordinator,
        group.assignor or MISSING,
        group.state,
        MISSING,
        MISSING,
        str(len(group.members)),
    ]
    widths = [max(15, len(group.group_id)), max(25, len(coordinator)), 20, 20, 15, 25, 0]
    _print_rows([header, row], widths, skip=() if verbose else (4, 5))


# -- delete
# --------------------------------------------------------------------------------------------------


async def _delete(admin: AdminClient, args: argparse.Namespace) -> int:
    results = await admin.delete_groups(await group_ids(admin, args))
    gone = [group_id for group_id, error in results.items() if error is None]
    failed = {group_id: error for group_id, error in results.items() if error is not None}
    shown = "', '".join(gone)
    if not failed:
        print(f"Deletion of requested consumer groups ('{shown}') was successful.")
        return 0
    _error("Deletion of some consumer groups failed:")
    for group_id, error in failed.items():
        print(f"* Group '{group_id}' could not be deleted due to: {error_text(error)}", file=sys.stderr)
    if gone:
        print(f"\nThese consumer groups were deleted successfully: '{shown}'")
    return 1


async def _delete_offsets(admin: AdminClient, args: argparse.Namespace) -> int:
    group_id = args.group[0]
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    partitions = await topic_partitions(admin, args.topic, outcomes)
    status = 0
    try:
        outcomes |= await admin.delete_group_offsets(group_id, partitions)
    except KafkaError as error:
        _error(error_text(error))
        status = 1
        outcomes |= dict.fromkeys(partitions, error)
    else:
        if any(outcomes.values()):
            _error("Encountered some partition-level error, see the follow-up details.")
            status = 1
        else:
            print(f"Request succeeded for deleting offsets from group {group_id}.")
    width = max(15, *(len(tp.topic) for tp in outcomes)) if outcomes else 15
    print(f"\n{'TOPIC':<{width}} {'PARTITION':<10} {'STATUS':<15}", end="")
    for tp, failure in sorted(outcomes.items()):
        shown = str(tp.partition) if tp.partition >= 0 else MISSING
        result = "Successful" if failure is None else f"Error: {error_text(failure)}"
        print(f"\n{tp.topic:<{width}} {shown:<10} {result:<15}", end="")
    print()
    return status


async def topic_partitions(
    admin: AdminClient, topics: Sequence[str], failures: dict[TopicPartition, KafkaError | None]
) -> list[TopicPartition]:
    """Returns the partitions of "topic" or "topic:0,1". Adds the errors of unknown topics to `failures`.

    Raises ToolError.
    """
    found: list[TopicPartition] = []
    for text in topics:
        name, separator, listed = text.partition(":")
        if separator:
            try:
                found += [TopicPartition(name, int(p)) for p in listed.split(",")]
            except ValueError:
                raise ToolError(f"Invalid topic arg '{text}', expected topic name and partitions") from None
            continue
        try:
            described = await admin.describe_topics([name])
        except KafkaError as error:
            failures[TopicPartition(name, -1)] = error
        else:
            found += [TopicPartition(name, p.partition) for p in described[name].partitions]
    return found


async def _reset(admin: AdminClient, args: argparse.Namespace) -> int:
    if not args.dry_run and not args.execute:
        print(
            "WARN: No action will be performed as the --execute option is missing. Add --dry-run to plan "
            "without this warning.",
            file=sys.stderr,
        )
    return await reset(admin, args, await group_ids(admin, args), _partitions_to_reset)


async def _partitions_to_reset(
    admin: AdminClient, args: argparse.Namespace, group_id: str
) -> list[TopicPartition]:
    if args.all_topics:
        return sorted(await admin.list_group_offsets(group_id))
    failures: dict[TopicPartition, KafkaError | None] = {}
    partitions = await topic_partitions(admin, args.topic, failures)
    for error in failures.values():
        if error is not None:
            raise error
    return partitions


_ACTIONS = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset_offsets": _reset,
    "delete_offsets": _delete_offsets,
}
