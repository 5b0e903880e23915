"""The states of a broker, and the exchanges with the controller that change them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from quorate.broker.controller_channel import ControllerChannel
from quorate.broker.lifecycle import BrokerLifecycle, BrokerState
from quorate.broker.metadata.cache import MetadataCache
from quorate.broker.metadata.publisher import BrokerMetadataListener
from quorate.config.listeners import Endpoint
from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY, MetadataDelta, MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.metadata.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import EncodeError, ErrorCode
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from quorate.protocol.messages.broker_registration import BrokerRegistrationResponse
from quorate.protocol.schema import Data
from quorate.raft.types import CommittedBatch

from .controllers import Leader, ScriptedController, run

ME = 1


class Config:
    """The keys that the lifecycle reads."""

    node_id = ME

    def __init__(self, **changes: Any) -> None:
        self._values = {
            "broker.heartbeat.interval.ms": 2000,
            "broker.session.timeout.ms": 9000,
            "initial.broker.registration.timeout.ms": 60000,
            "log.dir.failure.timeout.ms": 30000,
            "broker.rack": "r1",
        } | {key.replace("_", "."): value for key, value in changes.items()}

    def get(self, name: str) -> Any:
        return self._values[name]


class World:
    """The lifecycle of a broker, its metadata, and a scripted controller."""

    def __init__(self, heartbeat: Any, registration: Any = None, **config: Any) -> None:
        loop = asyncio.get_running_loop()
        self.cordoned: list[bytes] | None = None
        self.faults: list[BaseException] = []
        self.controller = ScriptedController(
            {
                ApiKey.BROKER_REGISTRATION: registration
                or (lambda _c, _r: BrokerRegistrationResponse(broker_epoch=5)),
                ApiKey.BROKER_HEARTBEAT: heartbeat,
            }
        )
        self.leader = Leader(loop)
        self.publisher = BrokerMetadataListener(ME, MetadataCache(), loop, self.faults.append)
        self.channel = ControllerChannel("heartbeat", self.leader.locator, client_id="1", loop=loop)
        self.life = BrokerLifecycle(
            Config(**config),  # type: ignore[arg-type]
            self.channel,
            self.publisher,
            cluster_id="c",
            incarnation_id=bytes(range(16)),
            directory_ids=[bytes([2] * 16), bytes([1] * 16)],
            features={"metadata.version": (7, 27)},
            previous_broker_epoch=3,
            start_time_ms=1234,
            on_fault=self.faults.append,
            loop=loop,
            cordoned_directories=lambda: self.cordoned,
        )

    async def start(self) -> None:
        self.leader.set((1, "127.0.0.1", await self.controller.start()))
        self.life.start([Endpoint("PLAINTEXT", "h", 9092, 0)])

    def see_registration(self, offset: int = 5) -> None:
        self.see(offset, RegisterBrokerRecord(broker_id=ME, broker_epoch=5, fenced=True))

    def see(self, offset: int, record: Data) -> None:
        value = encode_record(record, 1)
        self.publisher.on_commit([CommittedBatch(offset, offset, 1, 0, [value], len(value))])

    async def until(self, condition: Any) -> None:
        while not condition():
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self.life.close()
        self.channel.close()
        await self.controller.close()

    def heartbeats(self) -> list[Any]:
        return [
            request for request in self.controller.asked if type(request).__name__ == "BrokerHeartbeatRequest"
        ]


def obliging(_context: Any, request: Any) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= 5,
        is_fenced=request.want_fence,
        should_shut_down=request.want_shut_down,
    )


def test_a_broker_lives_through_its_states():
    async def body() -> None:
        world = World(obliging)
        assert world.life.state == BrokerState.NOT_RUNNING
        await world.start()
        assert world.life.state == BrokerState.STARTING
        await world.until(lambda: world.life.broker_epoch == 5)
        world.see_registration()
        await world.life.caught_up
        assert world.life.state == BrokerState.RECOVERY
        world.life.request_unfence()
        await world.life.unfenced
        assert world.life.state == BrokerState.RUNNING
        world.life.begin_controlled_shutdown()
        assert world.life.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN
        await world.life.may_stop
        assert world.life.state == BrokerState.SHUTTING_DOWN
        wants = [(request.want_fence, request.want_shut_down) for request in world.heartbeats()]
        assert wants == [(True, False), (False, False), (False, True)]
        await world.close()

    run(body)


def test_the_registration_describes_the_broker():
    async def body() -> None:
        world = World(obliging)
        await world.start()
        await world.until(lambda: world.life.broker_epoch == 5)
        request = world.controller.asked[0]
        assert (request.broker_id, request.cluster_id, request.incarnation_id) == (ME, "c", bytes(range(16)))
        assert [(listener.name, listener.host, listener.port) for listener in request.listeners] == [
            ("PLAINTEXT", "h", 9092)
        ]
        assert request.log_dirs == [bytes([1] * 16), bytes([2] * 16)]
        assert (request.rack, request.previous_broker_epoch, request.start_time_ms) == ("r1", 3, 1234)
        assert [(f.name, f.min_supported_version, f.max_supported_version) for f in request.features] == [
            ("metadata.version", 7, 27)
        ]
        await world.close()

    run(body)


def test_no_heartbeat_is_sent_before_the_broker_has_seen_its_registration():
    async def body() -> None:
        world = World(obliging)
        await world.start()
        await world.until(lambda: world.life.broker_epoch == 5)
        await asyncio.sleep(0.02)
        assert world.heartbeats() == []
        world.see_registration()
        await world.life.caught_up
        assert [request.current_metadata_offset for request in world.heartbeats()] == [5]
        await world.close()

    run(body)


def test_a_refused_registration_is_retried():
    async def body() -> None:
        codes = [ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.NONE]

        def register(_context: Any, _request: Any) -> BrokerRegistrationResponse:
            return BrokerRegistrationResponse(error_code=codes.pop(0), broker_epoch=5)

        world = World(obliging, register, broker_heartbeat_interval_ms=5)
        await world.start()
        await world.until(lambda: world.life.broker_epoch == 5)
        await world.close()

    run(body)


def test_a_broker_that_cannot_register_in_time_stops():
    async def body() -> None:
        world = World(
            obliging,
            lambda _c, _r: BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID),
            initial_broker_registration_timeout_ms=50,
            broker_heartbeat_interval_ms=5,
        )
        await world.start()
        await world.until(lambda: world.faults)
        assert "initial.broker.registration.timeout.ms" in str(world.faults[0])
        await world.close()

    run(body)


def test_a_failed_directory_is_reported_at_once():
    async def body() -> None:
        world = World(obliging)
        await world.start()
        await world.until(lambda: world.life.broker_epoch == 5)
        world.see_registration()
        await world.life.caught_up
        world.life.request_unfence()
        await world.life.unfenced
        world.life.directory_failed(bytes([2] * 16))
        await world.until(lambda: world.heartbeats()[-1].offline_log_dirs == [bytes([2] * 16)])
        await world.close()

    run(body)


def test_a_directory_failure_that_cannot_be_reported_is_a_fault():
    async def body() -> None:
        def refuse(_context: Any, _request: Any) -> BrokerHeartbeatResponse:
            return BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)

        world = World(refuse, log_dir_failure_timeout_ms=20)
        await world.start()
        await world.until(lambda: world.life.broker_epoch == 5)
        world.see_registration()
        world.life.directory_failed(bytes([2] * 16))
        await world.until(lambda: world.faults)
        assert "log.dir.failure.timeout.ms" in str(world.faults[0])
        await world.close()

    run(body)


def test_a_broker_that_never_ran_skips_controlled_shutdown():
    async def body() -> None:
        world = World(obliging)
        await world.start()
        world.life.begin_controlled_shutdown()
        assert world.life.may_stop.done()
        with pytest.raises(asyncio.CancelledError):
            await world.life.caught_up
        await world.close()

    run(body)


def test_the_shutdown_of_another_broker_is_reported_at_once():
    """The early heartbeat has the offset of the records that moved the leaderships. The next regular one
    would be two seconds later."""

    async def body() -> None:
        world = await running_world(obliging)
        world.publisher.start_publishing()
        world.publisher.subscribe("lifecycle", world.life.metadata_applied)
        count = len(world.heartbeats())
        world.see(6, RegisterBrokerRecord(broker_id=2, broker_epoch=6, fenced=False))
        world.see(7, BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=6, in_controlled_shutdown=1))
        before = asyncio.get_running_loop().time()
        await world.until(lambda: len(world.heartbeats()) > count)
        assert asyncio.get_running_loop().time() - before < 1
        assert world.heartbeats()[-1].current_metadata_offset == 7
        world.see(8, BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=6, in_controlled_shutdown=1))
        await world.until(lambda: world.heartbeats()[-1].current_metadata_offset == 8)
        await world.close()

    run(body)


def test_a_broker_that_is_leaving_itself_reports_nothing_early():
    async def body() -> None:
        def patient(context: Any, request: Any) -> BrokerHeartbeatResponse:
            answer = obliging(context, request)
            answer.should_shut_down = False
            return answer

        world = await running_world(patient)
        world.publisher.start_publishing()
        world.life.begin_controlled_shutdown()
        world.life.metadata_applied(MetadataDelta(world.publisher.image, leaving_image()))
        assert world.life.early_heartbeat is None
        await world.close()

    run(body)


def leaving_image() -> MetadataImage:
    """Broker 2 is in controlled shutdown."""
    return apply_records(
        EMPTY,
        [
            RegisterBrokerRecord(broker_id=2, broker_epoch=6, fenced=False),
            BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=6, in_controlled_shutdown=1),
        ],
        offset=9,
        epoch=1,
        timestamp_ms=0,
    )


def test_a_controlled_shutdown_polls_with_a_growing_interval():
    async def body() -> None:
        times: list[float] = []

        def grant_the_fourth(context: Any, request: Any) -> BrokerHeartbeatResponse:
            answer = obliging(context, request)
            if request.want_shut_down:
                times.append(asyncio.get_running_loop().time())
                answer.should_shut_down = len(times) == 4
            return answer

        world = await running_world(grant_the_fourth)
        world.life.begin_controlled_shutdown()
        await world.life.may_stop
        first, second, third = (b - a for a, b in itertools.pairwise(times))
        assert first >= 0.009 and second >= 0.018 and third >= 0.036
        await world.close()

    run(body)


FROM_THE_FUTURE = 30_000
"""An error code that this version does not know."""


async def running_world(heartbeat: Any, registration: Any = None, **config: Any) -> World:
    """A broker in RUNNING."""
    world = World(heartbeat, registration, **config)
    await world.start()
    await world.until(lambda: world.life.broker_epoch == 5)
    world.see_registration()
    await world.life.caught_up
    world.life.request_unfence()
    await world.life.unfenced
    return world


def test_an_unknown_error_code_does_not_stop_a_broker():
    async def body() -> None:
        codes = [FROM_THE_FUTURE, 0, FROM_THE_FUTURE]

        def register(_context: Any, _request: Any) -> BrokerRegistrationResponse:
            return BrokerRegistrationResponse(error_code=codes.pop(0), broker_epoch=5)

        def beat(context: Any, request: Any) -> BrokerHeartbeatResponse:
            return BrokerHeartbeatResponse(error_code=codes.pop()) if codes else obliging(context, request)

        world = await running_world(beat, register, broker_heartbeat_interval_ms=5)
        assert codes == [] and world.faults == []
        await world.close()

    run(body)


def test_an_unexpected_error_of_an_exchange_does_not_stop_a_broker(monkeypatch):
    async def body() -> None:
        world = World(obliging, broker_heartbeat_interval_ms=5)
        send, failures = (
            world.channel.send,
            [EncodeError("no such field in version 0"), RuntimeError("unforeseen")],
        )

        async def failing(request: Any, *args: Any, **kwargs: Any) -> Any:
            if (
                failures
                and type(request).__name__
                == ("BrokerRegistrationRequest", "BrokerHeartbeatRequest")[len(failures) % 2]
            ):
                raise failures.pop()
            return await send(request, *args, **kwargs)

        monkeypatch.setattr(world.channel, "send", failing)
        await world.start()
        await world.until(lambda: world.life.broker_epoch == 5)
        world.see_registration()
        await world.life.caught_up
        assert failures == [] and world.faults == []
        await world.close()

    run(body)


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_broker_that_is_no_longer_registered_may_stop_at_once(code: ErrorCode):
    async def body() -> None:
        unregistered: list[bool] = []

        def beat(context: Any, request: Any) -> BrokerHeartbeatResponse:
            return BrokerHeartbeatResponse(error_code=code) if unregistered else obliging(context, request)

        world = await running_world(beat)
        unregistered.append(True)
        world.life.begin_controlled_shutdown()
        await asyncio.wait_for(world.life.may_stop, 1)
        assert [request.want_shut_down for request in world.heartbeats()[-1:]] == [True]
        await world.close()

    run(body)


def test_a_broker_that_runs_is_not_stopped_by_a_stale_broker_epoch():
    """It may register again, or an operator may be about to act."""

    async def body() -> None:
        stale: list[bool] = []

        def beat(context: Any, request: Any) -> BrokerHeartbeatResponse:
            return (
                BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
                if stale
                else obliging(context, request)
            )

        world = await running_world(beat, broker_heartbeat_interval_ms=5)
        stale.append(True)
        count = len(world.heartbeats())
        await world.until(lambda: len(world.heartbeats()) > count + 2)
        assert world.life.state == BrokerState.RUNNING and world.faults == []
        await world.close()

    run(body)


def test_cordoned_directories_are_named_once_the_metadata_is_current_and_again_when_they_change():
    async def body() -> None:
        world = World(obliging)
        world.cordoned = [bytes([1] * 16)]
        await world.start()
        world.see_registration()
        await asyncio.wait_for(world.life.caught_up, 10)
        world.life.request_unfence()
        await asyncio.wait_for(world.life.unfenced, 10)
        assert [beat.cordoned_log_dirs for beat in world.heartbeats()] == [None, [bytes([1] * 16)]]
        world.cordoned = []
        world.life.send_heartbeat()
        await asyncio.wait_for(world.until(lambda: len(world.heartbeats()) == 3), 10)
        assert world.heartbeats()[-1].cordoned_log_dirs == []
        await world.close()

    run(body)
