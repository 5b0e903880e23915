"""`max.connection.creation.rate`: connections above the rate wait for their turn (KIP-612)."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from quorate.net.accept_throttle import MAX_DELAY_S, ConnectionRate
from quorate.net.limits import ConnectionLimits
from quorate.net.sampled_rate import SampledRate
from quorate.protocol.api import encode_request
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.metadata import MetadataRequest
from tests.net import served
from tests.net.served import ServedListener
from tests.support import java

BURST = 10
"""Connections that a rate of one in a second admits at once: those of all windows but one."""


@pytest.fixture(params=served.LOOPS, autouse=True)
def loop(request: pytest.FixtureRequest) -> Iterator[None]:
    served.use_loop(request.param)
    yield
    served.use_loop("asyncio")


def test_a_burst_is_admitted_and_then_the_rate() -> None:
    rate, now, admitted = ConnectionRate(), 1000.0, 0
    rate.limit = 5
    while now < 1060.0:  # as an acceptor that waits after each connection
        now += rate.record(now)
        admitted += 1
    assert 60 * 5 <= admitted <= 60 * 5 + 10 * 5


def test_a_rate_of_zero_admits_one_connection_in_each_longest_wait() -> None:
    rate = ConnectionRate()
    rate.limit = 0
    assert [rate.record(1000.0 + i) for i in range(3)] == [MAX_DELAY_S] * 3


@pytest.mark.java
def test_the_time_above_the_rate_is_kafkas() -> None:
    random_ = random.Random(11)
    lines: list[str] = []
    ours: list[float] = []
    for _ in range(20):
        limit, now_ms = random_.randint(1, 50), 1_000_000
        rate = SampledRate(11, 1000)
        lines.append(f"limit {limit}")
        for _ in range(300):
            now_ms += random_.choice((0, 0, 1, 20, 100, 999, 1000, random_.randint(0, 3000)))
            lines.append(str(now_ms))
            rate.record(1, now_ms)
            ours.append(rate.excess_s(limit / 1000, now_ms))
    folder = java.require_java(java.LATEST_VERSION)
    program = str(Path(__file__).parent / "ConnectionRates.java")
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}/*", program],
        input="\n".join(lines), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    theirs = [float(line) for line in done.stdout.split()]
    assert sum(value > 0 for value in theirs) > 100
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-6)


def answers(world: ServedListener, count: int) -> list[asyncio.Task[object]]:
    """The answers to a request on each of so many new connections, which are opened in this order."""

    async def one() -> object:
        connection = await world.connect()  # it asks for the versions
        return await connection.call(MetadataRequest(), 15)

    return [asyncio.ensure_future(one()) for _ in range(count)]


async def accepted(world: ServedListener, count: int) -> None:
    """Waits until the listener has so many connections."""
    while len(world.listener.connections) < count:
        await asyncio.sleep(0.001)


def run(test: Callable[[ServedListener], Awaitable[None]], limits: ConnectionLimits | None = None) -> None:
    served.run(test, limits)


def test_connections_above_the_rate_are_answered_later_and_in_their_order() -> None:
    async def test(world: ServedListener) -> None:
        loop = asyncio.get_running_loop()
        world.listener.throttle.rate.limit = 1
        began = loop.time()
        waiting = answers(world, BURST + 3)
        ended: list[int] = []
        for number, task in enumerate(waiting):
            task.add_done_callback(lambda _, number=number: ended.append(number))
        await asyncio.gather(*waiting[:BURST])
        assert loop.time() - began < 0.9
        assert not any(task.done() for task in waiting[BURST:])
        await asyncio.gather(*waiting)
        assert loop.time() - began >= 2.5
        assert ended[BURST:] == [BURST, BURST + 1, BURST + 2]

    run(test)


def test_a_connection_that_waits_is_not_closed_as_one_that_sends_nothing() -> None:
    async def test(world: ServedListener) -> None:
        world.listener.throttle.rate.limit = 1
        await asyncio.gather(*answers(world, BURST))
        [late] = answers(world, 1)
        await late  # it waits for a second, and then it has 0.2 s for its first request

    run(test, ConnectionLimits(first_request_s=0.2))


def test_one_that_ends_while_it_waits_does_not_hold_up_the_others() -> None:
    async def test(world: ServedListener) -> None:
        world.listener.throttle.rate.limit = 1
        await asyncio.gather(*answers(world, BURST))
        _, gone = await world.raw()
        await accepted(world, BURST + 1)
        gone.close()
        [late] = answers(world, 1)
        await late

    run(test)


def test_clients_that_give_up_take_nobodys_turn() -> None:
    """Their connections do not read while they wait, and so are not told that the client has closed
    them. If each took a turn, clients that give up and come again would wait for ever behind what
    they left."""

    async def test(world: ServedListener) -> None:
        loop = asyncio.get_running_loop()
        world.listener.throttle.rate.limit = 1
        await asyncio.gather(*answers(world, BURST))
        request = encode_request(1, "c", ApiVersionsRequest(), 0)
        for number in range(8):
            _, gone = await world.raw()
            gone.write(len(request).to_bytes(4, "big") + request)
            await accepted(world, BURST + number + 1)
            gone.close()
        began = loop.time()
        [late] = answers(world, 1)
        await late
        assert loop.time() - began < 4
        while len(world.listener.connections) > BURST + 1:
            await asyncio.sleep(0.001)

    run(test)


def test_a_turn_that_nobody_took_is_the_next_connections() -> None:
    """Otherwise one client that gives up before its turn, and comes again after it, would never be served."""

    async def test(world: ServedListener) -> None:
        loop, listener = asyncio.get_running_loop(), world.listener
        listener.throttle.rate.limit = 0
        request = encode_request(1, "c", ApiVersionsRequest(), 0)
        _, gone = await world.raw()
        gone.write(len(request).to_bytes(4, "big") + request)
        await accepted(world, 1)
        gone.close()
        while listener.connections:
            await asyncio.sleep(0.001)
        began = loop.time()
        await answers(world, 1)[0]
        assert loop.time() - began < MAX_DELAY_S / 2
        await answers(world, 1)[0]
        assert loop.time() - began > MAX_DELAY_S * 0.9

    run(test)


def test_listeners_that_share_a_rate_count_their_connections_together() -> None:
    async def test(world: ServedListener) -> None:
        other = ServedListener()
        await other.listener.start("127.0.0.1", 0, other.dispatcher, "OTHER")
        try:
            shared = ConnectionRate()
            shared.limit = 1
            world.listener.throttle.shared = other.listener.throttle.shared = shared
            await asyncio.gather(*answers(world, BURST))
            [late] = answers(other, 1)
            done, _ = await asyncio.wait([late], timeout=0.3)
            assert not done
            await late
        finally:
            await other.listener.close()

    run(test)


def test_closing_the_listener_forgets_who_waits() -> None:
    async def test(world: ServedListener) -> None:
        world.listener.throttle.rate.limit = 0
        waiting = answers(world, 2)
        await accepted(world, 2)
        await world.listener.close()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, Exception) for each in found)

    run(test)
