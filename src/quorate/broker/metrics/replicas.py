"""The metrics of a broker's replicas: `ReplicaManager`, `Partition`, `Log`, the purgatories and the replica
fetchers.

All numbers are read when a scraper asks for them. One pass over the partitions collects them, and yields None
after every few of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from quorate.metrics import Family, gauge, labels, meter

if TYPE_CHECKING:
    from quorate.broker.replication.alter_partition import AlterPartitionManager
    from quorate.broker.replication.partition import Partition
    from quorate.broker.replication.replica_manager import ReplicaManager

PIECE = 200
"""Partitions that are read without a pause. They take about a millisecond."""

Series = list[tuple[str, float]]


class ReplicaFamilies:
    """Collects the numbers of all partitions in one pass."""

    def __init__(self, replicas: ReplicaManager, isr_changes: AlterPartitionManager) -> None:
        self._replicas = replicas
        self._isr_changes = isr_changes
        self._leaders = self._under_replicated = self._under_min_isr = self._at_min_isr = 0
        self._reassigning = self._producer_ids = 0
        self._fetches = self._appends = self._deletions = 0
        self._waiting: dict[str, set[object]] = {"Fetch": set(), "Produce": set(), "DeleteRecords": set()}
        self._partition: dict[str, Series] = {name: [] for name, _ in _PARTITION}
        self._log: dict[str, Series] = {name: [] for name, _ in _LOG}

    def families(self) -> Iterator[Family | None]:
        """Yields the families, and None where the work may be interrupted."""
        replicas = self._replicas
        hosted = iter(list(replicas.partitions.values()))
        topics = set()
        while some := list(islice(hosted, PIECE)):
            for partition in some:
                topics.add(partition.topic)
                self._read(partition)
            yield None
        for topic in [name for name in replicas.stats.topics if name not in topics]:
            replicas.stats.remove(topic)
        yield from self._manager()
        # Each family is freed when it is written: to free a hundred thousand series at once takes 5 ms.
        for name, text in _PARTITION:
            yield gauge(f"cluster.Partition.{name}", text, self._partition.pop(name))
        for name, text in _LOG:
            yield gauge(f"log.Log.{name}", text, self._log.pop(name))
        yield from self._purgatories()
        yield from self._fetchers()

    def _read(self, partition: Partition) -> None:
        where = labels(topic=partition.topic, partition=partition.partition)
        isr, replicas = len(partition.isr), len(partition.replicas)
        under = under_min = at_min = False
        log = self._replicas.logs.get(partition.topic, partition.partition)
        if partition.is_leader:
            self._leaders += 1
            under = isr < replicas
            # The log of a replicated partition is open as long as this broker leads it.
            min_isr = 1 if log is None else partition.effective_min_isr(log)
            under_min, at_min = isr < min_isr, isr == min_isr
            self._under_replicated += under
            self._under_min_isr += under_min
            self._at_min_isr += at_min
            image = self._replicas.metadata.partition(partition.topic, partition.partition)
            self._reassigning += image is not None and image.is_reassigning
        else:
            isr = 0  # a follower does not count them, as in Kafka
        if partition.waiting is not None:
            fetches, appends, deletions = partition.waiting.counts
            self._fetches += fetches
            self._appends += appends
            self._deletions += deletions
            for what, requests in partition.waiting.requests():
                self._waiting[what].update(requests)
        values = self._partition
        values["UnderReplicated"].append((where, under))
        values["InSyncReplicasCount"].append((where, isr))
        values["ReplicasCount"].append((where, replicas if partition.is_leader else 0))
        values["UnderMinIsr"].append((where, under_min))
        values["AtMinIsr"].append((where, at_min))
        if log is None:
            values["LastStableOffsetLag"].append((where, 0))
            return
        values["LastStableOffsetLag"].append((where, log.high_watermark - log.last_stable_offset))
        self._producer_ids += len(log.producers.producers)
        of_log = self._log
        of_log["Size"].append((where, log.size_bytes))
        of_log["NumLogSegments"].append((where, len(log.segments)))
        of_log["LogStartOffset"].append((where, log.log_start_offset))
        of_log["LogEndOffset"].append((where, log.log_end_offset))

    def _manager(self) -> Iterator[Family]:
        group = "server.ReplicaManager"
        replicas, changes = self._replicas, self._isr_changes
        yield gauge(f"{group}.LeaderCount", "Partitions that this broker leads.", self._leaders)
        yield gauge(f"{group}.PartitionCount", "Replicas on this broker.", len(replicas.partitions))
        yield gauge(f"{group}.OfflineReplicaCount", "Replicas in failed directories.", replicas.offline_count)
        yield gauge(
            f"{group}.UnderReplicatedPartitions",
            "Led partitions whose ISR lacks replicas.",
            self._under_replicated,
        )
        yield gauge(
            f"{group}.UnderMinIsrPartitionCount",
            "Led partitions whose ISR is smaller than min.insync.replicas.",
            self._under_min_isr,
        )
        yield gauge(
            f"{group}.AtMinIsrPartitionCount",
            "Led partitions whose ISR is as large as min.insync.replicas.",
            self._at_min_isr,
        )
        yield gauge(
            f"{group}.ReassigningPartitions",
            "Led partitions whose replicas are being changed.",
            self._reassigning,
        )
        yield gauge(f"{group}.ProducerIdCount", "Producers whose state is kept.", self._producer_ids)
        yield meter(f"{group}.IsrExpandsPerSec", "Replicas that joined an ISR.", changes.expansions)
        yield meter(f"{group}.IsrShrinksPerSec", "ISR changes that removed replicas.", changes.shrinks)
        yield meter(
            f"{group}.FailedIsrUpdatesPerSec", "ISR changes that the controller refused.", changes.failures
        )

    def _purgatories(self) -> Iterator[Family]:
        sizes = [
            (labels(delayedOperation="Fetch"), self._fetches),
            (labels(delayedOperation="Produce"), self._appends),
            (labels(delayedOperation="DeleteRecords"), self._deletions),
        ]
        yield gauge(
            "server.DelayedOperationPurgatory.PurgatorySize",
            "Waits of requests for a partition. A request that waits for several partitions counts for each.",
            sizes,
        )
        yield gauge(
            "server.DelayedOperationPurgatory.NumDelayedOperations",
            "Requests that wait.",
            [(labels(delayedOperation=what), len(requests)) for what, requests in self._waiting.items()],
        )

    def _fetchers(self) -> Iterator[Family | None]:
        lags: Series = []
        highest = 0
        for leader, partitions in [] if self._replicas.fetchers is None else self._replicas.fetchers.lags():
            client = f"ReplicaFetcherThread-0-{leader}"
            for partition, lag in list(partitions):
                highest = max(highest, lag)
                where = labels(clientId=client, topic=partition.topic, partition=partition.partition)
                lags.append((where, lag))
                if len(lags) % PIECE == 0:
                    yield None
        client = labels(clientId="Replica")
        yield gauge(
            "server.ReplicaFetcherManager.MaxLag",
            "Offsets by which the last of the followed partitions is behind its leader.",
            [(client, highest)],
        )
        fetchers = self._replicas.fetchers
        yield gauge(
            "server.ReplicaFetcherManager.FailedPartitionsCount",
            "Followed partitions whose last data could not be processed. They are tried again.",
            [(client, 0 if fetchers is None else fetchers.failed_count)],
        )
        logs = self._replicas.logs
        moving = [(logs.get(future.topic, future.partition), future) for future in logs.futures]
        behind = [log.log_end_offset - future.log_end_offset for log, future in moving if log is not None]
        yield gauge(
            "server.ReplicaAlterLogDirsManager.MaxLag",
            "Offsets by which the last of the copies between log directories is behind its log.",
            [(labels(clientId="ReplicaAlterLogDirs"), max(behind, default=0))],
        )
        yield gauge(
            "server.FetcherLagMetrics.ConsumerLag",
            "Offsets by which a followed partition is behind its leader.",
            lags,
        )


_PARTITION = (
    ("UnderReplicated", "Whether the ISR lacks replicas. 0 on followers."),
    ("InSyncReplicasCount", "Replicas in the ISR. 0 on followers."),
    ("ReplicasCount", "Assigned replicas. 0 on followers."),
    ("UnderMinIsr", "Whether the ISR is smaller than min.insync.replicas. 0 on followers."),
    ("AtMinIsr", "Whether the ISR is as large as min.insync.replicas. 0 on followers."),
    ("LastStableOffsetLag", "Offsets from the last stable offset to the high watermark."),
)

_LOG = (
    ("Size", "Bytes of the segments."),
    ("NumLogSegments", "Segments."),
    ("LogStartOffset", "The first offset."),
    ("LogEndOffset", "The offset after the last record."),
)
