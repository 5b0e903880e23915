"""Operations on configurations, client quotas and SCRAM credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quorate.admin.errors import ErrorCode, KafkaError, check, error_of
from quorate.admin.transport import BROKERS, Transport
from quorate.admin.types import ConfigEntry, ConfigOp, ConfigSource, ConfigSynonym
from quorate.protocol import messages
from quorate.protocol.config_resource import ConfigResourceType

Resource = tuple[ConfigResourceType, str]
QuotaEntity = tuple[tuple[str, str | None], ...]
"""(entity type, name) pairs; None is the default entity."""


class ConfigOperations:
    """The admin client's operations on configurations, quotas and SCRAM credentials."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def describe_configs(
        self, resources: Sequence[Resource], *, synonyms: bool = False
    ) -> dict[Resource, list[ConfigEntry] | KafkaError]:
        """Returns all configurations of each resource, or its error.

        Those of a broker, or with controller bootstrap of a controller, come from that node, because no other
        node knows its static configuration.
        """
        found: dict[Resource, list[ConfigEntry] | KafkaError] = {}
        shared: list[Resource] = []
        for resource in resources:
            kind, name = resource
            if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name != "":
                found |= _read(await self.transport.call_node(int(name), _describe([resource], synonyms)))
            else:
                shared.append(resource)
        if shared:
            found |= _read(await self.transport.call(_describe(shared, synonyms)))
        return found

    async def incremental_alter_configs(
        self,
        changes: Mapping[Resource, Iterable[tuple[ConfigOp, str, str | None]]],
        *,
        validate_only: bool = False,
    ) -> dict[Resource, KafkaError | None]:
        """Sets, deletes, appends to or subtracts from configurations. Returns the error of each resource, or
        None.

        With broker bootstrap, the configurations of a broker can be changed only while it is available.
        """

        def build(resource: Resource) -> messages.IncrementalAlterConfigsRequest.AlterConfigsResource:
            return messages.IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[
                    messages.IncrementalAlterConfigsRequest.AlterableConfig(
                        name=name, config_operation=op, value=value
                    )
                    for op, name, value in changes[resource]
                ],
            )

        def look(answer: Any) -> None:
            for response in answer.responses:
                if response.error_code == ErrorCode.NOT_CONTROLLER:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, response.error_message)

        async def ask_broker(resource: Resource) -> dict[Resource, KafkaError | None]:
            request = messages.IncrementalAlterConfigsRequest(
                resources=[build(resource)], validate_only=validate_only
            )
            try:
                return _outcomes(await self.transport.call_node(int(resource[1]), request, look))
            except KafkaError as error:
                return {resource: error}

        own = [resource for resource in changes if self._is_of_one_broker(resource)]
        result: dict[Resource, KafkaError | None] = {}
        for outcome in await asyncio.gather(*(ask_broker(resource) for resource in own)):
            result |= outcome
        shared = [resource for resource in changes if resource not in result]
        if shared:
            request = messages.IncrementalAlterConfigsRequest(
                resources=[build(resource) for resource in shared], validate_only=validate_only
            )
            result |= _outcomes(await self.transport.call(request, look))
        return result

    def _is_of_one_broker(self, resource: Resource) -> bool:
        """Whether a change must be sent to one broker. A broker validates its own configurations only, while
        a controller accepts those of all brokers.
        """
        kind, name = resource
        if kind is ConfigResourceType.BROKER_LOGGER:
            return True
        return kind is ConfigResourceType.BROKER and name != "" and self.transport.endpoint_type == BROKERS

    async def list_config_resources(self, kinds: Sequence[ConfigResourceType]) -> list[Resource]:
        """Returns the resources of these types that have a configuration."""
        request = messages.ListConfigResourcesRequest(resource_types=[int(kind) for kind in kinds])
        answer = await self.transport.call(request, lambda a: check(a.error_code))
        return [(ConfigResourceType(r.resource_type), r.resource_name) for r in answer.config_resources]

    # -- quotas
    # ----------------------------------------------------------------------------------------------

    async def describe_client_quotas(
        self, components: Sequence[tuple[str, int, str | None]], *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Returns the quotas of the entities that match (type, match type, name).

        The match type is 0 for the exact name, 1 for the default entity and 2 for any name.
        """
        request = messages.DescribeClientQuotasRequest(
            components=[
                messages.DescribeClientQuotasRequest.ComponentData(entity_type=t, match_type=m, match=n)
                for t, m, n in components
            ],
            strict=strict,
        )
        answer = await self.transport.call(request, lambda a: check(a.error_code, a.error_message))
        return {
            tuple((e.entity_type, e.entity_name) for e in entry.entity): {
                v.key: v.value for v in entry.values
            }
            for entry in answer.entries or ()
        }

    async def alter_client_quotas(
        self, entity: QuotaEntity, ops: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Sets the quotas of one entity and removes those whose value is None. Raises KafkaError."""
        entry = messages.AlterClientQuotasRequest.EntryData(
            entity=[
                messages.AlterClientQuotasRequest.EntityData(entity_type=t, entity_name=n) for t, n in entity
            ],
            ops=[
                messages.AlterClientQuotasRequest.OpData(
                    key=k, value=0.0 if v is None else v, remove=v is None
                )
                for k, v in ops.items()
            ],
        )

        def look(answer: Any) -> None:
            for result in answer.entries:
                check(result.error_code, result.error_message)

        request = messages.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
        await self.transport.call(request, look)

    # -- SCRAM
    # ----------------------------------------------------------------------------------------------

    async def describe_scram(self, users: Sequence[str] | None = None) -> dict[str, list[tuple[int, int]]]:
        """Returns (mechanism, iterations) of the credentials of users (None: of all users)."""
        names = (
            None
            if users is None
            else [messages.DescribeUserScramCredentialsRequest.UserName(name=user) for user in users]
        )
        answer = await self.transport.call(
            messages.DescribeUserScramCredentialsRequest(users=names),
            lambda a: check(a.error_code, a.error_message),
        )
        found = {}
        for result in answer.results:
            if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            check(result.error_code, result.error_message)
            found[result.user] = [(c.mechanism, c.iterations) for c in result.credential_infos]
        return found

    async def alter_scram(
        self,
        *,
        upserts: Sequence[tuple[str, int, int, bytes, bytes]] = (),
        deletions: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Upserts credentials (user, mechanism, iterations, salt, salted password) and deletes credentials
        (user, mechanism). Raises KafkaError.
        """
        request = messages.AlterUserScramCredentialsRequest(
            deletions=[
                messages.AlterUserScramCredentialsRequest.ScramCredentialDeletion(
                    name=name, mechanism=mechanism
                )
                for name, mechanism in deletions
            ],
            upsertions=[
                messages.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                    name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=password
                )
                for name, mechanism, iterations, salt, password in upserts
            ],
        )

        def look(answer: Any) -> None:
            for result in answer.results:
                check(result.error_code, result.error_message)

        await self.transport.call(request, look)


def _describe(resources: Sequence[Resource], synonyms: bool) -> Any:
    return messages.DescribeConfigsRequest(
        resources=[
            messages.DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
            for kind, name in resources
        ],
        include_synonyms=synonyms,
    )


def _read(answer: Any) -> dict[Resource, list[ConfigEntry] | KafkaError]:
    found: dict[Resource, list[ConfigEntry] | KafkaError] = {}
    for result in answer.results:
        resource = (ConfigResourceType(result.resource_type), result.resource_name)
        if result.error_code:
            found[resource] = KafkaError(ErrorCode.of(result.error_code), result.error_message)
            continue
        found[resource] = [
            ConfigEntry(
                name=c.name,
                value=c.value,
                source=_source(c.config_source),
                read_only=c.read_only,
                sensitive=c.is_sensitive,
                synonyms=tuple(ConfigSynonym(s.name, s.value, _source(s.source)) for s in c.synonyms),
            )
            for c in result.configs
        ]
    return found


def _outcomes(answer: Any) -> dict[Resource, KafkaError | None]:
    return {
        (ConfigResourceType(r.resource_type), r.resource_name): error_of(r.error_code, r.error_message)
        for r in answer.responses
    }


def _source(code: int) -> ConfigSource:
    try:
        return ConfigSource(code)
    except ValueError:
        return ConfigSource.UNKNOWN
