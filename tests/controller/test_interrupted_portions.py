"""A term that ends between two portions leaves no partition for good without the leader that it may have."""

from __future__ import annotations

import pytest

from quorate.metadata.features import ELR_VERSION
from quorate.metadata.image.partitions import NO_LEADER
from quorate.metadata.records import FeatureLevelRecord
from quorate.protocol.errors import KafkaError
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest

from .requests import registration, run
from .support import Harness
from .test_portions import MANY, h_call, turns, with_many_partitions


def test_a_term_that_ends_while_a_last_known_leader_is_unfenced_leaves_no_partition_without_a_leader() -> (
    None
):
    """Its unclean restart has emptied ISR and ELR. No clean election follows for these partitions."""

    async def test() -> None:
        h = await Harness().start()
        _, second = await with_many_partitions(h)
        h.controller.state.write([FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])
        await h_call(h, BrokerHeartbeatRequest(broker_id=2, broker_epoch=second, want_fence=True))
        await h_call(h, UnregisterBrokerRequest(broker_id=2))
        h.clock.seconds += h.controller.state.config.broker_session_timeout_s + 1
        request = registration(1, incarnation=6)
        request.features.append(
            BrokerRegistrationRequest.Feature(
                name=ELR_VERSION, min_supported_version=0, max_supported_version=1
            )
        )
        answer = h.send(request)
        await turns(h, lambda: bool(answer.done()))
        first = (await answer).broker_epoch
        partition = next(iter(h.controller.state.image.topics.by_id.values())).partitions[0]
        assert (partition.isr, partition.elr, partition.last_known_elr) == ((), (), (1,))
        answer = h.send(
            BrokerHeartbeatRequest(broker_id=1, broker_epoch=first, current_metadata_offset=h.raft.log.end)
        )
        h.raft.commit()
        h.raft.follow(2, 2)
        with pytest.raises(KafkaError):
            await answer
        assert not h.controller.state.image.cluster.brokers[1].fenced
        assert 0 < h.controller.state.image.topics.leader_count(NO_LEADER) < MANY
        h.raft.become_leader(3)
        for _ in range(5):
            h.clock.seconds += 0.01
            h.controller.run_due()
            h.raft.commit()
        assert h.controller.state.image.topics.leader_count(1) == MANY

    run(test())
