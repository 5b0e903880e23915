"""Connections by name while the lookups of another name hang."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quorate.net import name_lookup
from quorate.net.channel import NodeChannel
from quorate.net.errors import KafkaConnectionError, RequestTimedOut
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.net.served import LOOPS, ServedListener, run, use_loop


@pytest.fixture(autouse=True, params=LOOPS)
def _loop(request: pytest.FixtureRequest) -> None:
    """Every test runs on asyncio's own event loop and on uvloop, which nodes use."""
    use_loop(request.param)


SILENT = "127.0.0.3"


@contextlib.contextmanager
def silent_address(port: int) -> Iterator[None]:
    """Lets `SILENT` drop what is sent to this port, as a host behind a link that is down: the queue of new
    connections is full, and nobody takes them."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind((SILENT, port))
        full.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((SILENT, port))
        yield


class NameServer:
    """Looks up `alive.test`, `two.test` and `silent.test` at once, and `slow.test` in a second. Lookups of
    `hangs.test` end when `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []
        self._others: Callable[..., list[Any]] = socket.getaddrinfo

    def getaddrinfo(self, host: str, *args: Any, **options: Any) -> list[Any]:
        if not host.endswith(".test"):
            return self._others(host, *args, **options)
        self.asked.append(host)
        if host == "hangs.test":
            self.answers.wait(20)
        if host == "slow.test":
            time.sleep(1.0)
        found = {
            "alive.test": ["127.0.0.1"],
            "two.test": ["127.0.0.2", "127.0.0.1"],
            "silent.test": [SILENT, "127.0.0.1"],
            "hangs.test": ["127.0.0.1"],
            "slow.test": ["127.0.0.1"],
        }.get(host)
        if found is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in found]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.getaddrinfo)
    yield server
    server.answers.set()
    for thread in threading.enumerate():
        if thread.name.startswith("lookup-"):
            thread.join(5)
    name_lookup._kept.clear()


async def give_up(port: int) -> None:
    channel = NodeChannel("hangs.test", port, connect_timeout_s=0.01)
    with pytest.raises(RequestTimedOut):
        await channel.connected()
    channel.close()


def test_attempts_to_a_name_whose_lookup_hangs_do_not_delay_a_connection_to_another_name(
    names: NameServer,
) -> None:
    async def test(world: ServedListener) -> None:
        for _ in range(40):
            await give_up(world.listener.port)
        channel = NodeChannel("alive.test", world.listener.port, connect_timeout_s=5)
        assert isinstance(await channel.call(MetadataRequest(), 5), MetadataResponse)
        channel.close()

    run(test)


def test_attempts_at_the_same_time_share_a_lookup(names: NameServer) -> None:
    async def test(world: ServedListener) -> None:
        await asyncio.gather(*(give_up(world.listener.port) for _ in range(40)))

    run(test)
    assert names.asked == ["hangs.test"]


def test_later_attempts_begin_a_limited_number_of_further_lookups(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_lookup, "SHARED_S", 0.0)

    async def test(world: ServedListener) -> None:
        for _ in range(10):
            await give_up(world.listener.port)

    run(test)
    assert names.asked == ["hangs.test"] * name_lookup.MAX_LOOKUPS


def test_an_attempt_that_waits_for_a_shared_lookup_connects_when_it_ends(names: NameServer) -> None:
    async def test(world: ServedListener) -> None:
        await give_up(world.listener.port)
        channel = NodeChannel("hangs.test", world.listener.port, connect_timeout_s=5)
        asking = asyncio.ensure_future(channel.call(MetadataRequest(), 5))
        await asyncio.sleep(0.01)
        names.answers.set()
        assert isinstance(await asking, MetadataResponse)
        channel.close()

    run(test)


@pytest.mark.parametrize("pause_s", [0.0, 1.2])
def test_a_lookup_that_takes_longer_than_an_attempt_serves_a_later_one(
    names: NameServer, monkeypatch: pytest.MonkeyPatch, pause_s: float
) -> None:
    monkeypatch.setattr(name_lookup, "SHARED_S", 0.2)

    async def test(world: ServedListener) -> None:
        channel = NodeChannel("slow.test", world.listener.port, connect_timeout_s=0.4, backoff_max_s=0.05)
        for _ in range(5):
            try:
                await channel.connected()
                break
            except RequestTimedOut:
                await asyncio.sleep(pause_s)
        assert channel.connection is not None
        channel.close()

    run(test)


def test_the_result_of_an_older_lookup_does_not_replace_a_newer_one(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]

    def getaddrinfo(host: str, *args: Any, **options: Any) -> list[Any]:
        number = int(asked[0].is_set())
        asked[number].set()
        assert answers[number].wait(10)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"10.0.0.{number}", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(name_lookup, "SLOW_S", 0.0)
    threads = []
    for began, each in enumerate(asked, 1):
        with name_lookup._lock:
            found = name_lookup._shared_lookup("moved.test", name_lookup.SHARED_S * began)
        assert each.wait(10)
        threads = [thread for thread in threading.enumerate() if thread.name == "lookup-moved.test"]
    answers[1].set()
    assert found.result(10) == ["10.0.0.1"]
    answers[0].set()
    for thread in threads:
        thread.join(10)
    assert name_lookup._kept["moved.test"].addresses == ["10.0.0.1"]


def test_a_thread_that_cannot_be_started_is_not_waited_for(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def test(world: ServedListener) -> None:
        channel = NodeChannel("alive.test", world.listener.port, connect_timeout_s=1)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            for _ in range(name_lookup.MAX_LOOKUPS):
                with pytest.raises(KafkaConnectionError, match="can't start new thread"):
                    await channel.connected()
        assert isinstance(await channel.call(MetadataRequest(), 1), MetadataResponse)
        channel.close()

    run(test)


def test_the_next_address_of_a_name_is_tried_when_one_refuses(names: NameServer) -> None:
    async def test(world: ServedListener) -> None:
        channel = NodeChannel("two.test", world.listener.port, connect_timeout_s=5)
        assert isinstance(await channel.call(MetadataRequest(), 5), MetadataResponse)
        channel.close()

    run(test)


def test_the_next_address_of_a_name_is_tried_when_one_is_silent(names: NameServer) -> None:
    async def test(world: ServedListener) -> None:
        with silent_address(world.listener.port):
            channel = NodeChannel("silent.test", world.listener.port, connect_timeout_s=2)
            assert isinstance(await channel.call(MetadataRequest(), 2), MetadataResponse)
            channel.close()

    run(test)


def test_a_name_that_does_not_exist_is_a_connection_error(names: NameServer) -> None:
    async def test(world: ServedListener) -> None:
        channel = NodeChannel("missing.test", world.listener.port, connect_timeout_s=5)
        with pytest.raises(KafkaConnectionError, match=r"missing\.test.*Name or service not known"):
            await channel.connected()
        channel.close()

    run(test)
