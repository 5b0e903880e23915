"""`quorate metadata log`: who changed what, from files and from a running quorum."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.metadata import records as r
from quorate.metadata.changes import changes
from quorate.metadata.features import record_version
from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY
from quorate.metadata.image.builder import apply_records
from quorate.metadata.snapshot import SnapshotBatch, snapshot_name, write_snapshot
from quorate.protocol.api import ApiKey
from quorate.protocol.schema import Data
from quorate.protocol.uuids import uuid_text
from quorate.records.batch import build_metadata_batch
from quorate.testing import KafkaCluster
from quorate.tools.changes.metadata_log import parse_time
from quorate.tools.command_line import ToolError
from quorate.tools.quorate import main
from tests.support.cluster import BIN, wait_for
from tests.tools.shell import Shell, sh

__all__ = ["sh"]  # a fixture

FOLDER = "__cluster_metadata-0"
LEVEL = r.FeatureLevelRecord(name="metadata.version", feature_level=27)
ORDERS, OLD, NEW = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)
ANN = r.NoOpRecord(principal="User:ann", client_id="admin", address="10.0.0.7", api=ApiKey.CREATE_TOPICS)
BOB = r.NoOpRecord(principal="User:bob", client_id="cli", address="10.0.0.8", api=ApiKey.DELETE_TOPICS)
EXPIRED = r.NoOpRecord(reason="session of broker 1 at epoch 5 expired")


def topic(name: str, topic_id: bytes, replicas: Sequence[int] = (1, 2)) -> list[Data]:
    partition = r.PartitionRecord(
        topic_id=topic_id, partition_id=0, replicas=list(replicas), isr=list(replicas), leader=replicas[0],
        leader_epoch=0, partition_epoch=0, directories=[bytes(15) + bytes([i]) for i in replicas],
    )  # fmt: skip
    return [r.TopicRecord(name=name, topic_id=topic_id), partition]


def values_of(records: Sequence[Data]) -> list[bytes]:
    return [encode_record(record, record_version(record.KEY, 27)) for record in records]


def write_log(folder: Path, *batches: Sequence[Data], base_offset: int = 0) -> Path:
    """A segment whose batches were written one second after the other from 2026-01-01T00:00:00 on."""
    path = folder / FOLDER / f"{base_offset:020d}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    offset = base_offset
    with path.open("wb") as out:
        for number, records in enumerate(batches):
            at = 1_767_225_600_000 + 1000 * number
            out.write(
                build_metadata_batch(values_of(records), base_offset=offset, leader_epoch=3, timestamp=at)
            )
            offset += len(records)
    return path


HISTORY: list[Sequence[Data]] = [
    [LEVEL],
    # Two changes of one batch, and one that says nothing about its author.
    [*topic("orders", ORDERS), ANN, *topic("recreated", OLD), BOB, r.ConfigRecord(
        resource_type=2, resource_name="orders", name="retention.ms", value="5"
    )],
    [r.NoOpRecord()],
    [
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1),
        r.PartitionChangeRecord(topic_id=ORDERS, partition_id=0, isr=[2], leader=2),
        EXPIRED,
    ],
    [r.RemoveTopicRecord(topic_id=OLD), BOB],
    [*topic("recreated", NEW), ANN],
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_log(tmp_path, *HISTORY)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    """The lines of a successful command."""
    capsys.readouterr()
    assert main(["metadata", "log", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


def objects(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown(capsys, *arguments, "--json")]


# -- the changes of a batch


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([LEVEL, LEVEL], [(10, 2, None)]),
        ([r.NoOpRecord()], []),
        ([LEVEL, r.NoOpRecord(), LEVEL], [(10, 1, None), (12, 1, None)]),
        ([LEVEL, LEVEL, ANN, LEVEL, EXPIRED], [(10, 2, ANN), (13, 1, EXPIRED)]),
        ([ANN], [(10, 0, ANN)]),
        ([LEVEL, r.NoOpRecord(), LEVEL, ANN], [(10, 1, None), (12, 1, ANN)]),
        (
            [r.AbortTransactionRecord(reason="failover"), LEVEL, ANN],
            [(10, 1, r.NoOpRecord(reason="failover")), (11, 1, ANN)],
        ),
    ],
    ids=["no author", "a sign of life", "two without", "two authors", "of nothing", "one of two", "an abort"],
)
def test_a_no_op_record_ends_a_change(
    records: Sequence[Data], expected: list[tuple[int, int, r.NoOpRecord | None]]
) -> None:
    values = [memoryview(value) for value in values_of(records)]
    batch = SnapshotBatch(10, 10 + len(values) - 1, 1, 0, values, 0)
    assert [(c.base_offset, len(c.values), c.cause) for c in changes(batch)] == expected


# -- files


def test_each_change_is_shown_with_its_author_and_its_records(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, "--directory", folder) == [
        "2026-01-01T00:00:00.000Z  offset 0  unknown",
        "    FEATURE_LEVEL_RECORD  name=metadata.version featureLevel=27",
        "2026-01-01T00:00:01.000Z  offset 1  User:ann (admin, 10.0.0.7) CREATE_TOPICS",
        f"    TOPIC_RECORD  name=orders topicId={uuid_text(ORDERS)}",
        "    PARTITION_RECORD  topic=orders partitionId=0 replicas=[1,2] isr=[1,2] leader=1 leaderEpoch=0 "
        'partitionEpoch=0 directories=["AAAAAAAAAAAAAAAAAAAAAQ","AAAAAAAAAAAAAAAAAAAAAg"]',
        "2026-01-01T00:00:01.000Z  offset 4  User:bob (cli, 10.0.0.8) DELETE_TOPICS",
        f"    TOPIC_RECORD  name=recreated topicId={uuid_text(OLD)}",
        "    PARTITION_RECORD  topic=recreated partitionId=0 replicas=[1,2] isr=[1,2] leader=1 leaderEpoch=0 "
        'partitionEpoch=0 directories=["AAAAAAAAAAAAAAAAAAAAAQ","AAAAAAAAAAAAAAAAAAAAAg"]',
        "2026-01-01T00:00:01.000Z  offset 7  unknown",
        "    CONFIG_RECORD  resourceType=2 resourceName=orders name=retention.ms value=5",
        "2026-01-01T00:00:03.000Z  offset 9  controller: session of broker 1 at epoch 5 expired",
        "    BROKER_REGISTRATION_CHANGE_RECORD  brokerId=1 brokerEpoch=5 fenced=1",
        "    PARTITION_CHANGE_RECORD  topic=orders partitionId=0 isr=[2] leader=2",
        "2026-01-01T00:00:04.000Z  offset 12  User:bob (cli, 10.0.0.8) DELETE_TOPICS",
        "    REMOVE_TOPIC_RECORD  topic=recreated",
        "2026-01-01T00:00:05.000Z  offset 14  User:ann (admin, 10.0.0.7) CREATE_TOPICS",
        f"    TOPIC_RECORD  name=recreated topicId={uuid_text(NEW)}",
        "    PARTITION_RECORD  topic=recreated partitionId=0 replicas=[1,2] isr=[1,2] leader=1 leaderEpoch=0 "
        'partitionEpoch=0 directories=["AAAAAAAAAAAAAAAAAAAAAQ","AAAAAAAAAAAAAAAAAAAAAg"]',
    ]


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (["orders"], [1, 7, 9]),
        (["recreated"], [4, 12, 14]),
        (["--principal", "ann"], [1, 14]),
        (["--principal", "User:bob"], [4, 12]),
        (["--principal", "ORDERS"], []),
        (["--since", "2026-01-01T00:00:04"], [12, 14]),
        (["--until", "2026-01-01T00:00:01Z"], [0]),
        (["--since", "2026-01-01T01:00:03+01:00", "--until", "2026-01-01T00:00:04"], [9]),
        (["--last", "2"], [12, 14]),
        (["recreated", "--principal", "bob", "--last", "1"], [12]),
    ],
)
def test_changes_are_chosen_by_topic_author_and_time(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], offsets: list[int]
) -> None:
    assert [change["offset"] for change in objects(capsys, "-d", folder, *arguments)] == offsets


def test_only_the_records_of_the_topic_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = objects(capsys, "-d", folder, "orders")
    assert [[record["type"] for record in change["records"]] for change in found] == [
        ["TOPIC_RECORD", "PARTITION_RECORD"], ["CONFIG_RECORD"], ["PARTITION_CHANGE_RECORD"]
    ]  # fmt: skip
    assert {tuple(change["topics"]) for change in found} == {("orders",)}


def test_the_id_of_a_topic_in_another_field_is_not_the_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = bytes(15) + bytes([1])
    write_log(tmp_path, topic("orders", directory), topic("other", OLD, (1, 2)))
    assert [change["offset"] for change in objects(capsys, "-d", tmp_path, "orders")] == [0]


def test_json_has_all_fields_of_the_author(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *_, expired = objects(capsys, "-d", folder, "orders")
    assert {name: first[name] for name in first if name not in ("records", "topics")} == {
        "offset": 1, "epoch": 3, "timestamp": "2026-01-01T00:00:01.000Z", "principal": "User:ann",
        "clientId": "admin", "address": "10.0.0.7", "api": "CREATE_TOPICS", "reason": None,
    }  # fmt: skip
    assert (expired["principal"], expired["api"]) == (None, None)
    assert expired["reason"] == "session of broker 1 at epoch 5 expired"


def test_topics_below_the_log_are_named_by_the_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path, *HISTORY[3:], base_offset=9)
    records = [record for batch in HISTORY[:3] for record in batch]
    image = apply_records(EMPTY, records, offset=8, epoch=3, timestamp_ms=0)
    path = tmp_path / FOLDER / snapshot_name(9, 3)
    write_snapshot(path, image, kraft_version=0, voters=None, last_contained_timestamp_ms=0, now_ms=0)
    assert [change["offset"] for change in objects(capsys, "-d", tmp_path, "orders")] == [9]
    lines = shown(capsys, "-d", tmp_path)
    assert "    REMOVE_TOPIC_RECORD  topic=recreated" in lines
    assert f"    TOPIC_RECORD  name=orders topicId={uuid_text(ORDERS)}" in shown(capsys, "--snapshot", path)


def test_a_segment_that_is_being_written_is_read_up_to_its_last_complete_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_log(tmp_path, *HISTORY)
    path.write_bytes(path.read_bytes()[:-3])
    assert [change["offset"] for change in objects(capsys, "-s", path)] == [0, 1, 4, 7, 9, 12]


def test_a_change_of_many_records_shows_the_first_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path, [r.ConfigRecord(resource_type=4, name=f"k{n}", value="v") for n in range(30)])
    assert len(lines := shown(capsys, "-d", tmp_path)) == 12
    assert lines[-1] == "    and 20 more records"
    assert len(shown(capsys, "-d", tmp_path, "--all-records")) == 31
    assert len(objects(capsys, "-d", tmp_path)[0]["records"]) == 30


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    "key",
    ["ssl.keystore.password", "listener.name.external.ssl.keystore.key",
     "listener.name.external.plain.sasl.jaas.config"],
)  # fmt: skip
def test_secrets_and_control_characters_are_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, form: list[str]
) -> None:
    credential = r.UserScramCredentialRecord(
        name="ann", mechanism=1, salt=b"sesame", stored_key=b"sesame", server_key=b"sesame", iterations=4096
    )
    password = r.ConfigRecord(resource_type=4, resource_name="1", name=key, value="c2VzYW1l")
    author = r.NoOpRecord(principal="User:\x1b[2Jx", client_id="a\nb", api=ApiKey.ALTER_CONFIGS)
    write_log(tmp_path, [credential, password, author])
    text = "\n".join(shown(capsys, "-d", tmp_path, *form))
    assert "c2VzYW1l" not in text and "(hidden)" in text and "\x1b" not in text
    if not form:
        assert "User:\\x1b[2Jx (a\\nb) ALTER_CONFIGS" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-d", "{}", "nothing"], "The log names no topic nothing"),
        (["-d", "{}/missing"], "is not a directory"),
        (["-d", "{}", "--since", "yesterday"], "yesterday is no time"),
        (["-d", "{}", "--follow"], "--follow needs --bootstrap-controller"),
        (["-s", "{}/missing.checkpoint"], "missing.checkpoint"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["metadata", "log", *(argument.format(folder) for argument in arguments)]) == 1
    assert message in capsys.readouterr().err


def test_a_damaged_batch_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / FOLDER / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-5] ^= 0xFF
    path.write_bytes(data)
    assert main(["metadata", "log", "-d", str(folder)]) == 1
    assert "checksum" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("90s", 910_000),
        ("10m", 400_000),
        ("1970-01-01T00:10", 600_000),
        ("1970-01-01 01:10:00+01:00", 600_000),
    ],
)
def test_times_are_given_in_iso_8601_or_ago(text: str | None, expected: int | None) -> None:
    assert parse_time(text, 1000.0) == expected


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ToolError, match="10 is no time"):
        parse_time("10", 1000.0)


# -- a running quorum


def test_the_changes_of_a_running_quorum_name_the_clients_of_its_brokers(sh: Shell) -> None:
    sh("topics", "--create", "--topic", "logged", "--partitions", 2)
    sh("topics", "--delete", "--topic", "logged")
    done = sh.plain("quorate", "metadata", "log", "logged", "-C", sh.controllers, "--json")
    assert done.status == 0, done
    created, *_, deleted = [json.loads(line) for line in done.out.splitlines()]
    assert (created["api"], deleted["api"]) == ("CREATE_TOPICS", "DELETE_TOPICS")
    assert [record["type"] for record in created["records"]] == ["TOPIC_RECORD"] + ["PARTITION_RECORD"] * 2
    for change in (created, deleted):
        assert (change["principal"], change["address"]) == ("User:ANONYMOUS", "127.0.0.1")
        assert change["clientId"]


def test_the_log_below_the_snapshot_of_the_leader_is_shown_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The leader sends its snapshot to who begins at offset 0, although its log begins there."""
    config = {"metadata.log.max.record.bytes.between.snapshots": 1000}
    with KafkaCluster(config=config) as cluster, AdminClient(cluster.bootstrap_servers) as admin:
        names = [f"t{n}" for n in range(20)]
        for name in names:
            admin.create_topics([NewTopic(name)])
        folder = cluster.data_directory(1) / FOLDER
        wait_for(
            "a snapshot", lambda: any(not p.name.startswith("0" * 20) for p in folder.glob("*.checkpoint"))
        )
        for where in (["-C", cluster.bootstrap_controllers], ["-d", folder]):
            found = objects(capsys, *where)
            created = [change for change in found if change["api"] == "CREATE_TOPICS"]
            assert [name for change in created for name in change["topics"]] == names


def test_new_changes_are_followed(sh: Shell, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [BIN / "quorate", "metadata", "log", "-C", sh.controllers, "--json", "--follow", "--last", "1"]
    with out.open("wb") as file, subprocess.Popen(command, stdout=file) as process:
        try:
            wait_for("the last change", lambda: out.read_text().count("\n") >= 1, 60)
            sh("topics", "--create", "--topic", "followed")
            wait_for("the next change", lambda: '"topics": ["followed"]' in out.read_text(), 60)
        finally:
            process.terminate()
