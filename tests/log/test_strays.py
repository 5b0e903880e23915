"""Logs that the metadata does not assign to this broker, and two logs of one name."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from quorate.log.config import LogConfig
from quorate.log.directories.manager import LogManager
from quorate.log.errors import LogDirFailure
from quorate.log.files import OpenFiles

from .logs import DIRECTORY_IDS, NOW, TOPIC_ID, contents, manager, names, put


def test_strays_are_deleted(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    for partition in range(4):
        put(logs.get_or_create("t", partition, TOPIC_ID), b"a")
    assert (
        logs.delete_strays(lambda topic, partition, topic_id: partition % 2 == 0 and topic_id == TOPIC_ID)
        == 2
    )
    assert sorted(log.partition for log in logs.all_logs()) == [1, 3]


def test_a_stray_whose_name_is_assigned_to_this_broker_is_renamed_with_its_records(tmp_path: Path) -> None:
    """A flipped bit in partition.metadata makes a log a stray. Its records must not be lost."""
    logs = manager(tmp_path / "d", file_delete_delay_ms=0)
    logs.load()
    put(logs.get_or_create("t", 0, TOPIC_ID), b"a")
    assert logs.delete_strays(lambda *_: True, lambda topic, partition: (topic, partition) == ("t", 0)) == 1
    assert logs.get("t", 0) is None
    put(logs.get_or_create("t", 0, bytes(15) + b"\x09"), b"new")
    logs.close()
    (aside,) = [name for name in names(tmp_path / "d") if name.endswith("-stray")]
    assert aside.startswith("t-0.") and b"a" in (tmp_path / "d" / aside / f"{0:020d}.log").read_bytes()
    again = manager(tmp_path / "d", file_delete_delay_ms=0)
    assert again.load() == [] and len(again) == 1 and aside in names(tmp_path / "d")


def test_a_stray_that_cannot_be_renamed_does_not_keep_the_other_strays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory fails alone, as with any other error of a disk."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    logs = manager(good, bad)
    logs.load()
    for topic, directory in (("b", DIRECTORY_IDS[1]), ("b2", DIRECTORY_IDS[1]), ("g", DIRECTORY_IDS[0])):
        put(logs.get_or_create(topic, 0, TOPIC_ID, directory_id=directory), b"a")
    rename = os.rename

    def refuse(source: str, target: str) -> None:
        if source.startswith(str(bad)):
            raise OSError(errno.ENOSPC, "No space left on device", source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    failed: list[str] = []

    def fail(failure: LogDirFailure) -> None:
        failed.append(failure.directory)
        logs.mark_offline(Path(failure.directory))

    logs.delete_strays(lambda *_: True, lambda *_: True, fail)
    assert failed == [str(bad)]
    assert len(logs) == 0 and [name for name in names(good) if name.endswith("-stray")]


def test_a_partition_in_two_directories_is_refused_by_name(tmp_path: Path) -> None:
    for directory in ("a", "b"):
        logs = manager(tmp_path / directory)
        logs.load()
        put(logs.get_or_create("t", 0, TOPIC_ID), b"x")
        logs.close()
    logs = manager(tmp_path / "a", tmp_path / "b")
    failures = logs.load()
    assert len(failures) == 1 and "t-0 exists both in" in str(failures[0])
    assert logs.online_dirs() == [tmp_path / "a"]


@pytest.mark.parametrize("assigned", ["a", "b"])
def test_of_two_logs_of_a_replica_that_outside_of_its_assigned_directory_is_set_aside(
    tmp_path: Path, assigned: str
) -> None:
    """The other one is left from before its directory failed, and lacks what was written since."""
    for directory in ("a", "b"):
        logs = manager(tmp_path / directory)
        logs.load()
        put(logs.get_or_create("t", 0, TOPIC_ID), directory.encode())
        logs.close()
    ids = {tmp_path / "a": b"a" * 16, tmp_path / "b": b"b" * 16}
    both = LogManager(list(ids), LogConfig(), OpenFiles(64), now_ms=lambda: NOW, directory_ids=ids)
    wanted = assigned.encode() * 16
    assert both.load(is_stray=lambda *_: False, assigned_directory=lambda topic_id, partition: wanted) == []
    found = both.get("t", 0)
    assert found is not None and contents(found) == [(0, assigned.encode())]
    (other,) = {"a", "b"} - {assigned}
    assert [name for name in names(tmp_path / other) if name.endswith("-stray")]


def two_of_one_name(tmp_path: Path, torn: str, records: int = 1) -> LogManager:
    """A manager of two directories that both have a log of t-0. A power failure has torn the
    `partition.metadata` of those in `torn`."""
    for directory in ("a", "b"):
        logs = manager(tmp_path / directory)
        logs.load()
        log = logs.get_or_create("t", 0, TOPIC_ID)
        log.create_files()
        for _ in range(records):
            put(log, directory.encode())
        if directory in torn:
            os.truncate(log.dir / "partition.metadata", 0)
    ids = {tmp_path / "a": b"a" * 16, tmp_path / "b": b"b" * 16}
    return LogManager(list(ids), LogConfig(), OpenFiles(64), now_ms=lambda: NOW, directory_ids=ids)


@pytest.mark.parametrize("torn", ["a", "b"])
def test_of_two_logs_that_without_a_topic_id_is_set_aside(tmp_path: Path, torn: str) -> None:
    """A replica has moved. A power failure has undone the rename of its old log, and has lost the topic id of
    it, which was not durable yet."""
    (kept,) = {"a", "b"} - {torn}
    logs = two_of_one_name(tmp_path, torn)
    assert logs.load(is_stray=lambda *_: False, assigned_directory=lambda *_: kept.encode() * 16) == []
    found = logs.get("t", 0)
    assert found is not None and (found.topic_id, contents(found)) == (TOPIC_ID, [(0, kept.encode())])
    (aside,) = [path for path in (tmp_path / torn).iterdir() if path.name.endswith("-stray")]
    assert torn.encode() in (aside / f"{0:020d}.log").read_bytes()


def test_a_log_without_a_topic_id_in_the_assigned_directory_is_not_set_aside(tmp_path: Path) -> None:
    logs = two_of_one_name(tmp_path, "b")
    failures = logs.load(is_stray=lambda *_: False, assigned_directory=lambda *_: b"b" * 16)
    assert len(failures) == 1 and "t-0 exists both in" in str(failures[0])


@pytest.mark.parametrize("torn", ["a", "b", "ab"])
@pytest.mark.parametrize("assigned", ["a", "b"])
def test_of_two_logs_an_empty_one_without_a_topic_id_is_set_aside(
    tmp_path: Path, torn: str, assigned: str
) -> None:
    """Nothing of an empty log is durable before its first flush."""
    logs = two_of_one_name(tmp_path, torn, records=0)
    assert logs.load(is_stray=lambda *_: False, assigned_directory=lambda *_: assigned.encode() * 16) == []
    found = logs.get("t", 0)
    assert found is not None and found.topic_id == (None if torn == "ab" else TOPIC_ID)


@pytest.mark.parametrize("old", [0, 1])
@pytest.mark.parametrize("stop", ["stop", "kill"])
def test_the_log_of_an_earlier_topic_in_another_directory_is_renamed(
    tmp_path: Path, old: int, stop: str
) -> None:
    """Its directory was offline when the topic was deleted and created again."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    ids = {old: TOPIC_ID, 1 - old: bytes(15) + b"\x09"}
    for number, topic_id in ids.items():
        logs = manager(dirs[number])
        logs.load()
        put(logs.get_or_create("t", 0, topic_id), b"%d" % number)
        if stop == "stop":
            logs.close()
    logs = manager(*dirs)
    assert logs.load(is_stray=lambda _topic, _partition, topic_id: topic_id == TOPIC_ID) == []
    log = logs.get("t", 0)
    assert log is not None and log.dir.parent == dirs[1 - old] and log.topic_id == ids[1 - old]
    assert contents(log) == [(0, b"%d" % (1 - old))]
    (aside,) = [path for path in dirs[old].iterdir() if path.name.endswith("-stray")]
    assert b"%d" % old in (aside / f"{0:020d}.log").read_bytes()
    logs.close()
    again = manager(*dirs)
    assert again.load() == [] and len(again) == 1


@pytest.mark.parametrize("old", [0, 1])
def test_a_log_of_an_earlier_topic_that_cannot_be_renamed_takes_only_its_own_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: int
) -> None:
    dirs = [tmp_path / "a", tmp_path / "b"]
    for number, topic_id in {old: TOPIC_ID, 1 - old: bytes(15) + b"\x09"}.items():
        logs = manager(dirs[number])
        logs.load()
        put(logs.get_or_create("t", 0, topic_id), b"%d" % number)
        logs.close()

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", source)

    monkeypatch.setattr(os, "rename", refuse)
    logs = manager(*dirs)
    failures = logs.load(is_stray=lambda _topic, _partition, topic_id: topic_id == TOPIC_ID)
    assert [failure.directory for failure in failures] == [str(dirs[old])]
    assert logs.online_dirs() == [dirs[1 - old]]
    log = logs.get("t", 0)
    assert log is not None and contents(log) == [(0, b"%d" % (1 - old))]
