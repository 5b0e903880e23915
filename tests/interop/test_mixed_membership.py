"""The voters of a quorum of both implementations, changed under a leader of each, by the tools of either
side.

Each quorum starts as a static quorum with two controllers of the leader's implementation and one of the
other. It is upgraded before the first test, and all tests use the same processes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from quorate.protocol.uuids import parse_uuid
from quorate.records.batch import control_records
from quorate.records.control import ControlRecordType, VotersRecord
from tests.support.cluster import free_ports, wait_for
from tests.support.metadata_disk import read_disk
from tests.support.mixed import MixedNode, MixedQuorum

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

OTHER = {"quorate": "java", "java": "quorate"}
UPGRADE = ("upgrade", "--feature", "kraft.version=1")


@pytest.fixture(scope="module", params=["quorate", "java"])
def static(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedQuorum]:
    """A static quorum that the implementation of the parameter leads; it has two of the three voters."""
    implementations = {"quorate": "qqj", "java": "jjq"}[request.param]
    quorum = MixedQuorum(tmp_path_factory.mktemp("quorum"), implementations, static=True)
    quorum.format()
    with quorum.killed_at_the_end():
        quorum.start()
        quorum.whole()
        yield quorum


@pytest.fixture(scope="module")
def dynamic(static: MixedQuorum) -> MixedQuorum:
    """The same quorum with kraft.version 1."""
    leading = leader_kind(static)
    static.lead(leading)

    def possible() -> bool:
        try:
            static.tool(leading, "kafka-features", *UPGRADE, "--dry-run")
        except AssertionError:  # until each voter has told the leader its directory id: three fetch timeouts
            return False
        return True

    wait_for("each voter to tell of itself", possible, 60, 0.5)
    assert finalized(static, leading).get("kraft.version", "0") == "0"
    static.tool(OTHER[leading], "kafka-features", *UPGRADE)
    # Read by the tests. The properties keep their static voters, which are ignored from now on.
    static.static = False
    return static


def leader_kind(quorum: MixedQuorum) -> str:
    return "quorate" if quorum.implementations.count("q") == 2 else "java"


def odd_one(quorum: MixedQuorum) -> MixedNode:
    """The voter of the other implementation."""
    return next(c for c in quorum.controllers if c.impl != leader_kind(quorum))


def finalized(quorum: MixedQuorum, tool: str) -> dict[str, str]:
    """feature -> level, as a tool prints it."""
    told = quorum.tool(tool, "kafka-features", "describe")
    rows = [line.split() for line in told.splitlines() if line.startswith("Feature:")]
    return {row[1]: row[row.index("FinalizedVersionLevel:") + 1] for row in rows}


def voters(quorum: MixedQuorum) -> dict[int, str]:
    """id -> directory id, as our tool prints them."""
    told = json.loads(quorum.tool("quorate", "kafka-metadata-quorum", "describe", "--status", "--json"))
    return {v["id"]: v["directoryId"] for v in told["currentVoters"]}


def test_a_leader_of_each_kind_upgrades_kraft_version_by_the_others_tool(dynamic: MixedQuorum) -> None:
    leading = leader_kind(dynamic)
    assert dynamic.leader().impl == leading
    dynamic.whole()
    for tool in ("quorate", "java"):
        assert finalized(dynamic, tool)["kraft.version"] == "1"
    assert voters(dynamic) == {c.node_id: c.directory_text for c in dynamic.controllers}
    for controller in dynamic.controllers:
        written = [
            VotersRecord.decode(value, 0)
            for batch in read_disk(controller.data).batches
            if batch.header.is_control
            for kind, value in control_records(batch.data)
            if kind == ControlRecordType.KRAFT_VOTERS
        ]
        found = {v.voter_id: v.voter_directory_id for v in written[-1].voters}
        assert found == {c.node_id: c.directory_id for c in dynamic.controllers}


@pytest.mark.parametrize("victim", ["of the other kind", "of the leader's kind"])
def test_a_voter_is_replaced_by_one_with_a_new_disk_through_a_leader_of_each_kind(
    dynamic: MixedQuorum, victim: str
) -> None:
    leading = leader_kind(dynamic)
    leader = dynamic.lead(leading)
    same = next(c for c in dynamic.controllers if c.impl == leading and c is not leader)
    node, tool = (odd_one(dynamic), leading) if victim == "of the other kind" else (same, OTHER[leading])
    old = node.directory_text
    node.kill()
    key = ("--controller-id", node.node_id, "--controller-directory-id", old)
    dynamic.tool(tool, "kafka-metadata-quorum", "remove-controller", *key)
    assert set(voters(dynamic)) == {c.node_id for c in dynamic.controllers if c is not node}
    shutil.rmtree(node.data)
    node.static = False
    node.write_properties()
    node.format("--no-initial-controllers")
    node.start()
    dynamic.observes(node)
    dynamic.tool(OTHER[tool], "kafka-metadata-quorum", "--command-config", node.properties, "add-controller")
    assert voters(dynamic)[node.node_id] == node.directory_text != old
    dynamic.whole()
    dynamic.create(f"after-new-disk-{node.node_id}")


def test_a_controller_of_ours_joins_by_itself_under_a_leader_of_each_kind(dynamic: MixedQuorum) -> None:
    """Apache Kafka 4.1 accepts such a controller as a leader, but has no auto-join itself."""
    dynamic.lead(leader_kind(dynamic))
    port = free_ports(1)[0]
    fourth = MixedNode(
        dynamic.base / "c4", node_id=4, roles="controller", voters=dynamic.voters, controller_port=port,
        extra={"controller.quorum.auto.join.enable": "true"},
    )  # fmt: skip
    fourth.format("--no-initial-controllers")
    try:
        fourth.start()
        wait_for("four voters", lambda: 4 in voters(dynamic), 30, 0.3)
        assert parse_uuid(voters(dynamic)[4]) == fourth.directory_id
        assert dynamic.leader().impl == leader_kind(dynamic)
        key = ("--controller-id", 4, "--controller-directory-id", fourth.directory_text)
        dynamic.tool("java", "kafka-metadata-quorum", "remove-controller", *key)
        dynamic.whole()
    finally:
        fourth.kill()


def test_a_leader_of_each_kind_removes_itself_and_is_added_again(dynamic: MixedQuorum) -> None:
    leader = dynamic.lead(leader_kind(dynamic))
    key = ("--controller-id", leader.node_id, "--controller-directory-id", leader.directory_text)
    dynamic.tool(OTHER[leader.impl], "kafka-metadata-quorum", "remove-controller", *key)
    dynamic.create("after-the-leader-left")
    assert dynamic.leader() is not leader
    dynamic.observes(leader)
    dynamic.tool(
        leader.impl, "kafka-metadata-quorum", "--command-config", leader.properties, "add-controller"
    )
    dynamic.whole()


def test_the_disks_agree_after_all_changes(dynamic: MixedQuorum, capsys: pytest.CaptureFixture[str]) -> None:
    dynamic.create("the-last-one")
    dynamic.whole()
    for node in dynamic.nodes:
        node.kill()
    dynamic.disks_agree(["the-last-one"])
    dynamic.dumps_agree(lambda: capsys.readouterr().out)
