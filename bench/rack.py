"""A rack of 19 among 95 brokers is rolled, lost and started again: what the active controller spends.

    python -m bench.rack                         # 200,000 partitions in five racks
    python -m bench.rack --partitions 20000

The controller is the real one on a log in memory (`tests.controller.support`), on virtual time. The
brokers are simulated: they send the requests that brokers send, each with a heartbeat a second. A
broker that is rolled asks for a controlled shutdown until it may stop, registers again after a
clean stop and is unfenced, and the leaders of its partitions take it back into the ISR, by up to
1,000 partitions in a request. A preferred election gives the leaderships back. Then the sessions of
the whole rack end at once, and the rack comes back after unclean stops. Figures are CPU times of
the controller from the request to the bytes for the log and the new image. Result:
bench/results/rack.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.result import single_run
from bench.zone import cluster_image
from quorate.metadata.features import supported_features
from quorate.metadata.image import MetadataImage
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.alter_partition import AlterPartitionRequest
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest
from quorate.protocol.schema import Request
from tests.controller.support import FakeLog, FakeRaft, Harness, make_config

HERE = Path(__file__).resolve().parent
BROKERS, RACKS = 95, 5
RACK = range(0, BROKERS, RACKS)
MOST_PARTITIONS = 1000
"""Partitions in one AlterPartition. A broker gathers the changes of a few milliseconds."""


class Cluster:
    """The active controller and what the brokers know."""

    def __init__(self, image: MetadataImage) -> None:
        self.log = FakeLog()
        self.log.end = image.provenance.offset + 1
        self.raft = FakeRaft(log=self.log)
        self.raft.delivered = self.log.end
        self.harness = Harness(self.raft)
        self.state = self.harness.controller.state
        self.cluster_id = make_config().cluster_id
        self.state.image, self.state.committed_offset = image, self.log.end - 1
        self.epochs = {broker.id: broker.epoch for broker in image.cluster.brokers.values()}
        self.running = set(self.epochs)
        self.records = 0
        self.turns: list[float] = []

    async def start(self) -> None:
        await self.harness.controller.start(timers=False)
        self.raft.become_leader(1)
        self._commit()
        self.heartbeats()

    @property
    def image(self) -> MetadataImage:
        return self.state.image

    def _commit(self) -> None:
        self.raft.commit()
        self.records += sum(len(batch.values) for batch in self.log.batches)
        self.log.batches.clear()

    def turn(self, began: float | None = None) -> None:
        """What the controller does when its timers are due.

        Adds its CPU time, since `began` if it is given.
        """
        began = time.thread_time() if began is None else began
        self.harness.controller.run_due()
        self._commit()
        self.turns.append(time.thread_time() - began)

    async def ask(self, request: Request) -> Any:
        """Returns the response to a request of a broker. Adds the CPU time of each turn that it takes."""
        began = time.thread_time()
        outcome = self.harness.send(request)
        self._commit()
        self.turns.append(time.thread_time() - began)
        while isinstance(outcome, asyncio.Future) and not outcome.done():
            began = time.thread_time()
            await asyncio.sleep(0)  # the controller's tasks prepare large changes
            self.turn(began)
        return await outcome if isinstance(outcome, asyncio.Future) else outcome

    def heartbeats(self) -> None:
        """A heartbeat of each running broker, which has applied all metadata. It writes no record."""
        self.harness.clock.seconds += 0.5
        began = time.thread_time()
        for broker_id in sorted(self.running):
            self.harness.send(self._heartbeat(broker_id))
        self.turns.append(time.thread_time() - began)
        self.turn()

    def _heartbeat(self, broker_id: int, **wanted: bool) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            current_metadata_offset=self.log.end - 1,
            **wanted,
        )

    async def stop(self, broker_id: int) -> None:
        """A controlled shutdown."""
        while not (await self.ask(self._heartbeat(broker_id, want_shut_down=True))).should_shut_down:
            self.heartbeats()
        self.running.discard(broker_id)

    async def begin(self, broker_id: int, *, clean: bool) -> None:
        """Registers a new incarnation, and unfences it."""
        known = self.image.cluster.brokers[broker_id]
        answer = await self.ask(
            BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=self.cluster_id,
                incarnation_id=self.log.end.to_bytes(16, "big"),
                rack=known.rack,
                features=[
                    BrokerRegistrationRequest.Feature(
                        name=name, min_supported_version=low, max_supported_version=high
                    )
                    for name, (low, high) in supported_features().items()
                ],
                log_dirs=list(known.log_dirs),
                previous_broker_epoch=known.epoch if clean else -1,
            )
        )
        assert answer.error_code == ErrorCode.NONE, answer
        self.epochs[broker_id] = answer.broker_epoch
        self.running.add(broker_id)
        while (await self.ask(self._heartbeat(broker_id))).is_fenced:
            self.heartbeats()

    async def take_back(self, returned: Iterable[int]) -> int:
        """Each leader asks for the ISRs with the brokers that have returned.

        Returns how many it asked for.
        """
        missing: dict[int, list[tuple[bytes, int]]] = defaultdict(list)
        topics = self.image.topics
        wanted = set(returned)
        for broker_id in wanted:
            for topic_id, index in topics.partitions_of(broker_id):
                partition = topics.by_id[topic_id].partitions[index]
                if broker_id not in partition.isr:
                    missing[partition.leader].append((topic_id, index))
        for leader, keys in sorted(missing.items()):
            keys = list(dict.fromkeys(keys))
            for at in range(0, len(keys), MOST_PARTITIONS):
                await self._expand(leader, keys[at : at + MOST_PARTITIONS], wanted)
        return sum(map(len, missing.values()))

    async def _expand(self, leader: int, keys: list[tuple[bytes, int]], returned: set[int]) -> None:
        member = AlterPartitionRequest.BrokerState
        changes: dict[bytes, list[AlterPartitionRequest.PartitionData]] = defaultdict(list)
        for topic_id, index in keys:
            now = self.image.topics.by_id[topic_id].partitions[index]
            isr = [*now.isr, *(i for i in now.replicas if i in returned and i not in now.isr)]
            changes[topic_id].append(
                AlterPartitionRequest.PartitionData(
                    partition_index=index,
                    leader_epoch=now.leader_epoch,
                    partition_epoch=now.partition_epoch,
                    new_isr_with_epochs=[member(broker_id=i, broker_epoch=self.epochs[i]) for i in isr],
                )
            )
        topics = [
            AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in changes.items()
        ]
        answer = await self.ask(
            AlterPartitionRequest(broker_id=leader, broker_epoch=self.epochs[leader], topics=topics)
        )
        assert answer.error_code == ErrorCode.NONE, answer
        assert not any(part.error_code for topic in answer.topics for part in topic.partitions)

    def take_figures(self, what: str) -> dict[str, float]:
        """The figures since the last call."""
        turns, self.turns = sorted(self.turns), []
        records, self.records = self.records, 0
        return {
            f"{what}_cpu_s": round(sum(turns), 2),
            f"{what}_longest_turn_ms": round(turns[-1] * 1000, 1),
            f"{what}_records": records,
        }

    def is_whole(self) -> bool:
        """Whether each replica is in its ISR."""
        return all(
            set(partition.isr) == set(partition.replicas)
            for topic in self.image.topics.by_id.values()
            for _, partition in topic.partitions.items()
        )


async def measure(image: MetadataImage) -> dict[str, float]:
    cluster = Cluster(image)
    del image
    await cluster.start()
    cluster.take_figures("start")
    led = sum(cluster.image.topics.leader_count(broker_id) for broker_id in RACK)
    for broker_id in RACK:
        await cluster.stop(broker_id)
        cluster.heartbeats()
        await cluster.begin(broker_id, clean=True)
        await cluster.take_back([broker_id])
        cluster.heartbeats()
    figures = cluster.take_figures("rolled")
    assert cluster.is_whole()

    await cluster.ask(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=60_000))
    figures |= cluster.take_figures("elected")

    lost = sum(cluster.image.topics.leader_count(broker_id) for broker_id in RACK)
    now = cluster.harness.clock.seconds
    for broker_id in RACK:
        cluster.running.discard(broker_id)
        cluster.state.broker_sessions.end(broker_id, cluster.epochs[broker_id], now)
    cluster.harness.controller.tasks.reschedule_fencing(now)
    while not all(cluster.image.cluster.brokers[broker_id].fenced for broker_id in RACK):
        cluster.harness.clock.seconds += 0.002
        cluster.turn()
    assert not any(cluster.image.topics.leads_any(broker_id) for broker_id in RACK)
    assert cluster.image.topics.leader_count(-1) == 0
    figures |= cluster.take_figures("lost")

    for broker_id in RACK:
        await cluster.begin(broker_id, clean=False)
    returned = await cluster.take_back(RACK)
    figures |= cluster.take_figures("returned")
    assert cluster.is_whole()
    return figures | {"led_before": led, "leaders_lost": lost, "replicas_returned": returned}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=200_000)
    parser.add_argument("--no-result", action="store_true", help="print only")
    args = parser.parse_args()
    figures = asyncio.run(measure(cluster_image(args.partitions, BROKERS, RACKS)))
    figures["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(json.dumps(figures, indent=1))
    if not args.no_result:
        result = single_run("rack", args.partitions, figures)
        (HERE / "results" / "rack.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
