"""CreateTopics, CreatePartitions, DeleteTopics, Metadata, DescribeTopicPartitions."""

from __future__ import annotations

from typing import Any

from quorate.protocol.messages.create_partitions import CreatePartitionsRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from quorate.protocol.messages.metadata import MetadataRequest
from tests.interop.differential.script import Script, case

INT_MAX = 2**31 - 1
STRANGE_ID = bytes(range(16))

ASSIGNMENTS: dict[str, list[tuple[int, list[int]]]] = {
    "good": [(0, [1]), (1, [1])],
    "gap": [(0, [1]), (2, [1])],
    "twice": [(0, [1]), (0, [1])],
    "negative": [(-1, [1])],
    "from 1": [(1, [1])],
    "no replica": [(0, [])],
    "unknown broker": [(0, [9])],
    "broker twice": [(0, [1, 1])],
    "broker -1": [(0, [-1])],
    "uneven": [(0, [1]), (1, [1, 9])],
    "second unknown": [(0, [1, 9])],
}

NAMES = (
    "", ".", "..", "a b", "ü", "x" * 249, "x" * 250, "a/b", "a\0b", "_", "-", "a.b_c",
    "__cluster_metadata", "__consumer_offsets", "__transaction_state", "__share_group_state",
)  # fmt: skip

CONFIGS: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    ("retention.ms", ("abc", "-2", "-1", "", None, " 5 ", "5" * 22)),
    ("retention.bytes", ("-2",)),
    ("nope", ("1",)),
    ("", ("1",)),
    (" retention.ms", ("5",)),
    ("log.retention.ms", ("5",)),
    ("cleanup.policy", ("x", "compact,delete", "", "delete,delete")),
    ("segment.bytes", ("13", "1048576", "2147483648")),
    ("segment.ms", ("0",)),
    ("internal.segment.bytes", ("100",)),
    ("compression.type", ("lz5", "producer")),
    ("compression.gzip.level", ("0", "-1")),
    ("compression.lz4.level", ("17",)),
    ("compression.zstd.level", ("-200000",)),
    ("min.insync.replicas", ("0", "5")),
    ("max.message.bytes", ("-1",)),
    ("unclean.leader.election.enable", ("yes", "TRUE")),
    ("message.format.version", ("3.0",)),
    ("message.downconversion.enable", ("false",)),
    ("message.timestamp.type", ("x",)),
    ("message.timestamp.before.max.ms", ("-1",)),
    ("message.timestamp.difference.max.ms", ("5",)),
    ("leader.replication.throttled.replicas", ("0:1", "x")),
    ("follower.replication.throttled.replicas", ("*",)),
    ("remote.storage.enable", ("true",)),
    ("local.retention.ms", ("5",)),
    ("flush.ms", ("-5",)),
    ("min.cleanable.dirty.ratio", ("1.5", "abc")),
    ("max.compaction.lag.ms", ("0",)),
    ("preallocate", ("true",)),
    ("index.interval.bytes", ("-1",)),
    ("delete.retention.ms", ("-1",)),
    ("file.delete.delay.ms", ("-1",)),
)


@case
def create_topics(s: Script) -> None:
    assignment, config = (
        CreateTopicsRequest.CreatableReplicaAssignment,
        CreateTopicsRequest.CreatableTopicConfig,
    )

    def topic(
        name: str, partitions: int = 1, replicas: int = 1, **more: Any
    ) -> CreateTopicsRequest.CreatableTopic:
        return CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, **more
        )

    def create(
        label: str,
        *topics: CreateTopicsRequest.CreatableTopic,
        version: int = 7,
        dry: bool = False,
        to: str = "broker",
    ) -> None:
        s.ask(
            label,
            CreateTopicsRequest(topics=list(topics), timeout_ms=3000, validate_only=dry),
            version,
            to=to,
        )

    for version in range(2, 8):
        create(f"v{version}", topic(s.name(f"v{version}")), version=version)
    for partitions in (0, -1, -2, INT_MAX, 100_000, 10_001):
        create(
            f"{partitions} partitions", topic(s.name(f"p{partitions}"), partitions), dry=partitions == 100_000
        )
    for replicas in (0, -1, -2, 2, 32_767):
        create(f"{replicas} replicas", topic(s.name(f"r{replicas}"), 1, replicas))
    create("defaults in v3", topic(s.name("d3"), -1, -1), version=3)
    for name in NAMES:
        create(f"name {name[:20]!r} {len(name)}", topic(name), dry=True)
    create("first of two that collide", topic(s.name("a.b")))
    create("second of two that collide", topic(s.name("a_b")))
    create("two that collide", topic(s.name("c.d")), topic(s.name("c_d")))
    for dry in (False, True):
        create(f"exists, dry {dry}", topic(s.name("v7")), dry=dry)
    create("twice", topic(s.name("tw")), topic(s.name("tw"), 2))
    create("nothing")
    for label, rows in ASSIGNMENTS.items():
        given = [assignment(partition_index=i, broker_ids=brokers) for i, brokers in rows]
        create(
            f"assigned: {label}", topic(s.name(f"as {label}".replace(" ", "-")), -1, -1, assignments=given)
        )
    one = [assignment(partition_index=0, broker_ids=[1])]
    create("assigned and partitions", topic(s.name("asp"), 1, -1, assignments=one))
    create("assigned and replicas", topic(s.name("asr"), -1, 1, assignments=one))
    for key, values in CONFIGS:
        for value in values:
            create(f"{key}={value}", topic(s.name("cfg"), configs=[config(name=key, value=value)]), dry=True)
    twice = [config(name="retention.ms", value="1"), config(name="retention.ms", value="2")]
    create("config twice", topic(s.name("cfg"), configs=twice), dry=True)
    create("with config", topic(s.name("cfg"), configs=[config(name="cleanup.policy", value="compact")]))
    create("dry", topic(s.name("dry"), 3), dry=True)
    create("at the controller", topic(s.name("direct")), to="controller")


@case
def create_partitions(s: Script) -> None:
    s.topic("cp", 2)
    kind, given = (
        CreatePartitionsRequest.CreatePartitionsTopic,
        CreatePartitionsRequest.CreatePartitionsAssignment,
    )

    def create(label: str, *topics: CreatePartitionsRequest.CreatePartitionsTopic, dry: bool = False) -> None:
        s.ask(label, CreatePartitionsRequest(topics=list(topics), timeout_ms=3000, validate_only=dry), 3)

    for count in (2, 1, 0, -1, INT_MAX, 100_000):
        create(f"to {count}", kind(name=s.name("cp"), count=count), dry=count > 1000)
    create("to 3", kind(name=s.name("cp"), count=3))
    create("no such topic", kind(name=s.name("nope"), count=3))
    create("twice", kind(name=s.name("cp"), count=4), kind(name=s.name("cp"), count=5))
    create("dry", kind(name=s.name("cp"), count=9), dry=True)
    create("nothing")
    rows: tuple[tuple[str, int, list[list[int]]], ...] = (
        ("too few", 5, [[1]]),
        ("too many", 4, [[1], [1]]),
        ("unknown", 4, [[7]]),
        ("empty", 4, [[]]),
        ("broker twice", 4, [[1, 1]]),
        ("good", 4, [[1]]),
        ("none", 5, []),
        ("other factor", 6, [[1, 2]]),
    )
    for label, count, brokers in rows:
        create(
            f"assigned: {label}",
            kind(name=s.name("cp"), count=count, assignments=[given(broker_ids=b) for b in brokers]),
        )
    for name in ("", "a b"):
        create(f"name {name!r}", kind(name=name, count=3))


@case
def delete_topics(s: Script) -> None:
    state = DeleteTopicsRequest.DeleteTopicState
    ids = {short: s.topic(short) for short in ("a", "b", "c", "d", "e", "f", "g")}

    def delete(label: str, *topics: DeleteTopicsRequest.DeleteTopicState) -> None:
        s.ask(label, DeleteTopicsRequest(topics=list(topics), timeout_ms=3000), 6)

    for version, short in zip(range(1, 6), ("a", "b", "c", "d", "e"), strict=True):
        names = [s.name(short), s.name("nope"), s.name("nope")] if version != 3 else [s.name("c")] * 2
        s.ask(f"v{version}", DeleteTopicsRequest(topic_names=names, timeout_ms=3000), version)
    delete("by id and by name", state(name=s.name("f")), state(name=None, topic_id=ids["f"]))
    delete("id and name", state(name=s.name("f"), topic_id=ids["f"]))
    delete("neither", state(name=None))
    delete("unknown id", state(name=None, topic_id=STRANGE_ID))
    delete("unknown names", state(name="zzz"), state(name=""), state(name="a b"))
    delete("by id", state(name=None, topic_id=ids["f"]))
    delete("by id again", state(name=None, topic_id=ids["f"]))
    delete("id twice", *[state(name=None, topic_id=ids["g"])] * 2)
    delete("the metadata topic", state(name="__cluster_metadata"))
    delete("nothing")


@case
def metadata(s: Script) -> None:
    topic_id = s.topic("m", 2)
    kind = MetadataRequest.MetadataRequestTopic

    def ask(label: str, *topics: Any, version: int = 12, create: bool = False, **more: Any) -> None:
        s.ask(label, MetadataRequest(topics=list(topics), allow_auto_topic_creation=create, **more), version)

    known = kind(name=s.name("m"))
    for version in range(1, 14):
        ask(f"v{version}", known, version=version, create=version < 4)
    for version in (4, 8, 12):
        for label, name in (("unknown", s.name("nope")), ("bad", "a b"), ("empty", "")):
            ask(f"{label} v{version}", kind(name=name), version=version)
        ask(f"twice v{version}", known, known, version=version)
        for name in ("a/b", "y" * 250):
            ask(f"create {name[:5]} v{version}", kind(name=name), version=version, create=True)
    for version in (10, 11, 12):
        ask(f"by id v{version}", kind(name=None, topic_id=topic_id), version=version)
    ask("unknown id", kind(name=None, topic_id=STRANGE_ID))
    ask("id and name", kind(name=s.name("m"), topic_id=topic_id))
    ask("by id, and by name", kind(name=None, topic_id=topic_id), known)
    ask(
        "operations",
        known,
        version=9,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    ask("no topic")
    for create in (False, True):
        ask(f"the metadata topic, create {create}", kind(name="__cluster_metadata"), create=create)
    asked = DescribeTopicPartitionsRequest.TopicRequest
    several = [asked(name=s.name("m")), asked(name=s.name("nope")), asked(name="a b")]
    for limit in (2000, 1, 0, -1):
        s.ask(
            f"partitions, limit {limit}",
            DescribeTopicPartitionsRequest(topics=several, response_partition_limit=limit),
            0,
        )
    for name, index in ((s.name("m"), 1), (s.name("m"), -1), (s.name("m"), 50), ("zzzz", 0)):
        cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=name, partition_index=index)
        request = DescribeTopicPartitionsRequest(
            topics=several[:1], response_partition_limit=5, cursor=cursor
        )
        s.ask(f"partitions from {name[-2:]} {index}", request, 0)
