"""kafka-metadata-shell on a running quorum."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quorate.admin.client import AdminClient
from quorate.admin.sync import AdminClient as BlockingAdminClient
from quorate.admin.types import NewTopic
from quorate.testing import KafkaCluster
from quorate.tools.shell.follower import Follower
from quorate.tools.shell.nodes import Directory, root
from tests.support.cluster import wait_for
from tests.tools.shell import Shell, sh

__all__ = ["sh"]  # a fixture


def topics(follower: Follower) -> set[str]:
    node = root(*follower.metadata).child("image")
    for name in ("topics", "byName"):
        assert isinstance(node, Directory)
        node = node.child(name)
    assert isinstance(node, Directory)
    return set(node.names())


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as found:
        yield found


def test_one_command_shows_the_committed_metadata(sh: Shell) -> None:
    sh("topics", "--create", "--topic", "shown-live", "--partitions", 2)
    done = sh.plain(
        "metadata_shell",
        "--controllers",
        sh.controllers,
        "ls",
        "/image/topics/byName/shown-live",
        "/raft/voters",
    )
    assert done.status == 0, done
    assert done.out.split() == ["shown-live:", "0", "1", "id", "name", "voters:", "1"]


def test_changes_are_followed_also_after_the_controller_was_away(cluster: KafkaCluster) -> None:
    follower = Follower(lambda: AdminClient(bootstrap_controllers=cluster.bootstrap_controllers))
    try:
        assert follower.notice() is None
        with BlockingAdminClient(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("before")])
            wait_for("the first topic", lambda: topics(follower) == {"before"})
            cluster.kill(1)
            wait_for("the notice", lambda: follower.notice() is not None)
            assert "the quorum is away, this is the metadata up to offset" in str(follower.notice())
            assert topics(follower) == {"before"}
            cluster.start(1)
            admin.create_topics([NewTopic("after")])
        wait_for("the second topic", lambda: topics(follower) == {"before", "after"})
        assert follower.notice() is None
    finally:
        follower.close()
