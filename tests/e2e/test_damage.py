"""Damaged files, full and read-only disks: the node recovers as Kafka does, or reports an error that names
the file. It never returns wrong data."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.cluster import Node, wait_for
from tests.support.ledger import QUIET, Ledger


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Node, Ledger]:
    """A cleanly stopped directory with data, offsets and a metadata snapshot, copied by each test."""
    node, ledger = (
        Node(
            tmp_path_factory.mktemp("template") / "node",
            extra={"metadata.log.max.record.bytes.between.snapshots": 1500},
        ),
        Ledger(),
    )
    node.format()
    node.start()
    try:
        ledger.create(node.admin(), "events", 2)
        ledger.produce(node.bootstrap, "events", 400, "x", "none", **{"enable.idempotence": True})
        ledger.commit(node.bootstrap, "readers", "events", 400)
        for i in range(8):
            ledger.create(node.admin(), f"other{i}")
        assert node.stop() == 0
    finally:
        node.kill()
    return node, ledger


@pytest.fixture
def copy(template: tuple[Node, Ledger], tmp_path: Path):  # type: ignore[no-untyped-def]
    source, ledger = template
    node = Node(
        tmp_path / "node",
        extra=dict(source.extra),
        broker_port=source.broker_port,
        controller_port=source.controller_port,
    )
    shutil.copytree(source.data, node.data)
    yield node, ledger
    node.kill()


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0xFF
    path.write_bytes(raw)


def unclean(node: Node) -> None:
    """Removes the clean-shutdown marker, as after a kill. The next start then recovers the logs."""
    (node.data / ".kafka_cleanshutdown").unlink()


def one(node: Node, pattern: str) -> Path:
    return sorted(node.data.glob(pattern))[-1]


RECOVERED: list[tuple[str, Callable[[Node], None]]] = [
    (
        "an offset index",
        lambda n: [flip(p, 3) for p in n.data.glob("*/*.index") if p.stat().st_size] and None,
    ),
    (
        "a time index",
        lambda n: [flip(p, 9) for p in n.data.glob("*/*.timeindex") if p.stat().st_size] and None,
    ),
    (
        "indexes gone",
        lambda n: [p.unlink() for p in (*n.data.glob("*/*.index"), *n.data.glob("*/*.timeindex"))] and None,
    ),
    (
        "a producer snapshot",
        lambda n: [flip(p, p.stat().st_size - 1) for p in n.data.glob("events-*/*.snapshot")] and None,
    ),
    ("a torn data log tail", lambda n: one(n, "events-0/*.log").open("ab").write(b"\x00" * 37) and None),
    (
        "a torn metadata log tail",
        lambda n: one(n, "__cluster_metadata-0/*.log").open("ab").write(b"\x00\x01" * 20) and None,
    ),
    (
        "a left-over snapshot part",
        lambda n: (
            (
                n.data / "__cluster_metadata-0" / "00000000000000009999-0000000001-7.checkpoint.part"
            ).write_bytes(b"x")
            and None
        ),
    ),
    ("checkpoint files gone", lambda n: [p.unlink() for p in n.data.glob("*-offset-checkpoint")] and None),
]


@pytest.mark.parametrize("damage", [d for _, d in RECOVERED], ids=[i for i, _ in RECOVERED])
def test_files_that_can_be_rebuilt_are_rebuilt(
    copy: tuple[Node, Ledger], damage: Callable[[Node], None]
) -> None:
    node, ledger = copy
    damage(node)
    unclean(node)
    node.start()
    ledger.verify(node.admin(), node.bootstrap)
    assert node.stop() == 0


REFUSED: list[tuple[str, Callable[[Node], Path]]] = [
    ("quorum-state", lambda n: n.data / "__cluster_metadata-0" / "quorum-state"),
    ("meta.properties", lambda n: n.data / "meta.properties"),
    ("a metadata snapshot", lambda n: one(n, "__cluster_metadata-0/*[1-9]*-*.checkpoint")),
    ("partition.metadata", lambda n: n.data / "events-0" / "partition.metadata"),
]


@pytest.mark.parametrize("target", [t for _, t in REFUSED], ids=[i for i, _ in REFUSED])
def test_damage_that_cannot_be_repaired_is_refused_and_the_file_is_named(
    copy: tuple[Node, Ledger], target: Callable[[Node], Path]
) -> None:
    node, _ = copy
    path = target(node)
    flip(path, min(30, path.stat().st_size - 1))
    node.start(wait=False)
    assert node.proc is not None
    wait_for(
        "the node to name the damaged file",
        lambda: path.name in node.log_tail(200) or path.parent.name in node.log_tail(200),
        20,
    )
    assert "Traceback" not in node.log_tail(200)
    if path.parent.name == "__cluster_metadata-0":
        wait_for("the node to say what to do", lambda: "only voter" in node.log_tail(200), 20)


def test_a_flipped_byte_in_a_committed_batch_is_detected_by_clients(copy: tuple[Node, Ledger]) -> None:
    from confluent_kafka import Consumer, TopicPartition

    node, ledger = copy
    path = one(node, "events-0/*.log")
    flip(path, path.stat().st_size // 2)
    node.start()
    c = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "r",
            "check.crcs": True,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    c.assign([TopicPartition("events", 0, 0)])
    want = ledger.records["events", 0]
    got, polls = [], 0
    while polls < 30:
        polls += 1
        ms = c.consume(500, 0.3)
        if any(m.error() for m in ms):
            break
        got += [m.value() for m in ms]
    c.close()
    assert len(got) < len(want) and got == want[: len(got)]


def test_a_flipped_byte_in_the_metadata_log_stops_the_node_with_the_reason(copy: tuple[Node, Ledger]) -> None:
    node, _ = copy
    path = one(node, "__cluster_metadata-0/*.log")
    flip(path, 150)
    for p in node.data.glob("__cluster_metadata-0/*[1-9]*-*.checkpoint"):
        p.unlink()
    node.start(wait=False)
    assert node.proc is not None
    wait_for("the node to end", lambda: node.proc.poll() is not None or "RUNNING" in node.log_tail(200), 30)
    assert node.proc.poll(), node.log_tail(200)
    assert path.name in node.log_tail(200) and "Traceback" not in node.log_tail(200)


def test_an_unwritable_directory_is_refused_by_name(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    node.format()
    lock = node.data / ".lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()  # root writes everywhere: a directory in the place of the file is what refuses it
    node.start(wait=False)
    assert node.proc is not None and node.proc.wait(20) != 0
    assert str(node.data) in node.log_tail() and "Traceback" not in node.log_tail()


@pytest.fixture
def small_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A file system of 24 MB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)], check=False, capture_output=True
    ).returncode:
        pytest.skip("mounting a small file system needs root")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=False)


def test_a_full_disk_refuses_writes_and_loses_nothing_acknowledged(small_disk: Path, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    node = Node(tmp_path / "node", extra={"log.dirs": small_disk / "data", "log.segment.bytes": 1 << 20})
    node.format("--standalone")
    got: dict[int, bytes] = {}
    try:
        node.start()
        admin = node.admin()
        Ledger().create(admin, "fill", 1)
        p = Producer(
            {"bootstrap.servers": node.bootstrap, "message.timeout.ms": 1500, "log_level": 0, "linger.ms": 5}
        )
        failed = []
        for i in range(60_000):
            p.produce(
                "fill",
                b"%d" % i + b"x" * 1000,
                on_delivery=lambda e, m: failed.append(e) if e else got.__setitem__(m.offset(), m.value()),
            )
            p.poll(0)
            if len(failed) > 20:
                break
            if i % 2000 == 0:
                p.flush(5)
        p.flush(5)
        assert failed, "the disk never filled"
        assert got
        node.kill()
        (small_disk / "ballast").unlink(missing_ok=True)
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        node.start()
        from tests.support.ledger import read_partition

        there = read_partition(node.bootstrap, "fill", 0)
        assert all(there[o] == v for o, v in got.items())
    except BaseException:
        print(node.log_tail())
        raise
    finally:
        node.kill()


def test_a_node_starts_after_one_damaged_batch_was_read(tmp_path: Path) -> None:
    """The records after the batch stay readable, and after the clean stop the log can be opened."""
    node = Node(tmp_path / "node")
    node.format()
    node.start()
    try:
        ledger = Ledger()
        ledger.create(node.admin(), "events", 1)
        ledger.produce(node.bootstrap, "events", 120, "x" * 1000, "none", **{"batch.num.messages": 1})
        log = node.data / "events-0" / "00000000000000000000.log"
        flip(log, _position(log, 40) + 16)  # the magic byte
        assert not read_at(node, 40)
        assert read_at(node, 90)
        assert node.stop() == 0
        node.start()
        assert read_at(node, 90)
    finally:
        node.kill()


def _position(log: Path, offset: int) -> int:
    data, position = log.read_bytes(), 0
    while int.from_bytes(data[position : position + 8], "big") < offset:
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return position


def read_at(node: Node, offset: int) -> bool:
    """Whether a consumer gets the record at this offset."""
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "x", "auto.offset.reset": "error", **QUIET}
    )
    try:
        consumer.assign([TopicPartition("events", 0, offset)])
        found = consumer.consume(1, 20)
        return bool(found) and found[0].error() is None and found[0].offset() == offset
    finally:
        consumer.close()
