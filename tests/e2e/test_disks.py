"""Disks that are full, fail or become read-only. A failure of the metadata directory stops the node; a
failure of a data directory takes its replicas offline. No acknowledged record is lost, and the log names the
failed directory."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

from tests.support.cluster import Node, free_ports, running, wait_for
from tests.support.disk import Disk
from tests.support.ledger import QUIET, read_partition

pytestmark = pytest.mark.timeout(120)

BREAK = {"full": Disk.fill, "failed": Disk.fail, "read-only": Disk.make_read_only}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk")
    yield disk
    disk.close()


def create(node: Node, *names: str) -> set[str]:
    """Creates topics. Returns those that were acknowledged."""
    done = set()
    admin = node.admin()
    for name, future in admin.create_topics([NewTopic(n, 1, 1) for n in names], request_timeout=3).items():
        try:
            future.result()
            done.add(name)
        except KafkaException:
            pass
    return done


def produce(node: Node, topic: str, count: int, size: int = 100) -> dict[int, bytes]:
    """Produces records. Returns the acknowledged ones by offset."""
    acknowledged: dict[int, bytes] = {}
    p = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 1500, "linger.ms": 2, **QUIET})
    for i in range(count):
        p.produce(
            topic,
            b"%d" % i * (size // 4),
            partition=0,
            on_delivery=lambda e, m: None if e else acknowledged.__setitem__(m.offset(), m.value()),
        )
        p.poll(0)
    p.flush(10)
    return acknowledged


def complaints(node: Node) -> str:
    log = node.log_tail(2000)
    assert "Traceback" not in log, log
    return "\n".join(line for line in log.splitlines() if " ERROR " in line or " FATAL " in line)


@pytest.mark.parametrize("how", BREAK)
def test_a_failed_metadata_directory_stops_the_node_and_keeps_acknowledged_changes(
    disk: Disk, tmp_path: Path, how: str
) -> None:
    metadata = disk.path / "metadata"
    node = Node(tmp_path / "node", extra={"log.dirs": tmp_path / "data", "metadata.log.dir": metadata})
    node.format()
    try:
        node.start()
        created = create(node, *(f"before-{i}" for i in range(20)))
        assert len(created) == 20
        BREAK[how](disk)
        for i in range(400):  # a full disk still has room in blocks that are partly used
            if node.proc is None or node.proc.poll() is not None:
                break
            done = create(node, *(f"{'x' * 200}-{i}-{k}" for k in range(10)))
            created |= done
            if not done:
                break
        assert node.proc is not None and node.proc.wait(10) == 1
        assert str(metadata) in complaints(node)
        (node.base / "out.log").unlink()
        node.start(wait=False)
        assert node.proc.wait(20) == 1 and str(metadata) in complaints(node)
        if how == "full":
            disk.free()
        else:
            disk.replug()
        node.start()
        assert created <= set(node.admin().list_topics(timeout=20).topics)
        assert node.stop() == 0
    except BaseException:
        print(node.log_tail())
        raise
    finally:
        node.kill()


@pytest.mark.parametrize("how", BREAK)
def test_a_failed_data_directory_takes_only_its_replicas_offline(
    disk: Disk, tmp_path: Path, how: str
) -> None:
    good, bad = tmp_path / "good", disk.path / "bad"
    node = Node(tmp_path / "node", extra={"log.dirs": f"{good},{bad}"})
    node.format()
    try:
        node.start()
        names = [f"t{i}" for i in range(6)]
        assert create(node, *names) == set(names)
        held = {n: produce(node, n, 20) for n in names}
        assert all(len(h) == 20 for h in held.values())
        there = [n for n in names if (bad / f"{n}-0").is_dir()]
        here = [n for n in names if (good / f"{n}-0").is_dir()]
        assert there and here and len(there) + len(here) == 6
        if how == "full":
            disk.fill()
            for n in there:
                held[n] |= produce(node, n, 2000, 4000)
        else:
            BREAK[how](disk)
            assert not produce(node, there[0], 1)

        def leaders() -> dict[str, int]:
            return {
                n: t.partitions[0].leader
                for n, t in node.admin().list_topics(timeout=5).topics.items()
                if n in names
            }

        wait_for(
            "the metadata to say so",
            lambda: leaders() == dict.fromkeys(there, -1) | dict.fromkeys(here, 1),
            10,
        )
        for n in here:
            held[n] |= produce(node, n, 20)
        assert create(node, "new") == {"new"} and len(produce(node, "new", 5)) == 5
        assert (good / "new-0").is_dir()
        assert not produce(node, there[0], 1)
        assert node.stop() == 0
        assert str(bad) in complaints(node)

        node.start()
        if how == "full":  # it can be read again
            disk.free()
        else:
            assert leaders() == dict.fromkeys(there, -1) | dict.fromkeys(here, 1)
            assert str(bad) in complaints(node)
            assert not produce(node, there[0], 1) and not (good / f"{there[0]}-0").exists()
        for n in here:
            assert read_partition(node.bootstrap, n, 0) == [v for _, v in sorted(held[n].items())]
        assert node.stop() == 0

        if how != "full":
            disk.replug()
        node.start()
        wait_for("all to be led", lambda: leaders() == dict.fromkeys(names, 1), 10)
        for n in (
            names if how == "full" else here
        ):  # what was not synced is gone with a failed disk: other replicas are for that
            found = read_partition(node.bootstrap, n, 0)
            assert all(found[offset] == value for offset, value in held[n].items())
        assert all(len(produce(node, n, 3)) == 3 for n in names)
        assert node.stop() == 0
    except BaseException:
        print(node.log_tail())
        raise
    finally:
        node.kill()


def test_the_last_data_directory_that_fails_stops_a_broker(disk: Disk, tmp_path: Path) -> None:
    bad = disk.path / "bad"
    node = Node(tmp_path / "node", extra={"log.dirs": bad, "metadata.log.dir": tmp_path / "metadata"})
    node.format()
    try:
        node.start()
        assert create(node, "t") == {"t"} and len(produce(node, "t", 5)) == 5
        disk.fail()
        assert not produce(node, "t", 1)
        assert node.proc is not None and node.proc.wait(20) == 1
        assert str(bad) in complaints(node)
        (node.base / "out.log").unlink()
        node.start(wait=False)
        assert node.proc.wait(20) == 1 and str(bad) in complaints(node)
    finally:
        node.kill()


@pytest.mark.parametrize("stop", ["stop", "kill"])
def test_a_disk_that_returns_with_the_log_of_an_earlier_topic_takes_no_other_disk_offline(
    disk: Disk, tmp_path: Path, stop: str
) -> None:
    """The topic was deleted and created again while the disk was offline. The log of the new topic is on the
    other disk."""
    here, there = tmp_path / "here", disk.path / "there"
    node = Node(
        tmp_path / "node", extra={"log.dirs": f"{there},{here}", "metadata.log.dir": tmp_path / "metadata"}
    )
    node.format()
    try:
        node.start()
        names = ["a", "b"]  # one in each directory
        assert create(node, *names) == set(names)
        for name in names:
            assert len(produce(node, name, 3)) == 3
        (topic,) = [name for name in names if (there / f"{name}-0").exists()]
        subprocess.run(["sync", "-f", str(there)], check=True)
        disk.fail()
        assert not produce(node, topic, 1)
        admin = node.admin()
        next(iter(admin.delete_topics([topic], operation_timeout=20).values())).result(30)
        assert create(node, topic) == {topic}
        kept = produce(node, topic, 5)
        assert len(kept) == 5 and (here / f"{topic}-0").exists()
        if stop == "stop":
            assert node.stop() == 0
        else:
            node.kill()
        disk.replug()
        assert (there / f"{topic}-0").exists()
        node.start()
        assert read_partition(node.bootstrap, topic, 0) == [kept[offset] for offset in sorted(kept)]
        assert [
            path.name.endswith("-stray") for path in there.iterdir() if path.name.startswith(f"{topic}-0")
        ] == [True]
        assert node.stop() == 0
    finally:
        node.kill()


@pytest.mark.parametrize("release", [None, "3.6"])
@pytest.mark.parametrize("broken", ["log", "directory"])
def test_a_partition_waits_for_its_directory_and_is_not_created_again_in_another(
    tmp_path: Path, broken: str, release: str | None
) -> None:
    """The directory, or one log in it, cannot be read at a start. The metadata directory is a third one. In
    release 3.6 the metadata does not say in which directory a replica is."""
    dirs = [tmp_path / "first", tmp_path / "second"]
    extra = {"log.dirs": ",".join(map(str, dirs)), "metadata.log.dir": tmp_path / "metadata"}
    node = Node(tmp_path / "node", extra=extra, release=release, static=release is not None)
    node.format()
    try:
        node.start()
        names = ["a", "b"]  # one in each directory
        assert create(node, *names) == set(names)
        kept = {name: produce(node, name, 5) for name in names}
        assert [len(records) for records in kept.values()] == [5, 5]
        (away,) = [name for name in names if (dirs[1] / f"{name}-0").exists()]
        (here,) = {*names} - {away}
        assert node.stop() == 0
        file = dirs[1] / ("meta.properties" if broken == "directory" else f"{away}-0/partition.metadata")
        content = file.read_text()
        file.unlink()
        if broken == "directory":
            file.mkdir()
        else:
            file.write_text("nonsense")
        for _ in range(2):
            node.start()
            assert read_partition(node.bootstrap, here, 0) == list(kept[here].values())
            assert not produce(node, away, 1)
            assert node.stop() == 0
            assert not (dirs[0] / f"{away}-0").exists()
        if broken == "directory":
            file.rmdir()
        file.write_text(content)
        node.start()
        for name in names:
            assert read_partition(node.bootstrap, name, 0) == list(kept[name].values())
    finally:
        node.kill()


def test_a_stray_log_that_cannot_be_renamed_takes_only_its_directory_offline(tmp_path: Path) -> None:
    """The name of the log is assigned to this broker, but the log belongs to another topic."""
    dirs = [tmp_path / "first", tmp_path / "second"]
    extra = {"log.dirs": ",".join(map(str, dirs)), "metadata.log.dir": tmp_path / "metadata"}
    node = Node(tmp_path / "node", extra=extra)
    node.format()
    try:
        node.start()
        names = ["a", "b"]  # one in each directory
        assert create(node, *names) == set(names)
        kept = {name: produce(node, name, 5) for name in names}
        (away,) = [name for name in names if (dirs[1] / f"{name}-0").exists()]
        (here,) = {*names} - {away}
        assert node.stop() == 0
        log = dirs[1] / f"{away}-0"
        (log / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        if subprocess.run(["chattr", "+i", str(log)], check=False, capture_output=True).returncode:
            pytest.skip("a directory that cannot be renamed needs root and chattr")
        try:
            node.start()
            assert read_partition(node.bootstrap, here, 0) == list(kept[here].values())
            assert str(dirs[1]) in complaints(node) and not produce(node, away, 1)
            assert node.stop() == 0
        finally:
            subprocess.run(["chattr", "-i", str(log)], check=True)
    finally:
        node.kill()


def test_a_new_follower_goes_to_another_directory_if_the_first_choice_has_failed(tmp_path: Path) -> None:
    """Nobody has noticed the failure, because the directory has no logs yet."""
    (port,) = free_ports(1)
    voters = {"static": True, "voters": {1: port}}
    first, second = tmp_path / "first", tmp_path / "second"
    leader = Node(tmp_path / "leader", controller_port=port, **voters)
    extra = {"log.dirs": f"{first},{second}", "metadata.log.dir": tmp_path / "follower" / "data"}
    follower = Node(tmp_path / "follower", node_id=2, roles="broker", extra=extra, **voters)
    with running(leader), running(follower):
        shutil.rmtree(first)
        first.write_text("no directory any more")
        new = NewTopic("t", 1, replica_assignment=[[1, 2]])
        admin = leader.admin()
        admin.create_topics([new], request_timeout=30)["t"].result()
        wait_for("an acknowledged record", lambda: produce(leader, "t", 1), 60)
        wait_for("the follower to copy", lambda: any(p.stat().st_size for p in second.glob("t-0/*.log")))
        assert follower.proc is not None and follower.proc.poll() is None
        assert str(first) in follower.log_tail(200)
