"""Admin client, asyncio: one object for everything that administers a cluster.

    async with AdminClient("localhost:9092") as admin:
        await admin.create_topics([NewTopic("t", partitions=3)])

`bootstrap_controllers` instead of `bootstrap_servers` asks the active controller, for clusters whose brokers are away. Results
for several resources
come by resource, as the value or the KafkaError; what concerns one thing alone raises. All methods may raise RequestTimedOut
(no node in time),
UnsupportedVersion (the cluster is too old) and KafkaError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from quorate.admin.cluster import ClusterOperations
from quorate.admin.configs import ConfigOperations
from quorate.admin.groups import GroupOperations
from quorate.admin.topics import TopicOperations
from quorate.admin.transport import BROKERS, CONTROLLERS, Transport


class AdminClient(TopicOperations, ConfigOperations, GroupOperations, ClusterOperations):
    """Closed by `close` or at the end of an `async with`."""

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
        """Raises ValueError for an address that is none."""
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

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, bootstrap_servers: str | None = None, bootstrap_controllers: str | None = None
    ) -> AdminClient:
        """From Kafka's client properties (`client.id`, `request.timeout.ms`, `default.api.timeout.ms`, retry back-offs).

        Raises ValueError for a value that does not parse, and for a security setting that is not served yet.
        """

        def seconds(name: str, default_ms: int) -> float:
            text = properties.get(name, str(default_ms)).strip()
            try:
                return int(text) / 1000
            except ValueError:
                raise ValueError(f"Invalid value {text} for configuration {name}: Not a number of type INT") from None

        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol != "PLAINTEXT":
            raise ValueError(f"Invalid value {protocol} for configuration security.protocol: only PLAINTEXT is served yet")
        if bootstrap_servers is None and bootstrap_controllers is None:
            bootstrap_servers = properties.get("bootstrap.servers")
            bootstrap_controllers = properties.get("bootstrap.controllers") if bootstrap_servers is None else None
        return cls(
            bootstrap_servers,
            bootstrap_controllers=bootstrap_controllers,
            client_id=properties.get("client.id") or "adminclient",
            request_timeout_s=seconds("request.timeout.ms", 30_000),
            api_timeout_s=seconds("default.api.timeout.ms", 60_000),
            retry_backoff_s=seconds("retry.backoff.ms", 100),
            retry_backoff_max_s=seconds("retry.backoff.max.ms", 1_000),
        )

    async def close(self) -> None:
        """Ends the connections."""
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
