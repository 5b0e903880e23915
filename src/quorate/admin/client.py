"""The asyncio admin client: one object for everything that administers a cluster.

    async with AdminClient("localhost:9092") as admin:
        await admin.create_topics([NewTopic("t", partitions=3)])

`bootstrap_controllers` instead of `bootstrap_servers` sends requests to the active controller. It works
while no broker is available.

A method that concerns several resources returns a dictionary from the resource to its value or its
KafkaError. A method that concerns one resource raises its error. All methods may raise RequestTimedOut
(no node answered in time), UnsupportedVersion (the cluster is too old) and KafkaError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from quorate.admin.operations.acls import AclOperations
from quorate.admin.operations.cluster import ClusterOperations
from quorate.admin.operations.configs import ConfigOperations
from quorate.admin.operations.delegation_tokens import DelegationTokenOperations
from quorate.admin.operations.groups import GroupOperations
from quorate.admin.operations.log_dirs import LogDirOperations
from quorate.admin.operations.reassignments import ReassignmentOperations
from quorate.admin.operations.topics import TopicOperations
from quorate.admin.transport import BROKERS, CONTROLLERS, Transport
from quorate.lazy import lazy_modules

if TYPE_CHECKING:
    from quorate.admin import sasl, tls
else:  # not needed for a PLAINTEXT listener
    sasl, tls = lazy_modules("quorate.admin", "sasl", "tls")

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The values of `security.protocol`."""


class AdminClient:
    """Administers one cluster. `close` closes it, as does the end of an `async with`.

    The methods are those of `TopicOperations`, `ReassignmentOperations`, `LogDirOperations`,
    `ConfigOperations`, `AclOperations`, `DelegationTokenOperations`, `GroupOperations` and
    `ClusterOperations`.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        bootstrap_controllers: str | Sequence[str] | None = None,
        client_id: str = "adminclient",
        request_timeout_s: float = 30.0,
        api_timeout_s: float = 60.0,
        **options: Any,
    ) -> None:
        """Raises ValueError for a malformed address."""
        if (bootstrap_servers is None) == (bootstrap_controllers is None):
            raise ValueError("give either bootstrap_servers or bootstrap_controllers")
        self.transport = Transport(
            bootstrap_servers if bootstrap_servers is not None else bootstrap_controllers or "",
            endpoint_type=BROKERS if bootstrap_servers is not None else CONTROLLERS,
            client_id=client_id,
            request_timeout_s=request_timeout_s,
            api_timeout_s=api_timeout_s,
            **options,
        )
        topics = TopicOperations(self.transport)
        self.create_topics = topics.create_topics
        self.delete_topics = topics.delete_topics
        self.list_topics = topics.list_topics
        self.describe_topics = topics.describe_topics
        self.describe_all_topics = topics.describe_all_topics
        self.create_partitions = topics.create_partitions
        self.leaders = topics.leaders
        self.list_offsets = topics.list_offsets
        self.delete_records = topics.delete_records
        reassignments = ReassignmentOperations(self.transport)
        self.alter_partition_reassignments = reassignments.alter_partition_reassignments
        self.list_partition_reassignments = reassignments.list_partition_reassignments
        log_dirs = LogDirOperations(self.transport)
        self.describe_log_dirs = log_dirs.describe_log_dirs
        self.describe_replica_log_dirs = log_dirs.describe_replica_log_dirs
        self.describe_replica_sizes = log_dirs.describe_replica_sizes
        self.alter_replica_log_dirs = log_dirs.alter_replica_log_dirs
        configs = ConfigOperations(self.transport)
        self.describe_configs = configs.describe_configs
        self.incremental_alter_configs = configs.incremental_alter_configs
        self.list_config_resources = configs.list_config_resources
        self.describe_client_quotas = configs.describe_client_quotas
        self.alter_client_quotas = configs.alter_client_quotas
        self.describe_scram = configs.describe_scram
        self.alter_scram = configs.alter_scram
        acls = AclOperations(self.transport)
        self.describe_acls = acls.describe_acls
        self.create_acls = acls.create_acls
        self.delete_acls = acls.delete_acls
        tokens = DelegationTokenOperations(self.transport)
        self.create_delegation_token = tokens.create_delegation_token
        self.renew_delegation_token = tokens.renew_delegation_token
        self.expire_delegation_token = tokens.expire_delegation_token
        self.describe_delegation_tokens = tokens.describe_delegation_tokens
        groups = GroupOperations(self.transport)
        self.find_coordinator = groups.find_coordinator
        self.ask_coordinator = groups.ask_coordinator
        self.list_groups = groups.list_groups
        self.describe_groups = groups.describe_groups
        self.delete_groups = groups.delete_groups
        self.list_group_offsets = groups.list_group_offsets
        self.alter_group_offsets = groups.alter_group_offsets
        self.delete_group_offsets = groups.delete_group_offsets
        cluster = ClusterOperations(self.transport)
        self.describe_cluster = cluster.describe_cluster
        self.describe_quorum = cluster.describe_quorum
        self.probe_quorum = cluster.probe_quorum
        self.add_raft_voter = cluster.add_raft_voter
        self.remove_raft_voter = cluster.remove_raft_voter
        self.unregister_broker = cluster.unregister_broker
        self.unregister_controller = cluster.unregister_controller
        self.describe_features = cluster.describe_features
        self.update_features = cluster.update_features
        self.api_versions = cluster.api_versions
        self.elect_leaders = cluster.elect_leaders

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str],
        *,
        bootstrap_servers: str | None = None,
        bootstrap_controllers: str | None = None,
    ) -> AdminClient:
        """A client with Kafka's client properties (`client.id`, `request.timeout.ms`,
        `default.api.timeout.ms`, `retry.backoff.ms`, `retry.backoff.max.ms`, `security.protocol`, and the
        `ssl` and `sasl` ones of `quorate.admin.tls` and `quorate.admin.sasl`).

        Raises ValueError for a value that does not parse or is not supported.
        """

        def seconds(name: str, default_ms: int) -> float:
            text = properties.get(name, str(default_ms)).strip()
            try:
                return int(text) / 1000
            except ValueError:
                raise ValueError(
                    f"Invalid value {text} for configuration {name}: Not a number of type INT"
                ) from None

        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in SECURITY_PROTOCOLS:
            raise ValueError(
                f"Invalid value {protocol} for configuration security.protocol: "
                f"it must be one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        if bootstrap_servers is None and bootstrap_controllers is None:
            bootstrap_servers = properties.get("bootstrap.servers")
            bootstrap_controllers = (
                properties.get("bootstrap.controllers") if bootstrap_servers is None else None
            )
        return cls(
            bootstrap_servers,
            bootstrap_controllers=bootstrap_controllers,
            client_id=properties.get("client.id") or "adminclient",
            request_timeout_s=seconds("request.timeout.ms", 30_000),
            api_timeout_s=seconds("default.api.timeout.ms", 60_000),
            retry_backoff_s=seconds("retry.backoff.ms", 100),
            retry_backoff_max_s=seconds("retry.backoff.max.ms", 1_000),
            ssl=tls.client_context(properties) if protocol.endswith("SSL") else None,
            sasl=sasl.sasl_login(properties) if protocol.startswith("SASL") else None,
        )

    async def close(self) -> None:
        """Closes the connections to all nodes."""
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
