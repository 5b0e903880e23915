"""Our tools and Apache Kafka's, side by side on one cluster: the same arguments give the same text. The nodes
are ours or of Kafka 4.4.0; its newest tools in Maven are those of 4.3.1."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import java
from tests.support.cluster import BIN, Node, running

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

LATEST = java.LATEST_VERSION
TOOLS = "org.apache.kafka.tools"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
QUORUM = f"{TOOLS}.MetadataQuorumCommand"


@pytest.fixture(scope="module", params=["quorate", "java"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    java.require_tools(LATEST)
    base = tmp_path_factory.mktemp(f"outputs-{request.param}") / "node"
    with running(Node(base, impl=request.param, kafka=LATEST)) as n:
        ours(
            n,
            "kafka-topics",
            "--create",
            "--topic",
            "t",
            "--partitions",
            "2",
            "--config",
            "retention.ms=604800001",
        )
        ours(n, "kafka-console-producer", "--topic", "t", stdin="1\n2\n3\n")
        ours(
            n,
            "kafka-console-consumer",
            "--topic",
            "t",
            "--from-beginning",
            "--group",
            "g",
            "--max-messages",
            "2",
        )
        yield n


def ours(node: Node, tool: str, *args: str, stdin: str = "") -> str:
    command = [str(BIN / tool), "--bootstrap-server", node.bootstrap, *args]
    if tool == "kafka-cluster":
        command = [str(BIN / tool), *args, "--bootstrap-server", node.bootstrap]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def theirs(node: Node, main: str, *args: str) -> str:
    where = ("--bootstrap-server", node.bootstrap)
    words = (*args, *where) if main.endswith("ClusterTool") else (*where, *args)
    return java.run(main, *words, version=LATEST)


NEW_IN_4_4 = re.compile(
    r"\t(ApiVersions|TxnOffsetCommit|DeleteGroups|StreamsGroup\w+|UnregisterController|UNKNOWN)\(\d+\): "
)
"""APIs that the tools of 4.3.1 do not know, or not in their last version."""


def settled(text: str) -> list[str]:
    """The lines without values that change by themselves. Lines that Java prints in the order of a hash
    table are sorted."""
    text = re.sub(r"(HighWatermark: +|Epoch: )\d+", r"\1N", text)
    text = re.sub(r"UNKNOWN 33", r"4.4-IV2   ", text)  # the tools of 4.3.1 do not know the name
    text = re.sub(r"(?m)^(\d+ +\t\S+\t)\d+ *\t(\d+ +\t)\d+ *\t\d+ *\t", r"\1N\t\2N\tN\t", text)
    text = re.sub(r"(?m)(Configs: )(.*)$", lambda m: m[1] + ",".join(sorted(m[2].split(","))), text)
    return sorted(line.rstrip() for line in text.splitlines() if not NEW_IN_4_4.match(line))


@pytest.mark.parametrize(
    ("tool", "main", "args"),
    [
        ("kafka-topics", f"{TOOLS}.TopicCommand", ["--describe"]),
        ("kafka-configs", "kafka.admin.ConfigCommand", ["--describe", "--topic", "t", "--all"]),
        ("kafka-configs", "kafka.admin.ConfigCommand", ["--describe", "--entity-type", "brokers"]),
        ("kafka-consumer-groups", GROUPS, ["--list", "--state", "--type"]),
        ("kafka-consumer-groups", GROUPS, ["--describe", "--group", "g"]),
        ("kafka-consumer-groups", GROUPS, ["--describe", "--group", "g", "--state", "--verbose"]),
        (
            "kafka-consumer-groups",
            GROUPS,
            ["--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--dry-run"],
        ),
        ("kafka-metadata-quorum", QUORUM, ["describe", "--status"]),
        ("kafka-metadata-quorum", QUORUM, ["describe", "--replication"]),
        ("kafka-features", f"{TOOLS}.FeatureCommand", ["describe"]),
        (
            "kafka-features",
            f"{TOOLS}.FeatureCommand",
            ["upgrade", "--feature", "kraft.version=1", "--dry-run"],
        ),
        ("kafka-broker-api-versions", f"{TOOLS}.BrokerApiVersionsCommand", []),
        ("kafka-get-offsets", f"{TOOLS}.GetOffsetShell", ["--topic", "t"]),
        ("kafka-cluster", f"{TOOLS}.ClusterTool", ["cluster-id"]),
        ("kafka-cluster", f"{TOOLS}.ClusterTool", ["list-endpoints"]),
        (
            "kafka-leader-election",
            f"{TOOLS}.LeaderElectionCommand",
            ["--election-type", "preferred", "--topic", "t", "--partition", "0"],
        ),
    ],
)
def test_the_same_text(node: Node, tool: str, main: str, args: list[str]) -> None:
    assert settled(ours(node, tool, *args)) == settled(theirs(node, main, *args))


def test_deleted_records_are_told_the_same(node: Node, tmp_path: Path) -> None:
    ours(node, "kafka-topics", "--create", "--topic", "deleted")
    ours(node, "kafka-console-producer", "--topic", "deleted", stdin="1\n2\n3\n")
    file = tmp_path / "offsets.json"
    file.write_text('{"version": 1, "partitions": [{"topic": "deleted", "partition": 0, "offset": 2}]}')
    words = ["--offset-json-file", str(file)]
    mine = ours(node, "kafka-delete-records", *words)
    assert "partition: deleted-0\tlow_watermark: 2" in mine
    assert mine == theirs(node, f"{TOOLS}.DeleteRecordsCommand", *words)


def test_a_refusal_has_the_same_text(node: Node) -> None:
    words = ["--bootstrap-server", node.bootstrap, "downgrade", "--feature", "kraft.version=0", "--dry-run"]
    both = [
        subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        for command in (
            [str(BIN / "kafka-features"), *words],
            java.command(f"{TOOLS}.FeatureCommand", *words, version=LATEST),
        )
    ]
    assert (both[0].returncode, both[0].stdout) == (both[1].returncode, both[1].stdout)
    assert both[0].returncode == 1
    assert "Can not downgrade kraft.version to 0." in both[0].stdout


def test_committed_offsets_read_the_same(node: Node) -> None:
    args = ["--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "10000",
            "--formatter", f"{TOOLS}.consumer.OffsetsMessageFormatter"]  # fmt: skip
    mine = ours(node, "kafka-console-consumer", *args)
    assert mine
    assert sorted(mine.split("}{")) == sorted(
        theirs(node, f"{TOOLS}.consumer.ConsoleConsumer", *args).split("}{")
    )


def test_each_tool_reads_what_the_other_has_written(node: Node) -> None:
    lines = "".join(f"{i}\tvalue {i}\n" for i in range(100))
    keyed = ["--topic", "both", "--reader-property", "parse.key=true"]
    ours(node, "kafka-console-producer", *keyed, "--compression-codec", "snappy", stdin=lines)
    command = java.command(
        f"{TOOLS}.ConsoleProducer",
        *("--bootstrap-server", node.bootstrap, *keyed, "--compression-codec", "lz4"),
        version=LATEST,
    )
    subprocess.run(command, input=lines, text=True, capture_output=True, check=True, timeout=60)
    read = [
        "--topic",
        "both",
        "--from-beginning",
        "--max-messages",
        "200",
        "--formatter-property",
        "print.key=true",
    ]
    mine = ours(node, "kafka-console-consumer", *read)
    assert mine == theirs(node, f"{TOOLS}.consumer.ConsoleConsumer", *read) == lines * 2
