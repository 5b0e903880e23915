"""A controller with an empty disk joins a quorum under constant load: from a snapshot, then from the log
(KIP-630, KIP-853)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.e2e.membership import add, broker_of, controllers, described, stopping, voters
from tests.support.cluster import Node, wait_for
from tests.support.metadata_disk import differences, read_disk, same_metadata

pytestmark = pytest.mark.timeout(120)


class Creations:
    """Creates topics one after the other until it is stopped. `names` are those whose creation was
    answered."""

    def __init__(self, broker: Node) -> None:
        self.names: list[str] = []
        self.error: BaseException | None = None
        self._admin = broker.admin()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                wanted = [f"t{len(self.names) + i}" for i in range(5)]
                done = self._admin.create_topics(
                    [NewTopic(n, 4, 1, config={"retention.ms": "60000"}) for n in wanted]
                )
                for name in wanted:
                    done[name].result(20)
                self.names += wanted
        except BaseException as e:
            self.error = e

    def stop(self) -> list[str]:
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error
        return self.names


def end_of(node: Node) -> dict[int, int]:
    return {v.replica_id: v.log_end_offset for v in described(node).voters}


def test_a_new_controller_catches_up_from_a_snapshot_while_topics_are_created_and_becomes_a_voter(
    tmp_path: Path,
) -> None:
    nodes = controllers(tmp_path, 4, **{"metadata.log.max.record.bytes.between.snapshots": 10_000})
    old, new = nodes[:3], nodes[3]
    broker = broker_of(tmp_path, nodes)
    with stopping([*nodes, broker]):
        initial = ",".join(f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in old)
        for node in old:
            node.format("--initial-controllers", initial)
            node.start(wait=False)
        broker.format()
        broker.start()
        creations = Creations(broker)
        wait_for("two snapshots", lambda: creations.error or len(snapshots(old[0])) >= 2)
        new.format("--no-initial-controllers")
        new.start(wait=False)
        wait_for("a snapshot on the new disk", lambda: creations.error or snapshots(new))
        add(old[0], new)
        assert set(voters(old[0])) == {1, 2, 3, 4}
        before = len(creations.names)
        wait_for(
            "more topics under four voters", lambda: creations.error or len(creations.names) > before + 50
        )
        names = creations.stop()
        broker.stop()
        ends = wait_for(
            "all to have everything", lambda: (e := end_of(old[0])) and len(set(e.values())) == 1 and e, 20
        )
        assert isinstance(ends, dict)
        assert set(ends) == {1, 2, 3, 4}
        for node in nodes:
            assert node.stop() == 0
        disks = {node.node_id: read_disk(node.data) for node in nodes}
        end = min(disk.end for disk in disks.values())
        assert end + 1 >= ends[4]
        assert differences(disks, end) == []
        images = {i: disk.image_at(end) for i, disk in disks.items()}
        assert same_metadata(images.values()) == []
        assert set(images[4].topics.by_name) == set(names)
        assert disks[4].start > 0, "its log begins behind the snapshot that it fetched"
        assert "fetched, verified and durable" in (new.base / "out.log").read_text()


def snapshots(node: Node) -> list[Path]:
    return [
        p for p in (node.data / "__cluster_metadata-0").glob("*.checkpoint") if int(p.name.split("-")[0]) > 0
    ]
