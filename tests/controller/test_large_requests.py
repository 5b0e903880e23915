"""Requests of very many parts that are refused: other work gets its turns in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quorate.controller.changes.batched_change import STEP_ITEMS
from quorate.controller.config import MAX_RECORDS_PER_USER_OP
from quorate.controller.handlers.acls import STEP_COMPARISONS
from quorate.controller.handlers.alter_partition_reassignments import alter_partition_reassignments
from quorate.controller.handlers.elect_leaders import elect_leaders
from quorate.controller.replication.broker_changes import VISITS_PER_TURN
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from quorate.protocol.messages.alter_configs import AlterConfigsRequest
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from quorate.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from quorate.protocol.messages.create_acls import CreateAclsRequest
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest
from quorate.protocol.messages.delete_acls import DeleteAclsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

from .requests import broker, run, topics
from .support import Cluster, Harness
from .test_envelope import envelope, opened

STEPS = 10
COUNT = STEPS * STEP_ITEMS
TOPIC = 2


def reassignments(count: int, name: str = "a") -> AlterPartitionReassignmentsRequest:
    make = AlterPartitionReassignmentsRequest
    moves = [make.ReassignablePartition(partition_index=1 + n, replicas=[1]) for n in range(count)]
    return make(topics=[make.ReassignableTopic(name=name, partitions=moves)])


def reassigned_topics(count: int) -> AlterPartitionReassignmentsRequest:
    make = AlterPartitionReassignmentsRequest
    return make(topics=[make.ReassignableTopic(name=f"t{n}", partitions=[]) for n in range(count)])


def incremental(names: list[str], validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    make = IncrementalAlterConfigsRequest
    config = make.AlterableConfig(name="retention.ms", config_operation=0, value="1")
    resources = [
        make.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[config]) for name in names
    ]
    return make(resources=resources, validate_only=validate_only)


def incremental_of_none(count: int) -> IncrementalAlterConfigsRequest:
    return incremental([f"t{n}" for n in range(count)])


def replaced(count: int) -> AlterConfigsRequest:
    make = AlterConfigsRequest
    config = make.AlterableConfig(name="retention.ms", value="1")
    return make(
        resources=[
            make.AlterConfigsResource(resource_type=TOPIC, resource_name=f"t{n}", configs=[config])
            for n in range(count)
        ]
    )


def deleted_topics(count: int) -> DeleteTopicsRequest:
    state = DeleteTopicsRequest.DeleteTopicState
    by_id = [state(topic_id=number.to_bytes(16, "big")) for number in range(1, count // 2 + 1)]
    return DeleteTopicsRequest(topics=by_id + [state(name=f"t{n}") for n in range(count // 2)])


def created_acls(count: int) -> CreateAclsRequest:
    make = CreateAclsRequest.AclCreation
    return CreateAclsRequest(
        creations=[
            make(
                resource_type=2, resource_name="a", principal="none", host="*", operation=3, permission_type=3
            )
            for _ in range(count)
        ]
    )


def deleted_acls(count: int) -> DeleteAclsRequest:
    make = DeleteAclsRequest.DeleteAclsFilter
    return DeleteAclsRequest(
        filters=[
            make(resource_type_filter=2, resource_name_filter=f"t{n}", operation=1, permission_type=1)
            for n in range(count)
        ]
    )


def quotas(count: int) -> AlterClientQuotasRequest:
    make = AlterClientQuotasRequest
    op = make.OpData(key="connection_creation_rate", value=0.0)
    entries = [
        make.EntryData(entity=[make.EntityData(entity_type="ip", entity_name=f"10.0.0.{n}")], ops=[op])
        for n in range(count)
    ]
    return make(entries=entries)


def deleted_credentials(count: int) -> AlterUserScramCredentialsRequest:
    make = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    return AlterUserScramCredentialsRequest(
        deletions=[make(name=f"u{n}", mechanism=1) for n in range(count)], upsertions=[]
    )


def upserted_credentials(count: int) -> AlterUserScramCredentialsRequest:
    make = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    refused = [
        make(name=f"u{n}", mechanism=1, iterations=1, salt=b"s", salted_password=b"p") for n in range(count)
    ]
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=refused)


def grown_topics(count: int) -> CreatePartitionsRequest:
    make = CreatePartitionsRequest.CreatePartitionsTopic
    return CreatePartitionsRequest(topics=[make(name=f"t{n}", count=2) for n in range(count)])


REFUSED = (
    grown_topics,
    reassignments,
    reassigned_topics,
    incremental_of_none,
    replaced,
    deleted_topics,
    created_acls,
    deleted_acls,
    quotas,
    deleted_credentials,
    upserted_credentials,
)


@pytest.mark.parametrize("request_of", REFUSED)
def test_a_large_request_that_is_refused_takes_many_turns(request_of: Any) -> None:
    async def test() -> None:
        h = await Harness(authorizer=True).start()
        await broker(h)
        await h.call(topics("a"))
        answer = h.send(request_of(COUNT), is_large=True)
        turns = 0
        while not answer.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= STEPS - 1
        expected = h.send(request_of(COUNT))
        assert (await answer) == (await expected if asyncio.isfuture(expected) else expected)

    run(test())


def test_few_filters_that_are_compared_with_very_many_acls_take_several_turns() -> None:
    async def test() -> None:
        h = await Harness(authorizer=True).start()
        make = CreateAclsRequest.AclCreation
        for part in range(2):
            acls = [
                make(
                    resource_type=2,
                    resource_name=f"t{part}-{n}",
                    principal="User:a",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
                for n in range(STEP_COMPARISONS // 2)
            ]
            await h.call(CreateAclsRequest(creations=acls))
        asked = DeleteAclsRequest.DeleteAclsFilter
        filters = [
            asked(
                resource_type_filter=1,
                resource_name_filter=None,
                pattern_type_filter=1,
                principal_filter=None,
                host_filter=host,
                operation=1,
                permission_type=1,
            )
            for host in "abcde"
        ]
        answer = h.send(DeleteAclsRequest(filters=filters))
        assert asyncio.isfuture(answer)
        turns = 0
        while not answer.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= len(filters) - 1
        assert [one.error_code for one in (await answer).filter_results] == [ErrorCode.NONE] * len(filters)

    run(test())


def test_an_election_of_very_many_topics_without_partitions_takes_several_turns() -> None:
    async def test() -> None:
        h = await Harness().start()
        make = ElectLeadersRequest.TopicPartitions
        wanted = [make(topic=f"t{n}", partitions=[]) for n in range(2 * VISITS_PER_TURN)]
        answer = h.send(ElectLeadersRequest(topic_partitions=wanted), is_large=True)
        assert not answer.done()
        assert len((await answer).replica_election_results) == len(wanted)

    run(test())


def test_a_topic_that_is_deleted_during_a_large_deletion_is_deleted_once() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        names = [f"t{n}" for n in range(COUNT // 2)]
        await h.call(topics(*names))
        state = DeleteTopicsRequest.DeleteTopicState
        answer = h.send(DeleteTopicsRequest(topics=[state(name=name) for name in names]), is_large=True)
        await asyncio.sleep(0)
        await h.call(DeleteTopicsRequest(topics=[state(name="t0")]))
        while not answer.done():
            await asyncio.sleep(0)
            h.raft.commit()
        codes = {one.name: one.error_code for one in (await answer).responses}
        assert codes.pop("t0") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert set(codes.values()) == {ErrorCode.NONE}
        assert not h.controller.state.image.topics.by_name

    run(test())


def test_a_credential_that_is_deleted_during_a_large_change_is_no_more_there() -> None:
    async def test() -> None:
        h = await Harness().start()
        make = AlterUserScramCredentialsRequest
        users = [
            make.ScramCredentialUpsertion(
                name=f"u{n}", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p"
            )
            for n in range(COUNT // 2)
        ]
        await h.call(make(deletions=[], upsertions=users))
        answer = h.send(deleted_credentials(COUNT), is_large=True)
        await asyncio.sleep(0)
        await h.call(make(deletions=[make.ScramCredentialDeletion(name="u0", mechanism=1)], upsertions=[]))
        while not answer.done():
            await asyncio.sleep(0)
            h.raft.commit()
        codes = {one.user: one.error_code for one in (await answer).results}
        assert codes["u0"] == ErrorCode.RESOURCE_NOT_FOUND
        assert codes["u1"] == ErrorCode.NONE
        assert h.controller.state.image.scram.get(1, "u1") is None

    run(test())


def test_a_large_change_of_configurations_is_one_batch() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        names = [f"t{n}" for n in range(COUNT // 2)]
        await h.call(topics(*names))
        batches = len(h.raft.log.batches)
        answer = h.send(incremental([*names, "absent"]), is_large=True)
        while not answer.done():
            await asyncio.sleep(0)
            h.raft.commit()
        codes = [one.error_code for one in (await answer).responses]
        assert codes == [ErrorCode.NONE] * len(names) + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert len(h.raft.log.batches) == batches + 1
        configs = h.controller.state.image.configs
        assert all(configs.topic(name)["retention.ms"] == "1" for name in names)

    run(test())


def test_a_topic_that_is_deleted_during_a_large_change_of_configurations_gets_none() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        names = [f"t{n}" for n in range(COUNT // 2)]
        await h.call(topics(*names))
        answer = h.send(incremental(names), is_large=True)
        await asyncio.sleep(0)
        state = DeleteTopicsRequest.DeleteTopicState
        await h.call(DeleteTopicsRequest(topics=[state(name="t0")]))
        while not answer.done():
            await asyncio.sleep(0)
            h.raft.commit()
        assert (await answer).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (TOPIC, "t0") not in h.controller.state.image.configs.resources

    run(test())


def test_a_large_change_whose_term_ends_before_it_begins_gets_not_controller() -> None:
    async def test() -> None:
        h = await Harness().start()
        answer = h.send(incremental_of_none(COUNT), is_large=True)
        h.controller.state.end_term()
        with pytest.raises(KafkaError) as raised:
            await answer
        assert raised.value.code == ErrorCode.NOT_CONTROLLER

    run(test())


def test_a_large_change_of_configurations_has_the_limit_of_one_batch() -> None:
    async def test() -> None:
        h = await Harness().start()
        make = IncrementalAlterConfigsRequest
        configs = [
            make.AlterableConfig(name=f"listener.name.a.k{n}", config_operation=0, value="1")
            for n in range(MAX_RECORDS_PER_USER_OP + 1)
        ]
        resource = make.AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
        request = make(resources=[resource])
        end = h.raft.log.end
        with pytest.raises(KafkaError, match="metadata records"):
            await h.call(request, is_large=True, forwarded=True)
        assert h.raft.log.end == end

    run(test())


def test_a_large_envelope_has_the_same_response() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        await h.call(topics("a"))
        small = await h.call(envelope(reassignments(COUNT)))
        large = await h.send(envelope(reassignments(COUNT)), is_large=True)
        key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
        version = AlterPartitionReassignmentsRequest.MAX_VERSION
        assert opened(large, key, version) == opened(small, key, version)

    run(test())


def test_a_large_envelope_that_cannot_be_read_is_refused() -> None:
    async def test() -> None:
        h = await Harness().start()
        broken = envelope(topics("a"), request_data=bytes(70_000))
        small, large = h.send(broken), await h.send(broken, is_large=True)
        assert large == small

    run(test())


def test_a_name_that_no_topic_can_have_is_cut_in_the_messages_of_its_partitions() -> None:
    cluster, name = Cluster().brokers(1), "x" * 30_000
    moved = cluster.run(alter_partition_reassignments, reassignments(1, name))
    elect = ElectLeadersRequest.TopicPartitions(topic=name, partitions=[0])
    elected = cluster.run(elect_leaders, ElectLeadersRequest(topic_partitions=[elect]))
    messages = [
        moved.response.responses[0].partitions[0].error_message,
        elected.response.replica_election_results[0].partition_result[0].error_message,
    ]
    assert all(len(message) < 350 for message in messages)
