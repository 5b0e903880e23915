"""The throttle of replication: the measured rate, which partitions it applies to, and what a leader and a
follower hold back."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.replication.replication_quota import (
    UNLIMITED,
    ReplicationQuota,
    ReplicationQuotas,
    SampledRate,
    throttled_partitions,
)
from quorate.metadata.image import MetadataDelta
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.messages.fetch import FetchRequest
from tests.support import java

from .fakes import broker, registration
from .test_fetcher import FOLLOWER, LEADER, Pair, write
from .world import image_of, topic_id_of, values_in

TOPIC, BROKER = int(ConfigResourceType.TOPIC), int(ConfigResourceType.BROKER)
RATES = [f"{side}.replication.throttled.rate" for side in ("leader", "follower")]
REPLICAS = [f"{side}.replication.throttled.replicas" for side in ("leader", "follower")]


# --- the rate -------------------------------------------------------------------------------------


def test_a_burst_counts_over_one_window_at_least() -> None:
    rate = SampledRate(11, 1.0)
    rate.record(5000, 100.0)
    assert rate.measure(100.0) == rate.measure(101.0) == 5000
    assert rate.measure(105.0) == 1000


def test_bytes_are_forgotten_after_all_windows() -> None:
    rate = SampledRate(11, 1.0)
    rate.record(5000, 100.0)
    assert rate.measure(110.9) > 0
    assert rate.measure(111.0) == 0


def test_a_steady_rate_is_measured_as_it_is() -> None:
    rate = SampledRate(11, 1.0)
    for second in range(200):
        rate.record(1000, 100.0 + second)
    assert rate.measure(300.0) == pytest.approx(1000, rel=0.1)


@pytest.mark.java
def test_the_rate_is_kafkas() -> None:
    """Random bytes at random times, beside `SimpleRate` of Apache Kafka."""
    random_ = random.Random(7)
    lines: list[str] = []
    ours: list[float] = []
    for _ in range(20):
        samples, window_s = random_.randint(1, 11), random_.randint(1, 5)
        lines.append(f"{samples} {window_s}")
        # In milliseconds here, because sums of fractions of a second are not exact.
        rate, now_ms = SampledRate(samples, window_s * 1000), 1_000_000
        for _ in range(300):
            now_ms += random_.choice((0, 1, 100, 1000, 1001, random_.randint(0, 20_000)))
            if random_.random() < 0.5:
                value = random_.randint(0, 10_000_000)
                rate.record(value, now_ms)
                lines.append(f"record {value} {now_ms}")
            else:
                ours.append(rate.measure(now_ms) * 1000)
                lines.append(f"measure {now_ms}")
    folder = java.require_java("4.4.0")
    done = subprocess.run(
        [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{folder}/*",
            str(Path(__file__).parent / "SimpleRates.java"),
        ],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = [float(line) for line in done.stdout.split()]
    assert len(theirs) > 1000
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_a_limit_is_kept_over_time() -> None:
    """Whoever sends up to 100,000 bytes whenever the limit allows sends at the limit, and one burst more."""
    quota, now, sent = ReplicationQuota(), 1000.0, 0
    quota.set_limit(50_000)
    while now < 1100.0:
        if not quota.is_exceeded(now):
            quota.record(100_000, now)
            sent += 100_000
        now += 0.05
    assert 0.9 * 5_000_000 <= sent <= 5_000_000 + 200_000


def test_a_limit_that_is_raised_counts_at_once() -> None:
    quota = ReplicationQuota()
    quota.set_limit(1000)
    quota.record(50_000, 1000.0)
    assert quota.is_exceeded(1001.0)
    quota.set_limit(UNLIMITED)
    assert not quota.is_exceeded(1001.0)


# --- which partitions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "throttled"),
    [
        ("", []),
        ("*", [0, 1, 2, 3]),
        ("0:1,1:2,3:1", [0, 3]),
        (" 0:1 , 2:1", [0, 2]),
        ("0:2,1:3", []),
        ("0:1,1:" + "1" * 5000 + "," + "1" * 5000 + ":1", [0]),
    ],
)
def test_a_list_names_the_partitions_of_this_broker(replicas: str, throttled: list[int]) -> None:
    quota = ReplicationQuota()
    quota.set_throttled("t", throttled_partitions(replicas, 1))
    assert [partition for partition in range(4) if quota.is_throttled("t", partition)] == throttled
    assert not quota.is_throttled("another", 0)


def configs(**entries: dict[str, str]) -> Any:
    """An image with configurations of `t`, of broker 1 (`one`), and of all brokers (`every`)."""
    keys = {"t": (TOPIC, "t"), "one": (BROKER, "1"), "every": (BROKER, "")}
    return image_of({}, configs={keys[name]: values for name, values in entries.items()})


@pytest.mark.parametrize(
    ("image", "limits"),
    [
        (configs(), [UNLIMITED, UNLIMITED]),
        (configs(every={RATES[0]: "100"}), [100, UNLIMITED]),
        (configs(every={RATES[0]: "100"}, one={RATES[0]: "7"}), [7, UNLIMITED]),
        (configs(one={RATES[1]: "7"}), [UNLIMITED, 7]),
    ],
)
def test_the_limit_of_a_broker_goes_before_that_of_all(image: Any, limits: list[int]) -> None:
    quotas = ReplicationQuotas(1)
    quotas.apply_delta(MetadataDelta(image_of({}), image))
    assert [quotas.leader.limit, quotas.follower.limit] == limits


def test_removed_configs_end_the_throttle() -> None:
    quotas = ReplicationQuotas(1)
    before = configs(t=dict.fromkeys(REPLICAS, "*"), every=dict.fromkeys(RATES, "100"))
    quotas.apply_delta(MetadataDelta(image_of({}), before))
    assert quotas.leader.is_active and quotas.follower.is_active
    quotas.apply_delta(MetadataDelta(before, image_of({})))
    assert not quotas.leader.is_active and not quotas.follower.is_active
    assert (quotas.leader.limit, quotas.follower.limit) == (UNLIMITED, UNLIMITED)


# --- leader and follower --------------------------------------------------------------------------


def placed(isr: tuple[int, ...] = (LEADER,), side: int | None = None, partition_epoch: int = 0) -> Any:
    """Two partitions of `t`, the first of which is throttled to 1000 bytes a second on one side."""
    one = registration(replicas=(1, 2), isr=isr, partition_epoch=partition_epoch)
    throttled = (
        {}
        if side is None
        else {
            (TOPIC, "t"): {REPLICAS[side]: f"0:{(LEADER, FOLLOWER)[side]}"},
            (BROKER, ""): {RATES[side]: "1000"},
        }
    )
    return image_of(
        {"t": {0: one, 1: one}}, brokers=(broker(1, epoch=100), broker(2, epoch=200)), configs=throttled
    )


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, placed())
    yield made
    made.close()


def throttle(pair: Pair, image: Any) -> None:
    old = pair.brokers[LEADER].metadata.image
    pair.publish(image)
    for one in pair.brokers.values():
        one.replicas.quotas.apply_delta(MetadataDelta(old, image))


def pass_time(pair: Pair, seconds: float) -> None:
    for one in pair.brokers.values():
        one.clock.time_s += seconds


def copied(pair: Pair) -> list[int]:
    return [pair.log(FOLLOWER, partition).log_end_offset for partition in (0, 1)]


BOTH_SIDES = pytest.mark.parametrize("side", [0, 1], ids=["leader", "follower"])


def follow_slowly(pair: Pair, side: int) -> None:
    """Throttles the first partition, writes two batches to it, and copies the first of them. The replica is
    not in sync then, and the limit is exceeded for five seconds."""
    throttle(pair, placed(side=side))
    pair.follow()
    assert pair.fetcher is not None
    pair.fetcher._partition_bytes = 6000
    write(pair, LEADER, b"x" * 5000)
    write(pair, LEADER, b"x" * 5000)
    pair.rounds()
    assert copied(pair) == [1, 0]


@BOTH_SIDES
def test_a_throttled_replica_waits_while_the_limit_is_exceeded(pair: Pair, side: int) -> None:
    follow_slowly(pair, side)
    pair.rounds(3)
    assert copied(pair) == [1, 0]
    pass_time(pair, 4.0)
    pair.rounds(3)
    assert copied(pair) == [1, 0]
    pass_time(pair, 2.0)
    pair.rounds()
    assert copied(pair) == [2, 0]


def test_a_leader_throttles_a_fetch_of_very_many_partitions_too(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorate.broker.handlers.fetch.AT_ONCE", 0)
    follow_slowly(pair, 0)
    pair.rounds(3)
    assert copied(pair) == [1, 0]
    pass_time(pair, 6.0)
    pair.rounds()
    assert copied(pair) == [2, 0]


@BOTH_SIDES
def test_other_partitions_do_not_wait(pair: Pair, side: int) -> None:
    follow_slowly(pair, side)
    write(pair, LEADER, b"x" * 10, partition=1)
    pair.rounds()
    assert copied(pair) == [1, 1]


@BOTH_SIDES
def test_the_bytes_of_other_partitions_do_not_count(pair: Pair, side: int) -> None:
    throttle(pair, placed(side=side))
    pair.follow()
    write(pair, LEADER, b"x" * 50_000, partition=1)
    pair.rounds()
    write(pair, LEADER, b"x" * 10)
    pair.rounds()
    assert copied(pair) == [1, 1]


@BOTH_SIDES
def test_a_replica_in_sync_does_not_wait(pair: Pair, side: int) -> None:
    throttle(pair, placed(isr=(1, 2), side=side, partition_epoch=1))
    pair.follow()
    for count in range(1, 4):
        write(pair, LEADER, b"x" * 5000)
        pair.rounds()
        assert copied(pair)[0] == count


def test_the_fetch_session_remains_while_no_partition_may_be_fetched(pair: Pair) -> None:
    throttle(pair, placed(side=1))
    wire = pair.follow()
    assert pair.fetcher is not None
    pair.fetcher.remove(pair.brokers[FOLLOWER].replicas.partition("t", 1))
    pair.fetcher._partition_bytes = 6000
    for _ in range(4):
        write(pair, LEADER, b"x" * 5000)
    for copied_batches in range(1, 5):
        pair.rounds(2)
        assert copied(pair)[0] == copied_batches
        pass_time(pair, 12.0)
    assert [request.session_id for request in wire.requests].count(0) == 1
    assert len(list(pair.brokers[LEADER].services.sessions.cache)) == 1


@BOTH_SIDES
def test_a_throttle_that_is_removed_ends_at_once(pair: Pair, side: int) -> None:
    follow_slowly(pair, side)
    pair.rounds()
    assert copied(pair) == [1, 0]
    throttle(pair, placed())
    pair.rounds()
    assert copied(pair) == [2, 0]


def test_the_leader_knows_the_position_of_a_follower_that_it_holds_back(pair: Pair) -> None:
    follow_slowly(pair, 0)
    pass_time(pair, 1.0)
    pair.rounds()
    assert copied(pair) == [1, 0]
    follower = pair.brokers[LEADER].replicas.partition("t", 0).followers[FOLLOWER]
    assert (follower.last_fetch, follower.log_end_offset) == (pair.brokers[LEADER].clock.now(), 1)


def test_a_waiting_fetch_is_not_answered_for_throttled_data_only(pair: Pair) -> None:
    follow_slowly(pair, 0)
    assert pair.fetcher is not None
    pair.fetcher._max_wait_ms = 60_000
    waiting = pair.loop.create_task(pair.fetcher._fetch_once())
    pair.brokers[LEADER].turn()
    write(pair, LEADER, b"x" * 10)
    pair.brokers[LEADER].turn()
    assert not waiting.done()
    write(pair, LEADER, b"x" * 10, partition=1)
    pair.loop.run_until_complete(waiting)
    assert copied(pair) == [1, 1]


def test_consumers_are_not_throttled(pair: Pair) -> None:
    throttle(pair, placed(side=0))
    write(pair, LEADER, b"x" * 5000)
    write(pair, LEADER, b"a")
    quota = pair.brokers[LEADER].replicas.quotas.leader
    quota.record(100_000, pair.brokers[LEADER].clock.now())
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
    topic = FetchRequest.FetchTopic(topic_id=topic_id_of("t"), partitions=[part])
    answer = pair.brokers[LEADER].ask(FetchRequest(max_bytes=1000, min_bytes=1, topics=[topic]))
    assert values_in(answer.responses[0].partitions[0].records) == [b"a"]
