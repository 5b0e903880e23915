"""Tools on topics and records, and what all tools have in common: options, output, exit status, errors
in one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import free_ports
from tests.tools.shell import Shell, sh

__all__ = ["sh"]  # a fixture

TOOLS = (
    "topics", "configs", "consumer_groups", "console_producer", "console_consumer", "metadata_quorum", "cluster",
    "broker_api_versions", "features", "get_offsets", "delete_records", "log_dirs", "leader_election", "acls",
)  # fmt: skip


# -- every tool
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", TOOLS)
def test_help_and_version(sh: Shell, tool: str) -> None:
    shown = sh.plain(tool, "--help")
    assert shown.status == 0 and "usage: kafka-" in shown.out
    version = sh.plain(tool, "--version")
    assert version.status == 0 and re.match(r"\d+\.\d+\.\d+ \(speaks Apache Kafka 4\.4", version.out)


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("topics", ["--list"]),
        ("acls", ["--list"]),
        ("configs", ["--describe", "--entity-type", "topics"]),
        ("consumer_groups", ["--list"]),
        ("metadata_quorum", ["describe", "--status"]),
        ("broker_api_versions", []),
        ("features", ["describe"]),
        ("get_offsets", []),
        ("log_dirs", ["--describe"]),
        ("cluster", ["cluster-id"]),
    ],
)
def test_nobody_there_ends_with_one_line_and_status_1(
    sh: Shell, tmp_path: Path, tool: str, args: list[str]
) -> None:
    (port,) = free_ports(1)
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=300\n")
    address = ["--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(config)]
    done = sh.plain(tool, *args, *address) if tool == "cluster" else sh.plain(tool, *address, *args)
    assert done.status == 1
    besides = ("trying again", "is deprecated")
    lines = [line for line in done.err.splitlines() if not any(words in line for words in besides)]
    assert len(lines) == 1 and f"cannot connect to 127.0.0.1:{port}" in lines[0], done.err


@pytest.mark.parametrize("tool", ["topics", "configs", "consumer_groups", "get_offsets"])
def test_a_wrong_address_is_named(sh: Shell, tool: str) -> None:
    extra = {"configs": ["--describe", "--entity-type", "topics"], "get_offsets": []}.get(tool, ["--list"])
    done = sh.plain(tool, "--bootstrap-server", "nonsense", *extra)
    assert done.status == 1 and "nonsense" in done.err and "Traceback" not in done.err


def test_scripts_are_installed_under_both_names() -> None:
    import tomllib

    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    for tool in TOOLS:
        name = f"kafka-{tool.replace('_', '-')}"
        assert scripts[name] == scripts[f"{name}.sh"] == f"quorate.tools.scripts:{tool}"


# -- topics
# --------------------------------------------------------------------------------------------------


def test_a_topics_life(sh: Shell) -> None:
    assert (
        sh("topics", "--create", "--topic", "life", "--partitions", 2, "--config", "retention.ms=5000")
        == "Created topic life.\n"
    )
    assert sh("topics", "--create", "--topic", "life", "--if-not-exists") == ""
    assert "already exists" in sh.refused("topics", "--create", "--topic", "life")
    assert "life\n" in sh("topics", "--list")
    lines = sh("topics", "--describe", "--topic", "life").splitlines()
    pattern = r"Topic: life\tTopicId: [\w-]{22}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: .*retention\.ms=5000.*"
    assert re.fullmatch(pattern, lines[0])
    assert lines[1:] == [
        f"\tTopic: life\tPartition: {p}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
        for p in range(2)
    ]
    assert sh("topics", "--alter", "--topic", "life", "--partitions", 4) == ""
    assert "2 would not be an increase" in sh.refused(
        "topics", "--alter", "--topic", "life", "--partitions", 2
    )
    assert sh("topics", "--describe", "--topic", "life", "--under-replicated-partitions") == ""
    assert (
        sh("topics", "--describe", "--topic", "life", "--at-min-isr-partitions").count("\tTopic: life") == 4
    )
    assert sh("topics", "--describe", "--topics-with-overrides", "--topic", "life").count("\n") == 1
    assert sh("topics", "--delete", "--topic", "life") == ""
    assert sh.refused("topics", "--delete", "--topic", "life").endswith(
        "Topic 'life' does not exist as expected"
    )
    assert sh("topics", "--delete", "--topic", "life", "--if-exists") == ""
    assert sh("topics", "--describe", "--topic", "life", "--if-exists") == ""


def test_topics_by_pattern_id_and_assignment(sh: Shell) -> None:
    sh("topics", "--create", "--topic", "pat-a", "--replica-assignment", "1,1,1")
    sh("topics", "--create", "--topic", "pat-b")
    assert sh("topics", "--list", "--topic", "pat-.*") == "pat-a\npat-b\n"
    assert sh("topics", "--list", "--topic", "pat-a,pat-b,zzz") == "pat-a\npat-b\n"
    topic_id = re.search(r"TopicId: (\S+)", sh("topics", "--describe", "--topic", "pat-a"))
    assert topic_id is not None
    assert sh("topics", "--describe", "--topic-id", topic_id[1]).startswith("Topic: pat-a\t")
    assert "invalid regex" in sh.refused("topics", "--list", "--topic", "pat-[")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--create", "--topic", "x", "--partitions", "0"], "partitions must be greater than 0"),
        (["--create", "--topic", "x", "--replication-factor", "40000"], "between 1 and 32767"),
        (
            ["--create", "--topic", "x", "--replication-factor", "3"],
            "target replication factor of 3 cannot be reached",
        ),
        (["--create", "--topic", "x", "--config", "bogus=1"], "bogus"),
        (["--create", "--topic", "x", "--config", "bogus"], 'format "key=val"'),
        (["--create", "--topic", "a/b"], "a/b"),
        (["--create", "--topic", "x", "--replica-assignment", "1:1"], "duplicate entries: 1"),
        (["--create", "--topic", "x", "--replica-assignment", "1:2,1"], "different replication factor"),
    ],
)
def test_impossible_topics_are_refused(sh: Shell, args: list[str], says: str) -> None:
    assert says in sh.refused("topics", *args)


@pytest.mark.parametrize(
    "args",
    [
        ["--list", "--create"],
        ["--create"],
        ["--alter", "--topic", "x"],
        ["--list", "--if-exists"],
        ["--describe", "--partitions", "3"],
        ["--create", "--topic", "x", "--replica-assignment", "1", "--partitions", "1"],
        ["--describe", "--topics-with-overrides", "--under-replicated-partitions"],
    ],
)
def test_options_that_do_not_go_together(sh: Shell, args: list[str]) -> None:
    done = sh.plain("topics", "--bootstrap-server", sh.servers, *args)
    assert done.status == 1 and "kafka-topics: error:" in done.err


# -- console
# --------------------------------------------------------------------------------------------------


def test_lines_go_in_and_come_out(sh: Shell) -> None:
    lines = "".join(f"line {i}\n" for i in range(500))
    for codec in ([], ["--compression-codec"], ["--compression-codec", "zstd"]):
        sh("console_producer", "--topic", "lines", *codec, stdin=lines)
    got = sh("console_consumer", "--topic", "lines", "--from-beginning", "--max-messages", 1500)
    assert got == lines * 3


def test_keys_headers_and_nulls_on_the_console(sh: Shell) -> None:
    properties = ["--property", "parse.key=true", "--property", "parse.headers=true", "--property", "null.marker=NULL",
                  "--property", "key.separator=|"]  # fmt: skip
    sh("console_producer", "--topic", "keyed", *properties, stdin="h:1,g:NULL\tk|v\nNULL\tNULL|NULL\n")
    shown = sh(
        "console_consumer", "--topic", "keyed", "--from-beginning", "--max-messages", 2,
        *(f"--property=print.{what}=true" for what in ("key", "headers", "offset", "partition", "timestamp", "epoch")),
        "--property=key.separator=;", "--property=null.literal=-",
    )  # fmt: skip
    first, second = shown.splitlines()
    assert re.fullmatch(r"CreateTime:\d{13};Partition:0;Offset:0;Epoch:0;h:1,g:-;k;v", first)
    assert re.fullmatch(r"CreateTime:\d{13};Partition:0;Offset:1;Epoch:0;NO_HEADERS;-;-", second)


def test_lines_without_a_separator_are_named(sh: Shell) -> None:
    done = sh.plain(
        "console_producer", "--bootstrap-server", sh.servers, "--topic", "keyed2", "--property", "parse.key=true",
        stdin="a\tb\nnokey\n",
    )  # fmt: skip
    assert done.status == 1
    assert done.err.strip() == "No key separator found on line number 2: 'nokey'"


def test_a_group_goes_on_where_it_was(sh: Shell) -> None:
    sh("console_producer", "--topic", "goes-on", stdin="1\n2\n3\n4\n")
    args = ["--topic", "goes-on", "--group", "goes-on-group", "--from-beginning"]
    assert sh("console_consumer", *args, "--max-messages", 1) == "1\n"
    assert sh("console_consumer", *args, "--max-messages", 2) == "2\n3\n"
    assert sh("console_consumer", *args, "--timeout-ms", 3000) == "4\n"


@pytest.mark.parametrize(
    ("offset", "got"), [("earliest", "a\nb\nc\n"), ("1", "b\nc\n"), ("latest", ""), ("99", "")]
)
def test_one_partition_from_an_offset(sh: Shell, offset: str, got: str) -> None:
    topic = f"from-{offset}"
    sh("console_producer", "--topic", topic, stdin="a\nb\nc\n")
    assert (
        sh("console_consumer", "--topic", topic, "--partition", 0, "--offset", offset, "--timeout-ms", 400)
        == got
    )


def test_topics_by_pattern_and_nothing_there(sh: Shell) -> None:
    for topic in ("inc-1", "inc-2"):
        sh("console_producer", "--topic", topic, stdin=f"{topic}\n")
    got = sh("console_consumer", "--include", "inc-.*", "--from-beginning", "--max-messages", 2)
    assert sorted(got.split()) == ["inc-1", "inc-2"]


def test_numbers_are_decoded_and_wrong_ones_named(sh: Shell) -> None:
    sh("console_producer", "--topic", "numbers", stdin="ABCDEFGH\nshort\n")
    args = [
        "--topic",
        "numbers",
        "--from-beginning",
        "--value-deserializer",
        "org.apache.kafka.common.serialization.LongDeserializer",
    ]
    assert sh("console_consumer", *args, "--max-messages", 1) == f"{int.from_bytes(b'ABCDEFGH', 'big')}\n"
    done = sh.plain("console_consumer", "--bootstrap-server", sh.servers, *args, "--max-messages", 2)
    assert done.status == 1 and "Size of data received is not 8" in done.err
    skipped = sh("console_consumer", *args, "--max-messages", 2, "--skip-message-on-error")
    assert skipped.count("\n") == 1


def test_committed_offsets_as_json(sh: Shell) -> None:
    sh("console_producer", "--topic", "as-json", stdin="1\n2\n")
    sh(
        "console_consumer",
        "--topic",
        "as-json",
        "--group",
        "as-json-group",
        "--from-beginning",
        "--max-messages",
        2,
    )
    shown = sh(
        "console_consumer", "--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", 3000,
        "--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
    )  # fmt: skip
    decoder = json.JSONDecoder()
    found, at = [], 0
    while at < len(shown):
        value, at = decoder.raw_decode(shown, at)
        found.append(value)
    mine = [entry for entry in found if entry["key"]["data"]["group"] == "as-json-group"]
    assert mine[-1]["key"] == {
        "type": 1,
        "data": {"group": "as-json-group", "topic": "as-json", "partition": 0},
    }
    assert (mine[-1]["value"]["version"], mine[-1]["value"]["data"]["offset"]) == (4, 2)


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--topic", "x", "--include", "y"],
        ["--topic", "x", "--offset", "3"],
        ["--topic", "x", "--partition", "0", "--offset", "soon"],
        ["--topic", "x", "--partition", "0", "--group", "g"],
        ["--topic", "x", "--group", "g", "--consumer-property", "group.id=h"],
    ],
)
def test_consumer_options_that_do_not_go_together(sh: Shell, args: list[str]) -> None:
    done = sh.plain("console_consumer", "--bootstrap-server", sh.servers, *args)
    assert done.status == 1 and "kafka-console-consumer: error:" in done.err


def test_a_consumer_that_is_interrupted_ends_well(sh: Shell) -> None:
    sh("console_producer", "--topic", "forever", stdin="x\n")
    command = [
        sys.executable,
        "-c",
        "import sys; from quorate.tools.console.console_consumer import main; sys.exit(main())",
    ]
    command += [
        "--bootstrap-server",
        sh.servers,
        "--topic",
        "forever",
        "--from-beginning",
        "--group",
        "forever-group",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"x\n"
        process.terminate()
        assert process.wait(10) == 0
        assert process.stderr.read() == b"Processed a total of 1 messages\n"
    assert "forever-group" in sh("consumer_groups", "--list", "--state", "empty")
