"""The pauses between the requests of a connection."""

from __future__ import annotations

import asyncio

import pytest

from quorate.net.connections import connection as connection_module
from quorate.net.dispatch import RequestContext
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.net import served
from tests.net.served import LOOPS, ServedListener, frame, use_loop


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_resumes_after_a_pause_between_requests_but_not_within_one(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_loop(loop)
    monkeypatch.setattr(connection_module, "PAUSE_S", 0.05)
    resumed: list[float] = []

    def answer(context: RequestContext, _: MetadataRequest) -> MetadataResponse:
        assert context.connection is not None
        resumed.append(context.connection.resumed_at)
        return MetadataResponse()

    async def test(world: ServedListener) -> None:
        world.metadata = answer
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        requests = [frame(number, MetadataRequest(), 5) for number in range(3)]
        for part, wanted in ((requests[0] + requests[1][:9], 1), (requests[1][9:], 2), (requests[2], 3)):
            await asyncio.sleep(0.1)
            writer.write(part)
            while len(resumed) < wanted:
                await asyncio.sleep(0.001)
        writer.close()
        del reader

    served.run(test)
    first, second, third = resumed
    assert 0 < first == second < third - 0.05
