"""A controller of either kind joins a quorum of the other kind by itself, and replaces one of its voters.

With `controller.quorum.auto.join.enable` a controller adds itself to the voters, after it has
removed the voter that has its id on another disk. Apache Kafka has it since 4.2. The tests of a
quorum share its processes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support import java
from tests.support.cluster import free_ports, wait_for
from tests.support.mixed import MixedNode, MixedQuorum

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

NEW = java.LATEST_VERSION
JOINS = {"controller.quorum.auto.join.enable": "true"}


class JoinedQuorum(MixedQuorum):
    """Three controllers of one kind, and a fourth of the other kind that is not running yet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        letter = "j" if self.implementations == "qqq" else "q"
        self.joiner = self.node("c4", 4, "controller", letter, controller_port=free_ports(1)[0])
        self.joiner.extra |= JOINS
        self.joiner.write_properties()

    def voter_directories(self) -> dict[int, bytes]:
        return {voter.replica_id: voter.directory_id for voter in self.describe().voters}

    def has_joined(self) -> None:
        """Until the joiner is a voter with the directory that is on its disk."""
        joiner = self.joiner
        wait_for(
            "the controller to join", lambda: self.voter_directories().get(4) == joiner.directory_id, 60, 0.1
        )

    def remove(self, node: MixedNode, by: str) -> None:
        key = ("--controller-id", node.node_id, "--controller-directory-id", node.directory_text)
        self.tool(by, "kafka-metadata-quorum", "remove-controller", *key)


@pytest.fixture(scope="module", params=["qqq", "jjj"])
def quorum(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JoinedQuorum]:
    """Of Kafka's newest release, with the voters 1 to 3 and the joiner."""
    quorum = JoinedQuorum(tmp_path_factory.mktemp("quorum"), request.param, kafka=NEW)
    quorum.format()
    quorum.joiner.format("--no-initial-controllers")
    with quorum.killed_at_the_end():
        quorum.start()
        quorum.whole()
        quorum.joiner.start(wait=False)
        quorum.controllers.append(quorum.joiner)
        quorum.has_joined()
        yield quorum


def test_it_joins_under_a_leader_of_the_other_kind(quorum: JoinedQuorum) -> None:
    assert quorum.leader().impl != quorum.joiner.impl
    quorum.whole()
    quorum.create("with-four-voters")
    for tool in ("quorate", "java"):
        told = quorum.tool(tool, "kafka-metadata-quorum", "describe", "--status")
        assert '"id": 4' in told, told


def test_a_voter_that_has_a_new_disk_replaces_its_old_entry(quorum: JoinedQuorum) -> None:
    joiner = quorum.joiner
    old = joiner.directory_id
    joiner.kill()
    shutil.rmtree(joiner.data)
    joiner.format("--no-initial-controllers")
    joiner.start(wait=False)
    quorum.has_joined()
    assert joiner.directory_id != old
    quorum.whole()


def test_apache_kafka_joins_again_after_a_removal_and_ours_does_not(quorum: JoinedQuorum) -> None:
    """Ours does what the operator said, and can still be added by the tool of the other kind."""
    joiner = quorum.joiner
    other = "java" if joiner.impl == "quorate" else "quorate"
    quorum.remove(joiner, by=other)
    if joiner.impl == "quorate":
        wait_for("it to know", lambda: "does not join by itself" in joiner.log_tail(400), 30, 0.1)
        quorum.observes(joiner)
        assert 4 not in quorum.voter_directories()
        add = ("--command-config", joiner.properties, "add-controller")
        quorum.tool(other, "kafka-metadata-quorum", *add)
    quorum.has_joined()
    quorum.whole()


def test_it_replaces_a_voter_and_leads(quorum: JoinedQuorum, capsys: pytest.CaptureFixture[str]) -> None:
    """All that was written under each leader is the same on all disks."""
    third = quorum.controller(3)
    third.stop()
    quorum.remove(third, by=third.impl)
    quorum.controllers.remove(third)
    quorum.whole()
    assert quorum.lead(quorum.joiner.impl) is quorum.joiner
    quorum.create("under-the-one-that-joined")
    quorum.whole(lag=0)
    for node in quorum.nodes:
        node.kill()
    quorum.disks_agree(["under-the-one-that-joined"])
    quorum.dumps_agree(lambda: capsys.readouterr().out)
