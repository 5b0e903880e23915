"""The driver over a replica in memory: activation, what waits for commits, loss of leadership, the clock."""

from __future__ import annotations

import asyncio

import pytest
from quorate.metadata.records import NoOpRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_topics import CreateTopicsRequest

from .support import Harness

def test_x():
    async def main():
        h = await Harness().start()
        print(h.records)
        print(h.controller.image, h.controller.is_active)
        from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest as B
        from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest as H
        from .support import CLUSTER, directory, uid
        r = await h.call(B(broker_id=1, cluster_id=CLUSTER, incarnation_id=uid(5), features=[B.Feature(name="metadata.version", min_supported_version=7, max_supported_version=27), B.Feature(name="kraft.version", min_supported_version=0, max_supported_version=1)], log_dirs=[directory(1)]))
        print(r)
        r = await h.call(H(broker_id=1, broker_epoch=r.broker_epoch, current_metadata_offset=h.raft.log.end))
        print(r)
        r = h.send(CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="a", num_partitions=3, replication_factor=1)]))
        assert not r.done()
        h.raft.commit()
        print((await r).topics[0].name)
        print(h.records[-4:])
    asyncio.run(main())
