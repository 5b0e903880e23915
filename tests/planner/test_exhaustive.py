"""Plans for small clusters against all assignments that there are. The examples are others in each run.

Of 6,500 random clusters no plan missed the first property. The second one does not hold for every
cluster: two of the plans moved more bytes than to the best assignment, whose way takes more steps
than the search tries.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from quorate.planner.cluster import Broker, ClusterBuilder
from quorate.planner.plan import make_plan
from quorate.planner.request import Request

TOLERANCE = 1.05


@dataclass(frozen=True)
class Small:
    """A cluster: the rack of each broker, and the bytes and replicas of each partition."""

    racks: tuple[str | None, ...]
    partitions: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Measured:
    """An assignment by its crowded racks, its loads (replicas, bytes, leaders, bytes of leaders),
    and the bytes that move."""

    crowded: int
    loads: tuple[tuple[int, ...], ...]
    moved: int


@st.composite
def small_clusters(draw: st.DrawFn) -> Small:
    brokers = draw(st.integers(2, 4))
    racks = draw(
        st.sampled_from(
            [(None,) * brokers, tuple("ab"[b % 2] for b in range(brokers)), tuple("abcd"[:brokers])]
        )
    )
    factor = draw(st.integers(1, 2))
    count = draw(st.integers(1, 4 if factor == 2 or brokers == 4 else 5))
    replicas = st.permutations(range(brokers)).map(lambda order: tuple(order[:factor]))
    partitions = draw(
        st.lists(st.tuples(st.integers(0, 20), replicas), min_size=count, max_size=count).map(tuple)
    )
    return Small(racks, partitions)


def measured(small: Small, assignment: Sequence[tuple[int, ...]]) -> Measured:
    count = len(small.racks)
    replicas, held, leaders, led = ([0] * count for _ in range(4))
    crowded = moved = 0
    for (size, old), new in zip(small.partitions, assignment, strict=True):
        for b in new:
            replicas[b] += 1
            held[b] += size
            moved += size * (b not in old)
        leaders[new[0]] += 1
        led[new[0]] += size
        racks = [small.racks[b] for b in new if small.racks[b] is not None]
        crowded += len(racks) - len(set(racks))
    return Measured(crowded, (tuple(replicas), tuple(held), tuple(leaders), tuple(led)), moved)


def all_assignments(small: Small) -> Iterator[Measured]:
    brokers = range(len(small.racks))
    choices = [list(permutations(brokers, len(old))) for _, old in small.partitions]
    for assignment in product(*choices):
        yield measured(small, assignment)


def planned(small: Small) -> Measured:
    builder = ClusterBuilder(Broker(b, rack) for b, rack in enumerate(small.racks))
    for number, (size, replicas) in enumerate(small.partitions):
        builder.add("t", number, replicas, replicas[0], size)
    cluster = builder.build()
    plan = make_plan(cluster, Request(balance=True))
    by_index = {cluster.index_of[p]: p for p in range(len(cluster))}
    assignment = [
        tuple(plan.replicas(by_index[n])) if by_index[n] in plan.moves else small.partitions[n][1]
        for n in range(len(by_index))
    ]
    found = measured(small, assignment)
    assert found.moved == plan.bytes_to_move
    return found


def unevenness(load: Sequence[int]) -> int:
    """The variance, times a constant."""
    return sum(x * x for x in load)


LEADERS_IN_A_CIRCLE = Small(("a", "b", "a"), ((11, (1, 0)), (18, (0, 2)), (18, (1, 0)), (11, (2, 1))))
"""The bytes of its leaders are even only after three brokers hand leaderships on to each other."""


@settings(max_examples=60, deadline=None)
@given(small_clusters())
@example(LEADERS_IN_A_CIRCLE)
def test_no_assignment_that_moves_no_more_is_better_by_over_five_percent(small: Small) -> None:
    ours = planned(small)
    rivals = list(all_assignments(small))
    assert ours.crowded == min(rival.crowded for rival in rivals)
    rivals = [r for r in rivals if r.crowded == ours.crowded and r.moved <= ours.moved]
    for goal in range(4):
        best = min(max(rival.loads[goal]) for rival in rivals)
        assert max(ours.loads[goal]) <= TOLERANCE * best
        # A later goal is compared with assignments that are as good in the earlier ones.
        rivals = [
            rival
            for rival in rivals
            if max(rival.loads[goal]) <= max(ours.loads[goal])
            and min(rival.loads[goal]) >= min(ours.loads[goal])
        ]


def random_cluster(rng: random.Random) -> Small:
    brokers, factor = rng.randint(2, 4), rng.randint(1, 2)
    racks = rng.choice(
        [(None,) * brokers, tuple("ab"[b % 2] for b in range(brokers)), tuple("abcd"[:brokers])]
    )
    count = rng.randint(1, 4 if factor == 2 or brokers == 4 else 5)
    most = rng.choice([3, 20])
    partitions = [(rng.randint(0, most), tuple(rng.sample(range(brokers), factor))) for _ in range(count)]
    return Small(racks, tuple(partitions))


def test_hardly_ever_do_more_bytes_move_than_to_the_best_assignment() -> None:
    """At most one of 60 plans misses it. At two of 3,000, one run in more than a thousand has two that do."""
    seed = random.SystemRandom().getrandbits(32)
    rng = random.Random(seed)
    missed = []
    for _ in range(60):
        small = random_cluster(rng)
        best = min(
            all_assignments(small),
            key=lambda rival: (rival.crowded, [unevenness(load) for load in rival.loads], rival.moved),
        )
        if planned(small).moved > best.moved:
            missed.append(small)
    assert len(missed) <= 1, (seed, missed)
