"""Changes of so many records that they are written in metadata transactions (KIP-868)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from quorate.controller.requests.atomic_changes import PART_RECORDS
from quorate.protocol.messages.create_topics import CreateTopicsRequest

from .requests import broker
from .support import Harness

LIMIT = 100_000
MANY = 10 * PART_RECORDS + 7


def large(name: str = "large", partitions: int = MANY, **changes: Any) -> CreateTopicsRequest:
    make = CreateTopicsRequest.CreatableTopic
    topic = make(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], **changes)


async def started(**config: Any) -> Harness:
    h = await Harness(max_records_per_op=LIMIT, **config).start()
    await broker(h)
    return h


async def until(condition: Callable[[], object], *, each_turn: Callable[[], object] = lambda: None) -> None:
    """Lets the event loop run until the condition holds."""
    for _ in range(20_000):
        if condition():
            return
        each_turn()
        await asyncio.sleep(0)
    raise AssertionError("the condition was not reached")


async def answered(h: Harness, answer: Any) -> Any:
    """Commits all that is written, until the answer arrives."""
    await until(answer.done, each_turn=h.raft.commit)
    return await answer


async def begun(h: Harness, parts: int = 1) -> None:
    """Waits until so many parts of a transaction are written. All but the last one are committed."""
    first = len(h.raft.log.batches)
    await until(
        lambda: len(h.raft.log.batches) >= first + parts,
        each_turn=lambda: h.raft.commit(h.raft.log.batches[-1].base_offset),
    )


def written_since(h: Harness, offset: int) -> list[Any]:
    """The types of the records from an offset on, each run of the same type once."""
    types: list[Any] = []
    for record in h.records_from(offset):
        if not types or types[-1] is not type(record):
            types.append(type(record))
    return types
