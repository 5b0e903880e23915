"""`kafka-consumer-groups --reset-offsets`: plans the new offsets, prints the plan and carries it out."""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError
from quorate.admin.operations.topics import EARLIEST, LATEST
from quorate.admin.types import OffsetAndMetadata, TopicPartition
from quorate.tools.command_line import Parser, ToolError
from quorate.tools.times import epoch_ms, parse_datetime

SCENARIOS = (
    "to_offset", "to_earliest", "to_latest", "to_datetime", "by_duration", "to_current", "shift_by",
    "from_file",
)  # fmt: skip

OffsetsToReset = dict[TopicPartition, int]
Scope = Callable[[AdminClient, argparse.Namespace, str], Awaitable[list[TopicPartition]]]


_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?\d+)D)?(?:T(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?"
    r"(?:(?P<seconds>[+-]?\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


def add_reset_options(parser: Parser) -> None:
    add = parser.add_argument
    add("--all-topics", action="store_true", help="Reset: all topics that the group has offsets of.")
    add("--dry-run", action="store_true", help="Reset: only show the new offsets (default).")
    add("--execute", action="store_true", help="Reset: do it.")
    add("--export", action="store_true", help="Reset: show the new offsets as CSV.")
    add("--to-offset", type=int, metavar="<Long: offset>", help="Reset to this offset.")
    add("--to-earliest", action="store_true", help="Reset to the earliest offset.")
    add("--to-latest", action="store_true", help="Reset to the latest offset.")
    add("--to-current", action="store_true", help="Reset to the current offset.")
    add(
        "--to-datetime",
        metavar="<String: datetime>",
        help="Reset to a time: YYYY-MM-DDThh:mm:ss.sss, UTC unless +hh:mm follows.",
    )
    add("--by-duration", metavar="<String: duration>", help="Reset to a time before now: PnDTnHnMnS.")
    add(
        "--shift-by",
        type=int,
        metavar="<Long: number-of-offsets>",
        help="Move by a number of records, back if negative.",
    )
    add(
        "--from-file",
        metavar="<String: path to CSV file>",
        help="Reset to what a CSV file says: [group,]topic,partition,offset.",
    )


def duration_ms(text: str) -> int:
    """Returns the milliseconds of an ISO 8601 duration without years and months. Raises ToolError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match[part] for part in ("days", "hours", "minutes", "seconds")):
        raise ToolError(f"Text cannot be parsed to a Duration: {text}")
    seconds = (
        int(match["days"] or 0) * 86_400 + int(match["hours"] or 0) * 3_600 + int(match["minutes"] or 0) * 60
    )
    total = seconds * 1000 + int(Decimal(match["seconds"] or 0) * 1000)  # 1.001 s has no exact float
    return -total if match["sign"] == "-" else total


def datetime_ms(text: str) -> int:
    """Returns a date and time in milliseconds since 1970. Raises ToolError."""
    try:
        return epoch_ms(parse_datetime(text))
    except ValueError:
        raise ToolError(f"Unparseable date: {text}") from None


async def reset(admin: AdminClient, args: argparse.Namespace, group_ids: Sequence[str], scope: Scope) -> int:
    """Plans the offsets of each group without members, prints them, and with `--execute` commits them.

    Returns the exit status.
    """
    plans: dict[str, OffsetsToReset] = {}
    status = 0
    from_file = _read_file(args.from_file, group_ids) if args.from_file else None
    for group_id, group in (await admin.describe_groups(group_ids)).items():
        if isinstance(group, KafkaError) and group.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise group
        if not isinstance(group, KafkaError) and group.state not in ("Empty", "Dead"):
            sys.stdout.flush()
            text = (
                f"Assignments can only be reset if the group '{group_id}' is inactive, but the current "
                f"state is {group.state}."
            )
            print(f"\nError: {text}", file=sys.stderr)
            status = 1
            continue
        if from_file is not None:
            plan = await _within_range(admin, from_file.get(group_id, {}))
        else:
            plan = await _plan(admin, args, group_id, await scope(admin, args, group_id))
        plans[group_id] = plan
        if args.execute and plan:
            outcome = await admin.alter_group_offsets(
                group_id, {tp: OffsetAndMetadata(offset) for tp, offset in plan.items()}
            )
            for error in outcome.values():
                if error is not None:
                    raise error
    print(_as_csv(plans), end="") if args.export else _show(plans)
    return status


def _show(plans: Mapping[str, OffsetsToReset]) -> None:
    group = max([15, *map(len, plans)])
    topic = max([15, *(len(tp.topic) for plan in plans.values() for tp in plan)])
    if plans:
        print(f"\n{'GROUP':<{group}} {'TOPIC':<{topic}} {'PARTITION':<10} NEW-OFFSET", end="")
    for group_id, plan in plans.items():
        for tp, offset in sorted(plan.items()):
            print(f"\n{group_id:<{group}} {tp.topic:<{topic}} {tp.partition:<10} {offset}", end="")
    print()


def _as_csv(plans: Mapping[str, OffsetsToReset]) -> str:
    """Returns a row for each partition. The group is left out if there is only one."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group_id, plan in plans.items():
        for tp, offset in sorted(plan.items()):
            writer.writerow(([group_id] if len(plans) > 1 else []) + [tp.topic, tp.partition, offset])
    return out.getvalue()


def _read_file(path: str, group_ids: Sequence[str]) -> dict[str, OffsetsToReset]:
    """Reads the plan of a CSV file. Raises ToolError, which names the line."""
    plans: dict[str, OffsetsToReset] = {}
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise ToolError(f"Cannot read {path}: {error.strerror}") from error
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        try:
            group_id = row[0] if len(row) == 4 else group_ids[0]
            topic, partition, offset = row[-3], int(row[-2]), int(row[-1])
            if len(row) not in (3, 4) or (len(row) == 3 and len(group_ids) != 1):
                raise ValueError
        except (ValueError, IndexError):
            raise ToolError(f"{path} line {number} is not [group,]topic,partition,offset") from None
        plans.setdefault(group_id, {})[TopicPartition(topic, partition)] = offset
    return plans


async def _offsets_at(admin: AdminClient, partitions: Sequence[TopicPartition], at: int) -> OffsetsToReset:
    found: OffsetsToReset = {}
    for tp, offset in (await admin.list_offsets(dict.fromkeys(partitions, at))).items():
        if isinstance(offset, KafkaError):
            raise ToolError(f"Error getting offset of topic partition: {tp} ({offset.code.name})")
        found[tp] = offset.offset
    return found


async def _offsets_for_time(
    admin: AdminClient, partitions: Sequence[TopicPartition], at_ms: int
) -> OffsetsToReset:
    """Returns the offset of the first record at or after a time, or the log end offset if there is none."""
    found = await _offsets_at(admin, partitions, max(0, at_ms))
    late = [tp for tp, offset in found.items() if offset < 0]
    if late:
        for tp in late:
            print(
                f"Warn: Partition {tp.partition} from topic {tp.topic} is empty. Falling back to latest "
                "known offset.",
                file=sys.stderr,
            )
        found |= await _offsets_at(admin, late, LATEST)
    return found


async def _within_range(admin: AdminClient, wanted: OffsetsToReset) -> OffsetsToReset:
    """Limits offsets to the range between the log start offset and the log end offset."""
    partitions = list(wanted)
    first, last = await _offsets_at(admin, partitions, EARLIEST), await _offsets_at(admin, partitions, LATEST)
    plan: OffsetsToReset = {}
    for tp, offset in wanted.items():
        plan[tp] = min(max(offset, first[tp]), last[tp])
        if plan[tp] != offset:
            side, edge = ("higher", "latest") if offset > last[tp] else ("lower", "earliest")
            text = f"New offset ({offset}) is {side} than {edge} offset for topic partition {tp}."
            print(f"WARN: {text} Value will be set to {plan[tp]}", file=sys.stderr)
    return plan


async def _plan(
    admin: AdminClient, args: argparse.Namespace, group_id: str, partitions: Sequence[TopicPartition]
) -> OffsetsToReset:
    if args.to_offset is not None:
        return await _within_range(admin, dict.fromkeys(partitions, args.to_offset))
    if args.to_earliest:
        return await _offsets_at(admin, partitions, EARLIEST)
    if args.to_latest:
        return await _offsets_at(admin, partitions, LATEST)
    if args.to_datetime is not None:
        return await _offsets_for_time(admin, partitions, datetime_ms(args.to_datetime))
    if args.by_duration is not None:
        now_ms = time.time_ns() // 1_000_000
        return await _offsets_for_time(admin, partitions, now_ms - duration_ms(args.by_duration))
    current = {
        tp: known.offset
        for tp, known in (await admin.list_group_offsets(group_id, partitions)).items()
        if isinstance(known, OffsetAndMetadata)
    }
    missing = [tp for tp in partitions if tp not in current]
    if args.shift_by is not None:
        if missing:
            raise ToolError(
                f"Cannot shift offset for partition {missing[0]} since there is no current committed offset"
            )
        return await _within_range(admin, {tp: offset + args.shift_by for tp, offset in current.items()})
    return current | (await _offsets_at(admin, missing, LATEST) if missing else {})
