"""Complete Raft clients in one process, with real files and real wire bytes. The network is a dictionary."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from quorate.net.dispatch import RequestContext
from quorate.net.errors import KafkaConnectionError, RequestTimedOut
from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.file_region import FileRegion
from quorate.protocol.messages.api_versions import ApiVersionsResponse
from quorate.protocol.messages.vote import VoteRequest
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.protocol.schema import Request, Response
from quorate.raft.config import RaftConfig
from quorate.raft.core.voters import VoterSet
from quorate.raft.runtime.client import RaftClient
from quorate.raft.storage.snapshots.files import footer_batch, header_batch, snapshot_name
from quorate.raft.types import Address, CommittedBatch, LeaderAndEpoch, OffsetEpoch
from tests.raft.world import LISTENER, address, directory, voter

CLUSTER = "world"


def materialise(parts: list[bytes | FileRegion]) -> bytes:
    return b"".join(p.read() if isinstance(p, FileRegion) else bytes(p) for p in parts)


class Network:
    """Encodes and decodes every call. `versions` limits the versions; the default is the highest."""

    def __init__(self) -> None:
        self.clients: dict[Address, RaftClient] = {}
        self.transports: list[MemoryTransport] = []
        self.versions: dict[int, int] = {}
        self.calls: list[tuple[Address, int]] = []

    def transport(self) -> MemoryTransport:
        transport = MemoryTransport(self)
        self.transports.append(transport)
        return transport

    def kill(self, where: Address) -> None:
        self.clients.pop(where, None)
        for transport in self.transports:
            if transport.on_lost is not None:
                transport.on_lost(where)


class MemoryTransport:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.on_lost: Callable[[Address], None] | None = None
        self.on_receiving: Callable[[Address], None] | None = None

    async def call(self, where: Address, request: Request, timeout_s: float) -> Response:
        network = self.network
        client = network.clients.get(where)
        key = type(request).KEY
        network.calls.append((where, key))
        if client is None:
            raise KafkaConnectionError("refused")
        if key == ApiKey.API_VERSIONS:
            feature = ApiVersionsResponse.SupportedFeatureKey(
                name="kraft.version", min_version=0, max_version=1
            )
            vote = ApiVersionsResponse.ApiVersion(
                api_key=VoteRequest.KEY, max_version=VoteRequest.MAX_VERSION
            )
            return ApiVersionsResponse(api_keys=[vote], supported_features=[feature])
        version = network.versions.get(key, REGISTRY[key].max_version)
        received = type(request).decode(request.encode(version), version)
        try:
            answer = client.handle(context(key, version), received)
            if not isinstance(answer, Response):
                answer = await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise RequestTimedOut("slow") from None
        data = materialise(answer.encode_parts(version))
        if network.clients.get(where) is not client:
            raise KafkaConnectionError("reset")
        return type(answer).decode(data, version)

    def post(self, where: Address, request: Request, timeout_s: float) -> asyncio.Future[Response] | None:
        return None

    def warm(self, addresses: Iterable[Address]) -> None:
        pass

    def close(self) -> None:
        pass


def context(key: int, version: int, listener: str = LISTENER) -> RequestContext:
    return RequestContext(
        api_key=key, api_version=version, correlation_id=1, client_id="test", listener=listener
    )


class Machine:
    """A state machine that records everything that is delivered to it."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.offsets: list[int] = []
        self.next_offset = 0
        self.snapshots: list[OffsetEpoch] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.hwm = 0
        self.changed = asyncio.Event()

    def on_commit(self, batches: list[CommittedBatch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.next_offset
            self.next_offset = batch.last_offset + 1
            self.values += [bytes(v) for v in batch.values]
            self.offsets += [batch.base_offset + i for i in range(len(batch.values))]
        self.changed.set()

    def on_snapshot(self, snapshot_id: OffsetEpoch, batches: Iterator[CommittedBatch]) -> None:
        self.values = [bytes(v) for b in batches for v in b.values]
        self.offsets = []
        self.next_offset = snapshot_id.offset
        self.snapshots.append(snapshot_id)
        self.changed.set()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)
        self.changed.set()

    def on_high_watermark(self, hwm: int) -> None:
        assert hwm >= self.hwm
        self.hwm = hwm
        self.changed.set()

    async def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


def format_dynamic(path: Path, voters: VoterSet) -> None:
    """Writes the files that the storage tool creates in the metadata directory of a dynamic quorum."""
    place = path / f"{METADATA_TOPIC}-0"
    place.mkdir(parents=True)
    snapshot = OffsetEpoch(0, 0)
    data = header_batch(snapshot, 1, 1, 1, voters) + footer_batch(snapshot, 3, 1)
    (place / snapshot_name(snapshot)).write_bytes(data)


def dynamic(*ids: int) -> VoterSet:
    return VoterSet.of(voter(i) for i in ids)


class Node:
    """A client with its state machine in a directory. It can be stopped, killed and started again."""

    def __init__(self, network: Network, path: Path, i: int, **options: Any) -> None:
        self.network, self.path, self.id = network, path, i
        self.options: dict[str, Any] = {
            "voters": None,
            "is_controller": True,
            "bootstrap_servers": (address(1),),
            "election_timeout_s": 0.1,
            "fetch_timeout_s": 0.4,
            "request_timeout_s": 1.0,
        } | options
        self.client: RaftClient
        self.machine: Machine
        self.fatal: list[BaseException] = []

    async def start(self) -> Node:
        controller = self.options["is_controller"]
        config = RaftConfig(
            node_id=self.id,
            directory_id=directory(self.id),
            cluster_id=CLUSTER,
            metadata_dir=self.path,
            listener_name=LISTENER,
            endpoints={LISTENER: address(self.id)} if controller else {},
            on_fatal=self.fatal.append,
            **self.options,
        )
        self.client = RaftClient(config, self.network.transport(), rng=random.Random(self.id))
        self.machine = Machine()
        self.client.register(self.machine)
        await self.client.start()
        if controller:
            self.network.clients[address(self.id)] = self.client
        return self

    async def stop(self) -> None:
        await self.client.shutdown(0.5)
        self.network.clients.pop(address(self.id), None)

    async def kill(self) -> None:
        """Simulates the death of the process: nothing is flushed or closed cleanly."""
        client = self.client
        client.driver.failure = RuntimeError("killed")
        self.network.kill(address(self.id))
        await client.shutdown(0)

    async def lead(self) -> Node:
        await self.machine.until(
            lambda: bool(self.machine.leaders) and self.machine.leaders[-1].leader_id == self.id
        )
        return self

    async def commit(self, *values: bytes) -> int:
        last = self.client.append(self.client.epoch, list(values))
        await self.machine.until(lambda: self.machine.hwm > last)
        return last


def metadata(path: Path) -> Path:
    return path / f"{METADATA_TOPIC}-0"


async def sole(path: Path, kraft: int = 1, **options: object) -> Node:
    """A formatted quorum of one node, which leads."""
    if kraft and not metadata(path).exists():
        format_dynamic(path, dynamic(1))
    voters = None if kraft else {1: address(1)}
    return await (await Node(Network(), path, 1, voters=voters, **options).start()).lead()


async def stopped_with_a_snapshot(path: Path) -> OffsetEpoch:
    """Runs a quorum of one node that commits records, takes a snapshot and stops cleanly. Returns the
    snapshot's id."""
    node = await sole(path)
    await node.commit(b"a")
    end = OffsetEpoch(node.client.high_watermark, node.client.epoch)
    assert await node.client.create_snapshot(*end, 1, []) == end
    await node.stop()
    return end


async def leader_of(nodes: list[Node], seconds: float = 10.0) -> Node:
    async with asyncio.timeout(seconds):
        while True:
            for node in nodes:
                if node.client.failure is None and node.client.is_leader and node.machine.leaders:
                    last = node.machine.leaders[-1]
                    if last.leader_id == node.id and last.epoch == node.client.epoch:
                        return node
            await asyncio.sleep(0.005)
