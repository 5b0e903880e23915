"""Any plan, for clusters as they are in bad times: brokers down or full, racks known for some of
them, more replicas than racks, partitions that lead nowhere, topics that are to be left alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from quorate.planner.cluster import Broker, Cluster, ClusterBuilder, NoPlaceError, PlanError
from quorate.planner.plan import ReassignmentPlan, make_plan
from quorate.planner.report import summary, text
from quorate.planner.request import Request


@dataclass(frozen=True)
class Bad:
    """A cluster in bad times. A partition has a topic, bytes, replicas, and whether it has a leader."""

    brokers: tuple[Broker, ...]
    partitions: tuple[tuple[str, int, tuple[int, ...], bool], ...]

    def cluster(self) -> Cluster:
        builder = ClusterBuilder(self.brokers)
        for number, (topic, size, replicas, has_leader) in enumerate(self.partitions):
            builder.add(topic, number, replicas, replicas[-1] if has_leader else -1, size)
        return builder.build()


@st.composite
def bad_clusters(draw: st.DrawFn) -> Bad:
    count = draw(st.integers(1, 9))
    racks = st.sampled_from(draw(st.sampled_from(["a", "ab", "abc", "abcd", "-", "ab-", "abcd-"])))
    capacity = draw(st.sampled_from([st.none(), st.one_of(st.none(), st.integers(0, 150))]))
    brokers = tuple(
        Broker(
            b,
            None if (rack := draw(racks)) == "-" else rack,
            active=draw(st.integers(0, 5)) > 0,
            capacity=draw(capacity),
        )
        for b in range(count)
    )
    replicas = st.integers(1, min(4, count)).flatmap(
        lambda factor: st.permutations(range(count)).map(lambda order: tuple(order[:factor]))
    )
    size = st.one_of(st.integers(0, 3), st.integers(0, 60))
    partition = st.tuples(st.sampled_from("tuv"), size, replicas, st.booleans())
    return Bad(brokers, tuple(draw(st.lists(partition, max_size=draw(st.sampled_from([0, 1, 5, 30]))))))


@st.composite
def requests(draw: st.DrawFn, bad: Bad) -> Request:
    ids = [b.id for b in bad.brokers]
    topics = sorted({p[0] for p in bad.partitions})
    drain = draw(st.frozensets(st.sampled_from(ids), max_size=2))
    active = [b.id for b in bad.brokers if b.active and b.id not in drain]
    exclude: frozenset[str] = frozenset()
    factors: dict[str, int] = {}
    if topics:
        exclude = draw(
            st.one_of(st.just(exclude), st.sampled_from(topics).map(lambda name: frozenset({name})))
        )
        factors = draw(st.dictionaries(st.sampled_from(topics), st.integers(1, 4), max_size=1))
    return Request(
        balance=draw(st.booleans()),
        drain=drain,
        add=draw(st.frozensets(st.sampled_from(active), max_size=2)) if active else frozenset(),
        replication={name: factor for name, factor in factors.items() if name not in exclude},
        exclude=exclude,
        wave_bytes=draw(st.sampled_from([1, 40, 1000])),
        wave_moves=draw(st.sampled_from([1, 3, 100])),
    )


cases = bad_clusters().flatmap(lambda bad: st.tuples(st.just(bad), requests(bad)))


def before_and_after(plan: ReassignmentPlan) -> Iterator[tuple[int, list[int], list[int]]]:
    for p in range(len(plan.cluster)):
        old = plan.replicas_before(p)
        yield p, old, plan.replicas(p) if p in plan.moves else old


@settings(max_examples=150, deadline=None)
@given(cases)
@example((Bad((Broker(0),), ()), Request(balance=True)))
@example((Bad((Broker(0),), (("t", 5, (0,), True),)), Request(balance=True)))
@example((Bad((Broker(0),), (("t", 5, (0,), True),)), Request(drain=frozenset({0}))))
@example((Bad((Broker(0, active=False),), (("t", 5, (0,), False),)), Request(balance=True)))
def test_every_plan_keeps_the_hard_goals_and_is_what_was_asked_for(case: tuple[Bad, Request]) -> None:
    bad, request = case
    try:
        plan = make_plan(bad.cluster(), request)
    except PlanError as error:
        check_refusal(bad, request, error)
        return
    check_purpose(bad, request, plan)
    check_room(bad, plan)
    check_waves(request, plan)
    if not request.add and not request.exclude and all(b.capacity is None for b in bad.brokers):
        check_racks(bad, request, plan)
    moved = sum(plan.cluster.sizes[p] * len(set(new) - set(old)) for p, old, new in before_and_after(plan))
    assert moved == plan.bytes_to_move == summary(plan)["bytesToMove"]
    assert text(plan, summary(plan))


def check_refusal(bad: Bad, request: Request, error: PlanError) -> None:
    if isinstance(error, NoPlaceError):
        able = {b.id for b in bad.brokers if b.active and b.id not in request.drain}
        assert set(error.brokers) == able
        assert error.unplaced
        assert all(set(each.brokers) <= able for each in error.unplaced)
    else:
        assert re.search(r"no broker is left|is not active|cannot be drained|at least one", str(error))


def check_purpose(bad: Bad, request: Request, plan: ReassignmentPlan) -> None:
    """Every replica that moves does so for a purpose, to a broker that runs."""
    active = {b.id for b in bad.brokers if b.active}
    for p, old, new in before_and_after(plan):
        topic = plan.name(p)[0]
        assert len(set(new)) == len(new) == request.replication.get(topic, len(old))
        assert not set(new) & request.drain
        assert set(new) - set(old) <= active - request.drain
        if topic in request.exclude:
            assert new == old
        if topic not in request.replication:
            assert set(old) - set(new) - request.drain <= active, "a broker that is down may come back"
        if not request.balance and not request.add and topic not in request.replication:
            assert set(old) - set(new) == set(old) & request.drain, "only what is drained moves"
            assert set(old) & request.drain or new == old
    if request.add and not request.balance and not request.drain and not request.replication:
        assert {b for _, old, new in before_and_after(plan) for b in set(new) - set(old)} <= request.add


def check_room(bad: Bad, plan: ReassignmentPlan) -> None:
    """No broker gets more than it has room for."""
    held: Counter[int] = Counter()
    after: Counter[int] = Counter()
    for p, old, new in before_and_after(plan):
        for b in old:
            held[b] += plan.cluster.sizes[p]
        for b in new:
            after[b] += plan.cluster.sizes[p]
    for b in bad.brokers:
        assert b.capacity is None or after[b.id] <= max(b.capacity, held[b.id])


def check_waves(request: Request, plan: ReassignmentPlan) -> None:
    """Each change is in one wave, and no broker sends and receives more in it than the budgets."""
    assert sorted(p for wave in plan.waves for p in wave) == sorted(plan.moves)
    for wave in plan.waves:
        replicas: Counter[int] = Counter()
        size: Counter[int] = Counter()
        partitions: Counter[int] = Counter()
        for p in wave:
            move = plan.moves[p]
            for b, count in [(move.source, len(move.added)), *((b, 1) for b in move.added)]:
                replicas[b] += count
                size[b] += count * move.size
                partitions[b] += count > 0
        for b, count in partitions.items():
            assert count <= 1 or (replicas[b] <= request.wave_moves and size[b] <= request.wave_bytes)


def check_racks(bad: Bad, request: Request, plan: ReassignmentPlan) -> None:
    """The limit is the lowest with which all replicas of a partition have a place, and no choice of
    brokers for the replicas that may move has fewer beyond it."""
    for p, old, new in before_and_after(plan):
        least = fewest_beyond(bad, request, old, new, plan.goals.limit_of(p))
        assert plan.goals.crowded(p) <= least, plan.name(p)


def fewest_beyond(bad: Bad, request: Request, old: Sequence[int], new: Sequence[int], limit: int) -> int:
    """The fewest replicas beyond the limit of any choice of brokers for the replicas that moved, or
    had to."""
    rack = {b.id: b.rack for b in bad.brokers}
    targets = [b.id for b in bad.brokers if b.active and b.id not in request.drain]
    if request.balance:
        staying = [b for b in new if not next(x for x in bad.brokers if x.id == b).active]
    else:
        staying = [b for b in new if b in old]
    fixed = Counter(rack[b] for b in staying if not next(x for x in bad.brokers if x.id == b).active)

    def beyond(brokers: Sequence[int]) -> int:
        counts = Counter(rack[b] for b in brokers if rack[b] is not None)
        return sum(max(0, count - max(limit, fixed[name])) for name, count in counts.items())

    free = [b for b in targets if b not in staying]
    return min(beyond([*staying, *chosen]) for chosen in combinations(free, len(new) - len(staying)))


@settings(max_examples=100, deadline=None)
@given(bad_clusters())
def test_a_drain_takes_a_partition_out_of_a_rack_only_if_no_broker_is_left_there(bad: Bad) -> None:
    bad = Bad(tuple(Broker(b.id, b.rack, b.active) for b in bad.brokers), bad.partitions)
    rack = {b.id: b.rack for b in bad.brokers}
    try:
        plan = make_plan(bad.cluster(), Request(drain=frozenset({0})))
    except PlanError:
        return
    for p, old, new in before_and_after(plan):
        if not plan.lost_racks(p):
            continue
        kept = [b for b in old if b != 0]
        others = {rack[b] for b in kept}
        free = [b for b in bad.brokers if b.active and b.id and b.id not in kept]
        assert not [b for b in free if b.rack not in others or b.rack is None], (plan.name(p), new)


@settings(max_examples=60, deadline=None)
@given(bad_clusters())
def test_a_plan_does_not_depend_on_the_order_of_its_input(bad: Bad) -> None:
    plans = []
    for reverse in (False, True):
        builder = ClusterBuilder(reversed(bad.brokers) if reverse else bad.brokers)
        entries = list(enumerate(bad.partitions))
        for number, (topic, size, replicas, has_leader) in reversed(entries) if reverse else entries:
            builder.add(topic, number, replicas, replicas[-1] if has_leader else -1, size)
        try:
            plan = make_plan(builder.build(), Request(balance=True))
        except PlanError as error:
            plans.append(str(error))
        else:
            plans.append([[(plan.name(p), plan.replicas(p)) for p in wave] for wave in plan.waves])
    assert plans[0] == plans[1]


@settings(max_examples=60, deadline=None)
@given(bad_clusters())
def test_a_cluster_that_was_planned_is_left_alone(bad: Bad) -> None:
    """A second plan for balance may find more, but moves less: repeated, it comes to an end."""
    partitions = list(bad.partitions)
    moved = None
    for _ in range(6):
        try:
            plan = make_plan(Bad(bad.brokers, tuple(partitions)).cluster(), Request(balance=True))
        except PlanError:
            return
        if not plan.replicas_to_move:
            return
        for p in plan.moves:
            number = plan.name(p)[1]
            topic, size, _, has_leader = partitions[number]
            partitions[number] = topic, size, tuple(plan.replicas(p)), has_leader
        moved = plan.replicas_to_move
    raise AssertionError(f"the sixth plan still moves {moved} replicas")
