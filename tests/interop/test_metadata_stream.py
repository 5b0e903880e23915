"""The stream of a quorum of Java controllers, and the same cluster's directory."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.pipeline.live.offsets import Start
from quorate.pipeline.live.tail import QuorumTail
from tests.pipeline.conftest import all_rows
from tests.pipeline.test_live import offsets, step
from tests.support import java
from tests.support.cluster import Node, running, wait_for

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]

SNAPSHOTS: dict[str, object] = {"metadata.log.max.record.bytes.between.snapshots": 1000}


def test_the_stream_of_a_java_quorum_has_the_rows_of_its_directory(tmp_path: Path) -> None:
    java.require_java()
    with running(Node(tmp_path / "java", impl="java", extra=SNAPSHOTS)) as node:
        controllers = f"127.0.0.1:{node.controller_port}"
        log = node.data / "__cluster_metadata-0"
        with closing(QuorumTail(controllers, {}, 10)) as tail:
            position, rows = step(tail, tail.first(Start.EARLIEST), controllers=controllers)
            wait_for("a snapshot", lambda: [path for path in log.glob("*.checkpoint") if int(path.stem[:20])])
            java.run(
                "org.apache.kafka.tools.TopicCommand",
                "--bootstrap-server", node.bootstrap, "--create", "--topic", "orders", "--partitions", 3,
            )  # fmt: skip

            def found() -> bool:
                nonlocal position
                position, more = step(tail, position, controllers=controllers)
                rows.extend(more)
                return sum(row["type"] == "PARTITION_RECORD" for row in rows) == 3

            wait_for("the topic", found)
            again, all_at_once = step(tail, tail.first(Start.EARLIEST), controllers=controllers)
    on_disk = [row | {"committed": True} for row in all_rows(log) if row["snapshot"] is None]
    assert rows == on_disk[: position.offset]
    # A controller of 4.4 offers its snapshot to who fetches from offset 0, although its log is complete.
    assert offsets(all_at_once) in (list(range(again.offset)), list(range(1, again.offset)))
    assert all_at_once == on_disk[all_at_once[0]["offset"] : again.offset]
