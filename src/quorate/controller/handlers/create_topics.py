"""CreateTopics (19): KIP-464, KIP-525.

The records of a new topic are its TopicRecord, its ConfigRecords and its PartitionRecords, in this
order. All topics of a request are one atomic change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from quorate.controller.changes.batched_change import STEP_ITEMS, ChangeSteps, all_hold, in_one_turn
from quorate.controller.config_schema import Entry
from quorate.controller.context import Context, Result, View, check_record_count
from quorate.controller.handlers.config_changes import Operation, altered_config_records
from quorate.controller.replication.new_partitions import (
    Assignment,
    check_partition_total,
    manual_assignment,
    new_partition_records,
    placed_assignments,
    usable_brokers,
)
from quorate.controller.replication.placement import Racks
from quorate.controller.topic_names import Collisions, invalid_reason
from quorate.dataclass import dataclass
from quorate.metadata.image.topics import TopicImage
from quorate.metadata.records import TopicRecord
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.protocol.schema import Data

NONE = ErrorCode.NONE
TopicResult = CreateTopicsResponse.CreatableTopicResult


def create_topics(view: View, request: CreateTopicsRequest, ctx: Context) -> Result[CreateTopicsResponse]:
    """Creates topics. Errors are reported for each topic. Raises POLICY_VIOLATION for more partitions or
    records than one request may write, which are 10,000 as in Kafka unless configured."""
    return in_one_turn(create_topics_in_steps(view, request, ctx))


def create_topics_in_steps(
    view: View, request: CreateTopicsRequest, ctx: Context
) -> ChangeSteps[Result[CreateTopicsResponse]]:
    """Does the same as `create_topics` in steps, which yield the records."""
    _check_total(view, request)
    names = [topic.name for topic in request.topics]
    repeated: set[str] = set()
    if len(set(names)) < len(names):
        repeated.update([name for name, count in Counter(names).items() if count > 1])
    collisions = Collisions(view.image.topics.by_name)
    usable = usable_brokers(view)
    records: list[Data] = []  # those that the next step yields
    written = 0
    created: list[str] = []
    response = CreateTopicsResponse()
    prohibited: list[TopicResult] = []
    for index, topic in enumerate(request.topics, 1):
        if not index % STEP_ITEMS:
            yield records
            records = []
        name = topic.name
        if name in repeated:
            continue
        if name == METADATA_TOPIC:
            prohibited.append(
                _failed(name, ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
            )
            continue
        existing = view.image.topics.by_name.get(name)
        if existing is not None and ctx.created_by_earlier_attempt(name, existing.id):
            # The response of that attempt was lost.
            response.topics.append(_created(view, topic, existing.id, _shape(existing), ctx))
            continue
        try:
            _check_name(view, name, collisions)
            new = yield from _new_topic(view, topic, usable, ctx)
        except KafkaError as error:
            response.topics.append(_failed(name, error.code, error.message))
            continue
        count = len(new.head) + len(new.assignments)
        if written + count > view.max_records:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Creating these topics takes more than {view.max_records} metadata records.",
                remedy="Divide the request.",
            )
        written += count
        created.append(name)
        shape = (len(new.assignments), len(new.assignments[0][0]))
        response.topics.append(_created(view, topic, new.id, shape, ctx))
        if request.validate_only:
            continue
        records += new.head
        for start in range(0, len(new.assignments), STEP_ITEMS):
            part = new.assignments[start : start + STEP_ITEMS]
            records += new_partition_records(view, new.id, start, part)
            if len(records) >= STEP_ITEMS:
                yield records
                records = []
    yield records
    response.topics += [
        _failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in sorted(repeated)
    ]
    response.topics += prohibited

    def recheck(newer: View) -> Generator[None, None, bool]:
        """Whether the brokers are the same and no topic was created that has or resembles one of the
        names."""
        if not newer.has_same_brokers_and_settings(view):
            return False
        collisions = Collisions(newer.image.topics.by_name)

        def is_free(name: str) -> bool:
            return name not in newer.image.topics.by_name and collisions.find(name) is None

        return (yield from all_hold(created, is_free))

    return Result(response, recheck=recheck)


def _failed(name: str, code: ErrorCode, message: str | None) -> TopicResult:
    return TopicResult(name=name, error_code=code, error_message=message)


def _check_total(view: View, request: CreateTopicsRequest) -> None:
    """Raises POLICY_VIOLATION if the request would create too many partitions."""
    total = 0
    for topic in request.topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += (
                view.config.num_partitions if topic.num_partitions == -1 else max(0, topic.num_partitions)
            )
    check_partition_total(view, total)


def _check_name(view: View, name: str, collisions: Collisions) -> None:
    """Raises an error if the topic exists, or if its name is not valid or collides with another one."""
    if name in view.image.topics.by_name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    reason = invalid_reason(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    other = collisions.find(name)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
        )


@dataclass(slots=True)
class _NewTopic:
    """A topic that can be created. `head` has its TopicRecord and its ConfigRecords."""

    id: bytes
    head: list[Data]
    assignments: list[Assignment]


def _new_topic(
    view: View, topic: CreateTopicsRequest.CreatableTopic, usable: Racks, ctx: Context
) -> ChangeSteps[_NewTopic]:
    """Checks one topic and assigns its partitions, in steps."""
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(nulls)
        )
    operations = {config.name: (Operation.SET, config.value) for config in topic.configs}
    config_records: list[Data] = []
    if operations:
        config_records += altered_config_records(
            view, ConfigResourceType.TOPIC, topic.name, operations, is_new=True
        )
    if topic.assignments:
        assignments = yield from _manual(view, topic)
    else:
        assignments = yield from _placed(view, topic, usable, ctx)
    topic_id = ctx.topic_id(topic.name)
    head: list[Data] = [TopicRecord(name=topic.name, topic_id=topic_id), *config_records]
    check_record_count(len(head) + len(assignments), f"Creating topic {topic.name}", view.max_records)
    return _NewTopic(topic_id, head, assignments)


def _shape(topic: TopicImage) -> tuple[int, int]:
    """The number of partitions, and the number of replicas of the first partition."""
    return len(topic.partitions), len(topic.partitions[0].replicas)


def _created(
    view: View,
    topic: CreateTopicsRequest.CreatableTopic,
    topic_id: bytes,
    shape: tuple[int, int],
    ctx: Context,
) -> TopicResult:
    """The result of a topic that was created."""
    result = TopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=shape[0],
        replication_factor=shape[1],
    )
    if ctx.api_version >= 5:
        result.configs = _effective_configs(
            view, {c.name: c.value for c in topic.configs if c.value is not None}
        )
    return result


def _effective_configs(view: View, own: dict[str, str]) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    """The effective configurations of a topic. All topics without own entries share one list, which must
    not be modified."""
    schema, configs = view.config.schema, view.image.configs
    if own:
        return [_described_config(entry) for entry in schema.effective_topic_configs(configs, own)]
    inherited = schema.inherited(configs)
    if inherited.shown is None:
        inherited.shown = [_described_config(entry) for entry in inherited.entries]
    return inherited.shown


def _described_config(entry: Entry) -> CreateTopicsResponse.CreatableTopicConfigs:
    return CreateTopicsResponse.CreatableTopicConfigs(
        name=entry.name,
        value=None if entry.is_sensitive else entry.value,
        read_only=False,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
    )


def _manual(view: View, topic: CreateTopicsRequest.CreatableTopic) -> ChangeSteps[list[Assignment]]:
    """The assignments of the request, checked in steps."""
    if topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    found: dict[int, Assignment] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in found:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        found[index] = manual_assignment(view, assignment.broker_ids, factor, index)
        factor = len(assignment.broker_ids)
        if not len(found) % STEP_ITEMS:
            yield []
    if any(index not in found for index in range(len(found))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [found[index] for index in range(len(found))]


def _placed(
    view: View, topic: CreateTopicsRequest.CreatableTopic, usable: Racks, ctx: Context
) -> ChangeSteps[list[Assignment]]:
    """Assignments chosen by this controller, in steps."""
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    config = view.config
    count = config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    try:
        return (yield from placed_assignments(view, usable, ctx, count, factor))
    except KafkaError as error:
        raise KafkaError(
            error.code, f"Unable to replicate the partition {factor} time(s): {error.message}"
        ) from error
