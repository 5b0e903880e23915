"""Future logs: what a start makes of a move that was interrupted, and how a future log replaces the current
one. KIP-113."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from quorate.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from quorate.log.directories.listing import Listing, list_logs
from quorate.log.directories.manager import LogManager
from quorate.log.errors import LogDirFailure
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.scheduler import run_steps

from .logs import DIRECTORY_IDS, NOW, TOPIC_ID, contents, manager, names, put

OTHER_TOPIC = bytes(range(1, 17))
NEW_NAME = "t-0.0123456789abcdef0123456789abcdef-future"


def fresh(tmp_path: Path) -> LogManager:
    logs = manager(tmp_path / "a", tmp_path / "b")
    logs.load()
    return logs


def loaded(tmp_path: Path, assigned: str, *, stray: bool = False) -> LogManager:
    """A log manager that has loaded both directories. The metadata assigns the replica to `assigned`."""
    logs = manager(tmp_path / "a", tmp_path / "b")
    directory_id = DIRECTORY_IDS["ab".index(assigned)]
    assert logs.load(is_stray=lambda *_: stray, assigned_directory=lambda *_: directory_id) == []
    return logs


def begin(logs: LogManager, target: Path, copied: int = 2) -> tuple[PartitionLog, PartitionLog]:
    """A log of three records, and a future log in `target` with as many of them as given."""
    current = logs.get_or_create("t", 0, TOPIC_ID, directory_id=DIRECTORY_IDS[0])
    for epoch, value in enumerate((b"x", b"y", b"z")):
        put(current, value, epoch=epoch)
    current.high_watermark = 3
    future = logs.futures.create(current, target, NOW)
    run_steps(logs.futures.purge_checkpoints(future))
    future.create_files()
    future.append_as_follower(current.read_bytes(0, 1 << 20, upper_offset=copied))
    return current, future


def where(logs: LogManager) -> tuple[str | None, str | None]:
    """The directories of the current log and of the future log."""
    current, future = logs.get("t", 0), logs.futures.get("t", 0)
    return (
        None if current is None else current.dir.parent.name,
        None if future is None else future.dir.parent.name,
    )


@pytest.mark.parametrize("stop", ["stop", "kill"])
@pytest.mark.parametrize("assigned", ["a", "b"])
def test_a_future_log_stays_a_future_log_after_a_restart(tmp_path: Path, assigned: str, stop: str) -> None:
    """Also if the metadata has the new directory already: the future log may lack records."""
    before = fresh(tmp_path)
    begin(before, tmp_path / "b")
    if stop == "stop":
        before.close()
    logs = loaded(tmp_path, assigned)
    assert where(logs) == ("a", "b")
    current, future = logs.get("t", 0), logs.futures.get("t", 0)
    assert current is not None and contents(current) == [(0, b"x"), (1, b"y"), (2, b"z")]
    assert future is not None and contents(future) == [(0, b"x"), (1, b"y")]
    assert (future.topic, future.partition, future.topic_id) == ("t", 0, TOPIC_ID)
    assert future.epochs.entries() == [(0, 0), (1, 1)]


def lose_current(tmp_path: Path) -> None:
    (tmp_path / "a" / "t-0").rename(tmp_path / "lost")


def promote_without_deletion(tmp_path: Path) -> None:
    (future,) = (tmp_path / "b").glob("*-future")
    future.rename(tmp_path / "b" / "t-0")


def move_back_beside_current(tmp_path: Path) -> None:
    (future,) = (tmp_path / "b").glob("*-future")
    future.rename(tmp_path / "a" / future.name)


def copy_twice(tmp_path: Path) -> None:
    (future,) = (tmp_path / "b").glob("*-future")
    second = tmp_path / "b" / NEW_NAME
    second.mkdir()
    for path in future.iterdir():
        (second / path.name).write_bytes(path.read_bytes())


@pytest.mark.parametrize(
    ("damage", "assigned", "expected"),
    [
        (lose_current, "b", ("b", None)),  # the only copy
        (lose_current, "a", (None, "b")),  # the directory of the current log may come back
        (promote_without_deletion, "b", ("b", None)),  # a crash between the two renames
        (move_back_beside_current, "b", ("a", None)),  # a move to the directory of the current log
        (copy_twice, "a", ("a", "b")),
    ],
)
def test_an_interrupted_move_at_the_next_start(
    tmp_path: Path, damage: object, assigned: str, expected: tuple[str | None, str | None]
) -> None:
    begin(fresh(tmp_path), tmp_path / "b")
    damage(tmp_path)  # type: ignore[operator]
    logs = loaded(tmp_path, assigned)
    assert where(logs) == expected
    logs.scheduler.wait_idle()
    futures = [name for directory in "ab" for name in names(tmp_path / directory) if name.endswith("-future")]
    assert len(futures) == (expected[1] is not None)
    if expected[0] == "b":
        current = logs.get("t", 0)
        assert current is not None and contents(current) == [(0, b"x"), (1, b"y")]
        assert (current.name, current.dir) == ("t-0", tmp_path / "b" / "t-0")
    logs.close()
    again = loaded(tmp_path, assigned)
    assert where(again) == expected


@pytest.mark.parametrize("last_first", [False, True])
def test_a_log_beside_a_future_log_that_is_deleted_is_closed_with_its_producers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_first: bool
) -> None:
    """A power failure has undone the deletion of a future log, in the directory to which its
    replica has moved by another one."""
    begin(fresh(tmp_path), tmp_path / "b")
    move_back_beside_current(tmp_path)

    def ordered(directory: str) -> Listing:
        logs = list_logs(directory)
        return logs._replace(logs=sorted(logs.logs, reverse=last_first))

    monkeypatch.setattr("quorate.log.directories.manager.list_logs", ordered)
    logs = loaded(tmp_path, "a")
    log = logs.get("t", 0)
    assert log is not None
    first = put(log, b"w", producer_id=7, producer_epoch=0, base_sequence=0)
    logs.close()
    assert read_offsets(str(tmp_path / "a" / RECOVERY_POINTS)) == {("t", 0): 4}
    logs = loaded(tmp_path, "a")
    log = logs.get("t", 0)
    assert log is not None
    again = put(log, b"w", producer_id=7, producer_epoch=0, base_sequence=0)
    assert again.duplicate and again.first_offset == first.first_offset
    logs.delete("t", 0)
    assert len(logs) == 0


def test_a_log_beside_a_future_log_that_is_deleted_can_be_deleted(tmp_path: Path) -> None:
    begin(fresh(tmp_path), tmp_path / "b")
    move_back_beside_current(tmp_path)
    logs = loaded(tmp_path, "a")
    logs.delete("t", 0)
    assert len(logs) == 0


def test_the_future_log_of_a_deleted_topic_is_deleted(tmp_path: Path) -> None:
    begin(fresh(tmp_path), tmp_path / "b")
    logs = loaded(tmp_path, "b", stray=True)
    logs.delete_strays(lambda *_: True)
    assert where(logs) == (None, None)
    logs.scheduler.wait_idle()
    assert [name for name in names(tmp_path / "b") if name.endswith("-future")] == []


def test_the_future_log_of_an_earlier_topic_of_the_same_name_is_deleted(tmp_path: Path) -> None:
    before = fresh(tmp_path)
    begin(before, tmp_path / "b")
    before.delete("t", 0)
    before.scheduler.wait_idle()
    (future,) = (tmp_path / "b").glob("*-delete")
    future.rename(tmp_path / "b" / NEW_NAME)
    put(before.get_or_create("t", 0, OTHER_TOPIC, directory_id=DIRECTORY_IDS[0]), b"new")
    before.close()
    assert where(loaded(tmp_path, "a")) == ("a", None)


def test_a_future_log_replaces_the_current_one_with_its_epochs_and_watermark(tmp_path: Path) -> None:
    logs = fresh(tmp_path)
    current, future = begin(logs, tmp_path / "b", copied=3)
    current.epochs.assign(7, 3)  # a leader without records yet
    logs.futures.replace_current("t", 0, NOW)
    assert where(logs) == ("b", None) and logs.get("t", 0) is future
    assert (future.high_watermark, future.epochs.entries()) == (3, [(0, 0), (1, 1), (2, 2), (7, 3)])
    put(future, b"after", epoch=7)
    logs.scheduler.wait_idle()
    run_steps(logs.checkpoint_recovery_points())
    assert read_offsets(str(tmp_path / "b" / RECOVERY_POINTS)) == {("t", 0): 3}
    assert read_offsets(str(tmp_path / "a" / RECOVERY_POINTS)) == {}
    (left,) = (name for name in names(tmp_path / "a") if name.startswith("t-0"))
    assert left.endswith("-delete") and (tmp_path / "b" / "t-0").is_dir()
    logs.close()
    found = loaded(tmp_path, "b").get("t", 0)
    assert found is not None
    assert contents(found) == [(0, b"x"), (1, b"y"), (2, b"z"), (3, b"after")]


def test_the_old_log_stays_if_the_new_one_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = fresh(tmp_path)
    begin(logs, tmp_path / "b", copied=3)

    def refuse(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    logs.futures.replace_current("t", 0, NOW)
    logs.scheduler.wait_idle()
    assert [failure.directory for failure in logs.background_failures()] == [str(tmp_path / "b")]
    assert (tmp_path / "a" / "t-0").is_dir()


def test_a_future_log_that_cannot_be_renamed_changes_nothing(tmp_path: Path) -> None:
    logs = fresh(tmp_path)
    current, _ = begin(logs, tmp_path / "b", copied=3)
    (tmp_path / "b" / "t-0").write_text("in the way")
    with pytest.raises(LogDirFailure) as failed:
        logs.futures.replace_current("t", 0, NOW)
    assert failed.value.directory == str(tmp_path / "b")
    assert where(logs) == ("a", "b") and logs.get("t", 0) is current
    put(current, b"still served", epoch=3)


def test_the_checkpoints_of_an_earlier_log_in_the_target_do_not_count(tmp_path: Path) -> None:
    """A crash would otherwise take records of the future log as flushed, or as committed."""
    logs = fresh(tmp_path)
    earlier = logs.get_or_create("t", 0, OTHER_TOPIC, directory_id=DIRECTORY_IDS[1])
    for _ in range(9):
        put(earlier, b"old")
    earlier.high_watermark = 9
    earlier.flush()
    run_steps(logs.checkpoint_recovery_points())
    run_steps(logs.checkpoint_high_watermarks())
    logs.delete("t", 0)
    begin(logs, tmp_path / "b")
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        assert read_offsets(str(tmp_path / "b" / name)) == {}


def test_a_failed_directory_takes_its_future_logs_along(tmp_path: Path) -> None:
    logs = fresh(tmp_path)
    begin(logs, tmp_path / "b")
    assert logs.mark_offline(tmp_path / "b") == []
    assert where(logs) == ("a", None)
    assert logs.mark_offline(tmp_path / "a") == [("t", 0)]


def test_a_log_is_created_in_the_directory_that_was_asked_for_before(tmp_path: Path) -> None:
    logs = fresh(tmp_path)
    logs.futures.prefer("t", 0, tmp_path / "b")
    assert logs.get_or_create("t", 0, TOPIC_ID, directory_id=DIRECTORY_IDS[0]).dir.parent == tmp_path / "b"
    logs.delete("t", 0)
    assert logs.get_or_create("t", 0, TOPIC_ID, directory_id=DIRECTORY_IDS[0]).dir.parent == tmp_path / "a"
