"""The blocking admin client. It runs the asyncio client on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from quorate.admin.client import AdminClient as AsyncAdminClient
from quorate.admin.operations.acls import AclOperations
from quorate.admin.operations.cluster import ClusterOperations
from quorate.admin.operations.configs import ConfigOperations
from quorate.admin.operations.delegation_tokens import DelegationTokenOperations
from quorate.admin.operations.groups import GroupOperations
from quorate.admin.operations.log_dirs import LogDirOperations
from quorate.admin.operations.reassignments import ReassignmentOperations
from quorate.admin.operations.topics import TopicOperations

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AdminClient, P], T]:
    """Returns a method that runs the method of this name of the asyncio client, and waits for its result."""

    @wraps(method)
    def call(self: AdminClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._run(getattr(self._client, method.__name__)(*args, **kwargs))
        return result

    return call


class AdminClient:
    """Has the methods of `quorate.admin.client.AdminClient` as blocking methods. It is thread-safe.

    with AdminClient("localhost:9092") as admin:
        admin.create_topics([NewTopic("t")])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes the arguments of the asyncio client. Raises ValueError for a malformed address."""
        self._start(lambda: AsyncAdminClient(*args, **kwargs))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **kwargs: Any) -> Self:
        """Takes the arguments of the method of this name of the asyncio client, and raises its errors."""
        client = cls.__new__(cls)
        client._start(lambda: AsyncAdminClient.from_properties(properties, **kwargs))
        return client

    def _start(self, create: Callable[[], AsyncAdminClient]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="quorate-admin", daemon=True)
        self._thread.start()
        try:
            self._client = self._run(_create(create))
        except BaseException:
            self._stop()
            raise

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    create_topics = _blocking(TopicOperations.create_topics)
    delete_topics = _blocking(TopicOperations.delete_topics)
    list_topics = _blocking(TopicOperations.list_topics)
    describe_topics = _blocking(TopicOperations.describe_topics)
    describe_all_topics = _blocking(TopicOperations.describe_all_topics)
    create_partitions = _blocking(TopicOperations.create_partitions)
    leaders = _blocking(TopicOperations.leaders)
    list_offsets = _blocking(TopicOperations.list_offsets)
    delete_records = _blocking(TopicOperations.delete_records)
    alter_partition_reassignments = _blocking(ReassignmentOperations.alter_partition_reassignments)
    list_partition_reassignments = _blocking(ReassignmentOperations.list_partition_reassignments)
    describe_log_dirs = _blocking(LogDirOperations.describe_log_dirs)
    describe_replica_log_dirs = _blocking(LogDirOperations.describe_replica_log_dirs)
    describe_replica_sizes = _blocking(LogDirOperations.describe_replica_sizes)
    alter_replica_log_dirs = _blocking(LogDirOperations.alter_replica_log_dirs)
    describe_configs = _blocking(ConfigOperations.describe_configs)
    incremental_alter_configs = _blocking(ConfigOperations.incremental_alter_configs)
    list_config_resources = _blocking(ConfigOperations.list_config_resources)
    describe_client_quotas = _blocking(ConfigOperations.describe_client_quotas)
    alter_client_quotas = _blocking(ConfigOperations.alter_client_quotas)
    describe_scram = _blocking(ConfigOperations.describe_scram)
    alter_scram = _blocking(ConfigOperations.alter_scram)
    describe_acls = _blocking(AclOperations.describe_acls)
    create_acls = _blocking(AclOperations.create_acls)
    delete_acls = _blocking(AclOperations.delete_acls)
    create_delegation_token = _blocking(DelegationTokenOperations.create_delegation_token)
    renew_delegation_token = _blocking(DelegationTokenOperations.renew_delegation_token)
    expire_delegation_token = _blocking(DelegationTokenOperations.expire_delegation_token)
    describe_delegation_tokens = _blocking(DelegationTokenOperations.describe_delegation_tokens)
    find_coordinator = _blocking(GroupOperations.find_coordinator)
    ask_coordinator = _blocking(GroupOperations.ask_coordinator)
    list_groups = _blocking(GroupOperations.list_groups)
    describe_groups = _blocking(GroupOperations.describe_groups)
    delete_groups = _blocking(GroupOperations.delete_groups)
    list_group_offsets = _blocking(GroupOperations.list_group_offsets)
    alter_group_offsets = _blocking(GroupOperations.alter_group_offsets)
    delete_group_offsets = _blocking(GroupOperations.delete_group_offsets)
    describe_cluster = _blocking(ClusterOperations.describe_cluster)
    describe_quorum = _blocking(ClusterOperations.describe_quorum)
    probe_quorum = _blocking(ClusterOperations.probe_quorum)
    add_raft_voter = _blocking(ClusterOperations.add_raft_voter)
    remove_raft_voter = _blocking(ClusterOperations.remove_raft_voter)
    unregister_broker = _blocking(ClusterOperations.unregister_broker)
    unregister_controller = _blocking(ClusterOperations.unregister_controller)
    describe_features = _blocking(ClusterOperations.describe_features)
    update_features = _blocking(ClusterOperations.update_features)
    api_versions = _blocking(ClusterOperations.api_versions)
    elect_leaders = _blocking(ClusterOperations.elect_leaders)

    def close(self) -> None:
        """Closes the connections and ends the thread. A second call does nothing."""
        if self._thread.is_alive():
            self._run(self._client.close())
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _create(create: Callable[[], AsyncAdminClient]) -> AsyncAdminClient:
    return create()
