"""Alterations by kafka-topics and kafka-configs, ours and Apache Kafka's, on one cluster: the same
arguments have the same effect, status and text. The node is ours or of Kafka 4.4.0, and the tools
are of 4.1.1 and of the newest in Maven.

Each tool performs all cases in their order, on entities with names of its own. So a case sees what
those before it did.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.support import java
from tests.support.cluster import BIN, Node, running
from tests.support.java_tools import JavaTools, Said

pytestmark = [pytest.mark.java, pytest.mark.timeout(280)]

MAINS = {"kafka-topics": "org.apache.kafka.tools.TopicCommand", "kafka-configs": "kafka.admin.ConfigCommand"}
USAGE = "usage"
"""A case whose error is followed by the usage, or in it. It is compared by its status."""


def entity(kind: str, name: str | None = "NAME") -> str:
    return f"--entity-type {kind} " + ("--entity-default" if name is None else f"--entity-name {name}")


TOPICS = [
    "--create --topic NAME",
    "--create --topic NAME",
    "--create --topic NAME --if-not-exists",
    "--create --topic NAME.a_b --partitions 3 --replication-factor 1 --config retention.ms=1000",
    "--create --topic NAMEa --replica-assignment 1,1",
    "--create --topic NAMEb --replica-assignment 1:1,1",
    "--create --topic NAMEc --replica-assignment 1,1:7",
    "--create --topic NAMEc --replica-assignment 7",
    "--create --topic NAMEd --replication-factor 3",
    "--create --topic NAMEd --partitions 0",
    "--create --topic NAME*",
    "--create --topic NAMEd --config no.such=1",
    "--create --topic NAMEd --config retention.ms",
    "--create --topic NAMEd --config retention.ms=abc",
    "--alter --topic NAME --partitions 4",
    "--alter --topic NAME --partitions 4",
    "--alter --topic NAME --partitions 2",
    "--alter --topic NAME --partitions 5 --replica-assignment 1,1,1,1,1",
    "--alter --topic NAMEz --partitions 4",
    "--alter --topic NAMEz --partitions 4 --if-exists",
    "--describe --topic NAME",
    "--describe --topic NAMEz",
    "--describe --topic NAME.* --topics-with-overrides",
    "--describe --at-min-isr-partitions --topic NAME",
    "--list --topic NAME.*",
    "--delete --topic NAMEz",
    "--delete --topic NAMEz --if-exists",
    "--delete --topic NAMEa",
    "--list --topic NAME.*",
]
TOPIC_USAGE = [
    "--create", "--create --topic NAMEd --partitions x", "--create --topic NAMEd --if-exists", "--alter --topic NAME",
    "--alter --topic NAME --config a=b", "--delete", "--list --delete", "",
]  # fmt: skip
CONFIGS = [
    f"--alter {entity('topics')} --add-config retention.ms=1000,cleanup.policy=[compact,delete]",
    f"--describe {entity('topics')}",
    f"--alter {entity('topics')} --delete-config retention.ms",
    f"--alter {entity('topics')} --add-config no.such=1",
    f"--alter {entity('topics')} --add-config retention.ms=abc",
    f"--alter {entity('topics')} --add-config retention.ms=-5",
    f"--alter {entity('topics')} --add-config retention.ms",
    f"--alter {entity('topics')} --add-config a=b=c",
    f"--alter {entity('topics')}",
    f"--describe {entity('topics', 'NAMEz')}",
    "--alter --topic NAME --add-config min.insync.replicas=1",
    f"--alter {entity('topics')} --add-config retention.ms=7 --delete-config cleanup.policy",
    f"--describe {entity('topics')}",
    f"--alter {entity('brokers', '1')} --add-config log.retention.ms=99",
    f"--describe {entity('brokers', '1')}",
    f"--alter {entity('brokers', '1')} --delete-config log.retention.ms",
    f"--alter {entity('brokers', '1')} --add-config node.id=4",
    f"--describe {entity('brokers', '77')}",
    f"--alter {entity('brokers', 'x')} --add-config log.retention.ms=99",
    f"--alter {entity('brokers', None)} --add-config message.max.bytes=2000000",
    f"--describe {entity('brokers', None)}",
    f"--alter {entity('brokers', None)} --delete-config message.max.bytes",
    f"--alter {entity('users')} --add-config producer_byte_rate=1000,consumer_byte_rate=2000",
    f"--describe {entity('users')}",
    f"--alter {entity('users')} {entity('clients', 'c')} --add-config request_percentage=50",
    f"--describe {entity('users')} --entity-type clients",
    f"--alter {entity('users')} --delete-config producer_byte_rate",
    f"--describe {entity('users')}",
    f"--alter {entity('users')} --add-config producer_byte_rate=x",
    f"--alter {entity('clients')} --add-config controller_mutation_rate=5",
    f"--describe {entity('clients')}",
    f"--alter {entity('clients', None)} --add-config request_percentage=70",
    f"--describe {entity('clients', None)}",
    f"--alter {entity('clients', None)} --delete-config request_percentage",
    f"--alter {entity('ips', '127.0.0.9')} --add-config connection_creation_rate=10",
    f"--describe {entity('ips', '127.0.0.9')}",
    f"--alter {entity('ips', '127.0.0.9')} --delete-config connection_creation_rate",
    f"--alter {entity('ips', '1.2.3')}.x --add-config connection_creation_rate=10",
    f"--alter {entity('users')} --add-config SCRAM-SHA-256=[iterations=8192,password=secret]",
    f"--describe {entity('users')}",
    f"--alter {entity('users')} --delete-config SCRAM-SHA-256",
    f"--alter {entity('users')} --delete-config SCRAM-SHA-512",
    f"--alter {entity('users')} --add-config SCRAM-SHA-256=[iterations=1,password=secret]",
    f"--alter {entity('groups')} --add-config consumer.session.timeout.ms=50000",
    f"--describe {entity('groups')}",
    f"--alter {entity('groups')} --delete-config consumer.session.timeout.ms",
    f"--alter {entity('groups')} --add-config consumer.session.timeout.ms=1",
    f"--alter {entity('client-metrics')} --add-config interval.ms=5000,metrics=[a,b]",
    f"--describe {entity('client-metrics')}",
    f"--alter {entity('client-metrics')} --delete-config interval.ms,metrics",
    f"--alter {entity('client-metrics')} --add-config interval.ms=-1",
    f"--alter {entity('topics', '')} --add-config retention.ms=1",
]
CONFIG_USAGE = [f"--alter --describe {entity('topics')}", f"--alter {entity('topics')} --no-such", ""]
CASES = [
    *(("kafka-topics", words, "") for words in TOPICS),
    *(("kafka-configs", words, "") for words in CONFIGS),
    *(("kafka-topics", words, USAGE) for words in TOPIC_USAGE),
    *(("kafka-configs", words, USAGE) for words in CONFIG_USAGE),
]


NODES = [("quorate", java.KAFKA_VERSION), ("quorate", java.LATEST_VERSION), ("java", java.LATEST_VERSION)]
"""Whose node it is, and of which release Kafka's tools are."""


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    java.require_tools(java.LATEST_VERSION)
    base = tmp_path_factory.mktemp(f"alterations-{request.param}") / "node"
    with running(Node(base, impl=request.param, kafka=java.LATEST_VERSION)) as n:
        yield n


def ours(tool: str, *words: str) -> Said:
    done = subprocess.run([str(BIN / tool), *words], capture_output=True, text=True, timeout=60, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


def settled(said: Said, name: str) -> tuple[int, list[str]]:
    """The status and the lines of both streams, without ids, the names of Java's exceptions and
    their traces. Lists that Java prints in the order of a hash table are sorted."""
    text = said.out + said.err
    text = re.sub(
        r" with args '[^\n]*'\n(?:java\.util\.concurrent\.ExecutionException: )?[\w.]+: ", ": ", text
    )
    text = re.sub(r"requirement failed: ", "", text)
    text = re.sub(r'" or +"', '" or "', text)
    text = re.sub(r"TopicId: \S+", "TopicId: ID", text).replace(name, "NAME")
    text = re.sub(r"(?m)(Configs: )(.*)$", lambda m: m[1] + ",".join(sorted(m[2].split(","))), text)
    lines = [
        line.rstrip() for line in text.splitlines() if not re.match(r"\s+at |\s+\.\.\. |Caused by: ", line)
    ]
    return said.status, sorted(line for line in lines if line)


@pytest.mark.parametrize(("node", "version"), NODES, indirect=["node"])
def test_alterations_have_the_same_effect_and_text(node: Node, version: str) -> None:
    where = ("--bootstrap-server", node.bootstrap)
    release = version.replace(".", "")
    names = f"mine{release}", f"java{release}"
    mine = [ours(tool, *where, *words.replace("NAME", names[0]).split(" ")) for tool, words, _ in CASES]
    with JavaTools(version) as tools:
        theirs = [
            tools.run(MAINS[tool], *where, *words.replace("NAME", names[1]).split(" "))
            for tool, words, _ in CASES
        ]
    differing = []
    for (tool, words, kind), my, their in zip(CASES, mine, theirs, strict=True):
        found, wanted = settled(my, names[0]), settled(their, names[1])
        if kind == USAGE:
            assert my.status == their.status == 1, (tool, words, my, their)
            assert my.err and "Traceback" not in my.err, (tool, words, my)
        elif found != wanted:
            differing.append(f"{tool} {words}\n  ours:  {found}\n  Kafka: {wanted}")
    assert not differing, "\n".join(differing)
