"""One metadata quorum of Apache Kafka's controllers and ours: they vote for, follow and replace one
another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import java
from tests.support.cluster import wait_for
from tests.support.metadata_disk import FOLDER
from tests.support.mixed import MixedQuorum

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

OLD, NEW = java.VERSIONS
SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": 3000}


def cases(*implementations: str, newest: tuple[str, bool]) -> list[tuple[str, str, bool]]:
    """The oldest release with each of the implementations, dynamic and static, and the newest with one."""
    old = [(OLD, each, static) for each in implementations for static in (False, True)]
    return [*old, (NEW, *newest)]


@pytest.mark.parametrize(("kafka", "implementations", "static"), cases("qqj", "qjj", newest=("qjj", False)))
def test_elections_by_kill_and_by_shutdown_of_each_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kafka: str, implementations: str, static: bool
) -> None:
    quorum = MixedQuorum(tmp_path, implementations, static, kafka=kafka)
    quorum.format()
    topics = []
    with quorum.killed_at_the_end():
        quorum.start()
        for kind, by in (
            ("quorate", "shutdown"),
            ("java", "shutdown"),
            ("java", "kill"),
            ("quorate", "kill"),
        ):
            quorum.whole()
            led = quorum.lead(kind)
            topics += [f"before-{by}-of-{kind}", f"after-{by}-of-{kind}"]
            quorum.create(topics[-2])
            if by == "kill":
                led.kill()
            else:
                led.stop()
            quorum.create(topics[-1])
            led.start(wait=False)
        quorum.whole()
    quorum.disks_agree(topics)
    quorum.dumps_agree(lambda: capsys.readouterr().out)


@pytest.mark.parametrize(("kafka", "implementations", "static"), cases("qqj", "jjq", newest=("jjq", True)))
def test_a_new_replica_loads_the_snapshot_of_the_other_implementation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kafka: str, implementations: str, static: bool
) -> None:
    """Controller 3 of one implementation starts late and must load a snapshot that the other implementation
    has written."""
    quorum = MixedQuorum(tmp_path, implementations, static, extra=dict(SMALL_SNAPSHOTS), kafka=kafka)
    quorum.format()
    late = quorum.controller(3)
    topics = [f"topic-{i}" for i in range(40)]
    with quorum.killed_at_the_end():
        quorum.start(without=[late])
        for topic in topics:
            quorum.create(topic)
        folders = [c.data / FOLDER for c in quorum.controllers[:2]]
        wait_for("snapshots", lambda: all(len(list(f.glob("*.checkpoint"))) > 1 for f in folders), 30)
        late.start()
        quorum.whole()
        names = [p.name for p in (late.data / FOLDER).glob("*.checkpoint")]
        assert any(not name.startswith("0" * 20) for name in names)
        assert min((late.data / FOLDER).glob("*.log")).name != f"{0:020d}.log"
        quorum.create("afterwards")
        quorum.whole()
    quorum.disks_agree([*topics, "afterwards"])
    quorum.dumps_agree(lambda: capsys.readouterr().out)
