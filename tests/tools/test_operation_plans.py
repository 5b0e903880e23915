"""The plans of rolling-restart and decommission: from the description of a cluster to steps and refusals."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from quorate.admin.types import TopicPartition
from quorate.metadata.features import KRAFT_VERSION, METADATA_VERSION
from quorate.planner import cluster as planner
from quorate.planner.cluster import ClusterBuilder
from quorate.planner.plan import make_plan
from quorate.planner.request import Request
from quorate.tools.command_line import ToolError
from quorate.tools.operations.description import (
    Broker,
    Cluster,
    Controller,
    Partition,
    Partitions,
    Replica,
    Start,
)
from quorate.tools.operations.node_command import check_command, filled, run_command
from quorate.tools.operations.plan import OperationPlan, Progress, Step
from quorate.tools.operations.plans.decommission import Decommission
from quorate.tools.operations.plans.rolling_restart import RollingRestart
from quorate.tools.times import time_text
from tests.support.cluster import wait_for

NOW = 1_000_000
FEATURES = {METADATA_VERSION: (7, 33), KRAFT_VERSION: (0, 1), "group.version": (0, 1)}


def directory(node: int) -> bytes:
    return bytes([100 + node]) * 16


def start(node: int, time_ms: int | None = NOW - 1) -> Start:
    return Start(bytes([node]) * 16, time_ms)


def broker(node: int, **fields: object) -> Broker:
    base = Broker(node, start(node), f"host{node}", 9092, directories=(directory(node),), features=FEATURES)
    return replace(base, **fields)  # type: ignore[arg-type]


def controller(node: int, time_ms: int | None = NOW - 1) -> Controller:
    endpoints = (("CONTROLLER", f"host{node}", 9093),)
    return Controller(node, start(node, time_ms), endpoints, FEATURES)


def part(name: str, replicas: Sequence[int], isr: Sequence[int] | None = None, **fields: object) -> Partition:
    in_sync = tuple(replicas if isr is None else isr)
    dirs = tuple(directory(r) for r in replicas)
    base = Partition(TopicPartition(name, 0), tuple(replicas), in_sync, in_sync[0], directories=dirs)
    return replace(base, **fields)  # type: ignore[arg-type]


def cluster(
    *partitions: Partition,
    brokers: Sequence[Broker] = (),
    controllers: Sequence[int] = (1, 2, 3),
    voters: Sequence[Replica] | None = None,
    level: int = 33,
    kraft: int = 1,
    **fields: object,
) -> Cluster:
    """Controllers 1 to 3, with 1 as the active one, and brokers 4 to 6."""
    found = Cluster(
        cluster_id="c",
        now_ms=NOW,
        brokers={b.id: b for b in brokers or [broker(4), broker(5), broker(6)]},
        controllers={c: controller(c) for c in controllers},
        leader_id=controllers[0] if controllers else -1,
        voters=tuple(voters if voters is not None else [Replica(c, directory(c)) for c in controllers]),
        features={METADATA_VERSION: level, KRAFT_VERSION: kraft},
        partitions=Partitions(partitions),
    )
    return replace(found, **fields)  # type: ignore[arg-type]


def kinds(plan: OperationPlan) -> list[str]:
    assert not plan.refusals, plan.refusals
    return [f"{step.kind} {step.node}" if step.node is not None else step.kind for step in plan.steps]


def refused(plan: OperationPlan) -> str:
    assert plan.refusals
    assert not plan.steps
    return "\n".join(f"{r.reason} | {r.remedy}" for r in plan.refusals)


# -- rolling-restart


def restarts(plan: OperationPlan) -> list[int]:
    assert not plan.refusals, plan.refusals
    return [step.node for step in plan.steps if step.kind == "restart" and step.node is not None]


def test_brokers_are_restarted_first_and_the_active_controller_last() -> None:
    plan = RollingRestart(NOW).plan(cluster(part("t", [4, 5, 6])), Progress())
    assert restarts(plan) == [4, 5, 6, 2, 3, 1]
    assert [step.kind for step in plan.steps] == ["restart", "wait"] * 6


@pytest.mark.parametrize(
    ("operation", "nodes"),
    [
        (RollingRestart(NOW, nodes=[5, 2]), [5, 2]),
        (RollingRestart(NOW, controllers=False), [4, 5, 6]),
        (RollingRestart(NOW, brokers=False), [2, 3, 1]),
    ],
)
def test_some_of_the_nodes_are_restarted(operation: RollingRestart, nodes: list[int]) -> None:
    assert restarts(operation.plan(cluster(), Progress())) == nodes


def test_brokers_of_a_rack_follow_one_another() -> None:
    racks = [broker(4, rack="b"), broker(5, rack="a"), broker(6, rack="b"), broker(7, rack="a")]
    plan = RollingRestart(NOW, controllers=False).plan(cluster(brokers=racks), Progress())
    assert restarts(plan) == [5, 7, 4, 6]


def test_a_node_that_started_since_is_not_restarted_again() -> None:
    nodes = [broker(4, start=start(4, NOW)), broker(5, start=start(5, NOW + 7)), broker(6)]
    found = replace(
        cluster(brokers=nodes), controllers={1: controller(1), 2: controller(2, NOW), 3: controller(3)}
    )
    assert restarts(RollingRestart(NOW).plan(found, Progress())) == [6, 3, 1]


def test_a_start_that_is_known_from_a_snapshot_only_does_not_count() -> None:
    unknown = Start(b"s" * 16, None, NOW + 5)
    plan = RollingRestart(NOW, nodes=[4]).plan(cluster(brokers=[broker(4, start=unknown)]), Progress())
    assert restarts(plan) == [4]


def test_a_new_incarnation_counts_although_the_clock_of_the_node_is_behind() -> None:
    progress = Progress(commanded={4: b"before" * 2})
    assert RollingRestart(NOW, nodes=[4]).plan(cluster(), progress).steps == ()  # not a second time


def test_after_its_command_a_node_is_awaited_and_not_commanded_again() -> None:
    progress = Progress(commanded={4: start(4).incarnation_id})
    plan = RollingRestart(NOW, nodes=[4, 5]).plan(cluster(), progress)
    assert kinds(plan) == ["wait 4", "restart 5", "wait 5"]
    assert plan.steps[0].detail == "it has not registered since its restart"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (cluster(brokers=[broker(4, start=start(4, NOW), fenced=True), broker(5)]), "it is fenced"),
        (
            cluster(brokers=[broker(4, start=start(4, NOW), in_controlled_shutdown=True), broker(5)]),
            "it is in controlled shutdown",
        ),
        (
            cluster(part("t", [4, 5], [5]), brokers=[broker(4, start=start(4, NOW)), broker(5)]),
            "it is not in the ISR of 1 partition: t-0",
        ),
    ],
)
def test_the_next_node_waits_until_the_one_before_is_back(state: Cluster, reason: str) -> None:
    plan = RollingRestart(NOW, nodes=[4, 5]).plan(state, Progress())
    assert kinds(plan) == ["wait 4", "restart 5", "wait 5"]
    assert plan.steps[0].detail == reason


def test_a_controller_that_was_restarted_must_follow_before_the_next_stops() -> None:
    voters = [Replica(1), Replica(2, follows=False), Replica(3)]
    found = cluster(voters=voters, controllers=(1, 2, 3))
    found = replace(found, controllers={1: controller(1), 2: controller(2, NOW), 3: controller(3)})
    plan = RollingRestart(NOW, brokers=False).plan(found, Progress())
    assert kinds(plan)[0] == "wait 2"
    assert plan.steps[0].detail == "it does not follow the metadata leader yet"


def test_a_node_that_is_down_is_started_first_without_waiting_for_it() -> None:
    found = cluster(part("t", [4, 6], [6], leader=-1), brokers=[broker(4), broker(5), broker(6, fenced=True)])
    assert kinds(RollingRestart(NOW, controllers=False).plan(found, Progress()))[0] == "restart 6"


def test_a_node_that_is_down_is_started_before_others_are_awaited() -> None:
    """Broker 4 was restarted, and cannot be in sync before 6, the last in the ISR, is back."""
    brokers = [broker(4, start=start(4, NOW)), broker(5), broker(6, fenced=True)]
    found = cluster(part("t", [4, 6], [6], leader=-1), brokers=brokers)
    plan = RollingRestart(NOW, controllers=False).plan(found, Progress())
    assert kinds(plan) == ["restart 6", "wait 6", "wait 4", "restart 5", "wait 5"]


def test_a_node_that_is_stopping_is_the_first() -> None:
    """The command of an earlier run, which was killed, may still restart it."""
    brokers = [broker(4), broker(5, in_controlled_shutdown=True), broker(6)]
    plan = RollingRestart(NOW, controllers=False).plan(cluster(brokers=brokers), Progress())
    assert restarts(plan) == [5, 4, 6]


def test_no_other_node_is_restarted_while_one_is_awaited_although_the_leader_changed() -> None:
    progress = Progress(commanded={2: start(2).incarnation_id})
    plan = RollingRestart(NOW, brokers=False).plan(cluster(leader_id=3), progress)
    assert kinds(plan)[:2] == ["wait 2", "restart 1"]


def test_a_clock_that_is_behind_is_noted() -> None:
    plan = RollingRestart(NOW, nodes=[4]).plan(cluster(), Progress(commanded={4: b"before" * 2}))
    assert plan.notes == (
        "the clock of node 4 is behind that of the active controller: if this restart is continued, "
        "it is restarted again",
    )


LASTING = [
    (cluster(part("t", [4])), 4, "broker 4 has the only replica of t-0: no leader while it is stopped"),
    (
        cluster(part("t", [4, 5], min_isr=2)),
        4,
        "t-0 would have fewer replicas in sync than min.insync.replicas while broker 4 is stopped: "
        "producers with acks=all get NOT_ENOUGH_REPLICAS",
    ),
    (
        cluster(controllers=(1,)),
        1,
        "the metadata quorum has 1 voter: without controller 1 it has no majority, and the metadata "
        "cannot change",
    ),
    (
        cluster(controllers=(1, 2)),
        2,
        "the metadata quorum has 2 voters: without controller 2 it has no majority, and the "
        "metadata cannot change",
    ),
]


@pytest.mark.parametrize(("state", "node", "reason"), LASTING)
def test_a_restart_that_makes_something_unavailable_is_refused(
    state: Cluster, node: int, reason: str
) -> None:
    text = refused(RollingRestart(NOW, nodes=[node]).plan(state, Progress()))
    assert text.startswith(f"{reason} | ")
    assert "--allow-unavailable" in text


@pytest.mark.parametrize(("state", "node", "reason"), LASTING)
def test_the_user_may_accept_that_something_is_unavailable(state: Cluster, node: int, reason: str) -> None:
    plan = RollingRestart(NOW, nodes=[node], allow_unavailable=True).plan(state, Progress())
    assert restarts(plan) == [node]
    assert plan.notes == (reason,)


PASSING = [
    (
        cluster(part("t", [4, 5, 6], [4])),
        4,
        "broker 4 is the only one in the ISR of t-0: no leader while it is stopped: wait until "
        "broker 5, 6 has caught up",
    ),
    (
        cluster(
            part("t", [4, 5, 6], [4, 5], min_isr=2), brokers=[broker(4), broker(5), broker(6, fenced=True)]
        ),
        4,
        "t-0 would have fewer replicas in sync than min.insync.replicas: start broker 6",
    ),
    (
        cluster(voters=[Replica(1), Replica(2), Replica(3, follows=False)]),
        2,
        "without controller 2 the metadata quorum would have no majority: voter 3 does not follow "
        "the leader: start controller 3, or wait until it has caught up (kafka-metadata-quorum "
        "describe --replication)",
    ),
]


@pytest.mark.parametrize(("state", "node", "reason"), PASSING)
@pytest.mark.parametrize("allow", [False, True])
def test_a_restart_waits_while_another_node_is_behind(
    state: Cluster, node: int, reason: str, allow: bool
) -> None:
    plan = RollingRestart(NOW, nodes=[node], allow_unavailable=allow).plan(state, Progress())
    assert kinds(plan) == [f"wait {node}", f"restart {node}", f"wait {node}"]
    assert plan.steps[0].detail == reason


def test_a_replica_on_a_broker_in_controlled_shutdown_does_not_count_as_in_sync() -> None:
    brokers = [broker(4), broker(5, in_controlled_shutdown=True)]
    plan = RollingRestart(NOW, nodes=[4]).plan(cluster(part("t", [4, 5]), brokers=brokers), Progress())
    assert plan.steps[0].waits


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (cluster(), "the cluster has no node 9"),
        (
            cluster(voters=[Replica(1), Replica(2), Replica(9)]),
            "controller 9 has not registered, so nothing tells when it started",
        ),
    ],
)
def test_a_node_without_a_registration_is_refused(state: Cluster, reason: str) -> None:
    assert refused(RollingRestart(NOW, nodes=[9]).plan(state, Progress())).startswith(reason)


def test_the_time_for_a_continuation_has_milliseconds() -> None:
    assert time_text(1_700_000_000_005) == "2023-11-14T22:13:20.005Z"


# -- commands of the user


def test_placeholders_are_quoted_for_the_shell() -> None:
    values = {"id": "4", "host": "a b"}
    assert (
        filled("--x", "ssh {host} restart {id} | awk '{{print}}'", values)
        == "ssh 'a b' restart 4 | awk '{print}'"
    )


@pytest.mark.parametrize("command", ["ssh {hots}", "awk '{print $1}'", "x {", "x {host!r}", "x {}"])
def test_a_command_with_a_wrong_placeholder_is_refused(command: str) -> None:
    with pytest.raises(ToolError, match=r"--stop-command: .*braces of the shell"):
        check_command("--stop-command", command)


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("exit 3", "failed with status 3: exit 3"),
        ("sleep 60", "has not ended after 0.3 s and was killed: sleep 60"),
    ],
)
def test_a_command_that_fails_or_hangs_is_an_error(command: str, reason: str) -> None:
    with pytest.raises(ToolError, match=f"--restart-command {reason}"):
        asyncio.run(run_command("--restart-command", command, 0.3 if "sleep" in command else 30))


@pytest.mark.process
def test_a_command_in_progress_survives_an_interrupt(tmp_path: Path) -> None:
    begun, over = tmp_path / "begun", tmp_path / "over"
    command = f"touch {begun}; until test -e {tmp_path}/go; do sleep 0.05; done; touch {over}"
    code = (
        "import asyncio, sys\nfrom quorate.tools.operations.node_command import run_command\n"
        "asyncio.run(run_command('--x', sys.argv[1], 60))"
    )
    tool = subprocess.Popen([sys.executable, "-c", code, command], stderr=subprocess.DEVNULL)
    wait_for("the command", begun.exists, 60)
    tool.send_signal(signal.SIGINT)
    tool.wait(60)
    (tmp_path / "go").touch()
    wait_for("the end of the command", over.exists, 60)


# -- decommission


def test_a_broker_is_cordoned_drained_stopped_and_unregistered() -> None:
    plan = Decommission(6, stop_command="x").plan(cluster(part("t", [6, 5])), Progress())
    assert kinds(plan) == ["cordon 6", "move 6", "wait-moves 6", "stop 6", "delete-configs 6", "unregister 6"]
    assert plan.steps[1].data == {TopicPartition("t", 0): (4, 5)}
    assert plan.notes == ("broker 4 gets 1 replica",)


CORDONED = {"cordoned.log.dirs": "*"}


@pytest.mark.parametrize(
    ("state", "first"),
    [
        (cluster(part("t", [6, 5]), brokers=[broker(4), broker(5), broker(6, config=CORDONED)]), "move 6"),
        (cluster(part("t", [6, 5]), level=29), "move 6"),
        (
            cluster(
                part("t", [6, 5, 4], adding=(4,), removing=(6,)),
                brokers=[broker(4), broker(5), broker(6, config=CORDONED)],
            ),
            "wait-moves 6",
        ),
        (cluster(part("t", [4, 5]), brokers=[broker(4), broker(5), broker(6, config=CORDONED)]), "stop 6"),
        (
            cluster(brokers=[broker(4), broker(5), broker(6, config=CORDONED, fenced=True)]),
            "delete-configs 6",
        ),
        (cluster(brokers=[broker(4), broker(5), broker(6, fenced=True)]), "unregister 6"),
    ],
)
def test_a_decommission_continues_from_the_state_of_the_cluster(state: Cluster, first: str) -> None:
    assert kinds(Decommission(6, stop_command="x").plan(state, Progress()))[0] == first


def test_nothing_is_left_to_do_for_a_broker_without_a_registration() -> None:
    assert Decommission(6).plan(cluster(brokers=[broker(4)]), Progress()) == OperationPlan(
        notes=("broker 6 is not registered",)
    )


def test_without_a_command_the_user_stops_the_broker() -> None:
    steps = Decommission(6).plan(cluster(level=29), Progress()).steps
    assert [(s.kind, s.by_user) for s in steps] == [("wait-stopped", True), ("unregister", False)]


def test_a_stopped_broker_is_awaited_and_not_stopped_again() -> None:
    progress = Progress(commanded={6: start(6).incarnation_id})
    assert kinds(Decommission(6, stop_command="x").plan(cluster(level=29), progress))[0] == "wait-stopped 6"


def test_replicas_go_where_a_plan_for_a_drain_moves_them() -> None:
    """The loads of the other brokers become even: their replicas, and the partitions that they are
    to lead."""
    nodes = [broker(n) for n in (4, 5, 6, 7)]
    topics = [part(name, [6, 4]) for name in "abcd"]
    plan = Decommission(6).plan(cluster(*topics, brokers=nodes, level=29), Progress())
    targets: dict[TopicPartition, tuple[int, ...]] = plan.steps[0].data  # type: ignore[assignment]
    assert Counter(b for new in targets.values() for b in new) == {4: 4, 5: 2, 7: 2}
    assert max(Counter(new[0] for new in targets.values()).values()) == 2
    assert plan.notes[:2] == ("broker 5 gets 2 replicas", "broker 7 gets 2 replicas")
    builder = ClusterBuilder(planner.Broker(n) for n in (4, 5, 6, 7))
    for p in topics:
        builder.add(p.tp.topic, 0, p.replicas, p.leader, 0)
    drain = make_plan(builder.build(), Request(drain=frozenset({6})))
    assert targets == {TopicPartition(*drain.name(p)): tuple(drain.replicas(p)) for p in drain.moves}


def test_replicas_go_where_there_is_room() -> None:
    nodes = [broker(4, capacity=99), broker(5, capacity=100), broker(6)]
    state = cluster(part("t", [6], size=100), brokers=nodes, level=29)
    assert Decommission(6).plan(state, Progress()).steps[0].data == {TopicPartition("t", 0): (5,)}


def test_moves_are_planned_once_while_the_cluster_is_as_it_was() -> None:
    progress, operation = Progress(), Decommission(6, max_moves=1)
    topics = [part(name, [6], size=size) for size, name in enumerate("abcd")]
    first = cluster(*topics, brokers=[broker(4), broker(5), broker(6)], level=29)
    operation.plan(first, progress)
    planned = progress.kept
    moved = [replace(topics[0], replicas=(4,), isr=(4,)), *topics[1:]]
    operation.plan(replace(first, partitions=Partitions(moved)), progress)
    assert progress.kept is planned
    gone = {4: first.brokers[4], 5: broker(5, fenced=True), 6: first.brokers[6]}
    plan = operation.plan(replace(first, brokers=gone), progress)
    assert progress.kept is not planned
    assert plan.notes[0] == "broker 4 gets 4 replicas, 6 bytes"


@pytest.mark.parametrize(
    "away", [broker(7, fenced=True), broker(7, in_controlled_shutdown=True), broker(7, cordoned=True)]
)
def test_no_replica_goes_to_a_broker_that_is_fenced_stopping_or_cordoned(away: Broker) -> None:
    nodes = [broker(4), broker(5), broker(6), away]
    plan = Decommission(6).plan(cluster(part("a", [6, 4]), brokers=nodes, level=29), Progress())
    assert plan.steps[0].data == {TopicPartition("a", 0): (5, 4)}


def test_only_some_partitions_move_at_once() -> None:
    topics = [part(name, [6, 4]) for name in "abcde"]
    moving = [part(name, [6, 4, 5], adding=(5,), removing=(6,)) for name in "xy"]

    def first(limit: int, *partitions: Partition) -> Step:
        return Decommission(6, max_moves=limit).plan(cluster(*partitions, level=29), Progress()).steps[0]

    assert len(first(4, *topics).data) == 4  # type: ignore[arg-type]
    assert len(first(4, *topics, *moving).data) == 2  # type: ignore[arg-type]
    assert first(3, *topics, *moving).kind == "wait-moves"
    assert first(3, *topics, *moving).detail == "7 partitions left, 2 in progress"


RACKS = [broker(4, rack="a"), broker(5, rack="b"), broker(6, rack="c"), broker(7, rack="b")]


def test_a_partition_keeps_its_racks() -> None:
    with_spare = [*RACKS, broker(8, rack="c"), broker(9, rack="d")]
    plan = Decommission(6).plan(cluster(part("t", [4, 5, 6]), brokers=with_spare, level=29), Progress())
    assert plan.steps[0].data == {TopicPartition("t", 0): (4, 5, 8)}
    plan = Decommission(7).plan(cluster(part("t", [4, 7]), brokers=RACKS, level=29), Progress())
    assert plan.steps[0].data == {TopicPartition("t", 0): (4, 5)}


def test_a_broker_without_a_rack_may_be_replaced_by_any() -> None:
    nodes = [*RACKS[:2], broker(6), broker(7, rack="b")]
    plan = Decommission(6).plan(cluster(part("t", [4, 5, 6]), brokers=nodes, level=29), Progress())
    assert plan.steps[0].data == {TopicPartition("t", 0): (4, 5, 7)}


def test_racks_may_be_ignored() -> None:
    plan = Decommission(6, rack_aware=False).plan(
        cluster(part("t", [4, 5, 6]), brokers=RACKS, level=29), Progress()
    )
    assert plan.steps[0].data == {TopicPartition("t", 0): (4, 5, 7)}


DEAD = [broker(4), broker(5), broker(6, fenced=True)]


@pytest.mark.parametrize(
    ("state", "reason", "remedy"),
    [
        (
            cluster(part("t", [4, 5, 6])),
            "no other broker can take the replica of t-0: with 3 replicas they need 3 brokers beside 6; "
            "available: broker 4, 5",
            "start another broker",
        ),
        (
            cluster(part("t", [4, 5, 6]), brokers=RACKS),
            "t-0 would be in fewer racks: no other broker in rack c can take the replica",
            "--disable-rack-aware",
        ),
        (
            cluster(part("t", [6], size=70), brokers=[broker(4, capacity=60), broker(6)]),
            "no other broker has room for the replica of t-0 with 70 bytes: broker 4 has room for 60",
            "add disks",
        ),
        (
            cluster(part("t", [6]), brokers=DEAD),
            "broker 6 does not run, and no other in-sync replica of t-0 is available: its data would be lost",
            "start broker 6",
        ),
        (
            cluster(part("t", [5, 6], [6], leader=-1), brokers=DEAD),
            "broker 6 does not run, and no other in-sync replica of t-0 is available",
            "start broker 6",
        ),
        (
            cluster(part("t", [4, 5, 6], adding=(6,))),
            "a reassignment in progress moves t-0 to broker 6",
            "kafka-reassign-partitions --cancel",
        ),
        (
            cluster(brokers=[broker(1)], controllers=(1,)),
            "node 1 is the last voter of the metadata quorum",
            "kafka-metadata-quorum add-controller",
        ),
        (
            cluster(brokers=[broker(1), broker(4)], kraft=0),
            "node 1 is one of the static voters, which cannot be changed (kraft.version 0)",
            "quorate move-to-dynamic-quorum",
        ),
        (
            cluster(
                brokers=[broker(1), broker(4)], voters=[Replica(1), Replica(2), Replica(3, follows=False)]
            ),
            "without voter 1 the metadata quorum would have no majority: voter 3 does not follow the leader",
            "start controller 3",
        ),
        (
            cluster(brokers=[broker(4)]),
            "node 1 is a controller, and no broker",
            "kafka-metadata-quorum remove-controller --controller-id 1 --unregister",
        ),
    ],
)
def test_a_decommission_is_refused_where_it_would_lose_something(
    state: Cluster, reason: str, remedy: str
) -> None:
    node = 1 if "node 1" in reason or "voter 1" in reason else 6
    text = refused(Decommission(node).plan(state, Progress()))
    assert text.startswith(reason)
    assert remedy in text.partition(" | ")[2]


def test_all_reasons_are_named() -> None:
    state = cluster(
        part("a", [6]), part("b", [4, 5, 6], [4, 5]), brokers=[broker(4), broker(5), broker(6, fenced=True)]
    )
    assert refused(Decommission(6).plan(state, Progress())).count(" | ") == 2


def test_a_dead_broker_whose_replicas_are_elsewhere_is_decommissioned() -> None:
    state = cluster(part("t", [5, 6], [5]), brokers=DEAD)
    assert kinds(Decommission(6).plan(state, Progress())) == ["move 6", "wait-moves 6", "unregister 6"]


def test_a_node_with_both_roles_leaves_the_voters_before_it_stops() -> None:
    state = cluster(brokers=[broker(1, config=CORDONED), broker(4)])
    plan = Decommission(1, stop_command="x").plan(state, Progress())
    assert kinds(plan) == [
        "remove-voter 1", "stop 1", "delete-configs 1", "unregister-controller 1", "unregister 1",
    ]  # fmt: skip
    assert plan.notes == ("the metadata quorum then has 2 voters, and tolerates no failure",)


def test_the_limit_of_the_rate_is_removed_when_the_moves_are_done() -> None:
    limits = {"t": {"leader.replication.throttled.replicas": "0:5,0:6"}}
    state = cluster(part("t", [4, 5]), throttled=limits, level=29)
    assert kinds(Decommission(6).plan(state, Progress()))[0] == "clear-throttle"
    other = {"t": {"leader.replication.throttled.replicas": "0:5,6:4"}}
    state = cluster(part("t", [4, 5]), throttled=other, level=29)
    assert kinds(Decommission(6).plan(state, Progress()))[0] == "wait-stopped 6"
