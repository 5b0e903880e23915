"""Metadata transactions of real controllers: changes that are large enough to be killed within."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from quorate.net.errors import KafkaConnectionError, RequestTimedOut
from quorate.protocol.errors import KafkaError
from tests.e2e.test_many_partitions import STAYING, Brokers
from tests.support.cluster import Node

LIMIT = {"quorate.max.records.per.user.op": 200_000}
PART_BYTES = 100_000
"""A log that has grown by so much has several parts of the transaction."""


def log_size(folder: Path) -> int:
    """The size of the newest segment."""
    return max(folder.glob("*.log")).stat().st_size


async def create(leader: Node, name: str, partitions: int) -> None:
    """Creates a topic whose replicas are on a simulated broker."""
    brokers = Brokers(leader.controller_port)
    await brokers.register(STAYING)
    async with brokers.alive(STAYING):
        await brokers.create(name, partitions, STAYING)


async def kill_within(leader: Node, follower: Path, name: str, partitions: int) -> None:
    """Kills the leader while it writes the transaction that creates a topic. A follower, whose folder of the
    log is given, has parts of it, so that the next leader has them."""
    brokers = Brokers(leader.controller_port)
    await brokers.register(STAYING)
    before = log_size(follower)
    creation = asyncio.ensure_future(brokers.create(name, partitions, STAYING))
    while log_size(follower) < before + PART_BYTES:
        assert not creation.done(), "the change was over before it was seen"
        await asyncio.sleep(0.002)
    leader.kill()
    with contextlib.suppress(KafkaConnectionError, RequestTimedOut, KafkaError, OSError):
        await creation
        raise AssertionError("the change was over before the controller died")


def markers(printed: str) -> list[str]:
    """The types of the records about transactions in a dump."""
    names = ("BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD")
    return [name for line in printed.splitlines() for name in names if f'"{name}"' in line]
