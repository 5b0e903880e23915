"""Consumers are sent to the replica in their rack (KIP-392)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from quorate.metadata.image import BrokerRegistration, MetadataImage
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode

from .fakes import broker, registration
from .test_produce_fetch import fetch, part
from .world import Broker, batch_of, image_of, produce, values_in

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def in_rack(
    broker_id: int, rack: str | None, *, fenced: bool = False, listener: str = ""
) -> BrokerRegistration:
    found = replace(broker(broker_id, fenced=fenced), rack=rack)
    return replace(found, listeners=(found.listeners[0]._replace(name=listener),)) if listener else found


FOUR = (in_rack(1, "r1"), in_rack(2, "r2"), in_rack(3, "r3"), in_rack(4, "r3"))


def image(*brokers: BrokerRegistration, isr: tuple[int, ...] = (1, 2, 3, 4)) -> MetadataImage:
    return image_of({"t": {0: registration(replicas=(1, 2, 3, 4), isr=isr)}}, brokers=brokers or FOUR)


def leader(
    tmp_path: Path,
    brokers: tuple[BrokerRegistration, ...] = (),
    isr: tuple[int, ...] = (1, 2, 3, 4),
    selector: str | None = RACK_AWARE,
) -> Broker:
    """Broker 1 leads. Brokers 2 and 4 have all five records, broker 3 has three."""
    settings = {"replica_selector_class": selector} if selector else {}
    world = Broker(tmp_path, image(*brokers, isr=isr), **settings)
    for batch in (batch_of(b"a", b"b", b"c"), batch_of(b"d", b"e")):
        world.ask(produce("t", (0, batch), acks=1))
    partition = world.replicas.partition("t", 0)
    for follower, end in ((2, 5), (3, 3), (4, 5)):
        partition.follower_fetched(follower, follower * 100, end, 0, 5, world.clock.now())
    return world


@pytest.mark.parametrize(
    ("rack", "offset", "brokers", "isr", "preferred"),
    [
        pytest.param("r2", 0, (), (1, 2, 3, 4), 2, id="the follower in the rack"),
        pytest.param("r1", 0, (), (1, 2, 3, 4), -1, id="the leader is in the rack"),
        pytest.param("", 0, (), (1, 2, 3, 4), -1, id="the consumer has no rack"),
        pytest.param("r9", 0, (), (1, 2, 3, 4), -1, id="no replica is in the rack"),
        pytest.param("r3", 0, (), (1, 2, 3, 4), 4, id="of two in the rack, the one with the longer log"),
        pytest.param("r3", 0, (), (1, 2, 3), 3, id="a replica outside of the ISR is not chosen"),
        pytest.param("r2", 0, (), (1, 3, 4), -1, id="the only one in the rack is outside of the ISR"),
        pytest.param("r3", 4, (), (1, 2, 3), -1, id="the follower does not have the offset yet"),
        pytest.param(
            "r2", 0, (in_rack(1, "r1"), in_rack(2, "r2", fenced=True)), (1, 2), -1, id="a fenced follower"
        ),
        pytest.param(
            "r2", 0, (in_rack(1, "r1"), in_rack(2, "r2", listener="OTHER")), (1, 2), -1,
            id="a follower without the listener",
        ),
    ],
)  # fmt: skip
def test_the_preferred_read_replica(tmp_path, rack, offset, brokers, isr, preferred):
    world = leader(tmp_path, brokers, isr)
    answer = part(world.ask(fetch("t", (0, offset), rack_id=rack)))
    assert (answer.error_code, answer.preferred_read_replica) == (ErrorCode.NONE, preferred)
    world.close()


def test_of_two_with_equal_logs_the_one_that_caught_up_last_is_chosen(tmp_path):
    world = leader(tmp_path)
    partition = world.replicas.partition("t", 0)
    for follower in (4, 3):
        world.clock.time_s += 1
        partition.follower_fetched(follower, follower * 100, 5, 0, 5, world.clock.now())
    assert part(world.ask(fetch("t", (0, 0), rack_id="r3"))).preferred_read_replica == 3
    partition.follower_fetched(4, 400, 5, 0, 5, world.clock.now())
    assert part(world.ask(fetch("t", (0, 0), rack_id="r3"))).preferred_read_replica == 4
    world.close()


def test_the_answer_has_the_replica_and_no_records_and_does_not_wait(tmp_path):
    world = leader(tmp_path)
    answer = part(
        world.ask(fetch("t", (0, 0), rack_id="r2", max_wait_ms=60_000, min_bytes=1000, isolation=1))
    )
    assert (answer.preferred_read_replica, values_in(answer.records)) == (2, [])
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)
    assert answer.aborted_transactions is None
    world.close()


def test_a_stale_leader_epoch_is_an_error_also_for_a_consumer_with_a_rack(tmp_path):
    world = leader(tmp_path)
    assert (
        part(world.ask(fetch("t", (0, 0), rack_id="r2", epoch=9))).error_code
        == ErrorCode.UNKNOWN_LEADER_EPOCH
    )
    world.close()


def test_without_the_selector_and_before_version_11_the_leader_serves_all(tmp_path):
    world = leader(tmp_path)
    assert values_in(part(world.ask(fetch("t", (0, 0), rack_id="r2"), 10)).records) != []
    world.close()
    plain = leader(tmp_path / "plain", selector=None)
    answer = part(plain.ask(fetch("t", (0, 0), rack_id="r2")))
    assert (answer.preferred_read_replica, len(values_in(answer.records))) == (-1, 3)
    plain.close()


def test_a_follower_serves_the_consumer_itself(tmp_path):
    following = image_of({"t": {0: registration(replicas=(2, 1, 3), leader=2)}}, brokers=FOUR)
    world = Broker(tmp_path, following, replica_selector_class=RACK_AWARE)
    answer = part(world.ask(fetch("t", (0, 0), rack_id="r3")))
    assert (answer.error_code, answer.preferred_read_replica) == (ErrorCode.NONE, -1)
    world.close()


def test_a_large_fetch_names_the_replica_at_once(tmp_path):
    count = 600
    many = image_of({"t": {p: registration(replicas=(1, 2)) for p in range(count)}}, brokers=FOUR)
    world = Broker(tmp_path, many, replica_selector_class=RACK_AWARE)
    request = fetch("t", *((p, 0) for p in range(count)), rack_id="r2", max_wait_ms=60_000)
    for p in range(count):
        world.replicas.partition("t", p).follower_fetched(2, 200, 0, 0, 0, world.clock.now())
    answer = world.wait(world.ask(request), ApiKey.FETCH)
    assert {p.preferred_read_replica for p in answer.responses[0].partitions} == {2}
    world.close()


def test_a_selector_of_the_users_own_is_not_loaded(tmp_path, caplog):
    world = leader(tmp_path, selector="com.example.NearestSelector")
    assert part(world.ask(fetch("t", (0, 0), rack_id="r2"))).preferred_read_replica == -1
    assert "com.example.NearestSelector" in caplog.text
    world.close()
