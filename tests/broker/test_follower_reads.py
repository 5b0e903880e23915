"""What followers answer to consumers (KIP-392), on real logs.

A follower may have less than its leader: it was added a moment ago, was away, or truncates its log. So it
cannot know whether an offset after its log end is out of range. OFFSET_OUT_OF_RANGE would make a consumer
reset its position. OFFSET_NOT_AVAILABLE makes it ask again, or ask the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.metadata.image import MetadataImage
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.list_offsets import ListOffsetsRequest
from quorate.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

from .fakes import broker, registration
from .pair import FOLLOWER, LEADER, Pair, placed, write
from .test_produce_fetch import fetch, part
from .test_replica_selector import RACK_AWARE
from .world import Broker, image_of, values_in

FIVE = (b"a", b"b", b"c", b"d", b"e")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def ask(pair: Pair, node_id: int, offset: int, *, last_epoch: int = -1, **request: Any) -> Any:
    """Fetches partition 0 as a consumer."""
    wanted = fetch("t", (0, offset), **request)
    wanted.topics[0].partitions[0].last_fetched_epoch = last_epoch
    return pair.brokers[node_id].ask(wanted)


def error(answer: Any) -> ErrorCode:
    return ErrorCode.of(part(answer).error_code)


def written(pair: Pair, *, copied: int) -> None:
    """The leader has five records in five batches, and the follower the first of them. The follower's high
    watermark is one less: it gets that of the leader with its next Fetch."""
    pair.follow()
    for count, value in enumerate(FIVE):
        write(pair, LEADER, value)
        if count < copied:
            pair.rounds()


def follower_is_added_again(pair: Pair) -> None:
    """The follower's replica is removed and added again: it begins with an empty log in the same epoch."""
    alone = registration(replicas=(LEADER,), partition_epoch=1)
    brokers = (broker(1, epoch=100), broker(2, epoch=200))
    pair.publish(image_of({"t": {0: alone}}, brokers=brokers))
    pair.publish(placed(partition_epoch=2, isr=(LEADER,)))
    assert (pair.log(FOLLOWER).log_end_offset, pair.log(LEADER).log_end_offset) == (0, 5)


def test_a_follower_that_was_added_again_has_an_offset_not_yet(pair):
    written(pair, copied=5)
    pair.rounds()
    assert values_in(part(ask(pair, FOLLOWER, 4)).records) == [b"e"]
    follower_is_added_again(pair)
    assert error(ask(pair, FOLLOWER, 4)) == ErrorCode.OFFSET_NOT_AVAILABLE
    assert error(ask(pair, FOLLOWER, 4, epoch=0, isolation=1)) == ErrorCode.OFFSET_NOT_AVAILABLE
    pair.follow()
    pair.rounds(2)
    assert values_in(part(ask(pair, FOLLOWER, 4)).records) == [b"e"]


@pytest.mark.parametrize(
    ("offset", "leader", "follower"),
    [
        pytest.param(0, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_OUT_OF_RANGE, id="deleted"),
        pytest.param(1, ErrorCode.NONE, ErrorCode.NONE, id="the log start"),
        pytest.param(2, ErrorCode.NONE, ErrorCode.NONE, id="the follower's high watermark"),
        pytest.param(3, ErrorCode.NONE, ErrorCode.NONE, id="the end of the follower's log"),
        pytest.param(4, ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE, id="after the follower's log"),
        pytest.param(5, ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE, id="the end of the leader's log"),
        pytest.param(6, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE, id="after both"),
    ],
)
@pytest.mark.parametrize("isolation", [0, 1])
def test_only_the_leader_finds_an_offset_after_the_log_end_out_of_range(
    pair, isolation, offset, leader, follower
):
    written(pair, copied=3)
    for node_id in (LEADER, FOLLOWER):
        pair.log(node_id).increment_log_start_offset(1, "test")
    follower_log = pair.log(FOLLOWER)
    assert (follower_log.high_watermark, follower_log.log_end_offset) == (2, 3)
    found = {
        node_id: error(ask(pair, node_id, offset, isolation=isolation)) for node_id in (LEADER, FOLLOWER)
    }
    assert found == {LEADER: leader, FOLLOWER: follower}


def test_an_error_has_no_offsets(pair):
    """librdkafka goes back to the leader if its position is above the high watermark of the error."""
    written(pair, copied=3)
    answer = part(ask(pair, FOLLOWER, 5))
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)


def test_a_follower_without_a_leader_has_an_offset_not_yet(pair):
    written(pair, copied=3)
    pair.publish(placed(leader=-1, epoch=1, partition_epoch=1, isr=(LEADER,)))
    assert error(ask(pair, FOLLOWER, 5, epoch=1)) == ErrorCode.OFFSET_NOT_AVAILABLE


def test_an_offset_that_a_follower_had_not_is_out_of_range_once_it_leads(pair):
    """Only after an unclean election. The consumer then learns that the records are lost."""
    written(pair, copied=3)
    pair.publish(placed(leader=FOLLOWER, epoch=1, partition_epoch=1, isr=(FOLLOWER,)))
    assert error(ask(pair, FOLLOWER, 5, epoch=1)) == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("epoch", "expected"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_the_leader_epoch_is_checked_before_the_offset(pair, epoch, expected):
    written(pair, copied=3)
    pair.publish(placed(epoch=1, partition_epoch=1))
    assert error(ask(pair, FOLLOWER, 5, epoch=epoch)) == expected


# -- diverging epochs


def test_a_follower_reports_no_divergence_to_a_consumer(pair):
    """Its log ends before the consumer's position, in the epoch of the consumer's last record. A consumer
    would truncate what it has read. Kafka's followers answer the end of their log."""
    written(pair, copied=3)
    answer = part(ask(pair, FOLLOWER, 5, last_epoch=0))
    assert ErrorCode.of(answer.error_code) == ErrorCode.OFFSET_NOT_AVAILABLE
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (-1, -1)


def test_a_follower_that_has_to_truncate_has_a_later_epoch_not_yet(pair):
    """Broker 2 led, and has a record that was not committed. The consumer has read another one there."""
    written(pair, copied=5)
    pair.publish(placed(leader=FOLLOWER, epoch=1, partition_epoch=1))
    write(pair, FOLLOWER, b"lost")
    pair.publish(placed(epoch=2, partition_epoch=2))
    write(pair, LEADER, b"kept")
    write(pair, LEADER, b"kept too")
    assert pair.log(FOLLOWER).log_end_offset == 6
    assert error(ask(pair, LEADER, 6, epoch=2, last_epoch=2)) == ErrorCode.NONE
    assert error(ask(pair, FOLLOWER, 6, epoch=2, last_epoch=2)) == ErrorCode.OFFSET_NOT_AVAILABLE


def test_a_follower_serves_a_consumer_whose_last_record_it_has(pair):
    written(pair, copied=5)
    pair.rounds()
    assert values_in(part(ask(pair, FOLLOWER, 3, last_epoch=0)).records) == [b"d", b"e"]


# -- waiting


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_fetch_above_the_high_watermark_waits_for_it(pair, isolation):
    """A consumer comes from a leader whose high watermark this follower gets with its next Fetch only."""
    written(pair, copied=5)
    write(pair, LEADER, b"f", b"g")
    pair.rounds()
    follower = pair.brokers[FOLLOWER]
    partition = follower.replicas.partition("t", 0)
    assert (partition.log.high_watermark, partition.log.log_end_offset) == (5, 7)
    waiting = ask(pair, FOLLOWER, 7, max_wait_ms=60_000, isolation=isolation)
    partition.follow_offsets(6, 0)  # the high watermark rises, and is still below the offset
    follower.turn()
    assert asyncio.isfuture(waiting) and not waiting.done()
    write(pair, LEADER, b"h")
    pair.rounds(2)
    answer = follower.wait(waiting, ApiKey.FETCH)
    assert values_in(part(answer).records) == [b"h"]


def test_a_fetch_that_waits_above_the_high_watermark_ends_when_its_offset_is_truncated(pair):
    written(pair, copied=5)
    log = pair.log(FOLLOWER)
    assert log.high_watermark == 4
    waiting = ask(pair, FOLLOWER, 5, max_wait_ms=60_000)
    pair.brokers[FOLLOWER].replicas.partition("t", 0).truncate_to(4)
    answer = pair.brokers[FOLLOWER].wait(waiting, ApiKey.FETCH)
    assert error(answer) == ErrorCode.OFFSET_NOT_AVAILABLE


# -- right after an election (KIP-207, KIP-320)


def just_elected(pair: Pair) -> MetadataImage:
    """Broker 2 has all records, but had the high watermark 4 as a follower. Now it leads."""
    written(pair, copied=5)
    elected = placed(leader=FOLLOWER, epoch=1, partition_epoch=1)
    pair.publish(elected)
    log = pair.log(FOLLOWER)
    assert (log.high_watermark, log.log_end_offset) == (4, 5)
    return elected


def latest(pair: Pair, *, replica_id: int = -1) -> tuple[ErrorCode, int]:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, current_leader_epoch=1, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])
    answer = pair.brokers[FOLLOWER].ask(ListOffsetsRequest(replica_id=replica_id, topics=[topic]))
    found = answer.topics[0].partitions[0]
    return ErrorCode.of(found.error_code), found.offset


def test_the_latest_offset_is_not_available_until_the_isr_has_what_the_epoch_began_with(pair):
    just_elected(pair)
    assert latest(pair) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert latest(pair, replica_id=1) == (ErrorCode.NONE, 5), "followers need the log end"
    write(pair, FOLLOWER, b"f")
    pair.follow(leader=FOLLOWER, follower=LEADER)
    pair.rounds()  # asks from offset 5: it has what the epoch began with, and "f" is not committed yet
    assert latest(pair) == (ErrorCode.NONE, 5)
    pair.rounds()
    assert latest(pair) == (ErrorCode.NONE, 6)


def test_the_latest_offset_is_available_at_once_if_the_leader_is_alone_in_the_isr(pair):
    written(pair, copied=5)
    pair.publish(placed(leader=FOLLOWER, epoch=1, partition_epoch=1, isr=(FOLLOWER,)))
    assert latest(pair) == (ErrorCode.NONE, 5)


def test_the_latest_offset_is_not_available_while_the_isr_is_smaller_than_the_minimum(pair):
    """The high watermark does not rise meanwhile (KIP-966)."""
    written(pair, copied=5)

    def elected(isr: tuple[int, ...], partition_epoch: int) -> MetadataImage:
        alone = registration((1, 2), isr, leader=FOLLOWER, leader_epoch=1, partition_epoch=partition_epoch)
        brokers = (broker(1, epoch=100), broker(2, epoch=200))
        return image_of({"t": {0: alone}}, brokers, {(2, "t"): {"min.insync.replicas": "2"}})

    pair.publish(elected((FOLLOWER,), 1))
    pair.follow(leader=FOLLOWER, follower=LEADER)
    pair.rounds()
    assert latest(pair) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    pair.publish(elected((FOLLOWER, LEADER), 2))
    assert latest(pair) == (ErrorCode.NONE, 5)


def test_a_position_that_the_former_leader_committed_is_valid_for_the_new_one(pair):
    """Its high watermark is still below the position. The epoch of the last record ends above it."""
    just_elected(pair)
    assert error(ask(pair, FOLLOWER, 5, epoch=1)) == ErrorCode.NONE
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=1, leader_epoch=0
    )
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[wanted])
    answer = pair.brokers[FOLLOWER].ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 5)


# -- hints (KIP-951)


@pytest.mark.parametrize(
    ("leader", "rack", "hint"),
    [
        pytest.param(1, "", (1, 1), id="the leader, to a consumer without a rack"),
        pytest.param(1, "r1", (-1, -1), id="the leader, to a consumer with a rack"),
        pytest.param(2, "r1", (2, 1), id="a follower, to a consumer with a rack"),
    ],
)
def test_a_consumer_that_may_have_read_from_a_follower_gets_no_hint_from_the_new_leader(
    tmp_path, leader, rack, hint
):
    """librdkafka goes back to the former leader after the error. With a hint at the same time it may stay
    there."""
    image = image_of({"t": {0: registration(replicas=(1, 2), leader=leader, leader_epoch=1)}})
    world = Broker(tmp_path, image, replica_selector_class=RACK_AWARE)
    answer = part(world.ask(fetch("t", (0, 0), epoch=0, rack_id=rack)))
    assert ErrorCode.of(answer.error_code) == ErrorCode.FENCED_LEADER_EPOCH
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == hint
    world.close()
