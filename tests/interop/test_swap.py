"""Two implementations use one directory in turn: each serves everything that the other has written, and
changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import test_log_dir_moves as moves
from tests.support import java
from tests.support.cluster import Node, wait_for
from tests.support.ledger import CODECS, Ledger, read_partition

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]


def first_life(node: Node, ledger: Ledger) -> None:
    admin = node.admin()
    ledger.create(admin, "events", 3)
    ledger.create(admin, "settings", 1, **{"cleanup.policy": "compact"})
    ledger.create(admin, "doomed", 2)
    for codec in CODECS:
        ledger.produce(node.bootstrap, "events", 60, "first", codec)
    ledger.produce(node.bootstrap, "settings", 20, "first", **{"enable.idempotence": True})
    ledger.produce(node.bootstrap, "doomed", 4, "first")
    ledger.commit(node.bootstrap, "readers", "events", 300)
    ledger.set_config(admin, "events", "retention.ms", "86400000")


def second_life(node: Node, ledger: Ledger) -> None:
    admin = node.admin()
    ledger.verify(admin, node.bootstrap)
    ledger.delete(admin, "doomed")
    ledger.create(admin, "later", 2)
    ledger.add_partitions(admin, "events", 5)
    for codec in CODECS:
        ledger.produce(node.bootstrap, "events", 50, "second", codec, **{"enable.idempotence": True})
    ledger.produce(node.bootstrap, "later", 10, "second")
    ledger.set_config(admin, "events", "retention.ms", "172800000")
    ledger.commit(node.bootstrap, "readers", "events", 250)
    ledger.commit(node.bootstrap, "others", "later", 10)
    ledger.verify(admin, node.bootstrap)


def third_life(node: Node, ledger: Ledger) -> None:
    admin = node.admin()
    ledger.verify(admin, node.bootstrap)
    ledger.produce(node.bootstrap, "events", 50, "third", "zstd")
    ledger.commit(node.bootstrap, "readers", "events", 50)
    ledger.verify(admin, node.bootstrap)


OLD, NEW = java.VERSIONS
JAVA_FIRST, OURS_FIRST = ("java", "quorate", "java"), ("quorate", "java", "quorate")


@pytest.mark.parametrize(
    ("kafka", "order", "static"),
    [
        (OLD, JAVA_FIRST, False),
        (OLD, OURS_FIRST, False),
        (OLD, JAVA_FIRST, True),
        (OLD, OURS_FIRST, True),
        (NEW, JAVA_FIRST, False),
        (NEW, OURS_FIRST, True),
    ],
    ids=lambda value: " then ".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_directory_goes_from_one_implementation_to_the_other_and_back(
    tmp_path: Path, kafka: str, order: tuple[str, ...], static: bool
) -> None:
    java.require_java(kafka)
    ledger = Ledger()
    node = Node(tmp_path / "node", impl=order[0], static=static, kafka=kafka, release=kafka[:3])
    node.format()
    try:
        for impl, life in zip(order, (first_life, second_life, third_life), strict=True):
            node.impl = impl
            ledger.patience_s = 10 if impl == "java" else 0
            node.start()
            life(node, ledger)
            status = node.stop()
            assert status in (0, 143), f"{impl} ended with {status}"
    except BaseException:
        print(node.log_tail(80))
        raise
    finally:
        node.kill()


@pytest.mark.parametrize("order", [("quorate", "java"), ("java", "quorate")], ids=" then ".join)
def test_a_move_between_log_directories_is_continued_by_the_other_implementation(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    java.require_java(java.LATEST_VERSION)
    node = moves.two_directories(tmp_path, impl=order[0], kafka=java.LATEST_VERSION)
    node.format()
    try:
        node.start()
        values = moves.fill(node, 400)
        target = moves.other_directory(node)
        moves.reassign(node, target, "--execute", "--replica-alter-log-dirs-throttle", 100_000)
        wait_for("the first bytes", lambda: moves.copied(target) > 0)
        assert node.stop() in (0, 143)
        node.impl = order[1]
        node.start()
        assert moves.directories(node).future_path == str(target)
        moves.reassign(
            node, target, "--execute", "--additional", "--replica-alter-log-dirs-throttle", 1 << 40
        )
        wait_for("the move", lambda: moves.has_moved(node, target))
        assert read_partition(node.bootstrap, moves.TOPIC, 0) == values
        assert node.stop() in (0, 143)
    except BaseException:
        print(node.log_tail(80))
        raise
    finally:
        node.kill()
