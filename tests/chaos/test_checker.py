"""A correct history passes the checker, and a violation of each property is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.chaos.checker import check
from tests.chaos.history import (
    Commit,
    FinalPartition,
    FinalState,
    History,
    PartitionHistory,
    Records,
    TopicHistory,
    Watermark,
    token,
)

A, B = 1, 2
READER = "reader in rack-6"
KEPT, TRIMMED = ("kept", 0), ("trimmed", 0)
HELD = [(0, token(A, 0)), (1, token(B, 0)), (2, token(A, 1)), (3, token(A, 2)), (4, token(B, 1))]


def correct() -> tuple[History, FinalState]:
    """Two producers, a reader, a group and an operator, all of them served correctly."""
    history, final = History(), FinalState()
    for name in (KEPT, TRIMMED):
        partition = history.partitions[name]
        partition.sent.update({A: 3, B: 2})
        partition.acknowledged = Records([*HELD[:4], (-1, token(B, 1))])
        partition.read[READER] = Records(HELD)
        for offset, _ in HELD:
            partition.consume(offset)
        partition.watermarks = [Watermark(1, 2, 0, 3), Watermark(3, 4, 1, 5), Watermark(5, 6, 0, 4)]
        partition.commits = [Commit(1, 2, 2), Commit(5, 6, 4), Commit(8, 9, 5)]
        partition.fetched_commits = [Commit(0, 1, 0), Commit(3, 4, 2), Commit(5.5, 7, 2), Commit(7, 8, 4)]
        final.partitions[name] = FinalPartition(0, 5, Records(HELD), 5)
    trimmed = history.partitions[TRIMMED]
    trimmed.delete_requested, trimmed.delete_acknowledged = 3, 2
    trimmed.read[READER] = Records(HELD[:1] + HELD[3:])
    final.partitions[TRIMMED] = FinalPartition(2, 5, Records(HELD[2:]), 5)
    history.topics = {
        "kept": TopicHistory(created=True, config={"retention.ms": "7"}),
        "unknown": TopicHistory(delete_requested=True, created=True),
        "gone": TopicHistory(created=True, delete_requested=True, deleted=True, config={"retention.ms": "1"}),
        "requested": TopicHistory(),
    }
    final.topics = {4: {"kept", "unknown"}, 5: {"kept", "requested"}}
    final.configs = {"kept": {"retention.ms": "7", "segment.ms": "1"}}
    return history, final


def test_a_correct_history_has_no_violation() -> None:
    assert check(*correct()) == []


def with_kept(change: Callable[[PartitionHistory, FinalPartition], object]) -> Callable[..., object]:
    return lambda history, final: change(history.partitions[KEPT], final.partitions[KEPT])


def records_at_the_end(*records: tuple[int, int]) -> Callable[..., object]:
    def change(partition: PartitionHistory, end: FinalPartition) -> None:
        end.records, partition.acknowledged = Records(list(records)), Records()
        partition.read.clear()

    return with_kept(change)


def reads(records: list[tuple[int, int]]) -> Callable[..., object]:
    return with_kept(lambda partition, _: partition.read.update({READER: Records(records)}))


def set_at_the_end(**values: object) -> Callable[..., object]:
    return with_kept(lambda _, end: [setattr(end, key, value) for key, value in values.items()])


PLANTED: dict[str, tuple[Callable[..., object], str]] = {
    "the last record is gone": (
        set_at_the_end(records=Records(HELD[:4])),
        "lost: kept-0 lost record 1 of producer 2, acknowledged as a duplicate",
    ),
    "a record in the middle is gone": (
        set_at_the_end(records=Records(HELD[:2] + HELD[3:])),
        "lost: kept-0 lost record 1 of producer 1, acknowledged at 2",
    ),
    "a record that was a duplicate is nowhere": (
        lambda h, f: h.partitions[KEPT].acknowledged.add(-1, token(A, 3)),
        "lost: kept-0 lost record 3 of producer 1, acknowledged as a duplicate",
    ),
    "another record is at the offset": (
        lambda h, f: h.partitions[KEPT].acknowledged.tokens.__setitem__(0, token(B, 7)),
        "lost: kept-0 has record 0 of producer 1 at 0, where record 7 of producer 2 was acknowledged",
    ),
    "a partition is gone": (lambda h, f: f.partitions.pop(KEPT), "lost: kept-0 could not be read"),
    "a record is there twice": (
        records_at_the_end(*HELD, (5, token(A, 2))),
        "doubled: kept-0 has record 2 of producer 1 at 3 and at 5",
    ),
    "an offset is acknowledged twice": (
        lambda h, f: h.partitions[KEPT].acknowledged.add(3, token(A, 3)),
        "doubled: kept-0 acknowledged record 2 of producer 1 and record 3 of producer 1 at 3",
    ),
    "records change places": (
        records_at_the_end((0, token(A, 1)), (1, token(B, 0)), (2, token(A, 0))),
        "order: kept-0 has record 0 of producer 1 at 2, after record 1 of that producer",
    ),
    "a record is there twice in the second epoch": (
        with_kept(
            lambda partition, end: (
                end.producer_epochs.update({5: 1, 6: 1})
                or setattr(end, "records", Records([*HELD, (5, token(A, 2)), (6, token(A, 2))]))
            )
        ),
        "doubled: kept-0 has record 2 of producer 1 at 5 and at 6",
    ),
    "a producer epoch returns": (
        lambda h, f: f.partitions[KEPT].producer_epochs.update({2: 1}),
        "order: kept-0 has record 2 of producer 1 at 3 in epoch 0, after epoch 1",
    ),
    "replicas differ": (
        set_at_the_end(differences=["differs at 3 on the brokers 4 and 6"]),
        "replicas: kept-0 differs at 3 on the brokers 4 and 6",
    ),
    "a record was never sent": (
        records_at_the_end(*HELD, (5, token(A, 3))),
        "order: kept-0 has record 3 of producer 1 at 5, which was never sent",
    ),
    "a consumer reads a record that vanishes": (
        lambda h, f: h.partitions[KEPT].read[READER].add(5, token(A, 3)),
        "read: kept-0 has nothing at 5, where reader in rack-6 read record 3 of producer 1",
    ),
    "a consumer goes back": (
        lambda h, f: h.partitions[KEPT].read[READER].add(2, token(A, 1)),
        "read: kept-0 was read by reader in rack-6 at 2 after 4",
    ),
    "a consumer misses a record": (
        reads(HELD[:1] + HELD[2:]),
        "read: kept-0 was read by reader in rack-6 at 2, but not at 1",
    ),
    "a reader stops before the end": (
        reads(HELD[:4]),
        "end: kept-0 was read by reader in rack-6 up to 4, but ends at 5",
    ),
    "a reader reads nothing": (reads([]), "end: kept-0 was read by reader in rack-6 up to 0, but ends at 5"),
    "a second reader reads nothing": (
        with_kept(lambda partition, _: partition.read.update(reader=Records())),
        "end: kept-0 was read by reader up to 0, but ends at 5",
    ),
    "a reader stops where records were deleted": (
        lambda h, f: h.partitions[TRIMMED].read.update({READER: Records(HELD[:1])}),
        "end: trimmed-0 was read by reader in rack-6 up to 2, but ends at 5",
    ),
    "new consumers do not come to the end": (
        set_at_the_end(log_end=6),
        "end: kept-0 was read by a new consumer up to 5, but ends at 6",
    ),
    "the group stops before the end": (
        set_at_the_end(committed=4),
        "end: kept-0 was consumed by the group up to 4, but ends at 5",
    ),
    "deleted records come back": (
        lambda h, f: setattr(f.partitions[TRIMMED], "log_start", 0),
        "log start: trimmed-0 starts at 0, but 2 was acknowledged",
    ),
    "records are deleted unasked": (
        set_at_the_end(log_start=1),
        "log start: kept-0 starts at 1, but deletion was requested up to 0",
    ),
    "the high watermark falls in an epoch": (
        lambda h, f: h.partitions[KEPT].watermarks.append(Watermark(7, 8, 1, 4)),
        "high watermark: kept-0 had the high watermark 5 in epoch 1, and 4.0 s later 4 in epoch 1",
    ),
    "the high watermark falls with a new leader": (
        lambda h, f: h.partitions[KEPT].watermarks.append(Watermark(7, 8, 2, 4)),
        "high watermark: kept-0 had the high watermark 5 in epoch 1, and 4.0 s later 4 in epoch 2",
    ),
    "an older committed offset is fetched": (
        lambda h, f: h.partitions[KEPT].fetched_commits.append(Commit(7, 8, 3)),
        "committed offset: kept-0 had the committed offset 4, then 3 was fetched",
    ),
    "a committed offset is lost at the end": (
        set_at_the_end(committed=2),
        "committed offset: kept-0 had the committed offset 5, at the end it is 2",
    ),
    "all committed offsets are lost": (
        set_at_the_end(committed=None),
        "committed offset: kept-0 had the committed offset 5, at the end it is None",
    ),
    "the group skips a record": (
        lambda h, f: h.partitions[KEPT].consumed.__setitem__(1, 0),
        "group: kept-0 has record 0 of producer 2 at 1, which no member of the group got",
    ),
    "an answered topic does not exist": (
        lambda h, f: f.topics[5].discard("kept"),
        "topic: kept is missing in the metadata of broker 5",
    ),
    "a deleted topic exists": (
        lambda h, f: f.topics[4].add("gone"),
        "topic: gone was deleted and is in the metadata of broker 4",
    ),
    "a topic appears": (
        lambda h, f: f.topics[4].add("strange"),
        "topic: strange was never created and is in the metadata of broker 4",
    ),
    "an answered value is not in force": (
        lambda h, f: f.configs["kept"].update({"retention.ms": "6"}),
        "config: retention.ms of kept is 6, not 7",
    ),
    "a client gets an error": (
        lambda h, f: h.client_errors.append("producer 1: _MSG_TIMED_OUT"),
        "client: producer 1: _MSG_TIMED_OUT",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_violation_is_found(planted: str) -> None:
    change, expected = PLANTED[planted]
    history, final = correct()
    change(history, final)
    assert expected in map(str, check(history, final))


def test_each_property_has_a_planted_violation() -> None:
    found: Counter[str] = Counter(expected.partition(":")[0] for _, expected in PLANTED.values())
    assert set(found) == {
        "lost", "doubled", "order", "replicas", "read", "log start", "high watermark", "committed offset", "group", "topic",
        "config", "client", "end",
    }  # fmt: skip


def test_reads_from_a_broker_that_is_cut_off_prove_nothing() -> None:
    history, final = correct()
    history.cut_off.append((7.5, 9))
    partition = history.partitions[KEPT]
    partition.watermarks.append(Watermark(7, 8, 1, 4))
    partition.fetched_commits.append(Commit(8, 9, 0))
    assert check(history, final) == []


def test_a_producer_that_takes_a_new_epoch_may_send_records_again() -> None:
    history, final = correct()
    end = final.partitions[KEPT]
    end.records = Records([*HELD, (5, token(A, 1)), (6, token(A, 2))])
    end.producer_epochs = {5: 1, 6: 1}
    assert check(history, final) == []


def test_a_partition_whose_records_are_all_deleted_is_read_to_its_end() -> None:
    history, final = correct()
    trimmed = history.partitions[TRIMMED]
    trimmed.delete_requested, trimmed.read[READER] = 5, Records(HELD[:2])
    final.partitions[TRIMMED] = FinalPartition(5, 5, Records(), None)
    trimmed.commits = []
    assert check(history, final) == []


def test_few_violations_of_a_kind_are_reported() -> None:
    history, final = correct()
    partition = history.partitions[KEPT]
    partition.sent[A] = 10_000
    for sequence in range(3, 10_000):
        partition.acknowledged.add(sequence + 2, token(A, sequence))
    assert len(check(history, final)) == 10
