"""Apache Kafka's tools on metadata files of ours, and our dump tool compared with theirs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from quorate.metadata import bootstrap
from quorate.metadata import records as r
from quorate.metadata.features import METADATA_VERSION, default_levels
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.metadata.snapshot import snapshot_name, write_snapshot
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.protocol.schema import Data
from quorate.records.control import VotersRecord
from quorate.tools.dump.dump_log import main
from tests.support import java
from tests.support.golden import unpack_golden

pytestmark = pytest.mark.java

DUMP = "kafka.tools.DumpLogSegments"


@pytest.fixture(scope="module", params=["dynamic", "static"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    java.require_java()
    return unpack_golden(request.param, tmp_path_factory.mktemp("kafka"))


@pytest.mark.parametrize(
    ("options", "patterns"),
    [
        (
            ["--cluster-metadata-decoder"],
            ["*.checkpoint", "__cluster_metadata-0/*.checkpoint", "__cluster_metadata-0/*.log"],
        ),
        (["--cluster-metadata-decoder", "--skip-record-metadata"], ["__cluster_metadata-0/*.log"]),
        (["--print-data-log"], ["plain-*/*.log", "compact-*/*.log"]),
        (["--offsets-decoder"], ["__consumer_offsets-*/*.log"]),
        (["--transaction-log-decoder"], ["__transaction_state-*/*.log"]),
        ([], ["*/*.snapshot", "*/*.txnindex", "*/*.timeindex", "plain-*/*.index"]),
        (["--index-sanity-check"], ["plain-*/*index"]),
    ],
)
@pytest.mark.parametrize("state", ["data", "running"])
def test_both_dump_tools_print_the_same(
    kafka: Path, capsys: pytest.CaptureFixture[str], state: str, options: list[str], patterns: list[str]
) -> None:
    files = [
        path for pattern in patterns for path in sorted((kafka / state).glob(pattern)) if path.stat().st_size
    ]
    # The running node's preallocated indexes of empty logs make Java's tool fail.
    files = [
        path
        for path in files
        if not path.suffix.endswith("index") or state == "data" or "plain-0" in str(path)
    ]
    arguments = [*options, "--files", ",".join(map(str, files))]
    theirs = java.run(DUMP, *arguments)
    main(arguments)
    assert capsys.readouterr().out == theirs


def records_of_every_kind() -> list[Data]:
    topic_id, directory = bytes([7] * 16), bytes([0x71] * 16)
    endpoint = r.RegisterBrokerRecord.BrokerEndpoint(
        name="PLAINTEXT", host="h", port=9092, security_protocol=0
    )
    feature = r.RegisterBrokerRecord.BrokerFeature(
        name=METADATA_VERSION, min_supported_version=7, max_supported_version=27
    )
    controller = r.RegisterControllerRecord.ControllerEndpoint(
        name="CONTROLLER", host="h", port=9093, security_protocol=0
    )
    user = r.ClientQuotaRecord.EntityData(entity_type="user", entity_name="bob")
    return [
        r.FeatureLevelRecord(name=METADATA_VERSION, feature_level=27),
        r.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        r.RegisterBrokerRecord(
            broker_id=1, broker_epoch=5, incarnation_id=topic_id, end_points=[endpoint], features=[feature], rack="r",
            fenced=False, log_dirs=[directory], start_time_ms=1_700_000_000_000,
        ),
        r.RegisterControllerRecord(controller_id=2, incarnation_id=directory, end_points=[controller]),
        r.TopicRecord(name="orders", topic_id=topic_id),
        r.PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=[1], isr=[], leader=-1, leader_epoch=3, partition_epoch=4,
            directories=[directory], eligible_leader_replicas=[1], last_known_elr=[1],
        ),
        r.PartitionRecord(
            partition_id=1, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0,
            directories=[directory],
        ),
        r.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1000"),
        r.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
        r.ClientQuotaRecord(entity=[user], key="producer_byte_rate", value=1e7),
        r.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=1000),
        r.AccessControlEntryRecord(
            id=topic_id, resource_type=2, resource_name="orders", pattern_type=3, principal="User:a", host="*", operation=3,
            permission_type=3,
        ),
        r.UserScramCredentialRecord(name="u", mechanism=1, salt=b"salt", stored_key=b"k", server_key=b"s", iterations=4096),
        r.DelegationTokenRecord(
            owner="User:a", requester="User:a", issue_timestamp=1, max_timestamp=3, expiration_timestamp=2, token_id="tok"
        ),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def image() -> MetadataImage:
    values = records_of_every_kind()
    return apply_records(EMPTY, values, offset=len(values) - 1, epoch=2, timestamp_ms=1_700_000_000_000)


@pytest.fixture
def snapshot(image: MetadataImage, tmp_path: Path) -> Path:
    java.require_java()
    endpoint = VotersRecord.Endpoint(name="CONTROLLER", host="localhost", port=9093)
    voter = VotersRecord.Voter(
        voter_id=1, voter_directory_id=bytes([0x71] * 16), endpoints=[endpoint],
        kraft_version_feature=VotersRecord.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )  # fmt: skip
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    path = folder / snapshot_name(image.provenance.offset + 1, image.provenance.epoch)
    write_snapshot(
        path, image, kraft_version=1, voters=VotersRecord(voters=[voter]), last_contained_timestamp_ms=1_700_000_000_000,
        now_ms=1_700_000_000_001,
    )  # fmt: skip
    return path


def test_kafka_dumps_a_snapshot_of_ours_without_warnings(
    snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--cluster-metadata-decoder", "--files", str(snapshot)]
    theirs = java.run(DUMP, *arguments)
    assert "Error" not in theirs
    assert "isvalid: false" not in theirs
    assert main(arguments) == 0
    ours = capsys.readouterr().out
    # Java does not know the start time that our registrations carry in a tagged field; everything else
    # is equal.
    assert ours.replace(',"startTimeMs":1700000000000', "") == theirs
    payloads = [
        json.loads(line.partition("payload: ")[2]) for line in theirs.splitlines() if "payload: " in line
    ]
    assert [payload["type"] for payload in payloads] == [
        "FEATURE_LEVEL_RECORD", "FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "REGISTER_CONTROLLER_RECORD", "TOPIC_RECORD",
        "PARTITION_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "CONFIG_RECORD", "CLIENT_QUOTA_RECORD", "PRODUCER_IDS_RECORD",
        "ACCESS_CONTROL_ENTRY_RECORD", "USER_SCRAM_CREDENTIAL_RECORD", "DELEGATION_TOKEN_RECORD",
    ]  # fmt: skip


def shell(snapshot: Path, path: str, first: str) -> str:
    """The output of Kafka's shell. The command is repeated until `first` appears, because the shell does not
    always wait for its load."""
    command = java.command("org.apache.kafka.shell.MetadataShell", "--snapshot", snapshot, "tree", path)
    for _ in range(8):
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr
        if first in done.stdout:
            return done.stdout
    raise AssertionError(f"no {first!r} in 8 answers; the last: {done.stdout}{done.stderr}")


def test_the_metadata_shell_reads_a_snapshot_of_ours(snapshot: Path) -> None:
    topics = shell(snapshot, "/image/topics/byName", "PartitionRegistration")
    assert "PartitionRegistration(replicas=[1]" in topics
    assert (
        "elr=[1], lastKnownElr=[1], leader=-1, leaderRecoveryState=RECOVERED, leaderEpoch=3, partitionEpoch=4"
        in topics
    )
    rest = shell(snapshot, "/image", "retention.ms")
    for fact in (
        "retention.ms", "4.1-IV1", "BrokerRegistration(id=1, epoch=5", "ControllerRegistration(id=2", "user(bob)",
        "producer_byte_rate",
        "1000", "SCRAM-SHA-256", "tok",
    ):  # fmt: skip
        assert fact in rest


def test_kafka_dumps_a_formatted_directory_of_ours(tmp_path: Path) -> None:
    java.require_java()
    levels = {METADATA_VERSION: 27, **default_levels(27)}
    voter = VotersRecord.Voter(voter_id=1, voter_directory_id=bytes([9] * 16))
    bootstrap.write_first_snapshot(
        tmp_path,
        bootstrap.bootstrap_records(levels),
        kraft_version=1,
        voters=VotersRecord(voters=[voter]),
        now_ms=5,
    )
    out = java.run(
        DUMP,
        "--cluster-metadata-decoder",
        "--files",
        tmp_path / METADATA_DIRECTORY / bootstrap.FIRST_SNAPSHOT_NAME,
    )
    assert "isvalid: false" not in out
    assert '"name":"eligible.leader.replicas.version","featureLevel":1' in out
    assert '"voters":[{"voterId":1' in out
