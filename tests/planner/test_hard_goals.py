"""Racks and room where they are scarce: brokers that are down, racks with unequal numbers of
brokers, full disks."""

from __future__ import annotations

from collections import Counter

import pytest

from quorate.planner.cluster import Broker, NoPlaceError, PlanError
from quorate.planner.plan import make_plan
from quorate.planner.report import summary
from quorate.planner.request import Request
from quorate.planner.sizes import ReplicaSizes
from quorate.planner.waves import Move, cut
from tests.planner.test_plans import BALANCE, brokers_of, cluster_of, every_assignment, goal, planned

# -- racks


def test_a_rack_is_not_to_have_what_its_dead_broker_has() -> None:
    """Rack c has a replica of each partition, half of them on a broker that is down.

    All loads are as even as they can be.
    """
    brokers = [Broker(1, "a"), Broker(2, "b"), Broker(3, "c"), Broker(4, "c", active=False)]
    plan = make_plan(cluster_of(brokers, [("t", p, [1, 2, 3 + p % 2], 10) for p in range(12)]), BALANCE)
    assert plan.replicas_to_move == 0
    assert [entry["goal"] for entry in summary(plan)["goals"][:4] if not entry["after"]] == []


def test_a_replica_on_a_dead_broker_leaves_the_other_racks_their_limit() -> None:
    """No broker of rack c runs. The two replicas that can move have two racks, so they are not in one."""
    brokers = [*brokers_of("aabb"), Broker(5, "c", active=False)]
    plan = make_plan(cluster_of(brokers, [("t", 0, [1, 2, 5], 10), ("u", 0, [3, 4], 1)]), BALANCE)
    rack = dict(zip(range(1, 6), "aabbc", strict=True))
    assert all(len({rack[b] for b in new}) == len(new) for new in every_assignment(plan).values())


def test_two_replicas_on_dead_brokers_of_a_rack_are_no_fault_of_the_plan() -> None:
    brokers = [*brokers_of("ab"), Broker(3, "c", active=False), Broker(4, "c", active=False)]
    plan = make_plan(cluster_of(brokers, [("t", 0, [1, 3, 4], 10)]), BALANCE)
    assert goal(plan, "racks")["after"]


def test_a_drain_keeps_the_racks_of_a_partition_although_the_limit_permits_fewer() -> None:
    """Two replicas in a rack are permitted, because there are four and three racks."""
    partitions = [("t", p, [1, 4, 5, 7], 10) for p in range(9)]
    plan = make_plan(cluster_of(brokers_of("aaabbbccc"), partitions), Request(drain=frozenset({7})))
    rack = dict(zip(range(1, 10), "aaabbbccc", strict=True))
    assert all({rack[b] for b in new} == set("abc") for new in planned(plan).values())
    assert sum(plan.lost_racks(p) for p in plan.moves) == 0


def test_a_plan_says_which_partitions_lose_a_rack() -> None:
    plan = make_plan(cluster_of(brokers_of("aabbc"), [("t", 0, [1, 3, 5], 1)]), Request(drain=frozenset({5})))
    assert [plan.lost_racks(p) for p in plan.moves] == [1]


# -- room


def test_room_for_a_drain_is_made_by_moves_of_others() -> None:
    """Broker 2 has no room before its other replica goes to broker 3, which has a replica of the
    partition."""
    brokers = [Broker(1), Broker(2, capacity=15), Broker(3, capacity=30)]
    partitions = [("t", 0, [1, 3], 10), ("u", 0, [2], 10)]
    plan = make_plan(cluster_of(brokers, partitions), Request(balance=True, drain=frozenset({1})))
    assert sorted(planned(plan)["t-0"]) == [2, 3]
    assert planned(plan)["u-0"] == [3]
    with pytest.raises(NoPlaceError, match=r"no broker .* partition t-0 has room for its 10 bytes: 2"):
        make_plan(cluster_of(brokers, partitions), Request(drain=frozenset({1})))


def test_replicas_that_fit_only_in_one_way_are_placed_so() -> None:
    """The largest first on the emptiest broker would leave no room for the last."""
    brokers = [Broker(0), Broker(1, capacity=10), Broker(2, capacity=11)]
    partitions = [("t", p, [0], size) for p, size in enumerate([6, 5, 5, 5])]
    plan = make_plan(cluster_of(brokers, partitions), Request(drain=frozenset({0})))
    held = Counter[int]()
    for p, replicas in every_assignment(plan).items():
        held[replicas[0]] += plan.cluster.sizes[p]
    assert held == {1: 10, 2: 11}


# -- excluded topics


def test_an_excluded_topic_stays_and_counts_for_the_load() -> None:
    partitions = [("t", p, [1], 10) for p in range(6)] + [("u", p, [1], 10) for p in range(2)]
    plan = make_plan(
        cluster_of(brokers_of("--"), partitions), Request(balance=True, exclude=frozenset({"t"}))
    )
    assert planned(plan) == {"u-0": [2], "u-1": [2]}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            Request(drain=frozenset({1}), exclude=frozenset({"t"})),
            "broker 1 cannot be drained, because it has a replica of t-0, whose topic is excluded",
        ),
        (Request(exclude=frozenset({"x"})), "there is no topic x"),
        (
            Request(replication={"t": 2}, exclude=frozenset({"t"})),
            "topic t cannot be excluded and get another replication factor",
        ),
    ],
)
def test_what_contradicts_an_exclusion_is_refused(request_: Request, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(cluster_of(brokers_of("--"), [("t", 0, [1], 10)]), request_)


def test_an_excluded_topic_stays_in_a_crowded_rack() -> None:
    partitions = [("t", 0, [1, 2], 9), ("u", 0, [3, 4], 9)]
    plan = make_plan(
        cluster_of(brokers_of("aabb"), partitions), Request(balance=True, exclude=frozenset({"t"}))
    )
    assert set(planned(plan)) == {"u-0"}
    assert not goal(plan, "racks")["after"]


# -- waves that wait for room


def test_a_move_that_frees_a_full_broker_comes_before_one_that_only_fills_it() -> None:
    """Brokers 0 and 1 exchange replicas, which needs the room on broker 0 that the move from 2 would take."""
    moves = [Move(0, 10, 2, (0,), (2,)), Move(1, 10, 1, (0,), (1,)), Move(2, 10, 0, (1,), (0,))]
    waves = cut(moves, [10, 10, 10], [20, 10, None], wave_bytes=100, wave_moves=10)
    assert [[move.partition for move in wave] for wave in waves] == [[1], [2], [0]]


def test_a_small_move_that_fits_goes_before_one_for_which_there_is_no_room() -> None:
    """Nothing but the move of 4 bytes fits. The one of 3, which is smaller, is to a full broker."""
    moves = [
        Move(0, 10, 0, (1,), (0,)),
        Move(1, 4, 0, (1,), (0,)),
        Move(2, 10, 2, (0,), (2,)),
        Move(3, 9, 1, (2,), (1,)),
        Move(4, 3, 3, (2,), (3,)),
        Move(5, 3, 4, (3,), (4,)),
    ]
    held, capacity = [14, 9, 10, 9, 3], [20, 14, 12, 9, 3]
    waves = cut(moves, held, capacity, wave_bytes=100, wave_moves=10)
    assert [sorted(move.partition for move in wave) for wave in waves] == [[1], [2], [3, 4], [0, 5]]


# -- bytes of replicas


def test_the_bytes_of_a_partition_are_those_of_its_leader_or_else_the_most() -> None:
    sizes = ReplicaSizes()
    sizes.add("t", 0, 1, 5)
    sizes.add("t", 0, 2, 7)
    assert (sizes.of("t", 0, 1), sizes.of("t", 0, -1), sizes.of("t", 0, 3)) == (5, 7, 7)
    assert sizes.of("t", 1, 1) is None
