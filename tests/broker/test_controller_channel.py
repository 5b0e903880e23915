"""The channel to the active controller: how it is found, its changes, and forwarding."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from quorate.broker.controller_channel import ControllerChannel, encode_principal, host_address
from quorate.net.dispatch import RequestContext
from quorate.net.errors import RequestTimedOut
from quorate.protocol.api import ApiKey, encode_request, encode_response
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from quorate.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.envelope import EnvelopeResponse
from quorate.protocol.messages.principal_data import DefaultPrincipalData
from tests.support.cluster import free_ports

from .controllers import Leader, ScriptedController, run


def heartbeats(*codes: ErrorCode) -> ScriptedController:
    script = list(codes)

    def answer(_context: Any, _request: Any) -> BrokerHeartbeatResponse:
        return BrokerHeartbeatResponse(error_code=script.pop(0) if len(script) > 1 else script[0])

    return ScriptedController({ApiKey.BROKER_HEARTBEAT: answer})


def channel_to(leader: Leader, publisher: Any = None) -> ControllerChannel:
    return ControllerChannel(
        "test", leader.locator, client_id="1", publisher=publisher, loop=asyncio.get_running_loop()
    )


def test_a_request_waits_until_a_leader_is_known():
    async def body() -> None:
        controller = heartbeats(ErrorCode.NONE)
        leader = Leader(asyncio.get_running_loop())
        channel = channel_to(leader)
        asked = asyncio.ensure_future(channel.send(BrokerHeartbeatRequest(broker_id=1), 5))
        port = await controller.start()
        assert not asked.done()
        leader.set((1, "127.0.0.1", port))
        assert (await asked).error_code == ErrorCode.NONE
        channel.close()
        await controller.close()

    run(body)


def test_a_standby_is_retried_until_it_is_active():
    async def body() -> None:
        controller = heartbeats(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE)
        leader = Leader(asyncio.get_running_loop())
        leader.set((1, "127.0.0.1", await controller.start()))
        channel = channel_to(leader)
        assert (await channel.send(BrokerHeartbeatRequest(broker_id=1), 5)).error_code == ErrorCode.NONE
        assert len(controller.asked) == 3
        channel.close()
        await controller.close()

    run(body)


def test_a_new_leader_is_followed():
    async def body() -> None:
        old, new = heartbeats(ErrorCode.NOT_CONTROLLER), heartbeats(ErrorCode.NONE)
        leader = Leader(asyncio.get_running_loop())
        leader.set((1, "127.0.0.1", await old.start()))
        channel = channel_to(leader)
        asked = asyncio.ensure_future(channel.send(BrokerHeartbeatRequest(broker_id=1), 5))
        while not old.asked:
            await asyncio.sleep(0)
        leader.set((2, "127.0.0.1", await new.start()))
        assert (await asked).error_code == ErrorCode.NONE
        assert len(new.asked) == 1
        channel.close()
        await old.close()
        await new.close()

    run(body)


def test_requests_in_flight_at_a_silent_controller_go_to_its_successor():
    """The controller may be stopped or partitioned: its connection is not reset, and no response arrives."""

    async def body() -> None:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        silent, new = (
            ScriptedController({ApiKey.BROKER_HEARTBEAT: lambda *_: never}),
            heartbeats(ErrorCode.NONE),
        )
        leader = Leader(asyncio.get_running_loop())
        leader.set((1, "127.0.0.1", await silent.start()))
        channel = channel_to(leader)
        asked = asyncio.ensure_future(channel.send(BrokerHeartbeatRequest(broker_id=1), 15))
        while not silent.asked:
            await asyncio.sleep(0)
        leader.set((2, "127.0.0.1", await new.start()))
        assert (await asyncio.wait_for(asked, 5)).error_code == ErrorCode.NONE
        channel.close()
        never.cancel()
        await silent.close()
        await new.close()

    run(body)


@pytest.mark.parametrize("meanwhile", [False, True], ids=["alone", "while others are asked of the successor"])
def test_the_last_response_of_a_replaced_controller_is_used(meanwhile: bool):
    """It had committed. A retry at its successor would return TOPIC_ALREADY_EXISTS."""

    async def body() -> None:
        last: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        old, new = ScriptedController({ApiKey.BROKER_HEARTBEAT: lambda *_: last}), heartbeats(ErrorCode.NONE)
        leader = Leader(asyncio.get_running_loop())
        leader.set((1, "127.0.0.1", await old.start()))
        channel = channel_to(leader)
        asked = asyncio.ensure_future(channel.send(BrokerHeartbeatRequest(broker_id=1), 15))
        while not old.asked:
            await asyncio.sleep(0)
        leader.set((2, "127.0.0.1", await new.start()))
        if meanwhile:
            assert (await channel.send(BrokerHeartbeatRequest(broker_id=2), 15)).error_code == ErrorCode.NONE
        last.set_result(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        assert (await asked).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert len(new.asked) == meanwhile
        channel.close()
        await old.close()
        await new.close()

    run(body)


def test_a_standby_is_connected_to_before_it_leads():
    async def body() -> None:
        old, new = heartbeats(ErrorCode.NONE), heartbeats(ErrorCode.NONE)
        addresses = [("127.0.0.1", await old.start()), ("127.0.0.1", await new.start())]
        leader = Leader(asyncio.get_running_loop())
        leader.set((1, *addresses[0]))
        channel = channel_to(leader)
        await channel.send(BrokerHeartbeatRequest(broker_id=1), 5)
        channel.keep_warm(lambda: addresses)
        while channel._standbys[addresses[1]].connection is None:
            await asyncio.sleep(0.001)
        assert (old.connections, new.connections) == (1, 1)
        leader.set((2, *addresses[1]))
        await channel.send(BrokerHeartbeatRequest(broker_id=1), 5)
        assert (len(new.asked), new.connections) == (1, 1)
        channel.close()
        await old.close()
        await new.close()

    run(body)


def test_the_connection_to_a_former_controller_is_closed(monkeypatch: pytest.MonkeyPatch):
    async def body() -> None:
        monkeypatch.setattr("quorate.broker.controller_channel._WARM_S", 0.01)
        old, gone = heartbeats(ErrorCode.NONE), heartbeats(ErrorCode.NONE)
        addresses = [("127.0.0.1", await old.start()), ("127.0.0.1", await gone.start())]
        leader = Leader(asyncio.get_running_loop())
        leader.set((1, *addresses[0]))
        channel = channel_to(leader)
        await channel.send(BrokerHeartbeatRequest(broker_id=1), 5)
        channel.keep_warm(lambda: addresses)
        while not gone.connections:
            await asyncio.sleep(0.001)
        del addresses[1]
        while gone.connections:
            await asyncio.sleep(0.001)
        assert old.connections == 1
        channel.close()
        await old.close()
        await gone.close()

    run(body)


def test_a_new_leader_gets_requests_at_once_even_if_the_old_one_still_answers(
    monkeypatch: pytest.MonkeyPatch,
):
    async def body() -> None:
        monkeypatch.setattr("quorate.broker.controller_channel._RETRY_MIN_S", 15.0)
        new = heartbeats(ErrorCode.NONE)
        leader = Leader(asyncio.get_running_loop())
        address = (2, "127.0.0.1", await new.start())

        def refuse(_context: Any, _request: Any) -> BrokerHeartbeatResponse:
            leader.set(address)
            return BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)

        old = ScriptedController({ApiKey.BROKER_HEARTBEAT: refuse})
        leader.set((1, "127.0.0.1", await old.start()))
        channel = channel_to(leader)
        answer = await asyncio.wait_for(channel.send(BrokerHeartbeatRequest(broker_id=1), 15), 5)
        assert answer.error_code == ErrorCode.NONE
        channel.close()
        await old.close()
        await new.close()

    run(body)


def test_a_request_that_waits_to_reconnect_to_a_dead_controller_goes_to_its_successor_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    async def body() -> None:
        for name in ("_RETRY_MIN_S", "_RETRY_MAX_S", "_LAST_ANSWERS_S"):
            monkeypatch.setattr(f"quorate.broker.controller_channel.{name}", 15.0)
        new = heartbeats(ErrorCode.NONE)
        leader = Leader(asyncio.get_running_loop())
        address = (2, "127.0.0.1", await new.start())
        leader.set((1, "127.0.0.1", free_ports(1)[0]))
        channel = channel_to(leader)
        refused = asyncio.ensure_future(channel.send(BrokerHeartbeatRequest(broker_id=1), 15))
        while channel._node is None or not channel._node._failures or channel._node._connecting is not None:
            await asyncio.sleep(0)
        backing_off = asyncio.ensure_future(channel.send(BrokerHeartbeatRequest(broker_id=1), 15))
        while channel._node._connecting is None:
            await asyncio.sleep(0)
        leader.set(address)
        for asked in (refused, backing_off):
            assert (await asyncio.wait_for(asked, 5)).error_code == ErrorCode.NONE
        channel.close()
        await new.close()

    run(body)


def test_a_lost_connection_is_opened_again():
    async def body() -> None:
        leader = Leader(asyncio.get_running_loop())

        def drop(context: Any, _request: Any) -> None:
            context.connection.close()

        dropping, answering = ScriptedController({ApiKey.BROKER_HEARTBEAT: drop}), heartbeats(ErrorCode.NONE)
        leader.set((1, "127.0.0.1", await dropping.start()))
        channel = channel_to(leader)
        asked = asyncio.ensure_future(channel.send(BrokerHeartbeatRequest(broker_id=1), 5))
        while not dropping.asked:
            await asyncio.sleep(0)
        leader.set((1, "127.0.0.1", await answering.start()))
        assert (await asked).error_code == ErrorCode.NONE
        channel.close()
        await dropping.close()
        await answering.close()

    run(body)


def test_a_request_times_out_without_a_leader():
    async def body() -> None:
        channel = channel_to(Leader(asyncio.get_running_loop()))
        with pytest.raises(RequestTimedOut):
            await channel.send(BrokerHeartbeatRequest(broker_id=1), 0.05)

    run(body)


# -- forwarding


def context(version: int = 7, connection: Any = None) -> RequestContext:
    request = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1)])
    return RequestContext(
        api_key=int(ApiKey.CREATE_TOPICS),
        api_version=version,
        correlation_id=77,
        client_id="me",
        listener="PLAINTEXT",
        principal="User:alice",
        client_host="10.1.2.3",
        frame=memoryview(encode_request(77, "me", request, version)),
        connection=connection,
    )


def enclosed(committed_offset: int = -1) -> EnvelopeResponse:
    topic = CreateTopicsResponse.CreatableTopicResult(name="t", topic_id=bytes(range(16)))
    parts = encode_response(77, int(ApiKey.CREATE_TOPICS), 7, CreateTopicsResponse(topics=[topic]))
    return EnvelopeResponse(response_data=b"".join(parts), committed_offset=committed_offset)


def enveloping(committed_offset: int = -1, error: ErrorCode = ErrorCode.NONE) -> ScriptedController:
    def answer(_context: Any, _request: Any) -> EnvelopeResponse:
        if error != ErrorCode.NONE:
            return EnvelopeResponse(error_code=error)
        return enclosed(committed_offset)

    return ScriptedController({ApiKey.ENVELOPE: answer})


class Applied:
    """A publisher that records the offsets it has to wait for."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.conditions = 0

    async def wait_for_offset(self, offset: int, timeout_s: float) -> bool:
        self.offsets.append(offset)
        return True

    async def wait_until(self, condition: Any, timeout_s: float | None) -> bool:
        self.conditions += 1
        return True


async def forwarded(controller: ScriptedController, publisher: Any = None, connection: Any = None) -> Any:
    leader = Leader(asyncio.get_running_loop())
    leader.set((1, "127.0.0.1", await controller.start()))
    channel = channel_to(leader, publisher)
    try:
        ctx = context(connection=connection)
        return await channel.forward(ctx, CreateTopicsRequest())
    finally:
        channel.close()
        await controller.close()


def test_a_request_is_forwarded_unchanged_with_the_principal_of_its_client():
    async def body() -> None:
        controller = enveloping()
        response = await forwarded(controller)
        (envelope,) = controller.asked
        assert envelope.request_data == bytes(context().frame or b"")
        assert envelope.client_host_address == bytes([10, 1, 2, 3])
        assert envelope.request_principal[:2] == b"\0\0"
        principal = DefaultPrincipalData.decode(envelope.request_principal[2:], 0)
        assert (principal.type, principal.name) == ("User", "alice")
        assert [topic.name for topic in response.topics] == ["t"]

    run(body)


def test_every_attempt_of_a_creation_has_its_id_and_the_number_of_lost_attempts():
    async def body() -> None:
        def answer(ctx: Any, request: Any) -> Any:
            tries.append((request.request_id, request.unanswered_attempts))
            if len(tries) == 1:
                ctx.connection.close()
                return asyncio.get_running_loop().create_future()
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER) if len(tries) == 2 else enclosed()

        tries: list[tuple[bytes, int]] = []
        await forwarded(ScriptedController({ApiKey.ENVELOPE: answer}))
        [name] = {name for name, _ in tries}
        assert any(name)
        assert [lost for _, lost in tries] == [0, 1, 2]
        await forwarded(ScriptedController({ApiKey.ENVELOPE: answer}))
        assert tries[-1][0] != name  # another request of a client

    run(body)


def test_the_answer_waits_until_the_broker_has_applied_it():
    async def body() -> None:
        publisher = Applied()
        await forwarded(enveloping(committed_offset=41), publisher)
        assert (publisher.offsets, publisher.conditions) == ([41], 0)

    run(body)


def test_without_a_committed_offset_the_topics_are_waited_for():
    async def body() -> None:
        publisher = Applied()
        await forwarded(enveloping(), publisher)
        assert (publisher.offsets, publisher.conditions) == ([], 1)

    run(body)


def test_a_version_that_the_controller_refuses_closes_the_clients_connection():
    async def body() -> None:
        closed: list[bool] = []
        connection = SimpleNamespace(close=lambda: closed.append(True))
        assert await forwarded(enveloping(error=ErrorCode.UNSUPPORTED_VERSION), connection=connection) is None
        assert closed == [True]

    run(body)


def test_any_other_error_of_the_envelope_is_an_unknown_error_to_the_client():
    async def body() -> None:
        with pytest.raises(KafkaError) as refused:
            await forwarded(enveloping(error=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE))
        assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(body)


@pytest.mark.parametrize(
    ("host", "packed"),
    [
        ("127.0.0.1", bytes([127, 0, 0, 1])),
        ("::1", bytes(15) + b"\1"),
        ("fe80::1%eth0", bytes.fromhex("fe800000000000000000000000000001")),
        ("", bytes([127, 0, 0, 1])),
    ],
)
def test_client_addresses_are_sent_as_bytes(host, packed):
    assert host_address(host) == packed


def test_a_principal_name_may_hold_colons():
    data = DefaultPrincipalData.decode(encode_principal("User:CN=a:b", True)[2:], 0)
    assert (data.type, data.name, data.token_authenticated) == ("User", "CN=a:b", True)
