"""The properties that the history of a run must have.

| property | says | |---|---| | lost | each acknowledged record is at its offset, unless its
deletion was requested | | doubled | no record of a producer is in a partition twice in one producer
epoch, and no offset is acknowledged twice | | order | the records of one producer and epoch are in
a partition in the order in which they were sent | | replicas | all replicas of a partition have the
same batches | | read | what a consumer read does not change, and its offsets are consecutive | |
log start | deleted records do not come back, and no others are deleted | | high watermark | that of
a partition never falls for a consumer | | committed offset | that of a group never falls below one
that was acknowledged | | group | the members of a group get each record below its committed offset
| | end | each reader and the group come to the end of each partition | | topic | topics whose
creation was acknowledged exist, and deleted topics do not, in the metadata of each broker | |
config | acknowledged values are in force | | client | no error reaches a client that retries as
often as it does by default |

A producer epoch ends when librdkafka cannot tell which of several batches in flight were appended: after a
retriable error for one of them, the next one has an unexpected sequence (OUT_OF_ORDER_SEQUENCE_NUMBER).
It then sends all records without an answer again in the next epoch, in which no broker can recognise them.
So it may double records of its other partitions. Java's producer keeps the epoch of those (KIP-360).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tests.chaos.history import (
    FinalPartition,
    FinalState,
    History,
    PartitionHistory,
    producer_and_sequence,
    shown,
)

_MOST_OF_A_KIND = 10
"""Violations of one property that are reported for one partition."""


class Violation(NamedTuple):
    property: str
    what: str

    def __str__(self) -> str:
        return f"{self.property}: {self.what}"


def check(history: History, final: FinalState) -> list[Violation]:
    """Returns all violations of the properties, at most a few of each property and partition."""
    found = [Violation("client", error) for error in islice(history.client_errors, _MOST_OF_A_KIND)]
    for (topic, number), partition in sorted(history.partitions.items()):
        end = final.partitions.get((topic, number))
        name = f"{topic}-{number}"
        if end is None:
            found.append(Violation("lost", f"{name} could not be read"))
            continue
        for rule in (
            _lost,
            _doubled,
            _order,
            _replicas,
            _read,
            _log_start,
            _high_watermark,
            _committed_offset,
            _group,
            _end,
        ):
            violations = rule(partition, end, history)
            kind = rule.__name__.strip("_").replace("_", " ")
            found += [Violation(kind, f"{name} {what}") for what in islice(violations, _MOST_OF_A_KIND)]
    found += [Violation("topic", what) for what in _topics(history, final)]
    found += [Violation("config", what) for what in _configs(history, final)]
    return found


def _lost(partition: PartitionHistory, end: FinalPartition, _: History) -> Iterator[str]:
    there = dict(end.records)
    anywhere = set(end.records.tokens)
    for offset, value in partition.acknowledged:
        if offset < 0 and not partition.delete_requested and value not in anywhere:
            yield f"lost {shown(value)}, acknowledged as a duplicate"
        if offset < partition.delete_requested:
            continue
        found = there.get(offset)
        if found is None:
            yield f"lost {shown(value)}, acknowledged at {offset}"
        elif found != value:
            yield f"has {shown(found)} at {offset}, where {shown(value)} was acknowledged"


def _doubled(partition: PartitionHistory, end: FinalPartition, _: History) -> Iterator[str]:
    first: dict[tuple[int, int], int] = {}
    for offset, value in end.records:
        key = value, end.producer_epochs.get(offset, 0)
        if key in first:
            yield f"has {shown(value)} at {first[key]} and at {offset}"
        first.setdefault(key, offset)
    acknowledged: dict[int, int] = {}
    for offset, value in partition.acknowledged:
        if offset < 0:
            continue
        if offset in acknowledged:
            yield f"acknowledged {shown(acknowledged[offset])} and {shown(value)} at {offset}"
        acknowledged[offset] = value


def _order(partition: PartitionHistory, end: FinalPartition, _: History) -> Iterator[str]:
    last: dict[tuple[int, int], int] = {}
    newest: dict[int, int] = {}
    for offset, value in end.records:
        producer, sequence = producer_and_sequence(value)
        epoch = end.producer_epochs.get(offset, 0)
        if sequence >= partition.sent[producer]:
            yield f"has {shown(value)} at {offset}, which was never sent"
        if epoch < newest.get(producer, 0):
            yield f"has {shown(value)} at {offset} in epoch {epoch}, after epoch {newest[producer]}"
        newest[producer] = epoch
        if sequence < last.get((producer, epoch), -1):
            before = last[producer, epoch]
            yield f"has {shown(value)} at {offset}, after record {before} of that producer"
        last[producer, epoch] = sequence


def _replicas(_: PartitionHistory, end: FinalPartition, __: History) -> Iterator[str]:
    yield from end.differences


def _read(partition: PartitionHistory, end: FinalPartition, _: History) -> Iterator[str]:
    there = dict(end.records)
    for reader, records in partition.read.items():
        expected = 0
        for offset, value in records:
            if offset < expected:
                yield f"was read by {reader} at {offset} after {expected - 1}"
            elif offset > max(expected, partition.delete_requested):
                yield f"was read by {reader} at {offset}, but not at {expected}"
            expected = offset + 1
            if offset >= end.log_start and there.get(offset) != value:
                now = shown(there[offset]) if offset in there else "nothing"
                yield f"has {now} at {offset}, where {reader} read {shown(value)}"


def _log_start(partition: PartitionHistory, end: FinalPartition, _: History) -> Iterator[str]:
    if end.log_start < partition.delete_acknowledged:
        yield f"starts at {end.log_start}, but {partition.delete_acknowledged} was acknowledged"
    if end.log_start > partition.delete_requested:
        yield f"starts at {end.log_start}, but deletion was requested up to {partition.delete_requested}"


def _high_watermark(partition: PartitionHistory, _: FinalPartition, history: History) -> Iterator[str]:
    highest = None
    for seen in partition.watermarks:
        if history.in_cut(seen.start, seen.end):
            continue
        # A leader that does not know yet that it was replaced answers with its older epoch.
        if (
            highest is not None
            and seen.offset < highest.offset
            and not -1 < seen.leader_epoch < highest.leader_epoch
        ):
            yield (
                f"had the high watermark {highest.offset} in epoch {highest.leader_epoch}, and "
                f"{seen.end - highest.end:.1f} s later {seen.offset} in epoch {seen.leader_epoch}"
            )
        if highest is None or seen.offset > highest.offset:
            highest = seen


def _committed_offset(partition: PartitionHistory, end: FinalPartition, history: History) -> Iterator[str]:
    commits = sorted(partition.commits, key=lambda commit: commit.end)
    at, highest = 0, -1
    for fetched in sorted(partition.fetched_commits, key=lambda commit: commit.start):
        while at < len(commits) and commits[at].end <= fetched.start:
            highest = max(highest, commits[at].offset)
            at += 1
        if fetched.offset < highest and not history.in_cut(fetched.start, fetched.end):
            yield f"had the committed offset {highest}, then {fetched.offset} was fetched"
    highest = max((commit.offset for commit in commits), default=-1)
    if highest >= 0 and (end.committed is None or end.committed < highest):
        yield f"had the committed offset {highest}, at the end it is {end.committed}"


def _group(partition: PartitionHistory, end: FinalPartition, _: History) -> Iterator[str]:
    for offset, value in end.records:
        if partition.delete_requested <= offset < (end.committed or 0) and (
            offset >= len(partition.consumed) or not partition.consumed[offset]
        ):
            yield f"has {shown(value)} at {offset}, which no member of the group got"


def _end(partition: PartitionHistory, end: FinalPartition, _: History) -> Iterator[str]:
    # Below the log start everything was deleted, possibly before it was read.
    for reader, records in {**partition.read, "a new consumer": end.records}.items():
        position = max(records.offsets[-1] + 1 if records else 0, end.log_start)
        if position < end.log_end:
            yield f"was read by {reader} up to {position}, but ends at {end.log_end}"
    committed = max(end.committed or 0, end.log_start)
    if committed < end.log_end:
        yield f"was consumed by the group up to {committed}, but ends at {end.log_end}"


def _topics(history: History, final: FinalState) -> Iterator[str]:
    for broker, there in sorted(final.topics.items()):
        for name, topic in history.topics.items():
            if topic.created and not topic.delete_requested and name not in there:
                yield f"{name} is missing in the metadata of broker {broker}"
            if topic.deleted and name in there:
                yield f"{name} was deleted and is in the metadata of broker {broker}"
        for name in sorted(there - history.topics.keys()):
            yield f"{name} was never created and is in the metadata of broker {broker}"


def _configs(history: History, final: FinalState) -> Iterator[str]:
    for name, topic in history.topics.items():
        if topic.delete_requested:
            continue
        for key, value in topic.config.items():
            found = final.configs.get(name, {}).get(key)
            if found != value:
                yield f"{key} of {name} is {found}, not {value}"
