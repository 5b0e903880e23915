"""The controller writes the same bytes as Apache Kafka's controller for the same requests on the same
state."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from quorate.controller.activation_records import activation_records
from quorate.controller.brokers.sessions import BrokerSessions
from quorate.controller.changes.record_versions import level_in, version_of
from quorate.controller.context import Context, Result, View
from quorate.controller.handlers.allocate_producer_ids import allocate_producer_ids
from quorate.controller.handlers.broker_heartbeat import broker_heartbeat
from quorate.controller.handlers.create_topics import create_topics
from quorate.controller.handlers.delete_topics import delete_topics
from quorate.controller.handlers.incremental_alter_configs import incremental_alter_configs
from quorate.controller.handlers.register_broker import register_broker
from quorate.controller.handlers.register_controller import register_controller
from quorate.metadata.bootstrap import decode_bootstrap
from quorate.metadata.framing import decode_record, encode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from quorate.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.protocol.messages.controller_registration import ControllerRegistrationRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from quorate.protocol.schema import Data
from quorate.records.batch import iter_batches, metadata_values
from tests.support.golden import ALL_KINDS, NEW_KINDS, golden_files

from .support import make_config

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
LOG = "data/__cluster_metadata-0/00000000000000000000.log"
BOOTSTRAP = "data/bootstrap.checkpoint"
FIRST_SNAPSHOT = "formatted/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


class GivenIds(Random):
    """A generator that returns given topic ids first."""

    def __init__(self, ids: list[bytes]) -> None:
        super().__init__(0)
        self.ids = ids

    def randbytes(self, n: int) -> bytes:
        return self.ids.pop(0)


class Replay:
    """Kafka's log, event by event, with the state before each event."""

    def __init__(self, kind: str) -> None:
        files = golden_files(kind)
        data, bootstrap = files[LOG].data, files[FIRST_SNAPSHOT if kind in NEW_KINDS else BOOTSTRAP].data
        self.bootstrap = [record for record, _ in decode_bootstrap(bootstrap)]
        self.batches = list(_batches(data))
        self.image: MetadataImage = EMPTY
        self.broker_sessions = BrokerSessions(9.0)
        self.offset = 0

    def ask(self, handler: Any, request: Any, ids: list[bytes] | None = None) -> Result[Any]:
        view = View(
            self.image, self.broker_sessions, make_config(cluster_id=CLUSTER_ID), self.offset, voter_ids=(1,)
        )
        ctx = Context(
            now_ms=0, now=0.0, rng=GivenIds(ids or []), api_version=request.MAX_VERSION, forwarded=True
        )
        result: Result[Any] = handler(view, request, ctx)
        return result

    def apply(self, base: int, records: list[Data]) -> None:
        self.offset = base + len(records)
        self.image = apply_records(self.image, records, offset=self.offset - 1, epoch=1, timestamp_ms=0)


def _batches(data: bytes) -> Iterator[tuple[int, list[bytes]]]:
    for header, batch in iter_batches(data):
        if not header.is_control:
            yield header.base_offset, [bytes(value) for value in metadata_values(batch)]


def encoded(records: list[Data], level: int) -> list[bytes]:
    return [encode_record(record, version_of(record, level)) for record in records]


def parts_of(kind: Any, items: list[Any]) -> list[Any]:
    """The listeners or features of a request, from the record that it caused."""
    return [
        kind(
            **{
                name: getattr(item, name)
                for name in kind.__slots__
                if hasattr(item, name) and name != "unknown_tags"
            }
        )
        for item in items
    ]


def our_result(replay: Replay, records: list[Any]) -> Result[Any] | None:
    """The result of our handler for the request that caused Kafka's records, or None if no request
    caused them."""
    first = records[0]
    match first:
        case RegisterControllerRecord():
            kind = ControllerRegistrationRequest
            request: Any = kind(
                controller_id=first.controller_id,
                incarnation_id=first.incarnation_id,
                listeners=parts_of(kind.Listener, first.end_points),
                features=parts_of(kind.Feature, first.features),
            )
            return replay.ask(register_controller, request)
        case RegisterBrokerRecord():
            kind2 = BrokerRegistrationRequest
            request = kind2(
                broker_id=first.broker_id,
                cluster_id=CLUSTER_ID,
                incarnation_id=first.incarnation_id,
                listeners=parts_of(kind2.Listener, first.end_points),
                features=parts_of(kind2.Feature, first.features),
                rack=first.rack,
                log_dirs=first.log_dirs,
            )
            return replay.ask(register_broker, request)
        case BrokerRegistrationChangeRecord():
            leaves = first.fenced == 1 or first.in_controlled_shutdown == 1
            if first.fenced == 1:
                replay.broker_sessions.begin_shutdown(1, replay.offset - 1)
            request = BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=first.broker_epoch,
                current_metadata_offset=10_000,
                want_fence=first.cordoned_log_dirs is not None and replay.image.cluster.brokers[1].fenced,
                want_shut_down=leaves,
                cordoned_log_dirs=first.cordoned_log_dirs,
            )
            return replay.ask(broker_heartbeat, request)
        case TopicRecord():
            kind3 = CreateTopicsRequest
            topics = [record for record in records if isinstance(record, TopicRecord)]
            partitions = [record for record in records if isinstance(record, PartitionRecord)]
            configs = [record for record in records if isinstance(record, ConfigRecord)]
            request = kind3(
                topics=[
                    kind3.CreatableTopic(
                        name=topic.name,
                        num_partitions=sum(part.topic_id == topic.topic_id for part in partitions),
                        replication_factor=1,
                        configs=[
                            kind3.CreatableTopicConfig(name=config.name, value=config.value)
                            for config in configs
                            if config.resource_name == topic.name
                        ],
                    )
                    for topic in topics
                ]
            )
            return replay.ask(create_topics, request, [topic.topic_id for topic in topics])
        case ProducerIdsRecord():
            request = AllocateProducerIdsRequest(broker_id=first.broker_id, broker_epoch=first.broker_epoch)
            return replay.ask(allocate_producer_ids, request)
        case RemoveTopicRecord():
            state = DeleteTopicsRequest.DeleteTopicState(topic_id=first.topic_id)
            return replay.ask(delete_topics, DeleteTopicsRequest(topics=[state]))
        case ConfigRecord():
            kind4 = IncrementalAlterConfigsRequest
            resource = kind4.AlterConfigsResource(
                resource_type=first.resource_type,
                resource_name=first.resource_name,
                configs=[kind4.AlterableConfig(name=first.name, config_operation=0, value=first.value)],
            )
            return replay.ask(incremental_alter_configs, kind4(resources=[resource]))
    return None


@pytest.mark.parametrize("capture", ALL_KINDS)
def test_the_same_requests_write_the_same_bytes(capture: str) -> None:
    replay = Replay(capture)
    base, values = replay.batches[0]
    records, atomic, _ = activation_records(EMPTY, replay.bootstrap, 1)
    assert encoded(records, level_in(records)) == values
    assert not atomic
    replay.apply(base, records)
    compared = set()
    for base, batch in replay.batches[1:]:
        # Kafka lingers for 25 ms, so a NoOpRecord may share a batch with the records before it
        values = [value for value in batch if not isinstance(decode_record(value)[0], NoOpRecord)]
        theirs = [decode_record(value)[0] for value in batch]
        if values:
            replay.offset = base
            result = our_result(replay, [decode_record(value)[0] for value in values])
            assert result is not None, theirs
            ours = encoded(result.records, replay.image.features.metadata_version)
            assert ours[0] == values[0]
            assert sorted(ours) == sorted(values)  # partitions of a broker come in no particular order
            compared.add(type(decode_record(values[0])[0]))
        replay.apply(base, theirs)
    assert compared >= {
        RegisterControllerRecord,
        RegisterBrokerRecord,
        BrokerRegistrationChangeRecord,
        TopicRecord,
        RemoveTopicRecord,
    }
