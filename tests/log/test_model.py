"""Compares a log with a list: after random operations and restarts, both have the same contents."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quorate.log.files import OpenFiles
from quorate.log.partition.partition_log import PartitionLog
from quorate.records.batch import Compression, build_batch, iter_batches

from .logs import NOW, contents, open_log

OPTIONS = {"segment_bytes": 1_500, "index_interval_bytes": 150, "segment_index_bytes": 240}


class LogMachine(RuleBasedStateMachine):
    """The model is the list of batches: (base offset, epoch, timestamp, values)."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="quorate-model-"))
        self.files = OpenFiles(3)
        self.batches: list[tuple[int, int, int, list[bytes]]] = []
        self.start = self.end = 0
        self.epoch = 0
        self.log: PartitionLog

    @initialize()
    def open(self) -> None:
        self.log = open_log(self.root, self.files, **OPTIONS)

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @rule(
        values=st.lists(st.binary(max_size=200), min_size=1, max_size=6),
        codec=st.sampled_from(Compression),
        step=st.integers(-50, 300),
        repeat=st.integers(1, 8),
    )
    def append(self, values: list[bytes], codec: Compression, step: int, repeat: int) -> None:
        for _ in range(repeat):
            timestamp = NOW + self.end + step
            data = build_batch([(b"k", v, [], timestamp) for v in values], compression=codec)
            info = self.log.append_as_leader(data, self.epoch, NOW)
            assert info.first_offset == self.end
            self.batches.append((self.end, self.epoch, timestamp, values))
            self.end += len(values)

    @rule(values=st.lists(st.binary(max_size=50), min_size=1, max_size=3), gap=st.integers(0, 5))
    def replicate(self, values: list[bytes], gap: int) -> None:
        base = self.end + gap
        data = build_batch([(b"k", v, [], NOW) for v in values], base_offset=base, leader_epoch=self.epoch)
        self.log.append_as_follower(data, NOW)
        self.batches.append((base, self.epoch, NOW, values))
        self.end = base + len(values)

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule(back=st.integers(0, 30))
    def truncate(self, back: int) -> None:
        target = max(self.end - back, 0)
        self.log.truncate_to(target)
        if target < self.end:
            held = [base for base, *_, values in self.batches if base < target < base + len(values)]
            if held:
                target = min(target, max(held[0], self.start))  # a log ends where a batch does
            self.batches = [batch for batch in self.batches if batch[0] + len(batch[3]) <= target]
            self.end = target
            self.start = min(self.start, target)

    @rule(forward=st.integers(0, 20))
    def raise_start(self, forward: int) -> None:
        self.log.high_watermark = self.end
        target = min(self.start + forward, self.end)
        self.log.increment_log_start_offset(target, "test")
        self.start = max(self.start, target)

    @rule()
    def retain(self) -> None:
        self.log.high_watermark = self.end
        self.log.delete_old_segments(NOW)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @precondition(lambda self: self.log.has_files)
    @rule(clean=st.booleans(), keep_point=st.booleans())
    def stop_and_start(self, clean: bool, keep_point: bool) -> None:
        if clean:
            self.log.close()
        point = self.log.recovery_point if keep_point else 0
        self.files = OpenFiles(3)
        last_batch_end = self.batches[-1][0] + len(self.batches[-1][3]) if self.batches else None
        self.log = PartitionLog.open(
            self.root / "topic-0",
            self.log.config,
            files=self.files,
            recovery_point=point,
            log_start_offset=self.start,
            clean_shutdown=clean,
            now_ms=NOW,
        )
        # An end inside of what a truncation or a gap left is not on disk: it comes back as the end of
        # the last batch.
        found = self.log.log_end_offset
        if last_batch_end is not None and found != self.end:
            assert found in (last_batch_end, self.start, self.log.segments[-1].base_offset)
        self.end = found
        self.start = self.log.log_start_offset
        self.batches = [batch for batch in self.batches if batch[0] < found]

    @invariant()
    def holds_the_same(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        expected = [
            (base + i, value)
            for base, _, _, values in self.batches
            for i, value in enumerate(values)
            if base + i >= self.start
        ]
        assert contents(log, max_bytes=700) == expected
        for offset, _ in expected[:: max(1, len(expected) // 5)]:
            header, _data = next(iter_batches(log.read_bytes(offset, 1)))
            assert header.base_offset <= offset <= header.last_offset
            base, epoch, _, _ = next(b for b in self.batches if b[0] <= offset < b[0] + len(b[3]))
            assert (header.base_offset, header.leader_epoch) == (base, epoch)
            assert log.epochs.epoch_for(offset) == epoch
        if expected:
            timestamps = {base + i: t for base, _, t, values in self.batches for i in range(len(values))}
            wanted = sorted(timestamps[offset] for offset, _ in expected)[len(expected) // 2]
            first = next(offset for offset, _ in expected if timestamps[offset] >= wanted)
            found = log.offset_for_timestamp(wanted)
            assert found is not None and found[:2] == (timestamps[first], first)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
