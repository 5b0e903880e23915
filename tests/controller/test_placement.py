"""Placement of replicas: successive racks, leaders on all unfenced brokers, fenced brokers last and
never as leaders."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.controller.replication.placement import Racks, StripedPlacer, UsableBroker
from quorate.protocol.errors import ErrorCode, KafkaError


def brokers(*ids: int, rack: str | None = None, fenced: bool = False) -> list[UsableBroker]:
    return [UsableBroker(broker_id, rack, fenced) for broker_id in ids]


@pytest.mark.parametrize(
    ("usable", "factor", "message"),
    [
        (brokers(1, 2), 0, "must be positive"),
        (brokers(1, 2), -1, "must be positive"),
        (
            brokers(1, 2, fenced=True),
            1,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        ),
        ([], 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        (
            brokers(1, 2),
            3,
            "only 2 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
    ],
)
def test_impossible_placements_are_refused(usable: list[UsableBroker], factor: int, message: str) -> None:
    with pytest.raises(KafkaError) as raised:
        StripedPlacer(Racks(usable), Random(0)).check(factor)
    assert raised.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert message in (raised.value.message or "")


def test_leaders_are_spread_evenly() -> None:
    placer = StripedPlacer(Racks(brokers(*range(6))), Random(1))
    leaders = Counter(placer.place(3)[0] for _ in range(60))
    assert leaders == dict.fromkeys(range(6), 10)


def test_replicas_of_a_partition_are_in_different_racks() -> None:
    usable = brokers(0, 1, rack="a") + brokers(2, 3, rack="b") + brokers(4, 5, rack="c")
    rack_of = {broker.id: broker.rack for broker in usable}
    placer = StripedPlacer(Racks(usable), Random(2))
    for _ in range(50):
        assert len({rack_of[replica] for replica in placer.place(3)}) == 3


def test_a_fenced_broker_is_chosen_only_if_no_other_is_left() -> None:
    placer = StripedPlacer(Racks(brokers(1, 2) + brokers(3, fenced=True)), Random(3))
    for _ in range(20):
        assert 3 not in placer.place(2)
    for _ in range(20):
        replicas = placer.place(3)
        assert replicas[2] == 3 or replicas[1] == 3
        assert replicas[0] != 3


def test_one_broker_takes_every_partition() -> None:
    placer = StripedPlacer(Racks(brokers(7)), Random(0))
    assert [placer.place(1) for _ in range(5)] == [[7]] * 5


@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=9),
    st.integers(1, 9),
    st.integers(0, 1000),
)
def test_every_placement_has_distinct_replicas_and_an_unfenced_leader(
    shape: list[tuple[str | None, bool]], factor: int, seed: int
) -> None:
    usable = [UsableBroker(index, rack, fenced) for index, (rack, fenced) in enumerate(shape)]
    placer = StripedPlacer(Racks(usable), Random(seed))
    try:
        placer.check(factor)
    except KafkaError:
        assert factor > len(usable) or all(broker.fenced for broker in usable)
        return
    for _ in range(2 * len(usable) + 1):
        replicas = placer.place(factor)
        assert len(set(replicas)) == factor
        assert not usable[replicas[0]].fenced
