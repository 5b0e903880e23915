"""Reads the description of a running cluster: its metadata log, as an observer, and the metadata quorum.

Brokers and controllers of Apache Kafka tell both too. So an operation plans from one state of the metadata,
and waits for the next one by a Fetch instead of describing all topics again.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from quorate.admin.errors import ErrorCode, KafkaError, NetError, error_text
from quorate.admin.metadata_log import LEADER_ERRORS, MetadataObserver
from quorate.admin.quorum_log import QuorumLog
from quorate.admin.types import (
    FETCHING_MS,
    ConfigEntry,
    LogDirDescription,
    QuorumInfo,
    QuorumReplica,
    TopicPartition,
)
from quorate.config.listeners import shown_address
from quorate.metadata.errors import MetadataError
from quorate.metadata.features import KRAFT_VERSION
from quorate.metadata.image import MetadataImage
from quorate.metadata.image.image import EMPTY_WITHOUT_INDEXES
from quorate.protocol.config_resource import ConfigResourceType
from quorate.tools.client.admin_client import admin_client
from quorate.tools.command_line import ToolError
from quorate.tools.operations.description import (
    Broker,
    Cluster,
    Controller,
    Partition,
    Partitions,
    Replica,
    Start,
)
from quorate.tools.operations.registrations import registrations_since
from quorate.tools.plan.log_dirs import capacity_of, rooms_of
from quorate.tools.reassign.throttles import TOPIC_LEVEL
from quorate.tools.shell.nodes import Control
from quorate.tools.shell.source import Replay, Timeline

if TYPE_CHECKING:
    from quorate.admin.client import AdminClient
    from quorate.metadata.image.cluster import BrokerRegistration, ControllerRegistration, Endpoint

MIN_ISR = "min.insync.replicas"
PLAINTEXT = 0
FOLLOWING_RECORDS = 100
RETRY_S = 0.1
BROKER_TIMEOUT_S = 5.0
"""How long one broker may take to describe its configuration and disks."""


class Observer:
    """The clients of a cluster, and its description. As a context manager it closes the clients."""

    def __init__(self, args: argparse.Namespace, patience_s: float) -> None:
        """`patience_s` is how long the cluster may give no answer."""
        self._args = args
        self._patience_s = patience_s
        self._timeline = Timeline()
        self._replay = Replay(EMPTY_WITHOUT_INDEXES, Control(), 0, self._timeline)
        self._log = QuorumLog(self._replay)
        self._metadata_observer: MetadataObserver | None = None
        self._clients: dict[str, AdminClient] = {}
        self._registered_ms: dict[bytes, int] = {}
        """The times of registrations before the snapshot, by incarnation id."""
        self._static_min_isr = 1
        self._log_dirs: dict[int, list[LogDirDescription]] = {}
        self._disk_limit: float = getattr(args, "disk_limit", 1.0)
        self._described_from: tuple[object, ...] = ()
        self._partitions = Partitions()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()

    # -- clients

    async def bootstrap(self) -> AdminClient:
        """Returns the client of the servers that the user has named."""
        return await (self.controllers() if self._args.bootstrap_controller else self.brokers())

    async def controllers(self) -> AdminClient:
        """Returns the client that sends requests to the active controller."""
        if self._args.bootstrap_controller:
            return self._client("controllers", server=None, controller=self._args.bootstrap_controller)
        if "controllers" not in self._clients:
            quorum = await (await self.brokers()).describe_quorum()
            voters = {voter.replica_id for voter in quorum.voters}
            found = [
                shown_address(host, port)
                for node, endpoints in quorum.endpoints.items()
                if node in voters
                for _, host, port in endpoints[:1]
            ]
            if not found:
                raise ToolError(
                    "The cluster does not name the addresses of its controllers (DescribeQuorum below "
                    "version 2). Give them by --bootstrap-controller."
                )
            return self._client("controllers", server=None, controller=",".join(found))
        return self._clients["controllers"]

    async def brokers(self) -> AdminClient:
        """Returns the client that sends requests to brokers."""
        if self._args.bootstrap_server:
            return self._client("brokers", server=self._args.bootstrap_server, controller=None)
        if "brokers" not in self._clients:
            found = [
                shown_address(listener.host, listener.port)
                for broker in self._replay.image.cluster.brokers.values()
                for listener in [one for one in broker.listeners if one.security_protocol == PLAINTEXT][:1]
                if not broker.fenced
            ]
            if not found:
                raise ToolError("No broker is available. Start one, or give --bootstrap-server.")
            return self._client("brokers", server=",".join(found), controller=None)
        return self._clients["brokers"]

    def _client(self, name: str, server: str | None, controller: str | None) -> AdminClient:
        if name not in self._clients:
            where = {"bootstrap_server": server, "bootstrap_controller": controller}
            self._clients[name] = admin_client(argparse.Namespace(**{**vars(self._args), **where}))
        return self._clients[name]

    async def _log_observer(self) -> MetadataObserver:
        """Returns what reads the metadata log from the active controller."""
        if self._metadata_observer is None:
            self._metadata_observer = MetadataObserver(await self.controllers())
        return self._metadata_observer

    # -- the description

    async def start(self) -> Cluster:
        """Reads the metadata, and what only brokers tell. Raises ToolError, KafkaError and NetError."""
        cluster = await self.observe(patient=False)
        active = [broker.id for broker in cluster.brokers.values() if broker.active]
        if active:
            admin = await self.brokers()
            await asyncio.gather(*(self._read_broker(admin, broker) for broker in active))
            cluster = await self.observe()
        return cluster

    async def _read_broker(self, admin: AdminClient, broker_id: int) -> None:
        """Reads the static min.insync.replicas and the disks of a broker. One that stops meanwhile is left
        out."""
        try:
            async with asyncio.timeout(BROKER_TIMEOUT_S):
                entries = await _node_config(admin, broker_id)
                log_dirs = (await admin.describe_log_dirs([broker_id]))[broker_id]
        except (KafkaError, NetError, TimeoutError):
            return
        self._log_dirs[broker_id] = log_dirs
        found = [entry.value for entry in entries if entry.name == MIN_ISR]
        self._static_min_isr = max([self._static_min_isr, *(int(value) for value in found if value)])

    async def static_voters(self, cluster: Cluster) -> dict[int, str]:
        """Returns the value of controller.quorum.voters of each node that has one, as far as the nodes
        answer."""
        name = "controller.quorum.voters"

        async def one(admin: AdminClient, node: int) -> tuple[int, str]:
            try:
                async with asyncio.timeout(BROKER_TIMEOUT_S):
                    found = next((e.value for e in await _node_config(admin, node) if e.name == name), None)
            except (KafkaError, NetError, TimeoutError):
                found = None
            return node, found or ""

        brokers, controllers = await self.brokers(), await self.controllers()
        wanted = [(brokers, b) for b, broker in cluster.brokers.items() if broker.active]
        wanted += [(controllers, c) for c in cluster.controllers if c not in cluster.brokers]
        found = await asyncio.gather(*(one(admin, node) for admin, node in wanted))
        return {node: value for node, value in sorted(found) if value}

    async def read_registrations(self, since_ms: int) -> None:
        """Reads the times of registrations since a time, in the log before the snapshot. What the log no
        longer has stays unknown.
        """
        if self._timeline.snapshot_time_ms >= since_ms:
            with suppress(KafkaError, NetError, MetadataError):
                log = self._log
                self._registered_ms = await registrations_since(
                    await self._log_observer(), log.log_start_offset, log.snapshot_end_offset, since_ms
                )

    async def observe(self, max_wait_ms: int = 0, *, patient: bool = True) -> Cluster:
        """Returns the description as of now, after waiting for a change up to a time.

        Raises ToolError if the quorum does not answer for `patience_s`, or without patience the first error
        that is not about a change of the leader.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    admin = await self.controllers()
                    progress = await self._log.fetch(await self._log_observer(), max_wait_ms)
                    if not progress or self._log.caught_up:
                        quorum = await admin.describe_quorum()
                        if self._log.caught_up:
                            known = admin.transport.cluster or await admin.describe_cluster()
                            return self._describe(known.cluster_id, quorum)
            except (KafkaError, NetError, TimeoutError) as error:
                elected = isinstance(error, KafkaError) and error.code in LEADER_ERRORS
                if not patient and not elected and not isinstance(error, TimeoutError):
                    raise
                if loop.time() >= deadline:
                    why = "" if isinstance(error, TimeoutError) else f": {error_text(error)}"
                    raise ToolError(
                        f"The metadata quorum has not answered for {self._patience_s:g} s{why}"
                    ) from error
                if self._metadata_observer is not None:
                    self._metadata_observer.forget_leader()
                await asyncio.sleep(RETRY_S)

    def _describe(self, cluster_id: str, quorum: QuorumInfo) -> Cluster:
        image, control = self._replay.image, self._replay.control
        leader = next((r for r in quorum.voters if r.replica_id == quorum.leader_id), None)
        leader_ms = leader.last_fetch_ms if leader is not None else -1
        now_ms = leader_ms if leader_ms > 0 else time.time_ns() // 1_000_000
        end = leader.log_end_offset if leader is not None else quorum.high_watermark

        def replica(found: QuorumReplica) -> Replica:
            follows = found.replica_id == quorum.leader_id or (
                now_ms - found.last_fetch_ms <= FETCHING_MS
                and (
                    end - found.log_end_offset <= FOLLOWING_RECORDS
                    or now_ms - found.last_caught_up_ms <= FETCHING_MS
                )
            )
            return Replica(found.replica_id, found.directory_id, follows, found.last_fetch_ms)

        return Cluster(
            cluster_id=cluster_id,
            now_ms=now_ms,
            brokers={b.id: self._broker(b, image) for b in image.cluster.brokers.values()},
            controllers={c.id: self._controller(c) for c in image.cluster.controllers.values()},
            leader_id=quorum.leader_id,
            voters=tuple(replica(found) for found in quorum.voters),
            observers=tuple(replica(found) for found in quorum.observers),
            features={**image.features.finalized, KRAFT_VERSION: control.kraft_version},
            partitions=self._described_partitions(image),
            throttled={
                name: found
                for (kind, name), config in image.configs.resources.items()
                if kind == ConfigResourceType.TOPIC
                and (found := {key: config[key] for key in TOPIC_LEVEL if key in config})
            },
        )

    def _broker(self, found: BrokerRegistration, image: MetadataImage) -> Broker:
        host, port = _first(found.listeners)
        log_dirs = self._log_dirs.get(found.id, [])
        return Broker(
            id=found.id,
            start=self._start(found.incarnation_id, found.epoch, found.start_time_ms),
            host=host,
            port=port,
            rack=found.rack,
            fenced=found.fenced,
            in_controlled_shutdown=found.in_controlled_shutdown,
            directories=found.log_dirs,
            cordoned=not found.has_uncordoned_directory,
            features=found.features,
            config=dict(image.configs.broker(found.id)),
            capacity=capacity_of(log_dirs, self._disk_limit),
            rooms=rooms_of(log_dirs, self._disk_limit),
        )

    def _controller(self, found: ControllerRegistration) -> Controller:
        start = self._start(found.incarnation_id, found.registered_offset, 0)
        endpoints = tuple((e.name, e.host, e.port) for e in found.listeners)
        return Controller(found.id, start, endpoints, found.features)

    def _start(self, incarnation_id: bytes, offset: int, registered_ms: int) -> Start:
        """The start of a process that registered at an offset, perhaps with its start time."""
        if registered_ms > 0:
            return Start(incarnation_id, registered_ms, registered_ms)
        found_ms = self._timeline.time_of(offset)
        if found_ms is not None:
            return Start(incarnation_id, found_ms, found_ms)
        found_ms = self._registered_ms.get(incarnation_id)
        if found_ms is not None:
            return Start(incarnation_id, found_ms, found_ms)
        snapshot_ms = self._timeline.snapshot_time_ms
        return Start(incarnation_id, None, snapshot_ms if snapshot_ms >= 0 else None)

    def _described_partitions(self, image: MetadataImage) -> Partitions:
        """The partitions. They are described again only if topics or configurations have changed."""
        parts = (image.topics, image.configs, self._static_min_isr, len(self._log_dirs))
        before = self._described_from
        if before[:2] and before[0] is parts[0] and before[1] is parts[1] and before[2:] == parts[2:]:
            return self._partitions
        default = int(image.configs.cluster_default().get(MIN_ISR, self._static_min_isr))
        sizes = self._sizes()
        found = []
        for topic in image.topics.by_id.values():
            min_isr = int(image.configs.topic(topic.name).get(MIN_ISR, default))
            for index, p in topic.partitions.items():
                tp = TopicPartition(topic.name, index)
                found.append(
                    Partition(
                        tp, p.replicas, p.isr, p.leader, p.adding_replicas, p.removing_replicas, min_isr,
                        p.directories, sizes.get(tp, 0),
                    )
                )  # fmt: skip
        self._described_from, self._partitions = parts, Partitions(found)
        return self._partitions

    def _sizes(self) -> Mapping[TopicPartition, int]:
        """The size of the largest replica of each partition."""
        sizes: dict[TopicPartition, int] = {}
        for log_dirs in self._log_dirs.values():
            for directory in log_dirs:
                for tp, replica in directory.replicas.items():
                    sizes[tp] = max(sizes.get(tp, 0), replica.size)
        return sizes


async def _node_config(admin: AdminClient, node: int) -> list[ConfigEntry]:
    """Returns the configuration of a broker or controller. Raises KafkaError and NetError."""
    resource = ConfigResourceType.BROKER, str(node)
    entries = (await admin.describe_configs([resource]))[resource]
    if isinstance(entries, KafkaError):
        raise entries
    return entries


def _first(listeners: tuple[Endpoint, ...]) -> tuple[str, int]:
    return (listeners[0].host, listeners[0].port) if listeners else ("", 0)


async def ignoring(code: ErrorCode, request: Awaitable[None]) -> None:
    """Awaits a request. An error with this code means that an earlier attempt has succeeded."""
    try:
        await request
    except KafkaError as error:
        if error.code is not code:
            raise
