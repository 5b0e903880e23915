"""Verification of snapshots that arrive in chunks of any size, with damage at every byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quorate.raft.core.voters import VoterSet
from quorate.raft.storage.snapshots.files import footer_batch, header_batch, place
from quorate.raft.storage.snapshots.verification import SnapshotError, SnapshotVerifier, prefix_digest
from quorate.raft.types import OffsetEpoch
from quorate.records.batch import build_metadata_batch, set_placement
from tests.raft.world import voter

ID = OffsetEpoch(40, 3)
VOTERS = VoterSet.of([voter(1), voter(2)])


def batches(*groups: list[bytes], now_ms: int = 7) -> list[bytes]:
    """Header, a data batch for each group of values, footer."""
    out = [bytes(header_batch(ID, 12345, now_ms, 1, VOTERS))]
    offset = 3
    for values in groups:
        data, offset = place(
            build_metadata_batch(values, base_offset=0, leader_epoch=0, timestamp=now_ms), offset, ID.epoch
        )
        out.append(bytes(data))
    return [*out, bytes(footer_batch(ID, offset, now_ms))]


WHOLE = batches([b"a", b"b"], [b"c" * 300], [b"d"])


def fed(*pieces: bytes) -> SnapshotVerifier:
    verifier = SnapshotVerifier()
    for piece in pieces:
        verifier.feed(piece)
    return verifier


@pytest.mark.parametrize("size", [1, 2, 7, 60, 61, 62, 500, 10_000])
def test_chunks_of_any_size_give_the_same_snapshot(size: int) -> None:
    data = b"".join(WHOLE)
    verifier = fed(*(data[at : at + size] for at in range(0, len(data), size)))
    assert verifier.complete
    assert verifier.position == len(data)
    assert verifier.digest() == fed(data).digest()


def test_no_truncated_snapshot_is_complete() -> None:
    data = b"".join(WHOLE)
    assert not any(fed(data[:cut]).complete for cut in range(len(data)))


def test_every_flipped_byte_is_detected() -> None:
    data = b"".join(WHOLE)
    starts = [sum(map(len, WHOLE[:i])) for i in range(len(WHOLE))]
    for at in range(len(data)):
        inside = at - max(s for s in starts if s <= at)
        if 12 <= inside < 16:
            continue  # the epoch of a batch is not under its checksum and means nothing here
        flipped = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        try:
            assert not fed(flipped).complete, f"byte {at}"
        except SnapshotError:
            continue


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (WHOLE[1:], "offset 3 where 0 was expected"),
        ([WHOLE[-1]], "offset 7 where 0 was expected"),
        ([WHOLE[0], WHOLE[2]], "offset 5 where 3 was expected"),
        ([WHOLE[0], WHOLE[1], WHOLE[1]], "offset 3 where 5 was expected"),
        ([*WHOLE, WHOLE[-1]], "something follows the footer"),
        ([bytes(footer_batch(ID, 0, 1))], "does not begin with a snapshot header"),
        (
            [build_metadata_batch([b"a"], base_offset=0, leader_epoch=0, timestamp=1)],
            "does not begin with a snapshot header",
        ),
    ],
)
def test_batches_out_of_place_are_refused(parts: list[bytes], reason: str) -> None:
    with pytest.raises(SnapshotError, match=reason):
        fed(*parts)


def test_a_batch_with_a_huge_size_is_refused_before_it_is_read() -> None:
    huge = bytearray(build_metadata_batch([b"a"], base_offset=3, leader_epoch=0, timestamp=1))
    huge[8:12] = (1 << 30).to_bytes(4, "big")
    with pytest.raises(SnapshotError, match="1073741836 bytes"):
        fed(WHOLE[0], bytes(huge))


def test_snapshots_of_one_id_but_another_order_differ_in_their_digest(tmp_path: Path) -> None:
    other = batches([b"b", b"a"], [b"c" * 300], [b"d"])
    assert len(b"".join(other)) == len(b"".join(WHOLE))
    assert fed(*WHOLE[:2]).digest() != fed(*other[:2]).digest()


def test_the_digest_of_a_prefix_equals_that_of_a_receiver_of_this_prefix(tmp_path: Path) -> None:
    data = b"".join(WHOLE)
    path = tmp_path / "snapshot"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        for end in range(len(data) + 1):
            assert prefix_digest(fd, end) == fed(data[:end]).digest()
    finally:
        os.close(fd)


@pytest.mark.parametrize("kept", range(5))
def test_after_a_torn_batch_the_download_continues_after_the_last_complete_one(kept: int) -> None:
    data = b"".join(WHOLE)
    start = sum(map(len, WHOLE[:kept]))
    for torn in range(min(80, len(WHOLE[kept]))):
        verifier = fed(data[: start + torn])
        assert verifier.back_to_whole() == start == verifier.position
        verifier.feed(data[start:])
        assert verifier.complete
        assert verifier.digest() == fed(data).digest()


def test_the_footer_of_a_complete_file_is_fetched_again() -> None:
    verifier = fed(*WHOLE)
    assert verifier.back_to_whole() == len(b"".join(WHOLE[:-1]))
    assert not verifier.complete
    verifier.feed(WHOLE[-1])
    assert verifier.complete


def test_only_the_epoch_field_of_a_batch_is_not_verified() -> None:
    moved = bytearray(WHOLE[1])
    set_placement(moved, 3, 99)
    assert fed(WHOLE[0], bytes(moved), *WHOLE[2:]).complete
