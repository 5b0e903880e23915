"""A follower's idle Fetch does not read the partitions of which nothing is new, and every change of a
partition makes its leader read it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.handlers.fetch import AT_ONCE
from quorate.broker.handlers.fetch_steps import FetchSteps
from quorate.broker.replication.fetch_session import FetchSession
from quorate.broker.replication.partition import Partition
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchRequest

from .fakes import broker, registration
from .pair import FOLLOWER, LEADER, Pair, placed, write
from .world import image_of, topic_id_of

PARTITIONS = 20
KEY = (topic_id_of("t"), 3)


@pytest.fixture
def pair(tmp_path: Path):
    made = Pair(tmp_path, placed(partitions=PARTITIONS))
    made.follow()
    made.rounds(3)
    yield made
    made.close()


def leader(pair: Pair) -> Partition:
    return pair.brokers[LEADER].replicas.partition("t", KEY[1])


def session(pair: Pair) -> FetchSession:
    (found,) = pair.brokers[LEADER].services.sessions.cache
    return found


def reads(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects the partitions that are read from now on."""
    found: list[int] = []
    check = Partition.check_leader

    def noting(partition: Partition, *args: Any, **kwargs: Any) -> None:
        found.append(partition.partition)
        check(partition, *args, **kwargs)

    monkeypatch.setattr(Partition, "check_leader", noting)
    return found


def test_an_idle_fetch_reads_no_partition(pair, monkeypatch):
    found = reads(pair, monkeypatch)
    pair.rounds(5)
    assert found == []
    assert (len(session(pair).partitions), len(session(pair).quiet)) == (PARTITIONS, PARTITIONS)


def test_a_fetch_after_an_append_reads_one_partition(pair, monkeypatch):
    found = reads(pair, monkeypatch)
    write(pair, LEADER, b"a", partition=KEY[1])
    pair.rounds(4)
    assert set(found) == {KEY[1]}
    assert pair.log(FOLLOWER, KEY[1]).high_watermark == 1


@pytest.fixture
def large(tmp_path: Path):
    """A pair with so many partitions that a Fetch of all of them takes several turns of the event loop."""
    made = Pair(tmp_path, placed(partitions=AT_ONCE + 100))
    made.follow()
    made.rounds(3)
    yield made
    made.close()


def test_the_partitions_of_a_large_fetch_become_quiet(large, monkeypatch):
    assert len(session(large).quiet) == AT_ONCE + 100
    found = reads(large, monkeypatch)
    large.rounds(3)
    assert found == []
    write(large, LEADER, b"a", partition=KEY[1])
    large.rounds()
    assert set(found) == {KEY[1]} and large.log(FOLLOWER, KEY[1]).log_end_offset == 1


def test_a_waiting_large_fetch_is_answered_when_a_quiet_partition_changes(large):
    """All others have been read again because of a new leader epoch, so the Fetch is a large one."""
    image = placed(epoch=1, partition_epoch=1, partitions=AT_ONCE + 100)
    quiet = session(large).quiet
    for index in range(AT_ONCE + 50):
        partition = large.brokers[LEADER].replicas.partition("t", index)
        partition.make_leader(image.topics.by_name["t"].partitions[index], 0.0)
        large.brokers[FOLLOWER].replicas.partition("t", index).make_follower(
            image.topics.by_name["t"].partitions[index]
        )
        large.fetcher.remove(large.brokers[FOLLOWER].replicas.partition("t", index))
        large.fetcher.add(large.brokers[FOLLOWER].replicas.partition("t", index))
    assert len(quiet) == 50
    large.fetcher._max_wait_ms = 60_000

    async def waiting() -> None:
        fetch = asyncio.ensure_future(large.fetcher._fetch_once())
        while quiet.waiting is None:
            await asyncio.sleep(0.01)
        write(large, LEADER, b"a", partition=AT_ONCE + 60)
        await asyncio.wait_for(fetch, 30)

    large.loop.run_until_complete(waiting())
    large.rounds()
    assert large.log(FOLLOWER, AT_ONCE + 60).log_end_offset == 1


@pytest.mark.parametrize("at_once", [0, AT_ONCE], ids=["large", "small"])
def test_a_change_before_a_fetch_begins_to_wait_ends_its_wait(pair, monkeypatch, at_once):
    """The pages of another partition are being read ahead in a thread at that moment."""
    monkeypatch.setattr("quorate.broker.handlers.fetch.AT_ONCE", at_once)
    pair.fetcher._max_wait_ms = 60_000
    other = pair.brokers[FOLLOWER].replicas.partition("t", 0)
    pair.fetcher.remove(other)
    pair.fetcher.add(other)
    del pair.fetcher._session.sent[(other.topic_id, 0)]  # the next request contains it
    changed = False
    cold_regions = FetchSteps.cold_regions

    def change(self: FetchSteps, wanted: Any) -> Any:
        nonlocal changed
        if not changed and wanted:
            changed = True
            write(pair, LEADER, b"a", partition=KEY[1])
        return cold_regions(self, wanted)

    monkeypatch.setattr(FetchSteps, "cold_regions", change)
    pair.loop.run_until_complete(asyncio.wait_for(pair.fetcher._fetch_once(), 30))
    assert changed
    pair.fetcher._max_wait_ms = 0
    pair.rounds()
    assert pair.log(FOLLOWER, KEY[1]).log_end_offset == 1


def appended(pair: Pair) -> None:
    write(pair, LEADER, b"a", partition=KEY[1])


def new_leader_epoch(pair: Pair) -> None:
    pair.brokers[LEADER].publish(placed(epoch=1, partition_epoch=1, partitions=PARTITIONS))


def left_the_isr(pair: Pair) -> None:
    pair.brokers[LEADER].publish(placed(isr=(LEADER,), partition_epoch=1, partitions=PARTITIONS))


def followed_elsewhere(pair: Pair) -> None:
    pair.brokers[LEADER].publish(placed(leader=FOLLOWER, epoch=1, partition_epoch=1, partitions=PARTITIONS))


def deleted(pair: Pair) -> None:
    pair.brokers[LEADER].publish(image_of({}))


def truncated(pair: Pair) -> None:
    leader(pair).truncate_to(0)


def raised_by_retention(pair: Pair) -> None:
    log = leader(pair).log
    write(pair, LEADER, b"a", partition=KEY[1])
    pair.rounds(4)
    assert KEY not in session(pair).active
    log.increment_log_start_offset(1, "retention")
    pair.brokers[LEADER].replicas.shrink_isrs()


def read_by_another_session(pair: Pair) -> None:
    leader(pair).follower_fetched(FOLLOWER, 200, 0, 0, 0, 0.0)


@pytest.mark.parametrize(
    "change",
    [
        appended,
        new_leader_epoch,
        left_the_isr,
        followed_elsewhere,
        deleted,
        truncated,
        raised_by_retention,
        read_by_another_session,
    ],
)
def test_a_changed_partition_is_read_again(pair, change: Callable[[Pair], None]):
    assert KEY not in session(pair).active
    change(pair)
    assert KEY in session(pair).active


@pytest.mark.parametrize("change", [appended, new_leader_epoch, followed_elsewhere, deleted])
def test_a_waiting_fetch_is_answered_when_a_quiet_partition_changes(pair, change: Callable[[Pair], None]):
    pair.fetcher._max_wait_ms = 60_000

    async def waiting() -> None:
        fetch = asyncio.ensure_future(pair.fetcher._fetch_once())
        await asyncio.sleep(0.02)
        assert not fetch.done()
        change(pair)
        await asyncio.wait_for(fetch, 10)

    pair.loop.run_until_complete(waiting())


def test_a_second_append_wakes_a_fetch_that_waits_for_more(pair):
    pair.fetcher._max_wait_ms, pair.fetcher._min_bytes = 60_000, 100

    async def waiting() -> None:
        fetch = asyncio.ensure_future(pair.fetcher._fetch_once())
        await asyncio.sleep(0)
        write(pair, LEADER, b"a", partition=KEY[1])
        await asyncio.sleep(0.02)
        assert not fetch.done()
        write(pair, LEADER, b"a", partition=KEY[1])
        await asyncio.wait_for(fetch, 10)

    pair.loop.run_until_complete(waiting())
    assert pair.values(FOLLOWER) == [] and pair.log(FOLLOWER, KEY[1]).log_end_offset == 2


def test_an_idle_follower_was_caught_up_at_its_last_fetch(pair):
    clock = pair.brokers[LEADER].clock
    clock.time_s += 100
    pair.rounds()
    at = clock.time_s
    clock.time_s += 5
    appended(pair)
    assert leader(pair).followers[FOLLOWER].last_caught_up == at


def test_a_partition_that_the_follower_has_forgotten_was_caught_up_before_that(pair):
    clock = pair.brokers[LEADER].clock
    pair.rounds()
    at = clock.time_s
    pair.fetcher.remove(pair.brokers[FOLLOWER].replicas.partition("t", KEY[1]))
    clock.time_s += 100
    pair.rounds()
    appended(pair)
    assert leader(pair).followers[FOLLOWER].last_caught_up == at
    assert KEY not in session(pair).partitions


def test_an_idle_follower_stays_in_the_isr(pair):
    replicas = pair.brokers[LEADER].replicas
    pair.brokers[LEADER].clock.time_s += 1000
    pair.rounds()
    replicas.shrink_isrs()
    assert replicas.isr_sender.changes == []


def test_a_follower_without_a_fetch_leaves_the_isr_after_an_append(pair):
    replicas = pair.brokers[LEADER].replicas
    appended(pair)
    pair.brokers[LEADER].clock.time_s += 31
    replicas.shrink_isrs()
    assert [change.isr for change in replicas.isr_sender.changes] == [(LEADER,)]


def test_a_follower_outside_of_the_isr_is_read_until_it_has_joined(pair):
    left_the_isr(pair)
    pair.rounds(3)
    changes = pair.brokers[LEADER].replicas.isr_sender.changes
    assert len(changes) == PARTITIONS and not session(pair).quiet
    pair.brokers[LEADER].publish(placed(partition_epoch=2, partitions=PARTITIONS))
    pair.rounds()
    assert len(session(pair).quiet) == PARTITIONS


def test_an_older_incarnation_of_the_follower_is_refused(pair):
    """Also of quiet partitions, from the moment at which the leader knows the newer one."""
    one = registration(replicas=(1, 2))
    image = image_of({"t": dict.fromkeys(range(PARTITIONS), one)}, brokers=(broker(1), broker(2, epoch=300)))
    pair.brokers[LEADER].publish(image)
    found = session(pair)
    request = FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=FOLLOWER, replica_epoch=200),
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=found.id,
        session_epoch=found.epoch,
    )
    answer = pair.brokers[LEADER].ask(request)
    errors = {part.error_code for topic in answer.responses for part in topic.partitions}
    assert errors == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
