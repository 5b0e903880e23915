"""The APIs of a broker's coordinators. Those of groups are in `group/service.py`; those for all coordinators
are here:

    FindCoordinator 0-6   InitProducerId 0-5   and, in `transaction_markers`, WriteTxnMarkers 1-2

Transactions are not supported: InitProducerId with a transactional id is answered with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Java's client, librdkafka, kafka-python and aiokafka all treat that
error as final (librdkafka repeats a request after UNSUPPORTED_VERSION until its timeout).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from quorate.broker.coordinators.group.config import Settings, group_config
from quorate.broker.coordinators.group.service import GROUPS_AT_ONCE, GroupCoordinatorService, Metadata
from quorate.broker.coordinators.high_watermark import Replicas
from quorate.broker.coordinators.partitioning import partition_for
from quorate.broker.coordinators.producer_ids import Channel, ProducerIdManager
from quorate.broker.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from quorate.clock import Clock
from quorate.lazy import lazy_module
from quorate.net.turns import Rounds
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from quorate.broker.coordinators import transaction_markers
    from quorate.metadata.image import MetadataDelta
    from quorate.net.dispatch import Handler, RequestContext
    from quorate.protocol.messages import find_coordinator, init_producer_id
else:
    transaction_markers = lazy_module("quorate.broker.coordinators.transaction_markers")
    find_coordinator = lazy_module("quorate.protocol.messages.find_coordinator")
    init_producer_id = lazy_module("quorate.protocol.messages.init_producer_id")

logger = logging.getLogger("quorate.group")

GROUP_KEY, TRANSACTION_KEY = 0, 1
"""Key types of FindCoordinator. Share coordinators (2, KIP-932) are not supported."""


class TopicCreator(Protocol):
    """The member of the broker's topic creator that is used here."""

    def create(self, name: str) -> asyncio.Future[None]:
        """Creates an internal topic."""
        ...


class CoordinatorService:
    """The coordinators of one broker.

    `routes` are the handlers by API key, `frame_routes` the frame handlers. `start` after the
    replicas, `close` before them.
    """

    def __init__(
        self,
        config: Settings,
        replicas: Replicas,
        metadata: Metadata,
        topics: TopicCreator,
        channel: Channel,
        clock: Clock,
    ) -> None:
        self.metadata = metadata
        self._topics = topics
        node_id = config.get("node.id")
        assert isinstance(node_id, int)
        self.node_id = node_id
        self._rounds = Rounds(GROUPS_AT_ONCE)
        self.groups = GroupCoordinatorService(group_config(config), replicas, metadata, clock, self._rounds)
        self.producer_ids = ProducerIdManager(node_id, self._broker_epoch, channel)
        self._replicas, self._clock = replicas, clock
        timeout_ms = config.get("request.timeout.ms")
        assert isinstance(timeout_ms, int)
        self._append_timeout_s = timeout_ms / 1000
        self._markers: transaction_markers.TransactionMarkers | None = None
        self.routes: dict[int, Handler] = {
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.WRITE_TXN_MARKERS: self.write_txn_markers,
            **self.groups.routes,
        }
        self.frame_routes = self.groups.frame_routes

    async def start(self) -> None:
        """Loads the partitions of internal topics that this broker leads."""
        self.groups.start()

    async def close(self) -> None:
        """Unloads all partitions. Unanswered requests fail with NOT_COORDINATOR."""
        self.producer_ids.close()
        await self.groups.close()

    def apply_delta(self, delta: MetadataDelta) -> None:
        """Applies a metadata delta: deletes the offsets of deleted topics."""
        deleted = delta.topics_deleted
        if deleted:
            self.groups.topics_deleted(frozenset(topic.name for topic in deleted.values()))

    def _broker_epoch(self) -> int | None:
        broker = self.metadata.broker(self.node_id)
        return None if broker is None else int(broker.epoch)

    # --- FindCoordinator --------------------------------------------------------------------------

    def find_coordinator(self, ctx: RequestContext, request: Any) -> Any:
        """Returns the coordinators of groups or transactional ids.

        If their topic does not exist, its creation is started, but not awaited: the responses of a
        connection are sent in order, and later ones must not be delayed. The client gets a retriable
        error, as in Kafka.
        """
        response = find_coordinator.FindCoordinatorResponse
        keys = request.coordinator_keys if ctx.api_version >= 4 else [request.key]
        found = (
            response.Coordinator(key=key, error_code=code, node_id=node_id, host=host, port=port)
            for key in keys
            for code, node_id, host, port in (self._find_one(ctx, request.key_type, key),)
        )
        if ctx.api_version >= 4:
            return self._rounds.answer(len(keys), found, lambda some: response(coordinators=some))
        one = next(found)
        return response(error_code=one.error_code, node_id=one.node_id, host=one.host, port=one.port)

    def _find_one(self, ctx: RequestContext, key_type: int, key: str) -> tuple[ErrorCode, int, str, int]:
        if key_type == GROUP_KEY:
            name = GROUP_METADATA_TOPIC
        elif key_type == TRANSACTION_KEY:
            name = TRANSACTION_STATE_TOPIC
        else:
            return ErrorCode.INVALID_REQUEST, -1, "", -1
        topic = self.metadata.topic(name)
        if topic is None:
            self._create_topic(name)
        else:
            image = self.metadata.partition(name, partition_for(key, len(topic.partitions)))
            if image is not None and image.leader >= 0 and not self.metadata.is_fenced(image.leader):
                endpoint = self.metadata.endpoint(image.leader, ctx.listener)
                if endpoint is not None:
                    return ErrorCode.NONE, image.leader, endpoint.host, endpoint.port
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1

    def _create_topic(self, name: str) -> None:
        def created(future: asyncio.Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                logger.warning("[GroupCoordinator] Could not create topic %s: %s", name, error)

        self._topics.create(name).add_done_callback(created)

    # --- transactions of other brokers --------------------------------------------------------------

    def write_txn_markers(self, ctx: RequestContext, request: Any) -> Any:
        """Ends transactions in the partitions that this broker leads."""
        if self._markers is None:
            self._markers = transaction_markers.TransactionMarkers(
                self._replicas, self.groups.runtime, self._clock, self._append_timeout_s
            )
        return self._markers.write(ctx, request)

    # --- InitProducerId ---------------------------------------------------------------------------

    async def init_producer_id(self, ctx: RequestContext, request: Any) -> Any:
        """Returns an id for an idempotent producer. A producer that requests a higher epoch gets a new id,
        as in Kafka."""
        response = init_producer_id.InitProducerIdResponse
        failed = partial(response, producer_id=-1, producer_epoch=-1)
        if request.transactional_id is not None:
            if not request.transactional_id:
                return failed(error_code=ErrorCode.INVALID_REQUEST)
            return failed(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            return failed(error_code=ErrorCode.INVALID_REQUEST)
        try:
            producer_id = await self.producer_ids.next_id()
        except KafkaError as error:
            return failed(error_code=error.code)
        return response(producer_id=producer_id, producer_epoch=0)
