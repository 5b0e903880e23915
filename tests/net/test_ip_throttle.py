"""The client quota `connection_creation_rate` of IP addresses: connections above the rate are
closed (KIP-612)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from quorate.net.accept_throttle import MAX_DELAY_S, WINDOWS
from quorate.net.errors import NetError
from quorate.net.ip_throttle import MAX_DELAYED, IpRates
from quorate.protocol.api import encode_request
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.metadata import MetadataRequest
from tests.net import served
from tests.net.served import ServedListener

BURST = 10
"""Connections that a rate of one in a second admits at once: those of all windows but one."""


@pytest.fixture(params=served.LOOPS)
def loop(request: pytest.FixtureRequest) -> Iterator[None]:
    served.use_loop(request.param)
    yield
    served.use_loop("asyncio")


def rates(default: int, **of: int) -> IpRates:
    found = IpRates()
    found.set_limits(default, of)
    return found


def test_an_address_that_comes_again_and_again_gets_its_rate() -> None:
    limited, now, admitted = rates(5), 1000.0, 0
    while now < 1060.0:
        admitted += not limited.record("a", now)
        now += 0.01
    assert 60 * 5 <= admitted <= 60 * 5 + 10 * 5


def test_each_address_has_its_own_rate_or_the_default() -> None:
    limited = rates(2, a=1, b=2**31 - 1)
    admitted = {name: sum(not limited.record(name, 1000.0) for _ in range(100)) for name in "abcd"}
    assert admitted == {"a": 10, "b": 100, "c": 20, "d": 20}


def test_a_connection_is_delayed_by_the_time_above_the_rate_and_at_most_a_second() -> None:
    limited = rates(2)
    assert [limited.record("a", 1000.0) for _ in range(21)] == [0.0] * 20 + [0.5]
    slow = rates(1)
    assert [slow.record("a", 1000.0) for _ in range(12)] == [0.0] * 10 + [1.0, 1.0], (
        "refused ones do not count"
    )


def test_a_changed_limit_counts_what_came_before() -> None:
    limited = rates(100)
    assert not any(limited.record("a", 1000.0) for _ in range(30))
    limited.set_limits(2, {})
    assert limited.record("a", 1000.0) == MAX_DELAY_S
    limited.set_limits(2**31 - 1, {})
    assert limited.record("a", 1000.0) == 0.0


def test_addresses_are_forgotten_when_their_windows_are_over() -> None:
    limited = rates(1)
    for number in range(5000):
        limited.record(str(number), 1000.0 + number)
    assert len(limited) <= WINDOWS + 2


def test_nothing_is_remembered_of_addresses_without_a_limit() -> None:
    free = rates(2**31 - 1, a=1)
    for number in range(100):
        free.record(str(number), 1000.0)
    assert len(free) == 0


async def served_one(world: ServedListener) -> bool:
    """Whether a new connection is answered. It stays open."""
    try:
        connection = await world.connect()
        await connection.call(MetadataRequest(), 15)
    except (NetError, OSError):
        return False
    return True


@pytest.mark.usefixtures("loop")
def test_connections_above_the_rate_are_closed_without_an_answer() -> None:
    async def test(world: ServedListener) -> None:
        loop = asyncio.get_running_loop()
        world.listener.ip_throttle.rates.set_limits(1, {})
        assert await asyncio.gather(*(served_one(world) for _ in range(BURST))) == [True] * BURST
        request = encode_request(1, "c", ApiVersionsRequest(), 0)
        began = loop.time()
        reader, writer = await world.raw()
        writer.write(len(request).to_bytes(4, "big") + request)
        with contextlib.suppress(ConnectionError):  # its request was not read, so it may be reset
            assert await reader.read() == b""
        assert MAX_DELAY_S * 0.9 < loop.time() - began < MAX_DELAY_S + 2
        assert len(world.listener.connections) == BURST
        assert len(world.seen) == BURST

    served.run(test)


@pytest.mark.usefixtures("loop")
def test_they_count_neither_for_the_rate_of_the_listener_nor_for_its_connections() -> None:
    async def test(world: ServedListener) -> None:
        world.listener.ip_throttle.rates.set_limits(1, {})
        world.listener.throttle.rate.limit = 1
        for _ in range(BURST):
            assert await served_one(world)
        for _ in range(2):
            assert not await served_one(world)
        world.listener.ip_throttle.rates.set_limits(2**31 - 1, {})
        assert await served_one(world)
        assert len(world.listener.connections) == BURST + 1

    served.run(test)


@pytest.mark.usefixtures("loop")
def test_an_address_that_is_refused_holds_few_descriptors() -> None:
    async def test(world: ServedListener) -> None:
        world.listener.ip_throttle.rates.set_limits(1, {})
        for _ in range(BURST):
            assert await served_one(world)
        streams = [await world.raw() for _ in range(3 * MAX_DELAYED)]
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in streams]
        done, held = await asyncio.wait(ends, timeout=MAX_DELAY_S / 2)
        assert len(held) == MAX_DELAYED, (len(done), len(held))
        await asyncio.wait_for(asyncio.gather(*ends, return_exceptions=True), MAX_DELAY_S + 5)

    served.run(test)


@pytest.mark.usefixtures("loop")
def test_they_hold_no_more_descriptors_than_connections_may() -> None:
    """Otherwise the logs find none left: their directory goes offline, and the node stops."""

    async def test(world: ServedListener) -> None:
        listener = world.listener
        listener.limits = replace(listener.limits, max_connections=4)
        listener.ip_throttle.rates.set_limits(0, {})
        refused = [await world.raw() for _ in range(20)]
        while listener.accepted < 20:
            await asyncio.sleep(0.001)
        assert listener.ip_throttle.delayed == 4
        listener.ip_throttle.rates.set_limits(2**31 - 1, {})
        assert await served_one(world)
        assert (listener.ip_throttle.delayed, len(listener.connections)) == (3, 1)
        for _, writer in refused:
            writer.close()

    served.run(test)


@pytest.mark.usefixtures("loop")
def test_closing_the_listener_closes_them() -> None:
    async def test(world: ServedListener) -> None:
        world.listener.ip_throttle.rates.set_limits(1, {})
        for _ in range(BURST):
            assert await served_one(world)
        reader, _ = await world.raw()
        end = asyncio.ensure_future(reader.read())
        while not world.listener.ip_throttle.delayed:
            await asyncio.sleep(0.001)
        await world.listener.close()
        assert await end == b""
        assert not world.listener.ip_throttle.delayed

    served.run(test)
