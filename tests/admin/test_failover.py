"""The admin client on a real quorum that loses its active controller in the middle of a stream of
requests."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from quorate.admin.client import AdminClient
from quorate.admin.types import ConfigOp
from quorate.protocol.config_resource import ConfigResourceType
from tests.e2e.membership import controllers, described, stopping
from tests.support.cluster import Node, wait_for

pytestmark = pytest.mark.timeout(120)

SOON_S = 3.0
"""What a client may take to find a leader that is there, on a busy machine; it used to be until the end
of its patience."""


def address(node: Node) -> str:
    return f"127.0.0.1:{node.controller_port}"


async def alter(admin: AdminClient, value: int) -> None:
    broker_defaults = (ConfigResourceType.BROKER, "")
    changes = {broker_defaults: [(ConfigOp.SET, "log.retention.ms", str(value))]}
    assert await admin.incremental_alter_configs(changes) == {broker_defaults: None}


async def describe(admin: AdminClient, value: int) -> None:
    assert (await admin.describe_quorum()).leader_id > 0


@pytest.mark.parametrize(("how", "ask"), [("killed", alter), ("deposed", describe)])
def test_the_next_request_finds_the_new_leader_as_soon_as_there_is_one(tmp_path: Path, how: str, ask) -> None:  # type: ignore[no-untyped-def]
    """The old one alone was named to the client. Deposed: it stood still, and lives again as a follower."""
    nodes = controllers(tmp_path, 3)
    with stopping(nodes):
        initial = ",".join(f"{n.node_id}@{address(n)}" for n in nodes)
        for node in nodes:
            node.format("--initial-controllers", initial)
            node.start()
        leader = nodes[described(nodes[0]).leader_id - 1]
        others = [n for n in nodes if n is not leader]
        assert leader.proc is not None
        old = leader.proc

        async def stream() -> None:
            async with AdminClient(bootstrap_controllers=address(leader)) as admin:
                for value in range(100, 150):
                    await ask(admin, value)
                old.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
                waiting = asyncio.create_task(ask(admin, 150))

                def elected() -> bool:
                    return described(others[0]).leader_id in [n.node_id for n in others]

                await asyncio.to_thread(wait_for, "a leader", elected)
                old.send_signal(signal.SIGCONT)
                await asyncio.wait_for(waiting, SOON_S)
                await asyncio.wait_for(ask(admin, 151), SOON_S)

        asyncio.run(stream())
