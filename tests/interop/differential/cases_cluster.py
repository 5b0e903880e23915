"""Configurations, features, the quorum, elections, reassignments, directories, quotas, credentials."""

from __future__ import annotations

from typing import Any

from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from quorate.protocol.messages.alter_configs import AlterConfigsRequest
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from quorate.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from quorate.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest
from quorate.protocol.messages.describe_configs import DescribeConfigsRequest
from quorate.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from quorate.protocol.messages.describe_quorum import DescribeQuorumRequest
from quorate.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from quorate.protocol.messages.list_config_resources import ListConfigResourcesRequest
from quorate.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest
from quorate.protocol.messages.update_features import UpdateFeaturesRequest
from tests.interop.differential.script import Script, case

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
STRANGE_ID = bytes(range(16))
BOTH = ("broker", "controller")

BROKER_KEYS = (
    ("num.partitions", "5"), ("log.retention.ms", "1000"), ("log.retention.ms", "x"), ("log.cleaner.threads", "2"),
    ("num.io.threads", "8"), ("num.io.threads", "x"), ("num.io.threads", "0"), ("message.max.bytes", "2000000"),
    ("node.id", "3"), ("process.roles", "broker"), ("nope", "1"), ("leader.replication.throttled.rate", "100"),
    ("max.connections", "5"), ("max.connections.per.ip", "5"), ("max.connection.creation.rate", "5"),
    ("log.segment.bytes", "5"), ("unclean.leader.election.enable", "true"), ("listener.name.plaintext.max.connections", "7"),
    ("auto.create.topics.enable", "false"), ("min.insync.replicas", "2"), ("producer.id.expiration.ms", "5000"),
)  # fmt: skip

FEATURES = (
    ("metadata.version", 27, 1), ("metadata.version", 7, 1), ("metadata.version", 7, 2), ("metadata.version", 7, 3),
    ("metadata.version", 26, 2), ("metadata.version", 28, 1), ("metadata.version", 0, 1), ("metadata.version", -1, 1),
    ("metadata.version", 27, 0), ("metadata.version", 27, 9), ("nope", 1, 1), ("nope", 0, 3), ("", 1, 1),
    ("kraft.version", 0, 2), ("kraft.version", 1, 1), ("kraft.version", 2, 1), ("group.version", 0, 2),
    ("group.version", 0, 3), ("group.version", 1, 1), ("group.version", 2, 1), ("transaction.version", 0, 2),
    ("transaction.version", 1, 2), ("share.version", 1, 1), ("eligible.leader.replicas.version", 0, 2),
    ("streams.version", 1, 1),
    # Downgrades from 33: 33 and 32 changed records, 31 did not.
    *(("metadata.version", level, how) for level in (33, 32, 31, 30, 29, 8) for how in (1, 2, 3)),
    ("metadata.version", 34, 1), ("metadata.version", 34, 2), ("metadata.version", 34, 3), ("metadata.version", 6, 3),
)  # fmt: skip


@case
def describe_configs(s: Script) -> None:
    s.topic("cf", retention_ms=5000)
    topic = s.name("cf")
    kind = DescribeConfigsRequest.DescribeConfigsResource

    def ask(label: str, *rows: tuple[int, str, list[str] | None], version: int = 4, **more: Any) -> None:
        asked = [kind(resource_type=t, resource_name=name, configuration_keys=keys) for t, name, keys in rows]
        s.ask(label, DescribeConfigsRequest(resources=asked, **more), version)

    for version in range(1, 5):
        for synonyms in (False, True):
            ask(
                f"topic v{version} synonyms {synonyms}",
                (TOPIC, topic, None),
                version=version,
                include_synonyms=synonyms,
            )
    for version in (1, 4):
        ask(f"broker v{version}", (BROKER, "1", None), version=version, include_synonyms=True)
    ask("all brokers", (BROKER, "", None))
    for number, name in (
        *((TOPIC, name) for name in ("nope", "", "a b")),
        *((BROKER, name) for name in ("2", "x", "-1", "01")),
        *((LOGGER, name) for name in ("", "2", "x")),
        *((METRICS, name) for name in ("", "m")),
        *((GROUP, name) for name in ("", "g")),
        *((unknown, "x") for unknown in (0, 1, 3, 99, -1)),
    ):
        ask(f"{number} {name!r}", (number, name, ["retention.ms", "num.partitions", "root"]))
    ask("no keys", (TOPIC, topic, []))
    ask("some keys", (TOPIC, topic, ["retention.ms", "nope", "retention.ms"]))
    ask("twice", (TOPIC, topic, ["retention.ms"]), (TOPIC, topic, ["segment.ms"]))
    ask("nothing")
    for types in ([METRICS], [GROUP], [0], [99], [METRICS, METRICS], [BROKER]):
        s.ask(f"resources of {types}", ListConfigResourcesRequest(resource_types=types), 1)


@case
def alter_configs(s: Script) -> None:
    s.topic("cf", retention_ms=5000)
    topic = s.name("cf")

    def change(
        label: str, kind: int, name: str, *rows: tuple[str, int, str | None], dry: bool = False
    ) -> None:
        parts = [
            IncrementalAlterConfigsRequest.AlterableConfig(name=k, config_operation=o, value=v)
            for k, o, v in rows
        ]
        where = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=parts
        )
        s.ask(label, IncrementalAlterConfigsRequest(resources=[where], validate_only=dry), 1)

    for label, *row in (
        ("set", "retention.ms", SET, "7000"),
        ("bad value", "retention.ms", SET, "x"),
        ("null", "retention.ms", SET, None),
        ("unknown key", "nope", SET, "1"),
        ("no key", "", SET, "x"),
        ("append to a number", "retention.ms", APPEND, "1"),
        ("append", "cleanup.policy", APPEND, "compact"),
        ("append again", "cleanup.policy", APPEND, "compact"),
        ("subtract", "cleanup.policy", SUBTRACT, "delete"),
        ("subtract the last", "cleanup.policy", SUBTRACT, "compact"),
        ("delete", "cleanup.policy", DELETE, None),
        ("delete what is not set", "segment.ms", DELETE, None),
        ("delete what is unknown", "nope", DELETE, None),
        ("throttle", "leader.replication.throttled.replicas", SET, "0:1"),
        ("bad throttle", "leader.replication.throttled.replicas", SET, "zz"),
    ):
        change(label, TOPIC, topic, tuple(row))  # type: ignore[arg-type]
    change("key twice", TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    change("no change", TOPIC, topic)
    change("dry", TOPIC, topic, ("retention.ms", SET, "9"), dry=True)
    change("one good, one bad", TOPIC, topic, ("segment.ms", SET, "10000"), ("retention.ms", SET, "x"))
    for kind, name in (
        (TOPIC, "nope"),
        (TOPIC, ""),
        (BROKER, "2"),
        (BROKER, "x"),
        (0, "x"),
        (1, "x"),
        (99, "x"),
        (LOGGER, "1"),
    ):
        change(f"{kind} {name!r}", kind, name, ("retention.ms", SET, "1"))
    for kind, name in ((METRICS, ""), (METRICS, s.name("m")), (GROUP, ""), (GROUP, s.name("g"))):
        change(f"{kind} {name[-2:]!r}", kind, name, ("retention.ms", SET, "1"))
    for key, value in BROKER_KEYS:
        for name in ("1", ""):
            change(f"broker {name!r} {key}={value}", BROKER, name, (key, SET, value), dry=True)
    for label, *row in (
        ("level", "root", SET, "DEBUG"),
        ("no level", "root", SET, "NOPE"),
        ("unknown logger", "no.such", SET, "INFO"),
        ("delete the root's", "root", DELETE, None),
        ("append a level", "root", APPEND, "INFO"),
    ):
        change(label, LOGGER, "1", tuple(row))  # type: ignore[arg-type]
    for key, value in (
        ("interval.ms", "1000"), ("interval.ms", "5"), ("interval.ms", "x"), ("match", "client_id=x,zz"),
        ("match", "client_id=x"), ("match", "zz=x"), ("match", "client_id=["), ("metrics", "a,b"), ("nope", "1"),
    ):  # fmt: skip
        change(f"metrics {key}={value}", METRICS, s.name("m"), (key, SET, value))
    for key, value in (
        ("consumer.session.timeout.ms", "50000"), ("consumer.session.timeout.ms", "5"), ("consumer.session.timeout.ms", "60001"),
        ("consumer.heartbeat.interval.ms", "6000"), ("consumer.heartbeat.interval.ms", "4999"), ("share.session.timeout.ms", "1"),
        ("share.record.lock.duration.ms", "60001"), ("share.auto.offset.reset", "earliest"), ("share.auto.offset.reset", "x"),
        ("streams.num.standby.replicas", "3"), ("nope", "1"),
    ):  # fmt: skip
        change(f"group {key}={value}", GROUP, s.name("g"), (key, SET, value))
    for kind, name in ((METRICS, s.name("m")), (GROUP, s.name("g"))):
        asked = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        s.ask(f"describe {kind}", DescribeConfigsRequest(resources=[asked]), 4)

    def replace(label: str, kind: int, name: str, *rows: tuple[str, str | None], dry: bool = False) -> None:
        parts = [AlterConfigsRequest.AlterableConfig(name=k, value=v) for k, v in rows]
        where = AlterConfigsRequest.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=parts
        )
        s.ask(f"replace {label}", AlterConfigsRequest(resources=[where], validate_only=dry), 2)

    replace("all", TOPIC, topic, ("segment.ms", "20000"))
    replace("bad", TOPIC, topic, ("segment.ms", "x"))
    replace("null", TOPIC, topic, ("segment.ms", None))
    replace("by nothing", TOPIC, topic)
    replace("of an unknown topic", TOPIC, "nope")
    replace("of another broker", BROKER, "2", ("log.retention.ms", "5"))
    replace("of type 99", 99, "x")
    replace("of loggers", LOGGER, "1", ("root", "INFO"))
    replace("of this broker, dry", BROKER, "1", ("log.retention.ms", "5"), dry=True)


@case
def features(s: Script) -> None:
    kind = UpdateFeaturesRequest.FeatureUpdateKey

    def update(label: str, *rows: tuple[str, int, int], version: int) -> None:
        wanted = [kind(feature=name, max_version_level=level, upgrade_type=how) for name, level, how in rows]
        s.ask(
            label, UpdateFeaturesRequest(timeout_ms=3000, feature_updates=wanted, validate_only=True), version
        )

    for version in (1, 2):
        for row in FEATURES:
            update(f"{row} v{version}", row, version=version)
        update(f"twice v{version}", *[("share.version", 1, 1)] * 2, version=version)
        update(f"good and bad v{version}", ("share.version", 1, 1), ("nope", 1, 1), version=version)
        update(f"nothing v{version}", version=version)
    for name, level in (("nope", 0), ("nope", 1), ("group.version", 0), ("metadata.version", 28)):
        wanted = kind(feature=name, max_version_level=level, allow_downgrade=False)
        s.ask(f"{name} {level} v0", UpdateFeaturesRequest(timeout_ms=3000, feature_updates=[wanted]), 0)


@case
def the_quorum(s: Script) -> None:
    topic, part = DescribeQuorumRequest.TopicData, DescribeQuorumRequest.PartitionData
    listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host="127.0.0.1", port=1)
    for to in BOTH:
        for version in range(3):
            for label, name, index in (
                ("good", "__cluster_metadata", 0),
                ("topic", "x", 0),
                ("partition", "__cluster_metadata", 1),
            ):
                asked = DescribeQuorumRequest(
                    topics=[topic(topic_name=name, partitions=[part(partition_index=index)])]
                )
                s.ask(f"{to}: quorum, {label} v{version}", asked, version, to=to)
        s.ask(f"{to}: nothing", DescribeQuorumRequest(), 2, to=to)
        voter: dict[str, Any] = {"timeout_ms": 300, "voter_directory_id": STRANGE_ID}
        for label, fields in (
            ("wrong cluster", {"cluster_id": "zz", "voter_id": 5, "listeners": [listener]}),
            ("known", {"voter_id": 1, "listeners": [listener]}),
            ("no listener", {"voter_id": 5}),
            (
                "another listener",
                {"voter_id": 5, "listeners": [AddRaftVoterRequest.Listener(name="X", host="h", port=1)]},
            ),
            ("-1", {"voter_id": -1, "listeners": [listener]}),
            ("unreachable", {"voter_id": 5, "listeners": [listener]}),
        ):
            s.ask(f"{to}: add, {label}", AddRaftVoterRequest(**voter, **fields), 0, to=to)
        for label, fields in (
            ("unknown", {"voter_id": 5}),
            ("wrong directory", {"voter_id": 1}),
            ("wrong cluster", {"cluster_id": "zz", "voter_id": 1}),
            ("-1", {"voter_id": -1}),
        ):
            s.ask(
                f"{to}: remove, {label}",
                RemoveRaftVoterRequest(voter_directory_id=STRANGE_ID, **fields),
                0,
                to=to,
            )
    for version in range(3):
        for to, kind in (("broker", 1), ("controller", 2)):
            more = {"endpoint_type": kind} if version else {}
            s.ask(
                f"{to}: cluster v{version}",
                DescribeClusterRequest(include_cluster_authorized_operations=True, **more),
                version,
                to=to,
            )
    for to, kind in (("broker", 2), ("broker", 0), ("broker", 9), ("controller", 1)):
        s.ask(f"{to}: cluster of type {kind}", DescribeClusterRequest(endpoint_type=kind), 1, to=to)
    for broker in (9, -1):
        s.ask(f"unregister {broker}", UnregisterBrokerRequest(broker_id=broker), 0)


@case
def partitions_moved(s: Script) -> None:
    s.topic("el", 2)
    rows = [
        ElectLeadersRequest.TopicPartitions(topic=s.name("el"), partitions=[0, 1, 9, -1]),
        ElectLeadersRequest.TopicPartitions(topic=s.name("nope"), partitions=[0]),
    ]
    for version in range(3):
        s.ask(f"elect v{version}", ElectLeadersRequest(topic_partitions=rows, timeout_ms=2000), version)
    for kind in (1, 9):
        s.ask(
            f"elect, type {kind}",
            ElectLeadersRequest(election_type=kind, topic_partitions=rows[:1], timeout_ms=2000),
            2,
        )
    part, topic = (
        AlterPartitionReassignmentsRequest.ReassignablePartition,
        AlterPartitionReassignmentsRequest.ReassignableTopic,
    )
    for label, name, index, brokers in (
        ("same", "el", 0, [1]),
        ("unknown broker", "el", 0, [9]),
        ("broker twice", "el", 0, [1, 1]),
        ("none", "el", 0, []),
        ("cancel", "el", 0, None),
        ("partition 9", "el", 9, [1]),
        ("no such topic", "nope", 0, [1]),
        ("broker -1", "el", 0, [-1]),
    ):
        moved = topic(name=s.name(name), partitions=[part(partition_index=index, replicas=brokers)])
        s.ask(f"reassign: {label}", AlterPartitionReassignmentsRequest(timeout_ms=2000, topics=[moved]), 1)
    wanted = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    for label, topics in (
        ("all", None),
        ("none", []),
        ("some", [wanted(name=s.name("el"), partition_indexes=[0, 9])]),
    ):
        s.ask(f"moving: {label}", ListPartitionReassignmentsRequest(timeout_ms=2000, topics=topics), 0)
    asked = DescribeLogDirsRequest.DescribableLogDirTopic
    for version in range(1, 5):
        some = [asked(topic=s.name("el"), partitions=[0, 9, -1]), asked(topic="nope", partitions=[0])]
        s.ask(f"directories v{version}", DescribeLogDirsRequest(topics=some), version)


@case
def quotas_and_credentials(s: Script) -> None:
    user = s.name("u")

    def alter(label: str, entity: list[tuple[str, str | None]], *ops: tuple[str, float, bool]) -> None:
        who = [
            AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
        ]
        what = [
            AlterClientQuotasRequest.OpData(key=key, value=value, remove=remove) for key, value, remove in ops
        ]
        s.ask(
            label,
            AlterClientQuotasRequest(entries=[AlterClientQuotasRequest.EntryData(entity=who, ops=what)]),
            1,
        )

    rate = "producer_byte_rate"
    alter("set", [("user", user)], (rate, 1000.0, False))
    for label, entity in (
        ("ip and user", [("ip", "127.0.0.1"), ("user", "x")]),
        ("unknown kind", [("zz", "x")]),
        ("nobody", []),
    ):
        alter(f"remove: {label}", entity, (rate, 0.0, True))
    alter("remove: empty name", [("user", "")], (rate, 0.0, True))
    alter("remove: key twice", [("user", user)], (rate, 0.0, True), (rate, 0.0, True))
    connections, address = "connection_creation_rate", "10.99.99.99"
    for value in (0.0, -1.0, 1.5, 2.0**31, 7.0):
        alter(f"connections: {value:g}", [("ip", address)], (connections, value, False))
    alter("connections: of all", [("ip", None)], (connections, 1e9, False))
    alter("connections: a key of users", [("ip", address)], (rate, 1000.0, False))
    alter("connections: unknown key", [("ip", address)], ("zz", 1.0, False))
    alter("connections: no address", [("ip", "nowhere.invalid")], (connections, 5.0, False))
    alter("connections: empty name", [("ip", "")], (connections, 5.0, False))
    alter("connections: ip and user", [("ip", address), ("user", "x")], (connections, 5.0, False))
    alter("connections: remove", [("ip", address)], (connections, 0.0, True))
    alter("connections: remove that of all", [("ip", None)], (connections, 0.0, True))
    alter("remove", [("user", user)], (rate, 0.0, True))
    alter("nothing", [("user", user)])
    component = DescribeClientQuotasRequest.ComponentData
    for label, kind, how, name in (
        ("user", "user", 0, user),
        ("unknown kind", "zz", 0, "x"),
        ("unknown match", "user", 9, "x"),
        ("exact null", "user", 0, None),
        ("default with a name", "user", 1, "x"),
        ("no kind", "", 0, "x"),
    ):
        asked = [component(entity_type=kind, match_type=how, match=name)]
        s.ask(f"quotas of {label}", DescribeClientQuotasRequest(components=asked), 1)
    upsert, drop = (
        AlterUserScramCredentialsRequest.ScramCredentialUpsertion,
        AlterUserScramCredentialsRequest.ScramCredentialDeletion,
    )

    def credential(name: str = user, mechanism: int = 1, iterations: int = 5000) -> Any:
        secret: dict[str, Any] = {"salt": b"salt" * 4, "salted_password": b"p" * 32}
        return upsert(name=name, mechanism=mechanism, iterations=iterations, **secret)

    changes: tuple[tuple[str, list[Any], list[Any]], ...] = (
        ("few iterations", [credential(iterations=100)], []),
        ("many iterations", [credential(iterations=16385)], []),
        ("mechanism 0", [credential(mechanism=0)], []),
        ("mechanism 9", [credential(mechanism=9)], []),
        ("empty user", [credential("")], []),
        ("good", [credential()], []),
        ("twice", [credential(), credential()], []),
        ("set and deleted", [credential()], [drop(name=user, mechanism=1)]),
        ("unknown deleted", [], [drop(name=s.name("zz"), mechanism=1)]),
        ("mechanism 9 deleted", [], [drop(name=user, mechanism=9)]),
    )
    for label, upsertions, deletions in changes:
        s.ask(
            f"credential: {label}",
            AlterUserScramCredentialsRequest(upsertions=upsertions, deletions=deletions),
            0,
        )
    name_of = DescribeUserScramCredentialsRequest.UserName
    for label, users in (
        ("all", None),
        ("one", [name_of(name=user)]),
        ("twice", [name_of(name=user)] * 2),
        ("''", [name_of(name="")]),
    ):
        s.ask(f"credentials of {label}", DescribeUserScramCredentialsRequest(users=users), 0)
    s.ask("deleted", AlterUserScramCredentialsRequest(deletions=[drop(name=user, mechanism=1)]), 0)
