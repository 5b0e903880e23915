"""A standby controller registers with the active one over a real connection."""

from __future__ import annotations

import asyncio

import pytest

from quorate.config.listeners import Endpoint
from quorate.controller import controller_registrar
from quorate.metadata.image import MetadataImage
from quorate.net.dispatch import Dispatcher, ListenerKind
from quorate.net.limits import ConnectionLimits
from quorate.net.server import Listener
from quorate.raft.types import LeaderAndEpoch

from .requests import run
from .support import FakeLog, FakeRaft, Harness, uid


class Quorum:
    """An active controller with a listener, and a standby that follows the same log."""

    def __init__(self) -> None:
        log = FakeLog()
        self.active = Harness(FakeRaft(1, log, (1, 2)))
        self.standby = Harness(
            FakeRaft(2, log, (1, 2)),
            node_id=2,
            incarnation_id=uid(0xC2),
            listeners=[Endpoint("CONTROLLER", "localhost", 9094)],
        )
        self.listener = Listener()
        self.registered = asyncio.Event()

    async def start(self) -> None:
        await self.active.start()
        dispatcher = Dispatcher(ListenerKind.CONTROLLER)
        dispatcher.register_all(self.active.controller.routes)
        await self.listener.start("127.0.0.1", 0, dispatcher, "CONTROLLER", ConnectionLimits())
        self.standby.controller.add_image_listener(self._see)
        await self.standby.start(lead=False)

    def _see(self, image: MetadataImage) -> None:
        known = image.cluster.controllers.get(2)
        if known is not None and known.incarnation_id == uid(0xC2):
            self.registered.set()

    def set_leader_address(self, port: int | None) -> None:
        """Sets the address at which the standby looks for the leader."""
        address = None if port is None else ("127.0.0.1", port)
        self.standby.raft.leader_address = lambda: address  # type: ignore[method-assign]
        self.standby.raft.leader_and_epoch = LeaderAndEpoch(1, 1)

    async def commit_until_registered(self) -> None:
        """Commits every write of the active controller, until the registration has reached the standby."""

        def committed() -> None:
            self.active.raft.commit()
            self.standby.raft.commit()

        write = self.active.controller.state.write

        def write_and_commit(*args: object, **options: object) -> int:
            offset: int = write(*args, **options)  # type: ignore[arg-type]
            asyncio.get_running_loop().call_soon(committed)
            return offset

        self.active.controller.state.write = write_and_commit  # type: ignore[method-assign]
        committed()
        await asyncio.wait_for(self.registered.wait(), 10)

    async def stop(self) -> None:
        await self.standby.controller.close()
        await self.active.controller.close()
        await self.listener.close(0)


def test_a_standby_registers_with_the_active_controller() -> None:
    async def test() -> None:
        quorum = Quorum()
        await quorum.start()
        quorum.set_leader_address(quorum.listener.port)
        await quorum.commit_until_registered()
        registered = quorum.active.controller.state.image.cluster.controllers[2]
        assert registered.listeners[0].port == 9094
        assert registered.features["metadata.version"][1] >= 27
        await quorum.stop()

    run(test())


def test_a_standby_tries_again_after_an_unexpected_error() -> None:
    async def test() -> None:
        quorum = Quorum()
        await quorum.start()
        failures = 0

        def failing() -> tuple[str, int]:
            nonlocal failures
            failures += 1
            if failures == 1:
                raise ZeroDivisionError
            return "127.0.0.1", quorum.listener.port

        quorum.set_leader_address(quorum.listener.port)
        quorum.standby.raft.leader_address = failing  # type: ignore[method-assign]
        await quorum.commit_until_registered()
        assert failures > 1
        await quorum.stop()

    run(test())


def test_a_standby_tries_again_until_there_is_a_leader() -> None:
    async def test() -> None:
        quorum = Quorum()
        await quorum.start()
        quorum.set_leader_address(None)
        asyncio.get_running_loop().call_later(0.15, quorum.set_leader_address, quorum.listener.port)
        await quorum.commit_until_registered()
        await quorum.stop()

    run(test())


def test_a_new_leader_ends_a_long_pause_of_the_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        monkeypatch.setattr(controller_registrar, "_FIRST_PAUSE_S", controller_registrar._LONGEST_PAUSE_S)
        quorum = Quorum()
        await quorum.start()
        quorum.set_leader_address(None)
        tries: list[None] = []
        quorum.standby.raft.leader_address = lambda: tries.append(None)  # type: ignore[method-assign,func-returns-value]
        quorum.active.raft.commit()
        quorum.standby.raft.commit()
        while not tries:
            await asyncio.sleep(0)
        quorum.set_leader_address(quorum.listener.port)
        quorum.standby.raft.follow(1, 1)
        await quorum.commit_until_registered()
        await quorum.stop()

    run(test())
