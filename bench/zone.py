"""A zone of 10 among 30 brokers is lost: what the active controller spends on fencing them.

    python -m bench.zone                         # a million partitions
    python -m bench.zone --partitions 100000

Three racks of ten brokers, replication factor 3 with one replica in each rack, a third of the
leaderships in each. The sessions of one rack end at once. The controller is the real one on a log
in memory that commits each portion at once (`tests.controller.support`), so the figures are its CPU
time: from the decision to the bytes for the log and the new image. The longest turn is that of one
portion. A broker or standby replays the same records in steps. Both begin with an image of their
own, so that what they replace is freed, as in a node, and the garbage collector has the settings of
a node. The longest collection of garbage is a part of the turn in which it happens. Result:
bench/results/zone.json.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

from bench.result import single_run
from quorate.metadata.framing import encode_record
from quorate.metadata.image import MetadataImage
from quorate.metadata.loader import apply_steps, load_snapshot
from quorate.metadata.records import FeatureLevelRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from quorate.node.process_setup import enable_garbage_collection
from quorate.raft.types import CommittedBatch
from tests.controller.support import FakeLog, FakeRaft, Harness

HERE = Path(__file__).resolve().parent
BROKERS, RACKS = 30, 3
PARTITIONS_EACH = 20
BATCH_RECORDS = 1024
LOST = range(0, BROKERS, RACKS)


def values(partitions: int, brokers: int, racks: int) -> Iterator[bytes]:
    """The records of a cluster; always the same. Each partition has its three replicas in different racks."""
    r = random.Random(42)
    directories = [b"\x01" + r.randbytes(15) for _ in range(brokers)]
    yield encode_record(FeatureLevelRecord(name="metadata.version", feature_level=25), 0)
    feature = RegisterBrokerRecord.BrokerFeature(
        name="metadata.version", min_supported_version=7, max_supported_version=27
    )
    for i in range(brokers):
        broker = RegisterBrokerRecord(
            broker_id=i, incarnation_id=r.randbytes(16), broker_epoch=i + 1, fenced=False,
            rack=f"rack-{i % racks}", features=[feature], log_dirs=[directories[i]],
        )  # fmt: skip
        yield encode_record(broker, 3)
    for t in range(partitions // PARTITIONS_EACH):
        topic_id = b"\x01" + r.randbytes(15)
        yield encode_record(TopicRecord(name=f"topic-{t}", topic_id=topic_id), 0)
        for p in range(PARTITIONS_EACH):
            first = r.randrange(racks)
            on = [racks * r.randrange(brokers // racks) + (first + k) % racks for k in range(3)]
            partition = PartitionRecord(
                partition_id=p, topic_id=topic_id, replicas=on, isr=on, leader=on[0],
                leader_epoch=r.randrange(100), partition_epoch=r.randrange(1000),
            )  # fmt: skip
            partition.directories = [directories[i] for i in on]
            yield encode_record(partition, 1)


def batches_of(partitions: int, brokers: int, racks: int) -> list[CommittedBatch]:
    found = list(values(partitions, brokers, racks))
    return [
        CommittedBatch(at, min(at + BATCH_RECORDS, len(found)) - 1, 1, 0, found[at : at + BATCH_RECORDS], 0)
        for at in range(0, len(found), BATCH_RECORDS)
    ]


def cluster_image(partitions: int, brokers: int = BROKERS, racks: int = RACKS) -> MetadataImage:
    """The image of the cluster, which nobody else holds."""
    loaded = batches_of(partitions, brokers, racks)
    image = load_snapshot(loaded[-1].last_offset + 1, 1, loaded)
    del loaded
    gc.collect()
    enable_garbage_collection()
    return image


class Collections:
    """The CPU times of the collections of garbage, s."""

    def __init__(self) -> None:
        self.took = [0.0]
        self._began = 0.0

    def __call__(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.took.append(time.thread_time() - self._began)


async def lose_zone(image: MetadataImage) -> tuple[dict[str, float], list[CommittedBatch]]:
    """The figures of the controller, and the batches that it wrote."""
    log = FakeLog()
    log.end = image.provenance.offset + 1
    raft = FakeRaft(log=log)
    raft.delivered = log.end
    h = Harness(raft)
    state = h.controller.state
    await h.controller.start(timers=False)
    state.image, state.committed_offset = image, log.end - 1
    raft.become_leader(1)
    raft.commit()
    log.batches.clear()
    sessions = state.broker_sessions
    for broker_id in LOST:
        sessions.end(broker_id, broker_id + 1, h.clock.seconds)
    h.controller.tasks.reschedule_fencing(h.clock.seconds)
    written: list[CommittedBatch] = []
    before, led, turns = log.end, 0.0, [0.0]
    moved = sum(image.topics.leader_count(broker_id) for broker_id in LOST)
    del image
    collections = Collections()
    gc.callbacks.append(collections)
    while not all(state.image.cluster.brokers[broker_id].fenced for broker_id in LOST):
        h.clock.seconds += 0.002
        for broker_id in set(range(BROKERS)) - set(LOST):
            sessions.contact(broker_id, broker_id + 1, h.clock.seconds)
        began = time.thread_time()
        h.controller.run_due()
        raft.commit()
        turns.append(time.thread_time() - began)
        written += log.batches
        log.batches.clear()
        if not led and not any(state.image.topics.leads_any(broker_id) for broker_id in LOST):
            led = sum(turns)
    gc.callbacks.remove(collections)
    turns.sort()
    assert state.image.topics.leader_count(-1) == 0
    figures = {
        "leaderships": moved,
        "changes": log.end - before - len(LOST),
        "leaderships_moved_cpu_s": round(led, 2),
        "fenced_cpu_s": round(sum(turns), 2),
        "longest_turn_ms": round(turns[-1] * 1000, 1),
        "turn_p99_ms": round(turns[int(len(turns) * 0.99)] * 1000, 1),
        "collections_cpu_s": round(sum(collections.took), 2),
        "longest_collection_ms": round(max(collections.took) * 1000, 1),
    }
    return figures, written


def replay(image: MetadataImage, written: list[CommittedBatch]) -> dict[str, float]:
    """The CPU time of a standby or a broker that replays these batches in steps, 256 KB in one delivery."""
    steps = [0.0]
    for at in range(0, len(written), 8):
        running = apply_steps(image, written[at : at + 8])
        while True:
            began = time.thread_time()
            try:
                next(running)
            except StopIteration as end:
                image = end.value
                break
            finally:
                steps.append(time.thread_time() - began)
    return {"replay_cpu_s": round(sum(steps), 2), "replay_longest_step_ms": round(max(steps) * 1000, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--no-result", action="store_true", help="print only")
    args = parser.parse_args()
    figures, written = asyncio.run(lose_zone(cluster_image(args.partitions)))
    figures |= replay(cluster_image(args.partitions), written)
    print(json.dumps(figures, indent=1))
    if not args.no_result:
        result = single_run("zone", args.partitions, figures)
        (HERE / "results" / "zone.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
