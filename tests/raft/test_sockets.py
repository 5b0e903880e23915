"""Raft over real TCP: an observer, and three voters whose leader dies."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from pathlib import Path

import pytest

from quorate.clock import LoopClock
from quorate.net.dispatch import Dispatcher, FeatureRange, FeatureState, ListenerKind
from quorate.net.errors import KafkaConnectionError
from quorate.net.server import Listener
from quorate.protocol.api import encode_request
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.raft.config import RaftConfig
from quorate.raft.core import messages as m
from quorate.raft.core.effects import Outgoing
from quorate.raft.core.voters import Voter, VoterSet
from quorate.raft.runtime.client import RaftClient
from quorate.raft.runtime.reachability import Reachability
from quorate.raft.runtime.request_sender import RequestSender
from quorate.raft.runtime.transport import NetTransport
from quorate.raft.types import Address, ReplicaKey
from quorate.records.batch import build_metadata_batch
from tests.raft.nodes import CLUSTER, Machine, format_dynamic
from tests.raft.world import LISTENER, directory


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [int(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Process:
    """The Raft part of one controller or broker: its client, and for a controller its listener."""

    def __init__(self, path: Path, i: int, ports: list[int], controller: bool = True) -> None:
        self.path, self.id, self.controller = path, i, controller
        self.bootstrap: tuple[Address, ...] = tuple(("127.0.0.1", p) for p in ports)
        self.port = ports[i - 1] if controller else 0
        self.machine = Machine()
        self.listener = Listener()

    async def start(self) -> Process:
        config = RaftConfig(
            node_id=self.id,
            directory_id=directory(self.id),
            cluster_id=CLUSTER,
            metadata_dir=self.path,
            listener_name=LISTENER,
            endpoints={LISTENER: ("127.0.0.1", self.port)} if self.controller else {},
            is_controller=self.controller,
            bootstrap_servers=self.bootstrap,
        )
        self.client = RaftClient(config, rng=random.Random(self.id))
        self.client.register(self.machine)
        await self.client.start()
        if self.controller:
            dispatcher = Dispatcher(
                ListenerKind.CONTROLLER,
                features=lambda: FeatureState(supported=(FeatureRange("kraft.version", 0, 1),)),
            )
            for key, handler in self.client.routes.items():
                dispatcher.register(key, handler)
            await self.listener.start("127.0.0.1", self.port, dispatcher, LISTENER)
        return self

    async def stop(self, timeout_s: float = 2.0) -> None:
        await self.client.shutdown(timeout_s)
        if self.controller:
            await self.listener.close(0)

    async def kill(self) -> None:
        self.client.driver.failure = RuntimeError("killed")
        await self.listener.close(0)
        await self.client.shutdown(0)


def quorum(path: Path, count: int) -> list[Process]:
    ports = free_ports(count)
    voters = VoterSet.of(
        Voter(ReplicaKey(i, directory(i)), {LISTENER: ("127.0.0.1", ports[i - 1])}, (0, 1))
        for i in range(1, count + 1)
    )
    for i in range(1, count + 1):
        format_dynamic(path / str(i), voters)
    return [Process(path / str(i), i, ports) for i in range(1, count + 1)]


async def leader_of(processes: list[Process], seconds: float = 15.0) -> Process:
    async with asyncio.timeout(seconds):
        while True:
            for p in processes:
                last = p.machine.leaders[-1] if p.machine.leaders else None
                if p.client.failure is None and p.client.is_leader and last == p.client.leader_and_epoch:
                    return p
            await asyncio.sleep(0.002)


async def commit(process: Process, value: bytes) -> int:
    last = process.client.append(process.client.epoch, [value])
    await process.machine.until(lambda: process.machine.hwm > last)
    return last


def test_an_observer_follows_over_tcp_and_starts_from_a_snapshot(tmp_path: Path) -> None:
    async def main() -> None:
        [leader] = quorum(tmp_path, 1)
        await leader.start()
        await leader_of([leader])
        for i in range(30):
            await commit(leader, b"%d" % i * 1000)
        state = [build_metadata_batch(leader.machine.values, base_offset=0, leader_epoch=0, timestamp=1)]
        assert await leader.client.create_snapshot(leader.client.high_watermark, 1, 1, state)
        await commit(leader, b"x" * 100_000)
        observer = await Process(tmp_path / "9", 9, [leader.port], controller=False).start()
        await observer.machine.until(lambda: len(observer.machine.values) == 31)
        assert observer.machine.values == leader.machine.values
        assert len(observer.machine.snapshots) == 1
        await commit(leader, b"y")
        at = time.perf_counter()
        await observer.machine.until(lambda: observer.machine.values[-1] == b"y")
        assert time.perf_counter() - at < 0.3, "the long poll ends when the record commits"
        await observer.stop()
        await leader.stop()

    asyncio.run(main())


def test_a_leader_whose_connections_reset_is_replaced_well_before_any_timeout(tmp_path: Path) -> None:
    async def main() -> None:
        processes = quorum(tmp_path, 3)
        for p in processes:
            await p.start()
        leader = await leader_of(processes)
        last = await commit(leader, b"a")
        for p in processes:
            await p.machine.until(lambda p=p: p.machine.hwm > last)  # type: ignore[misc]
        await asyncio.sleep(0.3)
        at = time.perf_counter()
        await leader.kill()
        rest = [p for p in processes if p is not leader]
        second = await leader_of(rest)
        await commit(second, b"b")
        took = time.perf_counter() - at
        assert took < 0.9, took  # the election timeout alone is at least a second
        await second.stop()
        for p in rest:
            if p is not second:
                assert p.machine.values == [b"a", b"b"]
                await p.stop(0.1)

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 3])
def test_additions_end_when_their_client_hangs_up(tmp_path: Path, count: int) -> None:
    async def main() -> None:
        [leader] = quorum(tmp_path, 1)
        await leader.start()
        await leader_of([leader])
        _, writer = await asyncio.open_connection("127.0.0.1", leader.port)

        def send(i: int) -> None:
            endpoint = AddRaftVoterRequest.Listener(name=LISTENER, host="127.0.0.1", port=1)
            request = AddRaftVoterRequest(
                cluster_id=CLUSTER,
                timeout_ms=50_000,
                voter_id=i,
                voter_directory_id=directory(i),
                listeners=[endpoint],
            )
            data = encode_request(i, "tool", request, 1)
            writer.write(struct.pack(">i", len(data)) + data)

        def waiting() -> int:
            leading = leader.client.driver.state.leading
            assert leading is not None
            return (leading.voter_change is not None) + len(leading.waiting_changes)

        async with asyncio.timeout(10):
            for i in range(count):
                send(7 + i)
            while waiting() < count:
                await asyncio.sleep(0.005)
            writer.close()
            while waiting():
                await asyncio.sleep(0.005)
        await leader.stop()

    asyncio.run(main())


def test_voters_connect_in_advance_and_ignore_lost_idle_connections(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        processes = quorum(tmp_path, 2)
        first, second = [await p.start() for p in processes]
        await leader_of(processes)
        transport = first.client.driver._transport
        assert isinstance(transport, NetTransport)
        where = ("127.0.0.1", second.port)
        lost: list[Address] = []
        transport.on_lost = lost.append
        async with asyncio.timeout(10):
            while not all(
                (c := transport._channels.get((where, polled))) and c.connection for polled in (False, True)
            ):
                transport.warm([where])
                await asyncio.sleep(0.01)
        for polled, seen in ((False, []), (True, [where])):
            connection = transport._channels[where, polled].connection
            assert connection is not None
            connection.close(KafkaConnectionError("the other end closed it"))
            await asyncio.wait_for(asyncio.shield(connection.closed), 5)
            await asyncio.sleep(0)
            assert lost[:1] == seen
        for p in processes:
            await p.stop(0.1)

    asyncio.run(main())


@pytest.mark.parametrize("host", ["x" * 80, "ä..b", "no\x00host"])
def test_an_invalid_host_is_tried_with_growing_pauses_and_logged_once(
    tmp_path: Path, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = RaftConfig(
        node_id=1, directory_id=directory(1), cluster_id=CLUSTER, metadata_dir=tmp_path, listener_name=LISTENER,
        endpoints={}, is_controller=False,
    )  # fmt: skip
    out = Outgoing(m.Peer(2, (host, 9093)), m.Fetch(ReplicaKey(1), 1, 0, 0, 500))
    failures: list[object] = []
    said: list[str] = []

    async def body() -> float:
        loop = asyncio.get_running_loop()
        transport, done, began = NetTransport("t", 1.0), loop.create_future(), loop.time()

        def replied(sent: Outgoing, reply: m.Reply | m.Failure) -> None:
            failures.append(reply)
            if len(failures) < 5:
                calls.send(sent)
            elif not done.done():
                done.set_result(None)

        reachability = Reachability(LoopClock())
        calls = RequestSender(config, transport, replied, reachability)
        calls.send(out)
        await asyncio.wait_for(done, 10)
        said.append(reachability.describe(out.to.address))
        await calls.close()
        transport.close()
        return loop.time() - began

    took_s = asyncio.run(body())
    assert failures == [m.Failure.DISCONNECTED] * 5
    assert said[0].startswith("cannot be reached for 0 s: ")
    assert took_s > 0.8 * (0.02 + 0.04 + 0.08 + 0.16)
    errors = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert len(errors) == 1
    assert f"Fetch: cannot connect to {host}:9093" in errors[0]
