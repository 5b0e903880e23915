"""/metrics and /health of real nodes: every metric of Kafka and KIP-853 for the quorum, with its correct
value."""

from __future__ import annotations

import math
import signal
from pathlib import Path

import pytest

from tests.e2e.membership import (
    add,
    broker_of,
    controllers,
    directory_id,
    health,
    metrics,
    quorum,
    state,
    stopping,
    tool,
)
from tests.support.cluster import wait_for

pytestmark = pytest.mark.timeout(150)

EVERYWHERE = {
    "current_leader", "current_vote", "current_epoch", "high_watermark", "log_end_offset", "log_end_epoch",
    "number_unknown_voter_connections", "number_of_voters", "ignored_static_voters", "commit_latency_avg", "commit_latency_max",
    "election_latency_avg", "election_latency_max", "append_records_rate", "fetch_records_rate", "poll_idle_ratio_avg",
}  # fmt: skip
ON_LEADERS = {
    "number_of_observers", "duplicate_voter_ids", "number_of_offline_voters", "pending_add_voter", "pending_remove_voter",
    "uncommitted_voter_change",
}  # fmt: skip
STATES = {
    "leader", "prospective", "prospective-voted", "candidate", "unattached", "unattached-voted", "follower", "observer",
    "resigned",
}  # fmt: skip


def names(found: dict[str, float]) -> set[str]:
    return {
        name for name in found if "{" not in name and not name.startswith(("kafka_", "process_", "quorate_"))
    }


def test_raft_metrics_through_additions_an_election_and_a_removal(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 3)
    first, second, third = nodes
    broker = broker_of(tmp_path, nodes)
    with stopping([*nodes, broker]):
        first.format("--standalone")
        for node in (second, third):
            node.format("--no-initial-controllers")
        broker.format()
        for node in (*nodes, broker):
            node.start()
        wait_for("three observers", lambda: metrics(first)["number_of_observers"] == 3, 20, 0.1)
        assert names(metrics(first)) == EVERYWHERE | ON_LEADERS | {"is_observer"}
        assert names(metrics(second)) == EVERYWHERE | {"is_observer"}
        assert names(metrics(broker)) == EVERYWHERE
        shown = {name.split('"')[1] for name in metrics(first) if name.startswith("current_state{")}
        assert shown == STATES
        assert [state(n) for n in (first, second, third, broker)] == [
            "leader",
            "observer",
            "observer",
            "observer",
        ]
        assert [metrics(n)["is_observer"] for n in nodes] == [0, 1, 1]
        assert metrics(first)["commit_latency_max"] >= metrics(first)["commit_latency_avg"] > 0
        assert metrics(first)["append_records_rate"] > 0 == metrics(first)["fetch_records_rate"]
        assert metrics(broker)["fetch_records_rate"] > 0 == metrics(broker)["append_records_rate"]
        assert math.isnan(metrics(broker)["commit_latency_avg"])
        assert all(0 < metrics(n)["poll_idle_ratio_avg"] <= 1 for n in (*nodes, broker))
        vote = f'current_vote_directory_id_info{{current_vote_directory_id="{directory_id(first)}"}}'
        assert (metrics(first)["current_vote"], metrics(first)[vote]) == (1, 1)

        for node in (second, third):  # additions
            add(first, node)
            wait_for(
                "it to vote", lambda n=node: (state(n), metrics(n)["is_observer"]) == ("follower", 0), 10, 0.1
            )
        assert [metrics(n)["number_of_voters"] for n in (*nodes, broker)] == [3, 3, 3, 3]
        told = metrics(first)
        assert (told["number_of_observers"], told["number_of_offline_voters"], told["pending_add_voter"]) == (
            1,
            0,
            0,
        )
        assert told["uncommitted_voter_change"] == 0
        ends = {metrics(n)["log_end_offset"] for n in (*nodes, broker)}
        assert max(ends) - min(ends) <= 2  # no-op records continue

        epoch = metrics(first)["current_epoch"]
        first.kill()  # an election
        wait_for("a new leader", lambda: "leader" in (state(second), state(third)), 20, 0.05)
        leader, other = (second, third) if state(second) == "leader" else (third, second)
        wait_for("the others to hear", lambda: metrics(broker)["current_leader"] == leader.node_id, 10, 0.05)
        wait_for("the other to follow", lambda: state(other) == "follower", 10, 0.05)
        assert all(metrics(n)["current_epoch"] > epoch for n in (leader, other, broker))
        assert metrics(leader)["election_latency_max"] >= metrics(leader)["election_latency_avg"] > 0
        wait_for(
            "the lost voter to be missed", lambda: metrics(leader)["number_of_offline_voters"] == 1, 10, 0.1
        )
        assert names(metrics(leader)) == EVERYWHERE | ON_LEADERS | {"is_observer"}

        quorum(leader, "remove-controller", "--controller-id", 1)  # a removal
        told = metrics(leader)
        assert (told["number_of_voters"], told["number_of_offline_voters"], told["pending_remove_voter"]) == (
            2,
            0,
            0,
        )
        wait_for(
            "the others to hear",
            lambda: metrics(broker)["number_of_voters"] == metrics(other)["number_of_voters"] == 2,
            10,
        )
        first.start()
        wait_for(
            "it to observe", lambda: (state(first), metrics(first)["is_observer"]) == ("observer", 1), 10, 0.1
        )
        assert (
            tool("kafka-topics", broker, "--create", "--topic", "after-all") == "Created topic after-all.\n"
        )


def test_health_is_correct_while_a_node_starts_and_stops(tmp_path: Path) -> None:
    (controller,) = nodes = controllers(tmp_path, 1)
    broker = broker_of(tmp_path, nodes)

    def listens() -> bool:
        return health(broker)[0] > 0

    with stopping([controller, broker]):
        controller.format("--standalone")
        broker.format()
        broker.start(wait=False)  # before there is a controller: it is up, and knows that it is of no use yet
        wait_for("it to listen", listens, 20)
        status, told = wait_for(
            "its log", lambda: (h := health(broker))[1]["phase"] == "metadata log open" and h, 20
        )  # type: ignore[misc]
        assert health(broker, "ready")[1]["reason"] == "the node is not running: metadata log open"
        assert (status, told["ready"], told["nodeId"], told["roles"]) == (503, False, 10, ["broker"])
        assert (told["leaderId"], told["highWatermark"]) == (-1, 0)
        controller.start()
        wait_for("the controller", lambda: health(controller)[0] == 200, 20)
        wait_for("the broker", lambda: health(broker)[0] == 200, 20)
        status, told = health(broker)
        assert (told["ready"], told["phase"], told["leaderId"], told["epoch"]) == (True, "running", 1, 1)
        assert [health(node, "ready")[0] for node in (controller, broker)] == [200, 200]
        controller.kill()  # so that the controlled shutdown waits, in vain: it is given up
        _, told = wait_for("it to notice", lambda: (h := health(broker, "ready"))[0] == 503 and h, 20, 0.1)  # type: ignore[misc]
        assert told == {"ready": False, "reason": "no contact with the leader of the metadata quorum"}
        assert health(broker, "live")[0] == 200, "a restart would not help"
        assert broker.proc is not None
        broker.proc.send_signal(signal.SIGTERM)
        status, told = wait_for("it to stop", lambda: (h := health(broker))[0] == 503 and h, 10)  # type: ignore[misc]
        assert (told["ready"], told["phase"]) == (False, "stopping")
        assert broker.proc.wait(20) == 0
