"""A plan explained: loads of brokers and racks before and after, the bytes to move, and the goals.

`summary` has everything as a JSON document; `text` shows it as tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from quorate.planner.cluster import NONE, Cluster
from quorate.planner.goals import Band, Goals
from quorate.planner.plan import ReassignmentPlan
from quorate.planner.reasons import why_leaders_stay, why_replicas_stay
from quorate.planner.state import State

LOADS = ("replicas", "bytes", "leaders", "leaderBytes")


def summary(plan: ReassignmentPlan) -> dict[str, Any]:
    """Returns the plan without its partitions: totals, goals, brokers and racks before and after, waves."""
    brokers = _brokers(plan)
    moved = [move for move in plan.moves.values() if move.added]
    return {
        "partitions": len(plan.cluster),
        "changedPartitions": len(plan.moves),
        "leadershipOnly": sum(1 for move in plan.moves.values() if not move.added and not move.removed),
        "replicasToMove": plan.replicas_to_move,
        "bytesToMove": sum(move.size * len(move.added) for move in moved),
        "waves": [
            {
                "partitions": len(wave),
                "replicas": sum(len(plan.moves[p].added) for p in wave),
                "bytes": sum(plan.moves[p].size * len(plan.moves[p].added) for p in wave),
            }
            for wave in plan.waves
        ],
        "goals": _goals(plan, brokers),
        "brokers": brokers,
        "racks": _racks(brokers),
    }


def _loads(cluster: Cluster) -> dict[str, list[int]]:
    """Returns the loads of brokers now. A partition without a leader counts for its preferred one."""
    found = {name: [0] * len(cluster.brokers) for name in LOADS}
    for p, size in enumerate(cluster.sizes):
        replicas = cluster.replicas_of(p)
        for b in replicas:
            found["replicas"][b] += 1
            found["bytes"][b] += size
        leader = cluster.leaders[p] if cluster.leaders[p] != NONE else replicas[0]
        found["leaders"][leader] += 1
        found["leaderBytes"][leader] += size
    return found


def _brokers(plan: ReassignmentPlan) -> list[dict[str, Any]]:
    state, before = plan.state, _loads(plan.cluster)
    after = dict(zip(LOADS, (state.replicas, state.bytes, state.leaders, state.leader_bytes), strict=True))
    received, sent = [0] * len(state.replicas), [0] * len(state.replicas)
    for move in plan.moves.values():
        for b in move.added:
            received[b] += move.size
        sent[move.source] += move.size * len(move.added)
    return [
        {
            "broker": broker.id,
            "rack": broker.rack,
            "state": "draining" if state.drained[b] else "active" if broker.active else "inactive",
            "before": {name: before[name][b] for name in LOADS},
            "after": {name: after[name][b] for name in LOADS},
            "bytesReceived": received[b],
            "bytesSent": sent[b],
        }
        for b, broker in enumerate(plan.cluster.brokers)
    ]


def _racks(brokers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for broker in brokers:
        if broker["rack"] is None:
            continue
        rack = found.setdefault(
            broker["rack"],
            {
                "rack": broker["rack"],
                "brokers": 0,
                **{when: dict.fromkeys(LOADS, 0) for when in ("before", "after")},
            },
        )
        rack["brokers"] += 1
        for when in ("before", "after"):
            for name in LOADS:
                rack[when][name] += broker[when][name]
    return [found[name] for name in sorted(found)]


# -- goals


def _goals(plan: ReassignmentPlan, brokers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the goals in their order: whether each held before and holds after, and why not."""
    state, goals = plan.state, plan.goals

    limited = "" if plan.request.balance else " (a plan for balance may move all of them)"

    def soft(name: str, load: str, band: Band, why: Callable[[int], str]) -> dict[str, Any]:
        show = _shown(load)

        def outside(when: str) -> list[int]:
            return [b for b in state.eligible if band.excess(b, brokers[b][when][load])]

        reasons = [
            f"broker {brokers[b]['broker']} has {show(brokers[b]['after'][load])}, {_fair(band, b, show)}: "
            f"{why(b)}{limited}"
            for b in outside("after")
        ]
        return _goal(name, False, not outside("before") and not any(state.drained), reasons)

    return [
        *_hard(plan),
        soft(
            "replicas", "replicas", goals.replicas,
            lambda b: why_replicas_stay(state, goals, b, goals.replicas, state.replicas),
        ),
        soft(
            "bytes", "bytes", goals.bytes,
            lambda b: why_replicas_stay(state, goals, b, goals.bytes, state.bytes),
        ),
        soft("leaders", "leaders", goals.leaders, lambda b: why_leaders_stay(state, goals, b)),
        _topic_goal(plan),
        soft(
            "leader bytes", "leaderBytes", goals.leader_bytes,
            lambda b: "no exchange of leaderships between two brokers brings it nearer",
        ),
    ]  # fmt: skip


def _goal(name: str, hard: bool, before: bool, reasons: list[str]) -> dict[str, Any]:
    return {"goal": name, "hard": hard, "before": before, "after": not reasons, "reasons": reasons}


def _fair(band: Band, b: int, show: Callable[[int], str]) -> str:
    least, most = show(band.least[b]), show(band.most[b])
    return f"fair is {most}" if least == most else f"fair are {least} to {most}"


def _hard(plan: ReassignmentPlan) -> list[dict[str, Any]]:
    cluster, state, goals = plan.cluster, plan.state, plan.goals
    before = any(goals.crowding(cluster.replicas_of(p)) for p in range(len(cluster)))
    crowded = [p for p in range(len(cluster)) if goals.crowded(p)]
    racks = []
    if crowded:
        topic, index = plan.name(min(crowded, key=plan.name))
        reason = (
            "brokers without room, or replicas on brokers that are not active, leave no other place"
            if plan.request.balance
            else "they are so already, and only a plan for balance moves them"
        )
        racks = [
            f"{len(crowded):,} partitions, among them {topic}-{index}, have more replicas in a rack "
            "than needed: " + reason
        ]
    full = [b for b in state.eligible if goals.overflow(b, state.bytes[b])]
    held = [
        sum(1 for b in state.eligible if goals.overflow(b, load[b])) for load in [_loads(cluster)["bytes"]]
    ]
    room = [
        f"broker {cluster.brokers[b].id} has {size(state.bytes[b])} and room for "
        f"{size(state.capacity[b] or 0)}: no other broker has room for its replicas"
        for b in full
    ]
    return [
        {**_goal("racks", True, not before, racks), "limits": _limits(goals, state)},
        _goal("capacity", True, not held[0], room),
    ]


def _limits(goals: Goals, state: State) -> dict[str, int]:
    """Returns the most replicas in a rack by replication factor, if there are racks."""
    if not state.racks:
        return {}
    first = state.cluster.first
    factors = {state.factor(p) for p in range(len(state.sizes))}
    factors |= {first[p + 1] - first[p] for p in range(len(state.sizes))}
    return {str(factor): goals.rack_limit((factor, ())) for factor in sorted(factors)}


def _topic_goal(plan: ReassignmentPlan) -> dict[str, Any]:
    cluster, state, goals = plan.cluster, plan.state, plan.goals
    brokers = len(cluster.brokers)
    counts = [0] * len(state.topic_counts)
    for p, topic in enumerate(cluster.topic_of):
        for b in cluster.replicas_of(p):
            counts[topic * brokers + b] += 1
    held, crowds = True, []
    for topic in range(len(cluster.topics)):
        for b in state.eligible:
            at = topic * brokers + b
            if counts[at] > 2 and counts[at] > goals.topic_most(topic, b):
                held = False
            if state.topic_counts[at] > 2 and goals.topic_excess(topic, b):
                crowds.append((topic, b))
    reasons = [
        f"broker {cluster.brokers[b].id} has {state.topic_counts[topic * brokers + b]} replicas of "
        f"{cluster.topics[topic]}, at most {goals.topic_most(topic, b)} are fair: moving one would miss an "
        "earlier goal"
        for topic, b in crowds[:10]
    ]
    if len(crowds) > 10:
        reasons.append(f"{len(crowds) - 10:,} more")
    return _goal("topics", False, held, reasons)


# -- text


def text(plan: ReassignmentPlan, found: dict[str, Any]) -> str:
    """Returns a summary as tables."""
    lines = [_headline(found)]
    rows: list[Sequence[str]] = [("GOAL", "BEFORE", "AFTER", "")]
    rows += [
        (
            goal["goal"] + (" (hard)" if goal["hard"] else ""),
            _held(goal["before"]),
            _held(goal["after"]),
            goal["reasons"][0] if goal["reasons"] else "",
        )
        for goal in found["goals"]
    ]
    lines += ["", *table(rows)]
    more = sum(max(0, len(goal["reasons"]) - 1) for goal in found["goals"])
    if more:
        lines.append(f"({more} more reasons: --json)")
    rows = [("BROKER", "RACK", "STATE", "REPLICAS", "BYTES", "LEADERS", "LEADER BYTES", "RECEIVES", "SENDS")]
    rows += [
        (
            str(broker["broker"]),
            broker["rack"] or "-",
            broker["state"],
            *_changes(broker),
            size(broker["bytesReceived"]),
            size(broker["bytesSent"]),
        )
        for broker in found["brokers"]
    ]
    lines += ["", *table(rows)]
    if found["racks"]:
        rows = [("RACK", "BROKERS", "REPLICAS", "BYTES", "LEADERS", "LEADER BYTES")]
        rows += [(rack["rack"], str(rack["brokers"]), *_changes(rack)) for rack in found["racks"]]
        lines += ["", *table(rows)]
    if found["waves"]:
        rows = [("WAVE", "PARTITIONS", "REPLICAS", "BYTES")]
        waves = found["waves"]
        shown = range(len(waves)) if len(waves) <= 12 else [*range(10), len(waves) - 1]
        rows += [
            (
                str(n + 1),
                f"{waves[n]['partitions']:,}",
                f"{waves[n]['replicas']:,}",
                size(waves[n]["bytes"]),
            )
            for n in shown
        ]
        if len(waves) > 12:
            rows.insert(-1, ("...", "", "", ""))
        lines += ["", *table(rows)]
    return "\n".join(lines)


def _headline(found: dict[str, Any]) -> str:
    if not found["changedPartitions"]:
        return f"Nothing to change: {found['partitions']:,} partitions"
    return (
        f"{found['changedPartitions']:,} of {found['partitions']:,} partitions change, "
        f"{found['leadershipOnly']:,} of them only their preferred leader; "
        f"{found['replicasToMove']:,} replicas with {size(found['bytesToMove'])} move, in "
        f"{len(found['waves'])} wave{'' if len(found['waves']) == 1 else 's'}"
    )


def _held(held: bool) -> str:
    return "holds" if held else "missed"


def _changes(entry: dict[str, Any]) -> list[str]:
    shown = []
    for name in LOADS:
        before, after = entry["before"][name], entry["after"][name]
        show = _shown(name)
        shown.append(show(before) if before == after else f"{show(before)} -> {show(after)}")
    return shown


def _shown(load: str) -> Callable[[int], str]:
    """Returns how a load is written."""
    return size if load in ("bytes", "leaderBytes") else "{:,}".format


def size(value: int) -> str:
    """Returns bytes with a unit."""
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError(value)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows with their cells below each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
