"""The plans of replace-disk, move-to-dynamic-quorum and upgrade."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quorate.metadata.features import KRAFT_VERSION, METADATA_VERSION
from quorate.protocol.uuids import ZERO_UUID, uuid_text
from quorate.tools.command_line import ToolError
from quorate.tools.operations.description import Cluster, Replica
from quorate.tools.operations.plan import OperationPlan, Progress
from quorate.tools.operations.plans.dynamic_quorum import DynamicQuorum
from quorate.tools.operations.plans.replace_disk import ReplaceDisk, single_directory
from quorate.tools.operations.plans.upgrade import Upgrade, common_release, parse_release
from tests.tools.test_operation_plans import DEAD, broker, cluster, directory, kinds, part, refused

OLD, NEW = b"o" * 16, b"n" * 16


# -- replace-disk


def disk(**options: str) -> ReplaceDisk:
    return ReplaceDisk(6, directory(6), **options)  # type: ignore[arg-type]


def test_a_brokers_disk_is_replaced_while_it_is_stopped() -> None:
    plan = disk(stop_command="x", replace_command="y").plan(cluster(part("t", [4, 6])), Progress())
    assert kinds(plan) == ["stop 6", "replace 6", "wait 6"]


FRESH = broker(6, directories=(NEW,))
ELSEWHERE = {"directories": (directory(4), NEW)}


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        (cluster(part("t", [4, 6], [4]), brokers=DEAD), ["replace 6", "wait 6"]),
        (cluster(part("t", [4, 6], [4], **ELSEWHERE), brokers=[broker(4), FRESH]), ["wait 6"]),
        (cluster(part("t", [4, 6]), brokers=[broker(4), FRESH]), ["wait 6"]),
        (cluster(part("t", [4, 6], **ELSEWHERE), brokers=[broker(4), FRESH]), []),
    ],
)
def test_a_replacement_continues_from_the_state_of_the_cluster(state: Cluster, steps: list[str]) -> None:
    assert kinds(disk(stop_command="x", replace_command="y").plan(state, Progress())) == steps


def test_the_user_is_told_how_to_format_the_disk() -> None:
    *_, wait, _ = disk().plan(cluster(brokers=DEAD), Progress()).steps
    assert wait.detail == "kafka-storage format --cluster-id c --config <properties> --ignore-formatted"
    state = cluster(voters=[Replica(1, OLD, follows=False), Replica(2), Replica(3)])
    wait = ReplaceDisk(1, OLD).plan(state, Progress()).steps[0]
    assert "--no-initial-controllers" in wait.detail


V2, V3 = Replica(2, directory(2)), Replica(3, directory(3))


@pytest.mark.parametrize(
    ("voters", "observers", "steps"),
    [
        (
            [Replica(1, OLD), V2, V3],
            [],
            ["stop 1", "replace 1", "wait-metadata 1", "remove-voter 1", "add-voter 1", "wait 1"],
        ),
        (
            [Replica(1, OLD, follows=False), V2, V3],
            [Replica(1, NEW)],
            ["remove-voter 1", "add-voter 1", "wait 1"],
        ),
        ([V2, V3], [Replica(1, NEW)], ["add-voter 1", "wait 1"]),
        (  # the old replica fetched a moment ago
            [Replica(1, OLD, last_fetch_ms=5), V2, V3],
            [Replica(1, NEW, last_fetch_ms=6)],
            ["remove-voter 1", "add-voter 1", "wait 1"],
        ),
        ([Replica(1, NEW), V2, V3], [Replica(1, OLD, follows=False)], []),
    ],
)
def test_the_voter_of_a_controller_is_replaced_when_the_new_one_has_the_log(
    voters: list[Replica], observers: list[Replica], steps: list[str]
) -> None:
    state = cluster(voters=voters, observers=tuple(observers), leader_id=2)
    plan = ReplaceDisk(1, OLD, stop_command="x", replace_command="y").plan(state, Progress())
    assert kinds(plan) == steps


@pytest.mark.parametrize(
    ("state", "node", "old", "reason"),
    [
        (cluster(part("t", [6])), 6, directory(6), "no other in-sync replica of t-0 is available"),
        (cluster(part("t", [4, 6], [6])), 6, directory(6), "no other in-sync replica of t-0 is available"),
        (cluster(part("t", [6]), brokers=DEAD), 6, directory(6), "no other in-sync replica of t-0 is"),
        (
            cluster(part("t", [4, 6], min_isr=2)),
            6,
            directory(6),
            "t-0 would have fewer replicas in sync than min.insync.replicas while broker 6 is stopped",
        ),
        (cluster(), 9, OLD, "the cluster has no node 9"),
        (cluster(voters=[Replica(1, OLD), V2, V3], kraft=0), 1, OLD, "node 1 is one of the static voters"),
        (
            cluster(voters=[Replica(1, OLD), V2]),
            1,
            OLD,
            "the metadata quorum has 2 voters: the others cannot",
        ),
        (
            cluster(voters=[Replica(1, OLD), V2, replace(V3, follows=False)]),
            1,
            OLD,
            "without controller 1 the metadata quorum would have no majority: voter 3 does not follow",
        ),
    ],
)
def test_a_replacement_is_refused_where_data_would_be_lost(
    state: Cluster, node: int, old: bytes, reason: str
) -> None:
    assert refused(ReplaceDisk(node, old).plan(state, Progress())).startswith(reason)


def test_a_replica_on_another_disk_of_the_broker_is_not_lost() -> None:
    state = cluster(part("t", [6], directories=(OLD,)), brokers=[broker(6, directories=(OLD, directory(6)))])
    plan = ReplaceDisk(6, directory(6), allow_unavailable=True, stop_command="x").plan(state, Progress())
    assert kinds(plan)[0] == "stop 6"


def test_the_directory_must_be_named_where_it_is_not_clear() -> None:
    assert single_directory(cluster(), 6, None, unattended=False) == directory(6)
    assert single_directory(cluster(), 6, uuid_text(OLD), unattended=True) == OLD
    with pytest.raises(ToolError, match=f"--yes, give --directory-id {uuid_text(directory(6))}"):
        single_directory(cluster(), 6, None, unattended=True)
    several = cluster(part("t", [6], directories=(OLD,)), brokers=[broker(6, directories=(OLD, NEW))])
    with pytest.raises(ToolError, match=rf"{uuid_text(OLD)}  1 replica\n  {uuid_text(NEW)}  nothing that is"):
        single_directory(several, 6, None, unattended=False)
    with pytest.raises(ToolError, match="knows no directory of node 9"):
        single_directory(cluster(), 9, None, unattended=False)


# -- move-to-dynamic-quorum

STATIC = [Replica(n, ZERO_UUID) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        (cluster(voters=STATIC, kraft=0), ["upgrade-kraft-version", "wait"]),
        (cluster(voters=STATIC), ["wait"]),
        (cluster(), []),
    ],
)
def test_a_static_quorum_becomes_dynamic(state: Cluster, steps: list[str]) -> None:
    assert kinds(DynamicQuorum().plan(state, Progress())) == steps


def test_nodes_that_still_have_static_voters_are_named() -> None:
    value = "1@a:9093,2@b:9093"
    [note] = DynamicQuorum({1: value, 4: value}).plan(cluster(), Progress()).notes
    assert note.startswith("nodes 1, 4 have controller.quorum.voters in their properties")
    assert "controller.quorum.bootstrap.servers=a:9093,b:9093" in note
    assert "quorate rolling-restart --nodes 1,4" in note


def test_everything_that_blocks_the_move_is_named() -> None:
    old = broker(4, features={METADATA_VERSION: (7, 20)})
    voters = [Replica(1), Replica(2, follows=False), Replica(9)]
    text = refused(
        DynamicQuorum(verdict="no").plan(cluster(brokers=[old], voters=voters, kraft=0), Progress())
    )
    assert [line.partition(" | ")[0] for line in text.splitlines()] == [
        "broker 4 does not support kraft.version, and 1 is needed",
        "controller 9 has not registered, and may not support kraft.version=1",
        "voter 2 does not follow the leader, which therefore does not know its directory id",
    ]
    assert refused(DynamicQuorum(verdict="no").plan(cluster(kraft=0), Progress())).startswith("no | ")


# -- upgrade


def test_levels_that_are_lower_than_those_of_the_release_are_raised() -> None:
    state = cluster(features={METADATA_VERSION: 21, KRAFT_VERSION: 1, "group.version": 1})
    nodes = {n: replace(b, features=dict.fromkeys(LATEST, (0, 99))) for n, b in state.brokers.items()}
    controllers = {
        n: replace(c, features=dict.fromkeys(LATEST, (0, 99))) for n, c in state.controllers.items()
    }
    plan = Upgrade(29).plan(replace(state, brokers=nodes, controllers=controllers), Progress())
    [step] = plan.steps
    assert step.data == {
        METADATA_VERSION: 29, "transaction.version": 2, "eligible.leader.replicas.version": 1,
        "share.version": 1, "streams.version": 1,
    }  # fmt: skip
    assert "metadata.version from 21 (3.9-IV0) to 29 (4.2-IV1)" in step.text
    assert plan.notes == (
        "the records of the metadata change: a downgrade below the new version is not possible",
    )


LATEST = (
    METADATA_VERSION, KRAFT_VERSION, "group.version", "transaction.version", "share.version", "streams.version",
    "eligible.leader.replicas.version",
)  # fmt: skip


def test_nothing_is_left_to_do_at_the_levels_of_the_release() -> None:
    features = {METADATA_VERSION: 21, KRAFT_VERSION: 1, "group.version": 1}
    assert Upgrade(21).plan(cluster(features=features), Progress()) == OperationPlan()
    assert Upgrade(20).plan(cluster(features=features), Progress()) == OperationPlan()


def test_every_node_that_does_not_support_a_level_is_named() -> None:
    state = cluster(
        brokers=[broker(4), broker(5, features={METADATA_VERSION: (7, 21)}, fenced=True)],
        controllers=(1, 2),
        voters=[Replica(1), Replica(2), Replica(3)],
        level=21,
    )
    text = refused(Upgrade(22).plan(state, Progress()))
    assert (
        "broker 5, which is fenced, supports 7 to 21 of metadata.version, and 22 (4.0-IV0) is needed" in text
    )
    assert "broker 5, which is fenced, does not support group.version, and 1 is needed" in text
    assert "kafka-cluster unregister" in text
    assert (
        "controller 3 has not registered, and may not support metadata.version=22 | start controller 3"
        in text
    )


def test_the_latest_release_is_that_of_the_oldest_software() -> None:
    nodes = [broker(4), broker(5, features={METADATA_VERSION: (7, 27)})]
    assert common_release(cluster(brokers=nodes, level=21)) == 27
    assert common_release(cluster(brokers=nodes, level=29)) == 29


def test_a_release_that_does_not_exist_is_refused() -> None:
    assert parse_release("4.1") == 27
    with pytest.raises(ToolError, match=r"Unknown metadata\.version '9\.9'"):
        parse_release("9.9")
