"""kafka-dump-log against what Apache Kafka's tool printed for the same files (tests/golden,
tests/tools/dump)."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.metadata import records as r
from quorate.metadata.framing import encode_record
from quorate.records.batch import build_batch, build_control_batch, build_metadata_batch
from quorate.records.control import LeaderChangeMessage
from quorate.tools.dump.dump_log import main
from quorate.tools.dump.remote_log_records import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    remote_text,
)
from tests.support.golden import unpack_golden

HERE = Path(__file__).parent
META = "__cluster_metadata-0"
SNAPSHOTS = (
    f"{META}/00000000000000000000-0000000000.checkpoint,{META}/00000000000000000038-0000000001.checkpoint"
)
LOG = "00000000000000000000.log"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_golden("dynamic", tmp_path_factory.mktemp("kafka"))


@pytest.mark.parametrize(
    ("golden", "state", "arguments"),
    [
        ("metadata", "data", ["--cluster-metadata-decoder", "--files", f"bootstrap.checkpoint,{SNAPSHOTS}"]),
        (
            "metadata-log",
            "data",
            ["--cluster-metadata-decoder", "--skip-record-metadata", "--files", f"{META}/{LOG}"],
        ),
        (
            "data",
            "data",
            [
                "--print-data-log",
                "--files",
                f"compact-0/{LOG},compact-0/00000000000000000020.snapshot,plain-0/00000000000000000000.txnindex,"
                "plain-0/00000000000000000000.timeindex",
            ],
        ),
        ("offsets", "data", ["--offsets-decoder", "--files", f"__consumer_offsets-2/{LOG}"]),
        ("transactions", "data", ["--transaction-log-decoder", "--files", f"__transaction_state-1/{LOG}"]),
        (
            "running",
            "running",
            ["--deep-iteration", "--files", f"plain-0/{LOG},plain-0/00000000000000000000.index"],
        ),
    ],
)
def test_it_prints_what_kafka_prints(
    kafka: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: str,
    state: str,
    arguments: list[str],
) -> None:
    monkeypatch.chdir(kafka / state)
    assert main(arguments) == 0
    assert capsys.readouterr().out == (HERE / "dump" / f"{golden}.txt").read_text()


def segment(folder: Path, *batches: bytes) -> Path:
    path = folder / LOG
    path.write_bytes(b"".join(batches))
    return path


def noop(offset: int) -> bytes:
    return build_metadata_batch(
        [encode_record(r.NoOpRecord(), 0)], base_offset=offset, leader_epoch=1, timestamp=5
    )


def test_bytes_that_are_no_batch_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path, noop(0), noop(1)[:-3])
    assert main(["--files", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"Found {len(noop(1)) - 3} invalid bytes at the end of {LOG}\n")


def test_a_wrong_checksum_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = bytearray(noop(0))
    batch[-1] ^= 1
    main(["--files", str(segment(tmp_path, bytes(batch)))])
    assert "isvalid: false" in capsys.readouterr().out


def test_offsets_that_do_not_follow_each_other_are_told_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment(tmp_path, noop(0), noop(5))
    main(["--deep-iteration", "--files", str(path)])
    assert capsys.readouterr().err == f"Non-consecutive offsets in {path}\n  0 is followed by 5\n"


def test_a_record_that_does_not_decode_does_not_end_the_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = build_metadata_batch(
        [b"\x01\x10\x00", encode_record(r.TopicRecord(name="t"), 0)],
        base_offset=0,
        leader_epoch=1,
        timestamp=5,
    )
    assert main(["--cluster-metadata-decoder", "--files", str(segment(tmp_path, odd))]) == 0
    out = capsys.readouterr().out
    assert "payload: Error at 0, skipping. record type 16 is unknown\n" in out
    assert '"name":"t"' in out


def test_who_made_a_change_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    who = r.NoOpRecord(principal="User:ann", client_id="admin", address="10.0.0.7", api=19)
    own = r.NoOpRecord(reason="session of broker 3 at epoch 27 expired")
    values = [encode_record(record, 0) for record in (who, own)]
    batch = build_metadata_batch(values, base_offset=0, leader_epoch=1, timestamp=5)
    assert main(["--cluster-metadata-decoder", "--files", str(segment(tmp_path, batch))]) == 0
    out = capsys.readouterr().out
    assert (
        'payload: {"type":"NO_OP_RECORD","version":0,"data":{"principal":"User:ann","clientId":"admin",'
        '"address":"10.0.0.7","api":19}}\n'
    ) in out
    assert '"data":{"reason":"session of broker 3 at epoch 27 expired"}}\n' in out


def test_control_records_are_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change = LeaderChangeMessage(leader_id=3, voters=[LeaderChangeMessage.Voter(voter_id=3)]).encode(0)
    path = segment(tmp_path, build_control_batch([(2, change), (9, b"?")], timestamp=5))
    main(["--deep-iteration", "--files", str(path)])
    out = capsys.readouterr().out
    assert ' LeaderChange: {"version":0,"leaderId":3,"voters":[{"voterId":3}],"grantingVoters":[]}\n' in out
    assert " controlType: UNKNOWN(9)\n" in out


@pytest.mark.parametrize(
    ("name", "key", "value", "shown"),
    [
        ("StringDecoder", b"k", b"v", "key: k payload: v"),
        ("org.apache.kafka.tools.api.LongDecoder", b"\xff" * 8, b"\0" * 7 + b"\x05", "key: -1 payload: 5"),
        ("org.apache.kafka.tools.api.IntegerDecoder", b"\0\0\0\x07", b"\0\0\0\x08", "key: 7 payload: 8"),
    ],
)
def test_keys_and_values_go_through_the_decoder_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, key: bytes, value: bytes, shown: str
) -> None:
    path = segment(tmp_path, build_batch([(key, value, (), 5)]))
    assert main(["--key-decoder-class", name, "--value-decoder-class", name, "--files", str(path)]) == 0
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--files", "nowhere/00000000000000000000.log"],
            "nowhere/00000000000000000000.log: No such file or directory",
        ),
        (["--files", "abc.log"], "abc.log: its name does not start with the offset of a segment"),
        (["--files", "abc.checkpoint"], "abc.checkpoint: its name is not that of a snapshot"),
        (
            ["--key-decoder-class", "com.example.Mine", "--files", "x.log"],
            "com.example.Mine is not a decoder",
        ),
    ],
)
def test_an_error_is_one_line_and_a_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("abc.log", "abc.checkpoint"):
        (tmp_path / name).write_bytes(b"")
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_file_of_another_kind_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--files", str(tmp_path / "meta.properties")]) == 0
    assert capsys.readouterr().err == f"Ignoring unknown file {tmp_path / 'meta.properties'}\n"


def test_a_damaged_index_fails_its_sanity_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment(tmp_path, noop(0))
    (tmp_path / "00000000000000000000.index").write_bytes(bytes(12))
    assert main(["--index-sanity-check", "--files", str(tmp_path / "00000000000000000000.index")]) == 1
    assert "found 12 bytes which is neither positive nor a multiple of 8" in capsys.readouterr().err


def test_records_of_remote_storage_are_shown() -> None:
    record = RemoteLogSegmentMetadataRecord(
        end_offset=9,
        custom_metadata=b"abc",
        segment_leader_epochs=[
            RemoteLogSegmentMetadataRecord.SegmentLeaderEpochEntry(leader_epoch=1, offset=2)
        ],
        remote_log_segment_state=1,
    )
    record.remote_log_segment_id.topic_id_partition.name = "t"
    zero = "AAAAAAAAAAAAAAAAAAAAAA"
    assert remote_text(b"\x01\x00\x00" + record.encode(0)) == (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId=RemoteLogSegmentId{{topicIdPartition={zero}:t-0, "
        f"id={zero}}}, startOffset=0, endOffset=9, brokerId=0, maxTimestampMs=0, eventTimestampMs=0, "
        "segmentLeaderEpochs={1=2}, segmentSizeInBytes=0, customMetadata=Optional[CustomMetadata{3 "
        "bytes}], state=COPY_SEGMENT_FINISHED, txnIdxEmpty=false}"
    )
    update = RemoteLogSegmentMetadataUpdateRecord(remote_log_segment_state=3)
    assert remote_text(b"\x01\x01\x00" + update.encode(0)).endswith(
        "customMetadata=Optional.empty, state=DELETE_SEGMENT_FINISHED, eventTimestampMs=0, brokerId=0}"
    )


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (
            b"\x00\x02\x00\x00\x01t" + bytes(16),
            '{"type":"TOPIC_RECORD","version":0,"data":{"name":"t","topicId":"AAAAAAAAAAAAAAAAAAAAAA"}}',
        ),
        (
            b"\x00\x0c\x00\x00\x01f\x00\x01\x00\x02",
            '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"f","minFeatureLevel":1,"maxFeatureLevel":2}}',
        ),
        (
            b"\x01\x06\x00\x02\x00\x03\x03:a\x02*\x04\x05\x00",
            '{"type":"ACCESS_CONTROL_RECORD","version":0,"data":{"resourceType":2,"resourceName":null,"patternType":3,"principal":":a",'
            '"host":"*","operation":4,"permissionType":5}}',
        ),
        (
            b"\x01\x0d\x00\x00\x00\x00\x07" + bytes(16),
            '{"type":"FAILED_REPLICAS_RECORD","version":0,"data":{"brokerId":7,"topic":"AAAAAAAAAAAAAAAAAAAAAA"}}',
        ),
    ],
)
def test_records_of_formats_that_nodes_refuse_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: bytes, payload: str
) -> None:
    batch = build_metadata_batch([value], base_offset=0, leader_epoch=1, timestamp=5)
    assert (
        main(
            ["--cluster-metadata-decoder", "--skip-record-metadata", "--files", str(segment(tmp_path, batch))]
        )
        == 0
    )
    assert capsys.readouterr().out.endswith(f" payload: {payload}\n")
