"""Several threads recover the logs of a directory (`num.recovery.threads.per.data.dir`)."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from quorate.log.partition.partition_log import PartitionLog

from .logs import TOPIC_ID, all_files, contents, manager, put


@pytest.mark.parametrize("threads", [2, 7])
def test_logs_that_several_threads_recover_are_those_of_one(tmp_path: Path, threads: int) -> None:
    logs = manager(tmp_path / "d", segment_bytes=400)
    logs.load()
    for partition in range(40):
        for i in range(partition % 9):
            put(logs.get_or_create("t", partition, TOPIC_ID), b"%d" % i * 20, epoch=partition)
    for partition in range(0, 40, 3):  # what an append had written when the process was killed
        log = logs.get("t", partition)
        if log is not None and log.has_files:
            with open(log.segments[-1].log_path, "ab") as file:
                file.write(b"torn" * partition)
    logs.scheduler.wait_idle()
    shutil.copytree(tmp_path / "d", tmp_path / "e")
    alone, together = manager(tmp_path / "d", segment_bytes=400), manager(tmp_path / "e", segment_bytes=400)
    assert alone.load() == together.load(threads=threads) == []
    assert len(alone) == len(together) > 30
    for partition in range(40):
        log, other = alone.get("t", partition), together.get("t", partition)
        assert (log is None) == (other is None)
        if log is not None and other is not None:
            assert contents(log) == contents(other)
            assert (log.latest_epoch, log.recovery_point) == (other.latest_epoch, other.recovery_point)
    assert all_files(tmp_path / "d") == all_files(tmp_path / "e")


def test_no_thread_recovers_a_log_after_the_directory_failed(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    for partition in range(200):
        put(logs.get_or_create("t", partition, TOPIC_ID), b"a")
    damaged = logs.get("t", 0)
    assert damaged is not None
    (damaged.dir / "partition.metadata").write_text("version: 7\ntopic_id: no\n")
    again = manager(tmp_path / "d")
    opened: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        open_log = PartitionLog.open
        patch.setattr(
            PartitionLog,
            "open",
            lambda path, *args, **kw: (opened.append(path), open_log(path, *args, **kw))[1],
        )
        [failure] = again.load(threads=2)
    assert "partition.metadata" in str(failure) and len(again) == 0
    assert len(opened) < 100, "the others wait for the next start"
    assert not [t for t in threading.enumerate() if t.name.startswith("quorate-log-recovery")]
    assert not len(again.files), "a disk that failed can be unmounted"
