"""Tools on groups, configurations and the cluster itself."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from quorate.admin.errors import NetError
from quorate.admin.types import ClusterDescription, Features, FeatureUpgrade, Node
from quorate.metadata.features import FIRST_CONTROLLER_UNREGISTRATION, LATEST_STABLE_LEVEL, LEVELS
from quorate.tools.cluster.features import unnamed_blockers
from tests.tools.shell import Shell, sh

__all__ = ["sh"]  # a fixture


# -- groups
# --------------------------------------------------------------------------------------------------


def group_rows(shown: str) -> list[list[str]]:
    return [line.split() for line in shown.splitlines()[2:] if line]


def test_a_group_is_described_reset_and_deleted(sh: Shell) -> None:
    sh("topics", "--create", "--topic", "grp", "--partitions", 1)
    sh("console_producer", "--topic", "grp", stdin="1\n2\n3\n4\n5\n")
    sh("console_consumer", "--topic", "grp", "--group", "grp-g", "--from-beginning", "--max-messages", 3)
    shown = sh("consumer_groups", "--describe", "--group", "grp-g")
    assert shown.splitlines()[1].split() == [
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
    ]  # fmt: skip
    assert group_rows(shown) == [["grp-g", "grp", "0", "3", "5", "2", "-", "-", "-"]]
    assert sh("consumer_groups", "--describe", "--group", "grp-g", "--state").splitlines()[-1].split()[
        -2:
    ] == ["Empty", "0"]

    def reset(*args: object) -> list[list[str]]:
        return group_rows(sh("consumer_groups", "--reset-offsets", "--group", "grp-g", *args))

    assert reset("--topic", "grp", "--to-earliest", "--dry-run") == [["grp-g", "grp", "0", "0"]]
    assert reset("--all-topics", "--shift-by", -2, "--execute") == [["grp-g", "grp", "0", "1"]]
    assert reset("--topic", "grp:0", "--to-current", "--dry-run") == [["grp-g", "grp", "0", "1"]]
    assert reset("--topic", "grp", "--to-offset", 99, "--dry-run") == [["grp-g", "grp", "0", "5"]]
    assert reset("--topic", "grp", "--to-datetime", "2020-01-01T00:00:00.000", "--dry-run") == [
        ["grp-g", "grp", "0", "0"]
    ]
    assert reset("--topic", "grp", "--by-duration", "PT1H", "--dry-run") == [["grp-g", "grp", "0", "0"]]
    exported = sh(
        "consumer_groups",
        "--reset-offsets",
        "--group",
        "grp-g",
        "--all-topics",
        "--to-latest",
        "--dry-run",
        "--export",
    )
    assert exported == "grp,0,5\n"
    assert sh("consumer_groups", "--delete-offsets", "--group", "grp-g", "--topic", "grp").splitlines()[-1].split() == [
        "grp", "0", "Successful",
    ]  # fmt: skip
    assert (
        sh("consumer_groups", "--delete", "--group", "grp-g")
        == "Deletion of requested consumer groups ('grp-g') was successful.\n"
    )
    done = sh.plain("consumer_groups", "--bootstrap-server", sh.servers, "--delete", "--group", "grp-g")
    assert done.status == 1 and "* Group 'grp-g' could not be deleted" in done.err
    done = sh.plain("consumer_groups", "--bootstrap-server", sh.servers, "--describe", "--group", "grp-g")
    assert (done.status, done.err.strip()) == (1, "Error: Consumer group 'grp-g' does not exist.")


def test_a_reset_from_a_file(sh: Shell, tmp_path: Path) -> None:
    sh("console_producer", "--topic", "filed", stdin="1\n2\n3\n")
    plan = tmp_path / "plan.csv"
    plan.write_text("filed,0,2\n")
    sh("consumer_groups", "--reset-offsets", "--group", "filed-g", "--from-file", plan, "--execute")
    assert group_rows(sh("consumer_groups", "--describe", "--group", "filed-g"))[0][:5] == [
        "filed-g",
        "filed",
        "0",
        "2",
        "3",
    ]
    plan.write_text("filed,zero,2\n")
    done = sh.plain(
        "consumer_groups", "--bootstrap-server", sh.servers, "--reset-offsets", "--group", "filed-g", "--from-file", plan,
        "--execute",
    )  # fmt: skip
    assert done.status == 1 and "plan.csv line 1" in done.err


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT5M", 300_000),
        ("P1DT2H", 93_600_000),
        ("PT0.5S", 500),
        ("-PT1M", -60_000),
        ("PT1.001S", 1001),
        ("PT-1.5S", -1500),
    ],
)
def test_durations(text: str, ms: int) -> None:
    from quorate.tools.groups.reset_offsets import duration_ms

    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2038-12-27T09:14:45.101", 2_177_054_085_101),
        ("1970-01-01T01:00:00.001+01:00", 1),
        ("2024-05-01", 1_714_521_600_000),
    ],
)
def test_dates(text: str, ms: int) -> None:
    from quorate.tools.groups.reset_offsets import datetime_ms

    assert datetime_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "5M", "P1Y", "PT1H1D"])
def test_wrong_durations(text: str) -> None:
    from quorate.tools.command_line import ToolError
    from quorate.tools.groups.reset_offsets import duration_ms

    with pytest.raises(ToolError, match="Duration"):
        duration_ms(text)


# -- configs
# --------------------------------------------------------------------------------------------------


def test_configs_are_set_shown_and_removed(sh: Shell) -> None:
    sh("topics", "--create", "--topic", "conf")
    before = sh("configs", "--describe", "--topic", "conf")
    done = "Completed updating config for topic conf.\n"
    assert (
        sh(
            "configs",
            "--alter",
            "--topic",
            "conf",
            "--add-config",
            "retention.ms=7,cleanup.policy=[compact,delete]",
        )
        == done
    )
    shown = sh("configs", "--describe", "--entity-type", "topics", "--entity-name", "conf")
    assert shown.startswith("Dynamic configs for topic conf are:\n")
    assert (
        "  cleanup.policy=compact,delete sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, " in shown
    )
    assert "  retention.ms=7 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7" in shown
    assert sh("configs", "--describe", "--topic", "conf", "--all").count("\n") > 25
    assert (
        sh("configs", "--alter", "--topic", "conf", "--delete-config", "retention.ms,cleanup.policy") == done
    )
    assert sh("configs", "--describe", "--topic", "conf") == before
    assert (
        sh.refused("configs", "--alter", "--topic", "conf", "--delete-config", "retention.ms")
        == "Invalid config(s): retention.ms"
    )
    assert "bogus" in sh.refused("configs", "--alter", "--topic", "conf", "--add-config", "bogus=1")
    assert (
        sh("configs", "--describe", "--topic", "nope")
        == "The topic 'nope' doesn't exist and doesn't have dynamic config.\n"
    )


def test_configs_of_brokers_users_and_credentials(sh: Shell) -> None:
    assert "All configs for broker 1 are:\n" in sh("configs", "--describe", "--broker", 1, "--all")
    assert sh("configs", "--alter", "--broker-defaults", "--add-config", "log.retention.ms=77") == (
        "Completed updating default config for brokers in the cluster.\n"
    )
    assert "log.retention.ms=77" in sh("configs", "--describe", "--broker-defaults")
    sh("configs", "--alter", "--broker-defaults", "--delete-config", "log.retention.ms")
    assert "not enforced" in sh.refused(
        "configs", "--alter", "--user", "tools-user", "--add-config", "producer_byte_rate=1024"
    )
    sh(
        "configs",
        "--alter",
        "--user",
        "tools-user",
        "--add-config",
        "SCRAM-SHA-256=[iterations=8192,password=secret]",
    )
    assert sh("configs", "--describe", "--user", "tools-user") == (
        "SCRAM credential configs for user-principal 'tools-user' are SCRAM-SHA-256=iterations=8192\n"
    )


@pytest.mark.parametrize(
    ("value", "text"), [(1024.0, "1024.0"), (2.048e7, "2.048E7"), (1e7, "1.0E7"), (0.5, "0.5")]
)
def test_quotas_are_printed_as_java_prints_doubles(value: float, text: str) -> None:
    from quorate.tools.cluster.configs import java_double

    assert java_double(value) == text


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--describe"], "At least one entity type"),
        (["--describe", "--entity-type", "things"], "Invalid entity type things"),
        (["--describe", "--topic", "a", "--broker", "1"], "may be specified together"),
        (["--describe", "--broker", "one"], "valid integer broker id"),
        (["--alter", "--topic", "a"], "At least one of --add-config"),
        (["--alter", "--entity-type", "topics", "--add-config", "a=b"], "An entity name must be specified"),
        (["--alter", "--topic", "a", "--add-config", "a"], 'format "key=val"'),
        (["--alter", "--topic", "a", "--add-config", "a=b=c"], 'format "key=val"'),
        (
            ["--alter", "--ip", "1.2.3.x", "--add-config", "connection_creation_rate=1"],
            "valid IP or resolvable",
        ),
        (["--alter", "--user", "tools-user", "--add-config", "retention.ms=1"], "Unexpected config names"),
        (
            ["--alter", "--user", "tools-user", "--add-config", "SCRAM-SHA-256=[iterations=1,password=p]"],
            "less than the minimum 4096",
        ),
    ],
)
def test_config_options_that_make_no_sense(sh: Shell, args: list[str], says: str) -> None:
    assert says in sh.refused("configs", *args)


# -- the cluster
# --------------------------------------------------------------------------------------------------


def test_quorum_and_cluster(sh: Shell) -> None:
    base = ["--bootstrap-server", sh.servers]
    shown = sh.plain("metadata_quorum", *base, "describe", "--status").out
    labels = [line.split(":")[0] for line in shown.splitlines()]
    assert labels == ["ClusterId", "LeaderId", "LeaderEpoch", "HighWatermark", "MaxFollowerLag", "MaxFollowerLagTimeMs",
                      "CurrentVoters", "CurrentObservers"]  # fmt: skip
    assert f"ClusterId:              {sh.cluster.cluster_id}\n" in shown
    voters = json.loads(shown.splitlines()[6].partition(":")[2])
    assert voters[0]["endpoints"] == [f"CONTROLLER://{sh.controllers}"]
    rows = sh.plain("metadata_quorum", *base, "describe", "--replication").out.splitlines()
    assert rows[0].split() == [
        "NodeId",
        "DirectoryId",
        "LogEndOffset",
        "Lag",
        "LastFetchTimestamp",
        "LastCaughtUpTimestamp",
        "Status",
    ]
    assert rows[1].split()[0] == "1" and rows[1].endswith("Leader\t")
    human = sh.plain("metadata_quorum", *base, "describe", "--replication", "--human-readable").out
    assert human.count("ms ago") == 2
    assert (
        json.loads(sh.plain("metadata_quorum", *base, "describe", "--status", "--json").out)["leaderId"] == 1
    )
    for args in ([], ["--status", "--replication"], ["--status", "--human-readable"]):
        assert sh.plain("metadata_quorum", *base, "describe", *args).status == 1
    assert sh("cluster", "cluster-id") == f"Cluster ID: {sh.cluster.cluster_id}\n"
    assert sh("cluster", "id") == f"Cluster ID: {sh.cluster.cluster_id}\n"
    assert sh("cluster", "list-endpoints").splitlines()[1].split() == [
        "1", *sh.servers.split(":"), "null", "unfenced", "broker",
    ]  # fmt: skip
    assert sh("cluster", "unregister", "--id", 99) == "Broker 99 is already unregistered.\n"
    controller = ["--bootstrap-controller", sh.controllers]
    assert sh.plain("cluster", "list-endpoints", *controller).out.splitlines()[1].split()[-1] == "controller"
    assert sh.plain("metadata_quorum", *controller, "describe", "--status").status == 0


@pytest.mark.parametrize("tool", ["topics", "consumer_groups", "get_offsets"])
def test_a_controller_where_a_broker_is_wanted_is_told(sh: Shell, tool: str) -> None:
    where = sh.controllers
    done = sh.plain(tool, "--bootstrap-server", where, *([] if tool == "get_offsets" else ["--list"]))
    assert (done.status, done.err.count("\n")) == (1, 1), done
    assert f"{where} cannot be used: it is a controller's listener, and a broker's is wanted" in done.err


def test_controllers_are_added_and_removed_dry(sh: Shell) -> None:
    base = ["--bootstrap-server", sh.servers, "--command-config", sh.cluster.properties_file(1)]
    shown = sh.plain("metadata_quorum", *base, "add-controller", "--dry-run")
    where = f"CONTROLLER://{sh.controllers}"
    assert re.fullmatch(
        rf"DRY RUN of adding controller 1 with directory id \S{{22}} and endpoints: {where}\n", shown.out
    ), shown
    directory = re.search(r"directory id (\S+)", shown.out)
    assert directory is not None
    removal = ["remove-controller", "-i", 1, "-d", directory[1]]
    shown = sh.plain("metadata_quorum", *base, *removal, "--dry-run")
    assert shown.out == f"DRY RUN of removing KRaft controller 1 with directory id {directory[1]}\n"
    assert sh.plain("metadata_quorum", *base, *removal).status == 1, "the last voter stays"
    assert "not a uuid" in sh.plain("metadata_quorum", *base, "remove-controller", "-i", 1, "-d", "x").err


def test_features_and_versions(sh: Shell) -> None:
    base = ["--bootstrap-server", sh.servers]
    shown = sh.plain("features", *base, "describe").out
    latest = LEVELS[LATEST_STABLE_LEVEL].name
    line = (
        "Feature: metadata.version                          SupportedMinVersion: 3.3-IV3          "
        f"SupportedMaxVersion: {latest:<15}  FinalizedVersionLevel: {latest:<15}  Epoch: "
    )
    assert line in shown
    of_node = sh.plain("features", *base, "describe", "--node-id", 1).out
    assert re.sub(r"Epoch: \d+", "", of_node) == re.sub(r"Epoch: \d+", "", shown)
    assert "No node has the id 77" in sh.plain("features", *base, "describe", "--node-id", 77).err
    assert "must be non-negative" in sh.plain("features", *base, "describe", "--node-id", -1).err
    level = LATEST_STABLE_LEVEL
    done = sh.plain("features", *base, "upgrade", "--feature", f"metadata.version={level}", "--dry-run")
    assert (done.status, done.out) == (0, f"metadata.version can be upgraded to {level}.\n")
    done = sh.plain("features", *base, "downgrade", "--feature", "metadata.version=20", "--dry-run")
    assert done.status == 1 and done.out.startswith("Can not downgrade metadata.version to 20. ")
    assert done.err == "1 out of 1 operation(s) failed.\n"
    assert (
        "equals sign not found" in sh.plain("features", *base, "upgrade", "--feature", "metadata.version").err
    )
    assert sh.plain("features", "version-mapping", "--release-version", "4.1-IV1").out.startswith(
        "metadata.version=27 (4.1-IV1)\n"
    )
    versions = sh("broker_api_versions")
    assert versions.startswith(
        f"{sh.servers} (id: 1 rack: null isFenced: false) -> (\n\tProduce(0): 0 to 13 [usable: "
    )
    assert "\tJoinGroup(11): 0 to 9 [usable: 9],\n" in versions
    assert sh("cluster", "api-versions") == versions


def test_an_upgrade_that_is_refused_names_every_node_that_blocks(sh: Shell) -> None:
    words = ("upgrade", "--feature", "metadata.version=40", "--feature", "share.version=9", "--dry-run")
    done = sh.plain("features", "--bootstrap-server", sh.servers, *words)
    assert done.status == 1
    for blocker in ("Local controller 1 only supports versions", "Broker 1 only supports versions 0-2"):
        assert blocker in done.out
    assert "kafka-cluster unregister --id ID" in done.out
    assert " supports metadata.version " not in done.out  # the controller has named each node


class OldCluster:
    """The part of an admin client that names the blockers, where a controller names only the first one."""

    def __init__(self, *supported: int | NetError) -> None:
        self.supported = supported

    async def describe_cluster(self) -> ClusterDescription:
        nodes = tuple(Node(number, "h", number) for number in range(1, len(self.supported) + 1))
        return ClusterDescription("c", 1, nodes)

    async def describe_features(self, node: Node) -> Features:
        highest = self.supported[node.id - 1]
        if isinstance(highest, NetError):
            raise highest
        return Features({"share.version": (0, highest)}, {}, -1)


@pytest.mark.parametrize(
    ("supported", "named", "lines"),
    [
        ((2, 2), "", []),
        ((1, 2, 0), "", ["Broker 1 supports share.version 0 to 1, not 2.", "Broker 3 supports share.version 0 to 0, not 2."]),
        ((1, 1), "Broker 1 only supports versions 0-1", ["Broker 2 supports share.version 0 to 1, not 2."]),
        ((2, NetError("it is away")), "", ["Broker 2 cannot be asked: it is away"]),
    ],
)  # fmt: skip
def test_nodes_that_an_error_does_not_name_are_asked(
    supported: tuple[int | NetError, ...], named: str, lines: list[str]
) -> None:
    updates = {"share.version": (2, FeatureUpgrade.UPGRADE)}
    admin: Any = OldCluster(*supported)
    assert asyncio.run(unnamed_blockers(admin, False, updates, named)) == lines


def test_a_controller_is_unregistered(sh: Shell) -> None:
    controllers = ["--bootstrap-controller", sh.controllers]
    for where in (["--bootstrap-server", sh.servers], controllers):
        active = sh.plain("cluster", "unregister-controller", "--id", 1, *where)
        assert active.status == 1
        assert "Controller cannot unregister itself while it is active." in active.err
        unknown = sh.plain("cluster", "unregister-controller", "-i", 77, *where)
        if LATEST_STABLE_LEVEL < FIRST_CONTROLLER_UNREGISTRATION:
            text = "The target cluster does not support the controller unregistration API.\n"
            assert (unknown.status, unknown.out) == (0, text)
        else:
            assert (unknown.status, unknown.out) == (0, "Controller 77 is already unregistered.\n")


def test_the_old_name_of_the_configuration_option_is_taken(sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("request.timeout.ms=20000\n")
    config = tmp_path / "client.properties"
    old = sh("cluster", "cluster-id", "--config", config)
    assert old.startswith("Option --config has been deprecated")
    assert old.splitlines()[1] == sh("cluster", "cluster-id", "-c", config).strip()
    both = sh.plain("cluster", "cluster-id", "-b", sh.servers, "--config", config, "--command-config", config)
    assert (both.status, "cannot be specified together" in both.err) == (1, True)


def test_offsets_records_and_directories(sh: Shell, tmp_path: Path) -> None:
    sh("topics", "--create", "--topic", "off", "--partitions", 2)
    sh(
        "console_producer",
        "--topic",
        "off",
        "--property",
        "parse.key=true",
        stdin="".join(f"{i}\tv\n" for i in range(20)),
    )
    ends = dict(line.rsplit(":", 1) for line in sh("get_offsets", "--topic", "off").splitlines())
    assert set(ends) == {"off:0", "off:1"} and sum(map(int, ends.values())) == 20
    assert sh("get_offsets", "--topic-partitions", "off:1", "--time", "earliest") == "off:1:0\n"
    assert sh("get_offsets", "--topic", "off", "--partitions", 0, "--time", -2) == "off:0:0\n"
    assert "Malformed time" in sh.refused("get_offsets", "--time", "soon")
    assert "Could not match any" in sh.refused("get_offsets", "--topic", "nope")
    document = tmp_path / "offsets.json"
    document.write_text('{"partitions": [{"topic": "off", "partition": 0, "offset": 3}], "version": 1}')
    assert sh("delete_records", "--offset-json-file", document) == (
        "Executing records delete operation\nRecords delete operation completed:\npartition: "
        "off-0\tlow_watermark: 3\n"
    )
    assert sh("get_offsets", "--topic-partitions", "off:0", "--time", "earliest") == "off:0:3\n"
    document.write_text("{")
    assert "not a valid JSON" in sh.refused("delete_records", "--offset-json-file", document)
    listing = sh("log_dirs", "--describe", "--topic-list", "off").splitlines()
    (directory,) = json.loads(listing[2])["brokers"][0]["logDirs"]
    assert (directory["logDir"], directory["error"]) == (str(sh.cluster.data_directory(1)), None)
    assert {p["partition"] for p in directory["partitions"]} == {"off-0", "off-1"}
    assert "do not exist" in sh.refused("log_dirs", "--describe", "--broker-list", "7")
    assert sh("leader_election", "--election-type", "preferred", "--topic", "off", "--partition", 0) == (
        "Valid replica already elected for partitions off-0\n"
    )
