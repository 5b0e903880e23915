"""kafka-reassign-partitions on a cluster of three brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.admin import sync
from quorate.admin.types import ConfigOp, NewTopic, TopicPartition
from quorate.protocol.config_resource import ConfigResourceType
from quorate.testing import KafkaCluster
from tests.support.cluster import wait_for
from tests.tools.shell import Done, Shell

TOOL = "reassign_partitions"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Node 1 is the controller and a broker. Nodes 2 and 3 are brokers."""
    with KafkaCluster(brokers=3) as found:
        yield found


@pytest.fixture(scope="module")
def admin(cluster: KafkaCluster) -> Iterator[sync.AdminClient]:
    with sync.AdminClient(cluster.bootstrap_servers) as client:
        yield client


@pytest.fixture
def sh(
    cluster: KafkaCluster, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    if not cluster.is_running(3):
        cluster.start(3)
    return Shell(cluster, capfdbinary, monkeypatch)


@pytest.fixture
def topic(admin: sync.AdminClient, request: pytest.FixtureRequest) -> str:
    name = f"t-{abs(hash(request.node.nodeid)) % 10**8}"
    assert admin.create_topics([NewTopic(name, assignment={0: [1, 2], 1: [2, 1]})]) == {name: None}
    return name


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def write(plan: Path, topic: str, *replicas: list[int], log_dirs: list[str] | None = None) -> None:
    """A plan that gives these replicas to the partitions from 0 on."""
    entries = [{"topic": topic, "partition": p, "replicas": brokers} for p, brokers in enumerate(replicas)]
    for entry in entries if log_dirs is not None else ():
        entry["log_dirs"] = log_dirs
    plan.write_text(json.dumps({"version": 1, "partitions": entries}))


def configs(admin: sync.AdminClient, kind: ConfigResourceType, name: str) -> dict[str, str | None]:
    """The throttles of a topic or broker."""
    found = admin.describe_configs([(kind, name)])[kind, name]
    assert isinstance(found, list)
    return {
        e.name: e.value for e in found if "throttled" in e.name and "DYNAMIC" in e.source.name and e.value
    }


def wait_for_configs(
    admin: sync.AdminClient, kind: ConfigResourceType, name: str, wanted: dict[str, str | None]
) -> None:
    wait_for(f"the throttles of {name}", lambda: configs(admin, kind, name) == wanted)


def done(sh: Shell, *args: object) -> Done:
    return sh.plain(TOOL, "--bootstrap-server", sh.servers, *args)


def test_a_generated_reassignment_uses_the_listed_brokers(sh: Shell, topic: str, tmp_path: Path) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    shown = sh(TOOL, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "2,3").splitlines()
    assert [shown[0], shown[2], shown[3]] == [
        "Current partition replica assignment",
        "",
        "Proposed partition reassignment configuration",
    ]
    current, proposed = json.loads(shown[1]), json.loads(shown[4])
    assert [p["replicas"] for p in current["partitions"]] == [[1, 2], [2, 1]]
    assert all(path.startswith("/") for p in current["partitions"] for path in p["log_dirs"])
    assert sorted(p["replicas"] for p in proposed["partitions"]) == [[2, 3], [3, 2]]
    assert proposed["partitions"][0]["log_dirs"] == ["any", "any"]


def test_a_reassignment_is_executed_and_verified(
    sh: Shell, admin: sync.AdminClient, topic: str, plan: Path
) -> None:
    write(plan, topic, [1, 3], [3, 1])
    shown = sh(TOOL, "--execute", "--reassignment-json-file", plan, "--throttle", 5_000_000).splitlines()
    assert shown[0] == "Current partition replica assignment"
    assert [p["replicas"] for p in json.loads(shown[2])["partitions"]] == [[1, 2], [2, 1]]
    assert shown[4:] == [
        "Save this to use as the --reassignment-json-file option during rollback",
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
        "throttle is removed.",
        "The inter-broker throttle limit was set to 5000000 B/s",
        f"Successfully started partition reassignments for {topic}-0,{topic}-1",
    ]
    throttled = {
        "leader.replication.throttled.replicas": "0:1,0:2,1:1,1:2",
        "follower.replication.throttled.replicas": "0:3,1:3",
    }
    wait_for_configs(admin, ConfigResourceType.TOPIC, topic, dict(throttled))
    rates = {f"{side}.replication.throttled.rate": "5000000" for side in ("leader", "follower")}
    wait_for_configs(admin, ConfigResourceType.BROKER, "3", dict(rates))
    wait_for("the end of the reassignment", lambda: not admin.list_partition_reassignments())
    assert sh(TOOL, "--list") == "No partition reassignments found.\n"
    assert sh(TOOL, "--verify", "--reassignment-json-file", plan).splitlines() == [
        "Status of partition reassignment:",
        f"Reassignment of partition {topic}-0 is completed.",
        f"Reassignment of partition {topic}-1 is completed.",
        "",
        "Clearing broker-level throttles on brokers 1,2,3",
        f"Clearing topic-level throttles on topic {topic}",
    ]
    wait_for_configs(admin, ConfigResourceType.TOPIC, topic, {})
    wait_for_configs(admin, ConfigResourceType.BROKER, "3", {})


def test_a_reassignment_in_progress_is_listed_changed_and_cancelled(
    sh: Shell, admin: sync.AdminClient, topic: str, plan: Path
) -> None:
    write(plan, topic, [1, 3])
    sh.cluster.stop(3)
    admin.alter_partition_reassignments({TopicPartition(topic, 0): [1, 3]})
    listed = f"Current partition reassignments:\n{topic}-0: replicas: 1,3,2. adding: 3. removing: 2.\n"
    assert sh(TOOL, "--list") == listed
    by_controller = sh.plain(TOOL, "--bootstrap-controller", sh.controllers, "--list")
    assert (by_controller.status, by_controller.out) == (0, listed)
    assert sh(TOOL, "--verify", "--reassignment-json-file", plan) == (
        f"Status of partition reassignment:\nReassignment of partition {topic}-0 is still in progress.\n\n"
    )
    write(plan, topic, [1, 2], [1, 2])
    again = sh.refused(TOOL, "--execute", "--reassignment-json-file", plan)
    assert again.startswith("Cannot execute because there is an existing partition assignment.  Use --add")
    write(plan, topic, [1, 2])
    sh(TOOL, "--execute", "--additional", "--reassignment-json-file", plan, "--throttle", 1000)
    rates: dict[str, str | None] = {
        f"{side}.replication.throttled.rate": "1000" for side in ("leader", "follower")
    }
    wait_for_configs(admin, ConfigResourceType.BROKER, "2", rates)
    admin.alter_partition_reassignments({TopicPartition(topic, 0): [1, 3]})
    words = ["--cancel", "--reassignment-json-file", plan]
    assert sh(TOOL, *words, "--preserve-throttles").splitlines() == [
        f"Successfully cancelled partition reassignment for: {topic}-0",
        "None of the specified partition moves are active.",
    ]
    assert admin.list_partition_reassignments() == {}
    assert configs(admin, ConfigResourceType.BROKER, "2") == rates
    assert sh(TOOL, *words).splitlines() == [
        "None of the specified partition reassignments are active.",
        "None of the specified partition moves are active.",
        "Clearing broker-level throttles on brokers 1,2",
        f"Clearing topic-level throttles on topic {topic}",
    ]
    wait_for_configs(admin, ConfigResourceType.BROKER, "2", {})


def test_a_cancellation_by_controllers_clears_the_throttles_of_brokers(
    sh: Shell, admin: sync.AdminClient, topic: str, plan: Path
) -> None:
    write(plan, topic, [1, 3])
    sh.cluster.stop(3)
    admin.alter_partition_reassignments({TopicPartition(topic, 0): [1, 3]})
    found = sh.plain(
        TOOL, "--bootstrap-controller", sh.controllers, "--cancel", "--reassignment-json-file", plan
    )
    assert found.status == 0, found
    assert "Clearing broker-level throttles on brokers 1,2,3" in found.out.splitlines()
    assert admin.list_partition_reassignments() == {}


def test_throttles_of_a_broker_that_is_down_are_named_with_the_remedy(
    sh: Shell, admin: sync.AdminClient, topic: str, plan: Path
) -> None:
    write(plan, topic, [1, 3])
    sh.cluster.stop(3)
    admin.alter_partition_reassignments({TopicPartition(topic, 0): [1, 3]})
    topic_resource = (ConfigResourceType.TOPIC, topic)
    throttle = (ConfigOp.SET, "leader.replication.throttled.replicas", "0:1")
    admin.incremental_alter_configs({topic_resource: [throttle]})
    found = done(sh, "--cancel", "--reassignment-json-file", plan)
    assert found.status == 1
    assert "Node 3 is not available. Those that are: 1, 2." in found.err
    assert "Start the broker, or use kafka-configs --bootstrap-con" in found.err
    assert "--entity-name 3 --delete-config leader.replication.throttled.rate,follower" in found.err
    wait_for_configs(admin, *topic_resource, {})


def test_a_reassignment_to_other_replicas_is_not_reported_as_completed(
    sh: Shell, topic: str, plan: Path
) -> None:
    write(plan, topic, [1, 3], [2, 1], [1])
    assert sh(TOOL, "--verify", "--reassignment-json-file", plan, "--preserve-throttles").splitlines() == [
        "Status of partition reassignment:",
        f"There is no active reassignment of partition {topic}-0, but replica set is 1,2 rather than 1,3.",
        f"Reassignment of partition {topic}-1 is completed.",
        f"There is no active reassignment of partition {topic}-2, but replica set is  rather than 1.",
        "",
    ]


def test_a_directory_is_named_for_a_replica(
    sh: Shell, admin: sync.AdminClient, topic: str, plan: Path
) -> None:
    (directory,) = admin.describe_log_dirs([1])[1]
    write(plan, topic, [1, 2], log_dirs=[directory.path, "any"])
    shown = sh(TOOL, "--execute", "--reassignment-json-file", plan)
    assert (
        f"Successfully started moving log directory to {directory.path} for replica {topic}-0 with "
        "broker 1 \n" in shown
    )
    shown = sh(TOOL, "--verify", "--reassignment-json-file", plan, "--preserve-throttles")
    assert f"Reassignment of replica {topic}-0-1 completed successfully.\n" in shown
    write(plan, topic, [1, 2], log_dirs=["/nowhere", "any"])
    shown = sh(TOOL, "--verify", "--reassignment-json-file", plan, "--preserve-throttles")
    assert (
        f"Partition {topic}-0 on broker 1 is not being moved from log dir {directory.path} to /nowhere.\n"
        in shown
    )
    refused = done(sh, "--execute", "--reassignment-json-file", plan)
    assert refused.status == 1
    assert "broker 1 has no log directory /nowhere; `kafka-log-dirs" in refused.err


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{", "plan.json is not valid JSON: "),
        ("[]", 'plan.json must contain an object with "version" and "partitions"'),
        ('{"version": 2}', "Not supported version field value 2; the only version is 1"),
        ("{}", "Partition reassignment list cannot be empty"),
        ('{"partitions": [{"topic": "t"}]}', 'entry 0 of "partitions": null is not a number for "partition"'),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', 'needs "replicas", a list of broker ids'),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}',
            "Partition replica list cannot be empty: that of t-0 is",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, "2"]}]}',
            '"2" is not a number for "replicas"',
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}]}',
            "Size of replicas list [1] is different from size of log dirs list [] for partition t-0",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
            "Partition replica lists may not contain duplicate entries: t-0 contains multiple entries for 1",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "Partition reassignment contains duplicate topic partitions: t-0",
        ),
        (
            '{"partitions": [{"topic": "absent", "partition": 0, "replicas": [99]}]}',
            "Unknown broker id 99. The brokers of the cluster are 1,2,3.",
        ),
        ('{"partitions": [{"topic": "absent", "partition": 0, "replicas": [1]}]}', "Topic absent: unknown"),
    ],
)
def test_a_plan_that_is_refused(sh: Shell, plan: Path, content: str, error: str) -> None:
    plan.write_text(content)
    assert error in sh.refused(TOOL, "--execute", "--reassignment-json-file", plan)


def test_a_change_of_the_replication_factor_is_refused_where_it_is_disallowed(
    sh: Shell, topic: str, plan: Path
) -> None:
    write(plan, topic, [1, 2, 3])
    words = ["--execute", "--disallow-replication-factor-change", "--reassignment-json-file", plan]
    refused = done(sh, *words)
    assert refused.status == 1
    assert refused.err.splitlines()[0] == "Error reassigning partition(s):"
    assert refused.err.splitlines()[1].startswith(f"{topic}-0: The replication factor is changed from 2 to 3")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--list", "--verify"], "Command must include exactly one action: --generate, --execute, --verify"),
        (["--execute"], 'Missing required argument "[reassignment-json-file]"'),
        (["--list", "--throttle", "1"], 'Option "[throttle]" can\'t be used with action "[list]"'),
        (["--list", "--bootstrap-controller", "h:1"], "Please don't specify both --bootstrap-server and"),
    ],
)
def test_options_that_do_not_fit_together(sh: Shell, words: list[str], error: str) -> None:
    found = done(sh, *words)
    assert found.status == 1
    assert error in found.err
