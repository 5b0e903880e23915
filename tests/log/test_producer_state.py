"""Sequence numbers, epochs and transactions of producers, as tables."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.log.partition.partition_log import PartitionLog
from quorate.log.partition.producer_snapshots import CorruptSnapshotError, decode_snapshot, encode_snapshot
from quorate.log.partition.producer_state import AppendOrigin, BatchMetadata, ProducerState
from quorate.log.partition.results import AppendInfo
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import build_batch, build_control_batch

from .logs import NOW, open_log

SEQUENCE, EPOCH = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH
LAST = 0x7FFFFFFF


def send(
    log: PartitionLog,
    epoch: int,
    sequence: int,
    count: int = 1,
    *,
    producer: int = 7,
    transactional: bool = False,
) -> AppendInfo:
    data = build_batch(
        [(b"k", b"v", [], NOW)] * count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return log.append_as_leader(data, 0, NOW)


def marker(
    log: PartitionLog, *, commit: bool, producer: int = 7, epoch: int = 0, coordinator_epoch: int = 0
) -> None:
    data = build_control_batch(
        [(int(commit), struct.pack(">hi", 0, coordinator_epoch))],
        timestamp=NOW,
        producer_id=producer,
        producer_epoch=epoch,
        is_transactional=True,
    )
    log.append_as_leader(data, 0, NOW, AppendOrigin.COORDINATOR)


# Each step is (epoch, sequence, count) and what it brings: the first offset, "dup <offset>", or an error.
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(0, 0, 1, 0), (0, 1, 3, 1), (0, 4, 1, 4)], id="in order"),
        pytest.param([(0, 5, 1, 0), (0, 6, 1, 1)], id="an unknown producer may begin anywhere"),
        pytest.param([(0, 0, 1, 0), (0, 2, 1, SEQUENCE), (0, 1, 1, 1)], id="a gap"),
        pytest.param([(0, 0, 2, 0), (0, 0, 2, "dup 0"), (0, 2, 1, 2)], id="a retry"),
        pytest.param(
            [(0, i, 1, i) for i in range(6)] + [(0, 1, 1, "dup 1"), (0, 0, 1, SEQUENCE)],
            id="five are remembered",
        ),
        pytest.param(
            [(0, 0, 2, 0), (0, 0, 1, SEQUENCE), (0, 1, 1, SEQUENCE)], id="a part of a batch is no retry"
        ),
        pytest.param([(1, 0, 1, 0), (0, 1, 1, EPOCH), (1, 1, 1, 1)], id="an older epoch"),
        pytest.param(
            [(0, 0, 1, 0), (1, 1, 1, SEQUENCE), (1, 0, 1, 1), (1, 1, 1, 2)], id="a new epoch begins at 0"
        ),
        pytest.param([(0, LAST - 1, 2, 0), (0, 0, 1, 2), (0, 1, 1, 3)], id="wrapping between batches"),
        pytest.param(
            [(0, LAST - 1, 4, 0), (0, 2, 1, 4), (0, LAST - 1, 4, "dup 0")], id="wrapping inside of a batch"
        ),
    ],
)
def test_sequences(tmp_path: Path, steps: list) -> None:
    log = open_log(tmp_path)
    for epoch, sequence, count, outcome in steps:
        if isinstance(outcome, ErrorCode):
            end = log.log_end_offset
            with pytest.raises(KafkaError) as caught:
                send(log, epoch, sequence, count)
            assert caught.value.code == outcome and log.log_end_offset == end
        elif isinstance(outcome, str):
            info = send(log, epoch, sequence, count)
            assert info.duplicate and info.first_offset == int(outcome.split()[1])
            assert info.last_offset == info.first_offset + count - 1
        else:
            info = send(log, epoch, sequence, count)
            assert not info.duplicate and info.first_offset == outcome


def test_producers_are_independent(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(3):
        for producer in (1, 2, 3):
            send(log, 0, sequence, producer=producer)
    assert [(p.producer_id, p.last_sequence) for p in log.active_producers()] == [(1, 2), (2, 2), (3, 2)]


def test_sequences_of_replicated_batches_are_not_checked(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for base, (epoch, sequence) in enumerate([(1, 0), (0, 5), (1, 9)]):
        log.append_as_follower(
            build_batch(
                [(b"k", b"v", [], NOW)],
                base_offset=base,
                leader_epoch=0,
                producer_id=7,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        )
    assert log.log_end_offset == 3


def test_producers_expire_unless_their_transaction_is_open(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, 0, producer=1)
    send(log, 0, 0, producer=2, transactional=True)
    log.producers.remove_expired(NOW + 86_400_000 - 1)
    assert len(log.active_producers()) == 2
    log.producers.remove_expired(NOW + 86_400_000)
    assert [p.producer_id for p in log.active_producers()] == [2]


# --- transactions ---------------------------------------------------------------------------------


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    stable = []

    def note() -> None:
        log.high_watermark = log.log_end_offset
        stable.append(log.last_stable_offset)

    send(log, 0, 0, producer=1, transactional=True)  # 0
    note()
    send(log, 0, 0, producer=2, transactional=True)  # 1
    note()
    marker(log, commit=True, producer=1)  # 2
    note()
    send(log, 0, 0, producer=3)  # 3
    note()
    marker(log, commit=False, producer=2)  # 4
    note()
    assert stable == [0, 0, 1, 1, 5]
    assert log.aborted_transactions(0, 5) == [(2, 1)] and log.aborted_transactions(0, 1) == []


def test_a_finished_transaction_is_stable_only_when_its_marker_is_replicated(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, 0, transactional=True)
    marker(log, commit=True)
    send(log, 0, 1)
    seen = []
    for high_watermark in (1, 2, 3):
        log.high_watermark = high_watermark
        seen.append(log.last_stable_offset)
    assert seen == [0, 2, 3]


def test_no_plain_batch_inside_of_a_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, 0, transactional=True)
    with pytest.raises(KafkaError) as caught:
        send(log, 0, 1)
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_an_old_coordinator_or_epoch_is_fenced(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 1, 0, transactional=True)
    marker(log, commit=True, epoch=1, coordinator_epoch=5)
    for options, code in (
        ({"coordinator_epoch": 4, "epoch": 1}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        ({"epoch": 0, "coordinator_epoch": 5}, EPOCH),
    ):
        with pytest.raises(KafkaError) as caught:
            marker(log, commit=True, **options)
        assert caught.value.code == code


def test_aborted_transactions_of_many_segments_are_found(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    aborted = []
    for round_ in range(12):
        first = send(log, 0, round_ * 2, 2, transactional=True).first_offset
        marker(log, commit=round_ % 3 == 0)
        if round_ % 3:
            aborted.append((7, first))
        if round_ % 2:
            log.roll(NOW)
    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    assert log.aborted_transactions(10, 19) == [
        (7, first) for _, first in aborted if first + 2 >= 10 and first < 19
    ]


def follower_of(leader: PartitionLog, root: Path) -> PartitionLog:
    """A log with all records of the leader, appended at once."""
    follower = open_log(root)
    follower.append_as_follower(leader.read_bytes(0, 1 << 20), NOW)
    return follower


def test_a_follower_that_copies_several_transactions_at_once_finds_the_aborted_ones(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader")
    for round_ in range(2):
        send(leader, 0, round_, producer=1, transactional=True)  # 0, 2
        marker(leader, commit=False, producer=1)  # 1, 3
    send(leader, 0, 0, producer=2, transactional=True)  # 4
    follower = follower_of(leader, tmp_path / "follower")
    assert [follower.aborted_transactions(0, end) for end in range(1, 5)] == [
        [(1, 0)],
        [(1, 0)],
        [(1, 0), (1, 2)],
        [(1, 0), (1, 2)],
    ]


def test_a_truncation_between_two_markers_that_were_copied_at_once_keeps_the_first(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader")
    for producer in (1, 2):
        send(leader, 0, 0, producer=producer, transactional=True)  # 0, 1
    for producer in (2, 1):
        marker(leader, commit=False, producer=producer)  # 2, 3
    follower = follower_of(leader, tmp_path / "follower")
    follower.truncate_to(3)
    assert follower.aborted_transactions(0, 3) == [(2, 1)]


# --- snapshots ------------------------------------------------------------------------------------

states = st.builds(
    ProducerState,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
)


@given(st.lists(states, max_size=20), st.integers(0, LAST))
def test_snapshots_are_read_back(producers: list[ProducerState], sequence: int) -> None:
    for i, state in enumerate(producers):
        if i % 2:
            state.batches.append(BatchMetadata(sequence, 100 + i, i, state.last_timestamp))
    assert decode_snapshot(encode_snapshot(producers)) == producers


def test_a_snapshot_has_only_the_last_batch_of_a_producer() -> None:
    state = ProducerState(1, 0, -1, NOW)
    for i in range(3):
        state.batches.append(BatchMetadata(i, i, 0, NOW))
    assert list(decode_snapshot(encode_snapshot([state]))[0].batches) == [BatchMetadata(2, 2, 0, NOW)]


def test_every_damaged_byte_of_a_snapshot_is_found() -> None:
    data = encode_snapshot([ProducerState(1, 2, 3, 4, 5), ProducerState(6)])
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x20
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(damaged))
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(data[:position])
