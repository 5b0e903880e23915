"""Plans reassignments: which replicas are to be on which brokers, which of them leads, and in which waves.

    cluster = builder.build()
    plan = make_plan(cluster, Request(drain=frozenset({3})))
    for wave in plan.waves:
        for p in wave:
            plan.name(p), plan.replicas(p)

The same input gives the same plan.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from quorate.dataclass import dataclass
from quorate.planner.balance import Balancer
from quorate.planner.cluster import NONE, Cluster, PlanError
from quorate.planner.goals import Goals
from quorate.planner.leadership import Leadership
from quorate.planner.placement import Placement, required_slots
from quorate.planner.request import Request
from quorate.planner.search import NO_CHANGE, Change, Search
from quorate.planner.state import State
from quorate.planner.waves import Move, cut

SEARCHED = 60
"""Up to so many replicas, an assignment is improved by a search over all of them, from two beginnings."""


@dataclass(slots=True)
class ReassignmentPlan:
    """What is to change. Partitions are referred to by their positions in the cluster."""

    cluster: Cluster
    request: Request
    state: State
    goals: Goals
    moves: dict[int, Move] = field(default_factory=dict)
    """The partitions that change, in order of topic and index."""
    waves: list[list[int]] = field(default_factory=list)
    """The partitions of each wave, in order of topic and index."""

    def name(self, p: int) -> tuple[str, int]:
        """Returns the topic and index of a partition."""
        return self.cluster.topics[self.cluster.topic_of[p]], self.cluster.index_of[p]

    def replicas(self, p: int) -> list[int]:
        """Returns the ids of the brokers that a partition is to have, its preferred leader first."""
        return [self.cluster.brokers[b].id for b in _assigned(self.state, p)]

    def replicas_before(self, p: int) -> list[int]:
        return [self.cluster.brokers[b].id for b in self.cluster.replicas_of(p)]

    def lost_racks(self, p: int) -> int:
        """Returns in how many fewer racks a partition is than before."""
        return self.goals.lost_racks(p)

    @property
    def bytes_to_move(self) -> int:
        return self.state.moved_bytes

    @property
    def replicas_to_move(self) -> int:
        return sum(len(move.added) for move in self.moves.values())


def make_plan(cluster: Cluster, request: Request) -> ReassignmentPlan:
    """Raises PlanError if the cluster cannot be as requested."""
    _check(cluster, request)
    best = _solve(cluster, request, balanced=True)
    if best.cost != NO_CHANGE:
        other = _solve(cluster, request, balanced=False)
        if other.cost < best.cost:
            best = other
    best.placement.check_room(_held(cluster))
    plan = ReassignmentPlan(cluster, request, best.state, best.goals)
    _collect(plan)
    return plan


class _Solution(NamedTuple):
    """An assignment and its cost, which is NO_CHANGE if it is not compared with others."""

    state: State
    goals: Goals
    placement: Placement
    cost: Change


def _solve(cluster: Cluster, request: Request, *, balanced: bool) -> _Solution:
    """Returns an assignment. A search follows if the cluster is small.

    It begins with a `balanced` assignment, or with one in which only those replicas have moved that must.
    """
    state = State(cluster, request)
    if not state.eligible:
        raise PlanError("no broker is left that could have replicas")
    goals = Goals(state, request)
    fixed = _excluded(state, request)
    required = required_slots(state, mend_racks=request.balance, goals=goals, fixed=fixed)
    placement = Placement(state, goals)
    placement.place(required)
    movable, may_change = _freedom(state, request, required, fixed)
    state.index(movable)
    if balanced:
        Balancer(state, goals).run()
        Leadership(state, goals, may_change).run()
    else:
        Balancer(state, goals).relieve()
    cost = NO_CHANGE
    if len(state.broker_of) <= SEARCHED:
        search = Search(state, goals, movable, may_change)
        search.run()
        cost = search.cost()
    return _Solution(state, goals, placement, cost)


def _check(cluster: Cluster, request: Request) -> None:
    known = {broker.id for broker in cluster.brokers}
    missing = sorted((request.drain | request.add) - known)
    if missing:
        raise PlanError(f"there is no broker {missing[0]}; the brokers are {_joined(known)}")
    idle = sorted(b.id for b in cluster.brokers if b.id in request.add and not b.active)
    if idle:
        raise PlanError(f"broker {idle[0]} is not active, so it cannot get replicas")
    both = sorted(request.drain & request.add)
    if both:
        raise PlanError(f"broker {both[0]} cannot be drained and added")
    absent = sorted((set(request.replication) | request.exclude) - set(cluster.topics))
    if absent:
        raise PlanError(f"there is no topic {absent[0]}")
    wrong = sorted(set(request.replication) & request.exclude)
    if wrong:
        raise PlanError(f"topic {wrong[0]} cannot be excluded and get another replication factor")


def _excluded(state: State, request: Request) -> bytearray | None:
    """Returns which partitions are left as they are. None is none. Raises PlanError if they cannot be."""
    if not request.exclude:
        return None
    excluded = [name in request.exclude for name in state.cluster.topics]
    found = bytearray([excluded[topic] for topic in state.topic_of])
    for slot, b in enumerate(state.broker_of):
        p = state.partition_of[slot]
        if found[p] and b != NONE and state.drained[b]:
            raise PlanError(
                f"broker {state.cluster.brokers[b].id} cannot be drained, because it has a replica "
                f"of {state.cluster.topics[state.topic_of[p]]}-{state.cluster.index_of[p]}, whose "
                "topic is excluded"
            )
    return found


def _freedom(
    state: State, request: Request, required: list[int], fixed: bytearray | None
) -> tuple[bytearray | None, bytearray | None]:
    """Returns which slots may move and of which partitions the leader may change. None is all of them."""
    if fixed is not None and (request.balance or request.add):
        may_change = bytearray([not each for each in fixed])
        return bytearray([may_change[p] for p in state.partition_of]), may_change
    if request.balance:
        return None, None
    may_change = bytearray(len(state.sizes))
    movable = bytearray(len(state.broker_of))
    for slot in required:
        movable[slot] = 1
        may_change[state.partition_of[slot]] = 1
    for p in range(len(state.sizes)) if request.replication else ():
        if state.cluster.topics[state.topic_of[p]] in request.replication:
            may_change[p] = 1
    return (None, None) if request.add else (movable, may_change)


def _assigned(state: State, p: int) -> list[int]:
    """Returns the brokers of a partition in the order of preference."""
    leader = state.leader_slot[p]
    rest = [state.broker_of[s] for s in range(state.first[p], state.first[p + 1]) if s != leader]
    return [state.broker_of[leader], *rest]


def _collect(plan: ReassignmentPlan) -> None:
    """Finds what changes, and divides it into waves."""
    cluster, state = plan.cluster, plan.state
    found = []
    for p in range(len(cluster)):
        move = _move(plan, p)
        if move is not None:
            found.append(move)
    found.sort(key=lambda move: plan.name(move.partition))
    plan.moves = {move.partition: move for move in found}
    waves = cut(
        found,
        _held(cluster),
        state.capacity,
        wave_bytes=plan.request.wave_bytes,
        wave_moves=plan.request.wave_moves,
    )
    plan.waves = [sorted((move.partition for move in wave), key=plan.name) for wave in waves]


def _held(cluster: Cluster) -> list[int]:
    """Returns the bytes on each broker now."""
    held = [0] * len(cluster.brokers)
    for p, size in enumerate(cluster.sizes):
        for b in cluster.replicas_of(p):
            held[b] += size
    return held


def _move(plan: ReassignmentPlan, p: int) -> Move | None:
    """Returns the change of a partition, or None."""
    cluster, state = plan.cluster, plan.state
    new, old = _assigned(state, p), cluster.replicas_of(p).tolist()
    leader = cluster.leaders[p]
    if set(new) == set(old) and new[0] == old[0]:
        preferred = cluster.brokers[new[0]]
        if not plan.request.balance or leader in (NONE, new[0]) or not preferred.active:
            return None
        if cluster.topics[cluster.topic_of[p]] in plan.request.exclude:
            return None
    source = leader if leader != NONE else old[0]
    added = tuple(sorted(set(new) - set(old)))
    removed = tuple(sorted(set(old) - set(new)))
    return Move(p, cluster.sizes[p], source, added, removed)


def _joined(values: set[int]) -> str:
    return ", ".join(map(str, sorted(values)))
