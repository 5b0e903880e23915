"""A follower continues at the end of its own log, whatever happened before: no gap, no overlap, and
nothing of the leader's log is left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.log.partition.partition_log import PartitionLog
from quorate.records.batch import set_placement

from .pair import FOLLOWER, LEADER, Pair, placed, write
from .world import batch_of, values_in


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def copied(pair: Pair, offset: int, epoch: int, *values: bytes) -> None:
    """Appends a batch to the follower's log, as copied from a former leader."""
    batch = bytearray(batch_of(*values))
    set_placement(batch, offset, epoch)
    log = pair.log(FOLLOWER)
    log.append_as_follower(bytes(batch))
    log.high_watermark = log.log_end_offset


def assert_equal_logs(pair: Pair, *values: bytes) -> None:
    assert pair.values(FOLLOWER) == pair.values(LEADER) == list(values)
    ours, theirs = pair.log(FOLLOWER), pair.log(LEADER)
    assert (ours.log_start_offset, ours.log_end_offset) == (theirs.log_start_offset, theirs.log_end_offset)


def test_a_batch_across_the_leaders_end_is_copied_again_from_its_start(pair: Pair) -> None:
    """The leader's log is shorter (unclean election), and a log without epochs cannot be compared with it."""
    copied(pair, 0, -1, b"old1", b"old2", b"old3")
    write(pair, LEADER, b"a")
    write(pair, LEADER, b"b")
    pair.follow()
    pair.rounds(3)
    assert_equal_logs(pair, b"a", b"b")


def test_an_empty_log_after_the_leaders_end_starts_where_the_leaders_log_starts(pair: Pair) -> None:
    pair.log(FOLLOWER).truncate_fully_and_start_at(10)
    write(pair, LEADER, b"a")
    write(pair, LEADER, b"b")
    pair.follow()
    pair.rounds(3)
    assert_equal_logs(pair, b"a", b"b")


def test_a_log_that_diverges_before_its_start_starts_where_the_leaders_log_starts(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    write(pair, LEADER, b"a", b"b")
    pair.publish(placed(epoch=1, partition_epoch=1))
    write(pair, LEADER, b"c")
    copied(pair, 0, 0, b"a", b"b", b"x", b"y", b"z")
    pair.log(FOLLOWER).increment_log_start_offset(4, "test")
    pair.follow()
    pair.rounds(3)
    assert_equal_logs(pair, b"a", b"b", b"c")
    pair.close()


def test_an_unexpected_error_after_the_append_does_not_repeat_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.follow()
    write(pair, LEADER, b"a")
    append, errors = PartitionLog.append_as_follower, [RuntimeError("planted")]

    def failing(log: PartitionLog, *args: Any, **options: Any) -> Any:
        info = append(log, *args, **options)
        if errors:
            raise errors.pop()
        return info

    monkeypatch.setattr(PartitionLog, "append_as_follower", failing)
    assert pair.fetcher is not None
    (followed,) = pair.fetcher._states.values()
    pair.rounds()
    assert (followed.failures, pair.values(FOLLOWER)) == (1, [b"a"])
    followed.delayed_until = 0.0
    write(pair, LEADER, b"b")
    pair.rounds(2)
    assert followed.failures == 0
    assert_equal_logs(pair, b"a", b"b")


def with_gap(pair: Pair) -> None:
    """Gives the broker that leads first a log without its offsets 1 and 2, which a power failure has lost."""
    write(pair, LEADER, b"kept")
    log = pair.log(LEADER)
    kept = log.size_bytes
    write(pair, LEADER, b"lost", b"lost")
    log.roll()
    write(pair, LEADER, b"later")
    os.truncate(log.segments[0].log_path, kept)
    replicas = pair.brokers[LEADER].replicas
    partition = replicas.partition("t", 0)
    partition.forget_log()
    partition.use_log(
        PartitionLog.open(log.dir, log.config, files=pair.brokers[LEADER].logs.files, topic_id=log.topic_id)
    )
    assert pair.log(LEADER).gap_start == 1


def test_a_former_leader_in_the_isr_keeps_the_records_after_its_gap(pair: Pair) -> None:
    """It has acknowledged them. If the new leader died at once, this replica would be elected."""
    with_gap(pair)
    pair.publish(placed(epoch=1, partition_epoch=1, isr=(1,)))
    write(pair, LEADER, b"acknowledged")
    pair.follow()
    pair.rounds(3)
    pair.publish(placed(epoch=1, partition_epoch=2))
    acknowledged = pair.log(LEADER).high_watermark
    assert acknowledged == pair.log(LEADER).log_end_offset == 5
    pair.publish(placed(FOLLOWER, epoch=2, partition_epoch=3))
    pair.follow(FOLLOWER, LEADER)
    assert pair.log(LEADER).log_end_offset == pair.log(LEADER).high_watermark == acknowledged
    write(pair, FOLLOWER, b"next")
    pair.rounds(2)
    assert pair.values(FOLLOWER) == [b"kept", b"later", b"acknowledged", b"next"]
    assert values_in(pair.log(LEADER).read_bytes(3, 1 << 20)) == [b"later", b"acknowledged", b"next"]
