"""Producer state found on disk equals the state that the writer had in memory, whatever was written and however it stopped."""

from __future__ import annotations

import shutil
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.log.files import OpenFiles
from quorate.log.partition_log import AppendOrigin, PartitionLog
from quorate.records.batch import build_batch, build_control_batch

from .logs import NOW, open_log, put

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["data", "txn"]), st.integers(1, 4), st.integers(1, 3)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(1, 4), st.just(0)),
        st.tuples(st.sampled_from(["plain", "roll", "flush", "reopen", "reopen clean"]), st.just(0), st.just(0)),
        st.tuples(st.just("truncate"), st.just(0), st.integers(1, 12)),
    ),
    max_size=30,
)


class Writer:
    """Producers as well-behaved clients have them."""

    def __init__(self, root: Path) -> None:
        self.log = open_log(root, OpenFiles(4), segment_bytes=1_000)
        self.open: set[int] = set()

    def state(self) -> tuple:
        log = self.log
        log.high_watermark = log.log_end_offset
        producers = {
            (p.producer_id, p.producer_epoch, p.last_sequence, p.last_offset, p.current_txn_first_offset, p.coordinator_epoch)
            for p in log.active_producers()
        }
        aborted = log.aborted_transactions(0, log.log_end_offset)
        return log.log_end_offset, producers, log.last_stable_offset, sorted(aborted, key=lambda pair: pair[1])

    def step(self, kind: str, producer: int, count: int) -> None:
        log = self.log
        known = {p.producer_id: p for p in log.active_producers()}
        if kind in ("data", "txn"):
            transactional = kind == "txn"
            if not transactional and producer in known and known[producer].current_txn_first_offset >= 0:
                return
            sequence = known[producer].last_sequence + 1 if producer in known else 0
            data = build_batch(
                [(b"k", b"v" * 20, [], NOW)] * count,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=transactional,
            )
            log.append_as_leader(data, 0, NOW)
        elif kind in ("commit", "abort"):
            marker = build_control_batch(
                [(int(kind == "commit"), struct.pack(">hi", 0, 0))],
                timestamp=NOW,
                producer_id=producer,
                producer_epoch=0,
                is_transactional=True,
            )
            log.append_as_leader(marker, 0, NOW, AppendOrigin.COORDINATOR)
        elif kind == "plain":
            put(log, b"plain")
        elif kind == "roll":
            log.roll(NOW)
        elif kind == "flush":
            log.flush()
        elif kind == "truncate":
            log.truncate_to(max(log.log_end_offset - count, 0))
        elif log.is_materialised:
            self.reopen(clean=kind.endswith("clean"))

    def reopen(self, *, clean: bool) -> None:
        if clean:
            self.log.close()
        self.log = PartitionLog.open(
            self.log.dir,
            self.log.config,
            files=OpenFiles(4),
            recovery_point=self.log.recovery_point,
            clean_shutdown=clean,
            now_ms=NOW,
        )


@pytest.mark.parametrize("clean", [True, False])
@given(steps=STEPS)
@settings(max_examples=120, deadline=None)
def test_state_on_disk_is_the_state_in_memory(clean: bool, steps: list) -> None:
    root = Path(tempfile.mkdtemp(prefix="quorate-producers-"))
    try:
        writer = Writer(root)
        for kind, producer, count in steps:
            writer.step(kind, producer, count)
        if not writer.log.is_materialised:
            return
        before = writer.state()
        writer.reopen(clean=clean)
        after = writer.state()
        if after[0] != before[0]:  # the end lay inside of a batch that was cut: it is not on disk
            return
        assert after == before
    finally:
        shutil.rmtree(root)
