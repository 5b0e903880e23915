"""Plans for each purpose: what moves, what does not, and how it is explained."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from quorate.planner.cluster import Broker, Cluster, ClusterBuilder, PlanError
from quorate.planner.plan import ReassignmentPlan, make_plan
from quorate.planner.report import summary, text
from quorate.planner.request import Request
from quorate.planner.waves import Move, cut

Partition = tuple[str, int, Sequence[int], int]
"""Topic, index, replicas and bytes. The first replica leads."""

BALANCE = Request(balance=True)


def cluster_of(brokers: Iterable[Broker], partitions: Iterable[Partition]) -> Cluster:
    builder = ClusterBuilder(brokers)
    for topic, index, replicas, size in partitions:
        builder.add(topic, index, replicas, replicas[0], size)
    return builder.build()


def brokers_of(racks: str) -> list[Broker]:
    """Brokers 1, 2, ... in racks named by letters; "-" is none."""
    return [Broker(b, None if rack == "-" else rack) for b, rack in enumerate(racks, 1)]


def planned(plan: ReassignmentPlan) -> dict[str, list[int]]:
    return {"{}-{}".format(*plan.name(p)): plan.replicas(p) for p in plan.moves}


def every_assignment(plan: ReassignmentPlan) -> dict[int, list[int]]:
    return {
        p: plan.replicas(p) if p in plan.moves else plan.replicas_before(p) for p in range(len(plan.cluster))
    }


def goal(plan: ReassignmentPlan, name: str) -> dict[str, object]:
    (found,) = [entry for entry in summary(plan)["goals"] if entry["goal"] == name]
    return dict(found)


def random_cluster(
    partitions: int, racks: Sequence[str | None], *, factor: int = 3, used: int | None = None, seed: int = 1
) -> Cluster:
    """Topics of 20 partitions of very unequal bytes, on the first `used` brokers, without regard to racks."""
    rng = random.Random(seed)
    brokers = [Broker(b, rack) for b, rack in enumerate(racks)]
    return cluster_of(
        brokers,
        [
            (
                f"t{p // 20}",
                p % 20,
                rng.sample(range(used or len(brokers)), factor),
                int(rng.paretovariate(1.2) * 1e6),
            )
            for p in range(partitions)
        ],
    )


# -- purposes


def test_a_balanced_cluster_is_left_alone() -> None:
    plan = make_plan(cluster_of(brokers_of("ab"), [("t", 0, [1, 2], 9), ("t", 1, [2, 1], 9)]), BALANCE)
    assert (plan.moves, plan.waves, plan.bytes_to_move) == ({}, [], 0)
    assert "Nothing to change" in text(plan, summary(plan))


def test_leaders_are_evened_out_without_data() -> None:
    plan = make_plan(cluster_of(brokers_of("--"), [("t", p, [1, 2], 9) for p in range(4)]), BALANCE)
    assert plan.bytes_to_move == 0
    assert list(planned(plan).values()) == [[2, 1], [2, 1]]


def test_leaderships_are_handed_on_through_a_broker_between() -> None:
    """Broker 1 leads four partitions and broker 3 none, but they share no partition."""
    pairs = [[1, 2], [1, 4], [2, 3], [4, 3]]
    partitions = [("t", p, pairs[p % 4], 9) for p in range(8)]
    plan = make_plan(cluster_of(brokers_of("----"), partitions), BALANCE)
    leaders = Counter(replicas[0] for replicas in every_assignment(plan).values())
    assert leaders == {1: 2, 2: 2, 3: 2, 4: 2}
    assert plan.bytes_to_move == 0


def test_a_leader_that_is_not_the_preferred_one_is_elected_in_a_wave_without_data() -> None:
    builder = ClusterBuilder(brokers_of("--"))
    builder.add("t", 0, [1, 2], 2, 9)
    builder.add("t", 1, [2, 1], 2, 9)
    plan = make_plan(builder.build(), BALANCE)
    assert planned(plan) == {"t-0": [1, 2]}
    assert [len(wave) for wave in plan.waves] == [1]


def test_a_drain_moves_the_replicas_of_the_broker_and_nothing_else() -> None:
    plan = make_plan(random_cluster(200, "aabbcc"), Request(drain=frozenset({5})))
    assert plan.moves
    for p, replicas in every_assignment(plan).items():
        before = plan.replicas_before(p)
        assert 5 not in replicas
        if 5 in before:
            assert len(set(replicas) - set(before)) == 1
        else:
            assert replicas == before
    assert plan.replicas_to_move == sum(5 in plan.replicas_before(p) for p in range(len(plan.cluster)))


def test_a_drain_of_a_broker_that_is_down_is_planned() -> None:
    brokers = [*brokers_of("aab"), Broker(4, "b", active=False)]
    plan = make_plan(cluster_of(brokers, [("t", 0, [4, 1], 9)]), Request(drain=frozenset({4})))
    assert planned(plan) == {"t-0": [3, 1]}


def test_replicas_on_a_broker_that_is_not_active_stay_and_it_gets_none() -> None:
    brokers = [*brokers_of("--"), Broker(3, active=False)]
    partitions = [("t", p, [3, 1], 9) for p in range(4)] + [("u", p, [1], 9) for p in range(6)]
    plan = make_plan(cluster_of(brokers, partitions), BALANCE)
    assert all((3 in plan.replicas(p)) == (3 in plan.replicas_before(p)) for p in plan.moves)
    assert plan.replicas_to_move > 0


def test_added_brokers_get_their_share_and_no_other_broker_gets_a_replica() -> None:
    plan = make_plan(random_cluster(400, "abcabcabc", used=6), Request(add=frozenset({6, 7, 8})))
    added = {b for p in plan.moves for b in set(plan.replicas(p)) - set(plan.replicas_before(p))}
    assert added == {6, 7, 8}
    counts = Counter(b for replicas in every_assignment(plan).values() for b in replicas)
    fair = 1200 / 9
    assert all(counts[b] >= 0.94 * fair for b in (6, 7, 8))


def test_a_higher_replication_factor_adds_replicas_in_other_racks() -> None:
    partitions = [("t", p, [1 + p % 2], 9) for p in range(8)] + [("other", 0, [1], 9)]
    plan = make_plan(cluster_of(brokers_of("aabbcc"), partitions), Request(replication={"t": 3}))
    assert len(plan.moves) == 8
    rack = dict(zip(range(1, 7), "aabbcc", strict=True))
    for p, replicas in planned(plan).items():
        assert len({rack[b] for b in replicas}) == 3, p
    assert plan.bytes_to_move == 8 * 2 * 9


def test_a_lower_replication_factor_removes_replicas_and_moves_nothing() -> None:
    partitions = [("t", p, [1 + p % 3, 1 + (p + 1) % 3, 4], 9) for p in range(6)]
    plan = make_plan(cluster_of(brokers_of("----"), partitions), Request(replication={"t": 2}))
    assert plan.bytes_to_move == 0
    kept = Counter(b for replicas in planned(plan).values() for b in replicas)
    assert sorted(kept.values()) == [3, 3, 3, 3]
    assert [len(wave) for wave in plan.waves] == [6]


def test_of_two_replicas_in_a_rack_the_lower_replication_factor_keeps_one() -> None:
    plan = make_plan(cluster_of(brokers_of("aab"), [("t", 0, [1, 2, 3], 9)]), Request(replication={"t": 2}))
    assert {1, 2} - set(planned(plan)["t-0"])


# -- goals


def test_balance_mends_racks_though_the_loads_are_even() -> None:
    partitions = [("t", 0, [1, 2], 9), ("t", 1, [3, 4], 9)]
    plan = make_plan(cluster_of(brokers_of("aabb"), partitions), BALANCE)
    rack = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert all(len({rack[b] for b in replicas}) == 2 for replicas in every_assignment(plan).values())
    assert (goal(plan, "racks")["before"], goal(plan, "racks")["after"]) == (False, True)
    assert plan.bytes_to_move == 18


def test_a_rack_of_one_broker_gets_what_the_rule_of_racks_demands() -> None:
    partitions = [("t", p, [1 + p % 2, 3], 10) for p in range(6)]
    plan = make_plan(cluster_of(brokers_of("aab"), partitions), BALANCE)
    assert plan.bytes_to_move == 0, "broker 3 must have all six"
    assert all(entry["after"] for entry in summary(plan)["goals"][:4])


def test_a_drain_leaves_crowded_racks_and_says_so() -> None:
    partitions = [("t", 0, [1, 2], 9), ("t", 1, [3, 1], 9)]
    plan = make_plan(cluster_of(brokers_of("aabb"), partitions), Request(drain=frozenset({4})))
    (reason,) = goal(plan, "racks")["reasons"]  # type: ignore[misc]
    assert "t-0" in str(reason) and "only a plan for balance" in str(reason)


def test_no_broker_gets_more_bytes_than_it_has_room_for() -> None:
    brokers = [Broker(1, capacity=1000), Broker(2, capacity=25), Broker(3, capacity=1000)]
    plan = make_plan(cluster_of(brokers, [("t", p, [1], 10) for p in range(9)]), BALANCE)
    counts = Counter(b for replicas in every_assignment(plan).values() for b in replicas)
    assert (counts[2], counts[1] + counts[3]) == (2, 7)
    replicas = goal(plan, "replicas")
    assert not replicas["after"] and "broker 2 has 2" in str(replicas["reasons"])
    assert "room" in str(replicas["reasons"])


@pytest.mark.parametrize("count", [10, 100])
def test_a_broker_over_its_capacity_is_relieved_though_it_then_has_few_replicas(count: int) -> None:
    room = 3 * count // 10
    brokers = [Broker(1, capacity=10 * room), *brokers_of("---")[1:]]
    partitions = [(f"t{b}", p, [b], 10) for b in (1, 2, 3) for p in range(count)]
    plan = make_plan(cluster_of(brokers, partitions), BALANCE)
    assert (goal(plan, "capacity")["before"], goal(plan, "capacity")["after"]) == (False, True)
    counts = Counter(b for replicas in every_assignment(plan).values() for b in replicas)
    assert counts[1] == room
    assert abs(counts[2] - counts[3]) <= max(1, 0.1 * count)
    assert goal(plan, "bytes")["after"], "its share is what it has room for"
    assert not goal(plan, "replicas")["after"]


def test_a_topic_is_spread_in_exchange_for_replicas_of_others() -> None:
    crowd = [("t", p, [1], 10) for p in range(12)]
    others = [(f"u{b}", p, [b], 10) for b in (2, 3, 4) for p in range(12)]
    plan = make_plan(cluster_of(brokers_of("----"), [*crowd, *others]), BALANCE)
    found = Counter((plan.name(p)[0], b) for p, replicas in every_assignment(plan).items() for b in replicas)
    assert max(found.values()) <= 9
    assert goal(plan, "topics") | {"reasons": []} == {
        "goal": "topics", "hard": False, "before": False, "after": True, "reasons": [],
    }  # fmt: skip


def test_bytes_that_cannot_be_divided_are_explained() -> None:
    plan = make_plan(cluster_of(brokers_of("--"), [("t", 0, [1], 1000), ("t", 1, [2], 1)]), BALANCE)
    found = goal(plan, "bytes")
    assert not found["after"]
    assert "broker 1 has 1000 B, fair are 476 B to 525 B" in str(found["reasons"])


def test_a_replica_that_goes_to_a_broker_which_another_one_leaves_moves_no_bytes() -> None:
    """Partition 0 has replicas on 1 and 2 and is to have them on 2 and 3, whichever slot is where."""
    partitions = [("t", 0, [1, 2], 100), ("u", 0, [1], 1), ("u", 1, [1], 1)]
    plan = make_plan(cluster_of(brokers_of("---"), partitions), Request(drain=frozenset({1})))
    assert plan.bytes_to_move == 102
    by_sets = sum(
        plan.cluster.sizes[p] * len(set(plan.replicas(p)) - set(plan.replicas_before(p))) for p in plan.moves
    )
    assert by_sets == plan.bytes_to_move


# -- any plan


REQUESTS = {
    "balance": BALANCE,
    "drain": Request(drain=frozenset({0, 7})),
    "drain and balance": Request(balance=True, drain=frozenset({3})),
    "add": Request(add=frozenset({22, 23})),
    "add and balance": Request(balance=True, add=frozenset({22, 23})),
    "replication factor": Request(replication={f"t{n}": 4 for n in range(50)}),
    "everything": Request(
        balance=True, drain=frozenset({1}), add=frozenset({23}), replication={f"t{n}": 2 for n in range(9)}
    ),
}


@pytest.mark.parametrize("racks", [4, 3, 1, 0])
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_invariants(request_: Request, racks: int) -> None:
    limits = {"wave_bytes": 200_000_000, "wave_moves": 20}
    request_ = Request(
        request_.balance, request_.drain, request_.add, request_.replication, request_.tolerance, **limits
    )
    names = [f"r{b % racks}" if racks else None for b in range(24)]
    plan = make_plan(random_cluster(2_000, names, used=22), request_)
    assignment = every_assignment(plan)
    assert all(len(set(replicas)) == len(replicas) for replicas in assignment.values())
    assert not {b for replicas in assignment.values() for b in replicas} & request_.drain
    factors = {p: request_.replication.get(plan.name(p)[0], 3) for p in assignment}
    assert all(len(replicas) == factors[p] for p, replicas in assignment.items())
    if racks and request_.balance:
        for p, replicas in assignment.items():
            in_racks = Counter(names[b] for b in replicas)
            assert max(in_racks.values()) <= -(-factors[p] // racks), plan.name(p)
    moved = sum(
        plan.cluster.sizes[p] * len(set(assignment[p]) - set(plan.replicas_before(p))) for p in assignment
    )
    assert moved == plan.bytes_to_move == summary(plan)["bytesToMove"]
    assert sorted(p for wave in plan.waves for p in wave) == sorted(plan.moves)
    check_budgets(plan, **limits)
    if request_.balance:
        assert [entry["goal"] for entry in summary(plan)["goals"][:5] if not entry["after"]] == []


def check_budgets(plan: ReassignmentPlan, wave_bytes: int, wave_moves: int) -> None:
    for wave in plan.waves:
        counts: Counter[int] = Counter()
        sizes: Counter[int] = Counter()
        moves: Counter[int] = Counter()
        for p in wave:
            move = plan.moves[p]
            for b, count in [(move.source, len(move.added)), *((b, 1) for b in move.added)]:
                counts[b] += count
                sizes[b] += count * move.size
                moves[b] += 1
        assert all(count <= wave_moves for count in counts.values())
        assert all(sizes[b] <= wave_bytes or moves[b] == 1 for b in sizes)


def test_the_order_of_the_input_does_not_change_the_plan() -> None:
    partitions = [(f"t{p % 9}", p // 9, random.Random(p).sample(range(1, 9), 2), p % 7) for p in range(200)]
    shuffled = random.Random(5).sample(partitions, len(partitions))
    first, second = (
        make_plan(cluster_of(brokers, some), BALANCE)
        for brokers, some in ((brokers_of("aabbccdd"), partitions), (brokers_of("aabbccdd")[::-1], shuffled))
    )
    assert planned(first) == planned(second)
    assert summary(first) == summary(second)
    assert [list(map(first.name, wave)) for wave in first.waves] == [
        list(map(second.name, wave)) for wave in second.waves
    ]


# -- waves


def test_changes_without_data_are_in_the_first_wave() -> None:
    moves = [Move(0, 9, 0, (1,), (0,)), Move(1, 9, 0, (), ()), Move(2, 9, 1, (), (0,))]
    waves = cut(moves, [18, 18], [None, None], wave_bytes=100, wave_moves=10)
    assert [[move.partition for move in wave] for wave in waves] == [[1, 2], [0]]


def test_a_move_over_the_limit_is_the_only_one_of_its_brokers() -> None:
    moves = [Move(0, 500, 0, (1,), (0,)), Move(1, 9, 0, (1,), (0,)), Move(2, 9, 2, (3,), (2,))]
    waves = cut(moves, [600] * 4, [None] * 4, wave_bytes=100, wave_moves=10)
    assert [sorted(move.partition for move in wave) for wave in waves] == [[0, 2], [1]]


def test_a_wave_waits_until_the_ones_before_have_freed_the_room() -> None:
    """Broker 1 has no room for the replica of broker 0 before it has given its own away."""
    moves = [Move(0, 10, 0, (1,), (0,)), Move(1, 10, 1, (2,), (1,))]
    waves = cut(moves, [10, 10, 0], [10, 10, 10], wave_bytes=100, wave_moves=10)
    assert [[move.partition for move in wave] for wave in waves] == [[1], [0]]


# -- refusals


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(drain=frozenset({9})), "there is no broker 9; the brokers are 1, 2, 3"),
        (Request(add=frozenset({3})), "broker 3 is not active"),
        (Request(drain=frozenset({1}), add=frozenset({1})), "broker 1 cannot be drained and added"),
        (Request(drain=frozenset({1, 2, 3})), "no broker is left"),
        (Request(drain=frozenset({1})), "partition t-0 is to have 2 replicas, but there are only 1 brokers"),
        (Request(replication={"t": 3}), "partition t-0 is to have 3 replicas"),
        (Request(replication={"t": 0}), "at least one replica"),
        (Request(replication={"u": 1}), "there is no topic u"),
    ],
)
def test_what_cannot_be_is_refused(request_: Request, message: str) -> None:
    brokers = [*brokers_of("--"), Broker(3, active=False)]
    with pytest.raises(PlanError, match=message):
        make_plan(cluster_of(brokers, [("t", 0, [1, 2], 9)]), request_)


@pytest.mark.parametrize("replicas", [[], [1, 1]])
def test_a_partition_without_replicas_or_with_two_on_a_broker_is_refused(replicas: list[int]) -> None:
    builder = ClusterBuilder(brokers_of("--"))
    builder.add("t", 7, replicas, -1, 1)
    with pytest.raises(PlanError, match="t-7 has no replica, or two on one broker"):
        builder.build()


def test_a_partition_that_occurs_twice_is_refused() -> None:
    with pytest.raises(PlanError, match="t-0 occurs twice"):
        cluster_of(brokers_of("--"), [("t", 0, [1], 1), ("t", 0, [2], 3)])


def test_a_drain_for_which_no_broker_has_room_is_refused() -> None:
    brokers = [Broker(1), Broker(2, capacity=15)]
    with pytest.raises(PlanError, match="no broker that could have a replica of partition t-0 has room"):
        make_plan(cluster_of(brokers, [("t", 0, [1], 10), ("t", 1, [2], 10)]), Request(drain=frozenset({1})))
