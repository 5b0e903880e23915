"""`quorum-state`: Kafka's bytes in both versions; everything else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.raft.storage.quorum_state import (
    QuorumState,
    QuorumStateError,
    QuorumStateFile,
    decode_quorum_state,
    encode_quorum_state,
)
from quorate.raft.types import ReplicaKey

DIRECTORY = bytes(range(16))


CAPTURED = {  # quorum-state of tests/golden/kafka-4.1.1-{static,dynamic}
    0: b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],'
    b'"data_version":0}',
    1: b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
}


@pytest.mark.parametrize("version", [0, 1])
def test_files_of_kafka_are_read_and_written_back_byte_for_byte(version: int) -> None:
    state = decode_quorum_state(CAPTURED[version])
    assert state == QuorumState(1, 1, None)
    assert encode_quorum_state(state, version, [1]) == CAPTURED[version]


@pytest.mark.parametrize(
    ("state", "version", "text"),
    [
        (
            QuorumState(0),
            0,
            '{"clusterId":"","leaderId":-1,"leaderEpoch":0,"votedId":-1,"appliedOffset":0,"currentVoters":'
            '[{"voterId":1},{"voterId":2}],"data_version":0}',
        ),
        (
            QuorumState(7, 2, ReplicaKey(1, DIRECTORY)),
            1,
            '{"leaderId":2,"leaderEpoch":7,"votedId":1,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}',
        ),
        (
            QuorumState(3),
            1,
            '{"leaderId":-1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        ),
    ],
)
def test_fields_and_their_order(state: QuorumState, version: int, text: str) -> None:
    assert encode_quorum_state(state, version, [1, 2]).decode() == text
    assert decode_quorum_state(text.encode()).epoch == state.epoch


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"data_version":2}',
        '{"data_version":true,"leaderEpoch":1}',
        '{"data_version":1,"leaderEpoch":-1}',
        '{"data_version":1,"leaderEpoch":"1"}',
        '{"data_version":1,"leaderEpoch":1,"leaderId":4294967296}',
        '{"data_version":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":"short"}',
        '{"data_version":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":7}',
        "[" * 100000,
    ],
)
def test_an_invalid_quorum_state_is_refused(text: str) -> None:
    with pytest.raises(QuorumStateError):
        decode_quorum_state(text.encode())


def test_the_file_is_replaced_atomically_and_a_missing_file_means_none(tmp_path: Path) -> None:
    file = QuorumStateFile(tmp_path / "quorum-state")
    assert file.read() is None
    state = QuorumState(3, None, ReplicaKey(2, DIRECTORY))
    file.write(QuorumState(2), 0, [1])
    file.write(state, 1, [1])
    assert file.read() == state
    assert [p.name for p in tmp_path.iterdir()] == ["quorum-state"]


def test_version_0_keeps_the_voted_id_but_not_its_directory(tmp_path: Path) -> None:
    file = QuorumStateFile(tmp_path / "quorum-state")
    file.write(QuorumState(3, None, ReplicaKey(2, DIRECTORY)), 0, [1, 2])
    assert file.read() == QuorumState(3, None, ReplicaKey(2))


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        QuorumStateFile(tmp_path / "missing" / "quorum-state").write(QuorumState(1), 1, [])


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_an_empty_file_is_refused_as_by_kafka(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "quorum-state").write_bytes(content)
    with pytest.raises(QuorumStateError, match="quorum-state: not JSON"):
        QuorumStateFile(tmp_path / "quorum-state").read()
