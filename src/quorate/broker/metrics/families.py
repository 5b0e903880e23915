"""All metrics of a broker, for the node that serves them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from quorate.broker.metrics.coordinators import group_families
from quorate.broker.metrics.replicas import ReplicaFamilies
from quorate.log.directories.metrics import directory_families
from quorate.metadata.image import metadata_lag
from quorate.metadata.metrics import loader_families
from quorate.metrics import Family, gauge, labels, meter

if TYPE_CHECKING:
    from quorate.broker.server import BrokerServer
    from quorate.raft.runtime.client import RaftClient


def broker_families(broker: BrokerServer, raft: RaftClient) -> Iterator[Family | None]:
    """The metrics of kafka.server, kafka.cluster, kafka.log and kafka.coordinator.group."""
    yield gauge(
        "server.KafkaServer.BrokerState", "The state of the broker, as KIP-631 numbers it.", broker.state
    )
    yield from _metadata_families(broker, raft)
    yield from broker.replicas.stats.families()
    yield from ReplicaFamilies(broker.replicas, broker.isr_changes).families()
    yield from directory_families(broker.logs, broker.logs_opened)
    yield from _session_families(broker)
    yield from group_families(broker.coordinators.groups)
    yield gauge(
        "server.AssignmentsManager.QueuedReplicaToDirAssignments",
        "Replicas whose log directory the controller has not confirmed yet.",
        broker.assignments.unsettled,
    )
    if broker.snapshots is not None:
        leader = raft.leader_and_epoch.leader_id
        yield from loader_families(broker.publisher.image, leader, broker.snapshots, broker.clock.now_ms())


def _metadata_families(broker: BrokerServer, raft: RaftClient) -> Iterator[Family]:
    """How far this broker is with the metadata log."""
    group = "server.broker-metadata-metrics"
    publisher = broker.publisher
    last = publisher.image.provenance
    yield gauge(f"{group}.last-applied-record-offset", "The last offset that was applied.", publisher.offset)
    yield gauge(
        f"{group}.last-applied-record-timestamp", "The append time of this record, in ms.", last.timestamp_ms
    )
    lag_ms = max(0, broker.clock.now_ms() - last.timestamp_ms) if last.timestamp_ms > 0 else 0
    yield gauge(f"{group}.last-applied-record-lag-ms", "The age of this record, in ms.", lag_ms)
    yield gauge(
        f"{group}.metadata-apply-error-count",
        "Changes of the metadata that a part of this broker could not apply. The log has the reasons.",
        publisher.apply_errors,
    )
    yield gauge(
        "controller.KafkaServer.MetadataLag",
        "Offsets from the last applied record to the last stable offset (KIP-631).",
        metadata_lag(publisher.image, raft.high_watermark, publisher.offset),
    )


def _session_families(broker: BrokerServer) -> Iterator[Family | None]:
    cache = broker.sessions.cache
    partitions = 0
    for session in list(cache):
        partitions += len(session.partitions)
    shard = labels(cacheShard=0)
    yield gauge(
        "server.FetchSessionCache.NumIncrementalFetchSessions", "Fetch sessions.", [(shard, len(cache))]
    )
    yield gauge(
        "server.FetchSessionCache.NumIncrementalFetchPartitionsCached",
        "Partitions of all fetch sessions.",
        [(shard, partitions)],
    )
    yield meter(
        "server.FetchSessionCache.IncrementalFetchSessionEvictionsPerSec",
        "Fetch sessions that were closed to make room for others.",
        [(shard, cache.evictions)],
    )
