"""Requests that several tests send to a controller on a fake replica."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest

from .support import CLUSTER, LATEST, Harness, directory, uid


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def registration(broker_id: int = 1, incarnation: int = 5) -> BrokerRegistrationRequest:
    feature = BrokerRegistrationRequest.Feature
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER,
        incarnation_id=uid(incarnation * 1000 + broker_id),
        features=[
            feature(name="metadata.version", min_supported_version=7, max_supported_version=LATEST),
            feature(name="kraft.version", min_supported_version=0, max_supported_version=1),
        ],
        log_dirs=[directory(broker_id)],
    )


async def broker(h: Harness, broker_id: int = 1) -> int:
    """Registers and unfences a broker. Returns its broker epoch."""
    epoch: int = (await h.call(registration(broker_id))).broker_epoch
    await beat(h, broker_id, epoch)
    return epoch


async def beat(h: Harness, broker_id: int, epoch: int, **wants: bool) -> Any:
    return await h.call(
        BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=h.raft.log.end, **wants
        )
    )


def topics(*names: str, **changes: Any) -> CreateTopicsRequest:
    make = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[make(name=name, num_partitions=1, replication_factor=1) for name in names], **changes
    )
