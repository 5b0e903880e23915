"""Why a goal cannot be met: what keeps the load of a broker outside of its band."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from quorate.planner.goals import Band, Goals
from quorate.planner.state import State

SAMPLE = 200
"""Of how many replicas of a broker it is found out why they stay."""


def why_replicas_stay(state: State, goals: Goals, b: int, band: Band, loads: Sequence[int]) -> str:
    """Returns why a broker that has too much cannot give replicas away, or why one gets none."""
    over = loads[b] > band.most[b]
    if over:
        takers = [o for o in state.eligible if o != b and state.receives[o] and loads[o] < band.most[o]]
        slots = state.slots_on[b]
    else:
        takers = [b] if state.receives[b] else []
        slots = [s for o in state.eligible if o != b and loads[o] > band.least[o] for s in state.slots_on[o]]
    if not slots:
        return "no replica may move for what was asked for"
    if not takers:
        return "no broker takes more"
    reasons: Counter[str] = Counter()
    step = max(1, len(slots) // SAMPLE)
    for slot in slots[::step]:
        reasons.update(_why_not(goals, slot, taker) for taker in takers)
    return max(sorted(reasons), key=lambda reason: reasons[reason])


def _why_not(goals: Goals, slot: int, b: int) -> str:
    """Returns what prevents one move."""
    obstacle = goals.obstacle(slot, b)
    if obstacle is None:
        return "its replicas cannot be divided more evenly without missing an earlier goal"
    return obstacle.value


def why_leaders_stay(state: State, goals: Goals, b: int) -> str:
    """Returns why a broker has too many or too few leaders."""
    over = state.leaders[b] > goals.leaders.most[b]
    if over:
        return "the followers of the partitions that it leads are on brokers that lead enough"
    return "it has too few replicas of partitions whose leaders may change"
