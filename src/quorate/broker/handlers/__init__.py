"""The request handlers of a broker, one module for each API or small family of APIs (`KafkaApis` in Kafka).

    produce, fetch, list_offsets, delete_records, offset_for_leader_epoch
    small_produce, small_fetch   parse the most common forms of Produce and Fetch, with `small_requests`
    refused_sequences            the batches that idempotent producers will send again
    fetch_steps, large_fetch     a Fetch of many partitions, in slices of the loop
    metadata, describe_cluster, describe_topic_partitions, describe_producers
    describe_configs, alter_configs, list_config_resources, log_dirs
    security     ACLs, quotas, SCRAM credentials and delegation tokens

Each module has a function `routes(services) -> dict[int, Handler]`. It is imported by the first request of
its APIs. The method `answer_frame` of a handler, if it has one, is a `FrameHandler`.
`quorate.broker.server` imports this package. Of the modules, only `small_requests` is imported elsewhere: by
the group coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from quorate.dataclass import dataclass
from quorate.protocol.api import ApiKey

if TYPE_CHECKING:
    import asyncio

    from quorate.broker.alter_log_dirs.manager import ReplicaAlterLogDirsManager
    from quorate.broker.controller_channel import ControllerChannel
    from quorate.broker.metadata.cache import MetadataCache
    from quorate.broker.replication.fetch_session import FetchSessions
    from quorate.broker.replication.replica_manager import ReplicaManager
    from quorate.broker.topic_creation import TopicCreator
    from quorate.clock import Clock
    from quorate.config.kafka_config import KafkaConfig
    from quorate.log.directories.manager import LogManager
    from quorate.net.dispatch import FrameHandler, Handler, RequestContext


@dataclass(slots=True)
class Services:
    """The parts of the broker that handlers use."""

    config: KafkaConfig
    cluster_id: str
    node_id: int
    metadata: MetadataCache
    replicas: ReplicaManager
    logs: LogManager
    sessions: FetchSessions
    channel: ControllerChannel
    creator: TopicCreator
    moves: ReplicaAlterLogDirsManager
    clock: Clock
    loop: asyncio.AbstractEventLoop


_MODULES: dict[ApiKey, str] = {
    ApiKey.PRODUCE: "produce",
    ApiKey.FETCH: "fetch",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.METADATA: "metadata",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch",
    ApiKey.DELETE_RECORDS: "delete_records",
    ApiKey.DESCRIBE_CONFIGS: "describe_configs",
    ApiKey.ALTER_CONFIGS: "alter_configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "alter_configs",
    ApiKey.DESCRIBE_LOG_DIRS: "log_dirs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "log_dirs",
    ApiKey.DESCRIBE_CLUSTER: "describe_cluster",
    ApiKey.DESCRIBE_PRODUCERS: "describe_producers",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "describe_topic_partitions",
    ApiKey.DESCRIBE_ACLS: "security",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "security",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "security",
    ApiKey.CREATE_DELEGATION_TOKEN: "security",
    ApiKey.RENEW_DELEGATION_TOKEN: "security",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "security",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "security",
    ApiKey.ALTER_CLIENT_QUOTAS: "security",
    ApiKey.LIST_CONFIG_RESOURCES: "list_config_resources",
}

FORWARDED = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""APIs whose requests a broker only forwards to the active controller, in an Envelope (KIP-590)."""


class BrokerHandlers:
    """The handlers of this package, in `routes` by API key. `frame_routes` has the frame handlers of the
    modules that are imported."""

    __slots__ = ("_loaded", "_services", "frame_routes", "routes")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loaded: dict[str, dict[int, Handler]] = {}
        self.frame_routes: dict[int, FrameHandler] = {}
        self.routes: dict[int, Handler] = {
            int(key): self._lazy(key, module) for key, module in _MODULES.items()
        }
        for key in FORWARDED:
            self.routes[int(key)] = services.channel.forward

    def _lazy(self, key: ApiKey, module: str) -> Handler:
        handlers: list[Callable[[RequestContext, Any], Any]] = []

        def handle(context: RequestContext, request: Any) -> Any:
            if not handlers:
                loaded = self._loaded.get(module)
                if loaded is None:
                    loaded = self._loaded[module] = import_module(f"{__name__}.{module}").routes(
                        self._services
                    )
                handlers.append(loaded[int(key)])
                answer_frame = getattr(handlers[0], "answer_frame", None)
                if answer_frame is not None:
                    self.frame_routes[int(key)] = answer_frame
            return handlers[0](context, request)

        return handle
