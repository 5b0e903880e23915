"""What a test did to a cluster, and whether the cluster still says so: topics, every record, committed
offsets, configs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUIET = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}


def admin_client(servers: str, **conf: object) -> AdminClient:
    """Keep it in a variable while its futures are awaited: they end with it."""
    return AdminClient({"bootstrap.servers": servers, **QUIET, **conf})


@dataclass
class Ledger:
    """Drives one cluster through librdkafka and remembers what was acknowledged."""

    records: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    configs: dict[tuple[str, str], str] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    patience_s: float = 0.0
    """How long an answered change may take to be visible: 0 for Quorate, whose answer means usable;
    Kafka answers sooner."""

    def create(self, admin, name: str, partitions: int = 1, **config: str) -> None:  # type: ignore[no-untyped-def]
        for f in admin.create_topics(
            [NewTopic(name, partitions, 1, config=config)], operation_timeout=30
        ).values():
            f.result()
        self.partitions[name] = partitions
        if self.patience_s:
            self._await_topics(admin)
        for k, v in config.items():
            self.configs[name, k] = v

    def add_partitions(self, admin, name: str, total: int) -> None:  # type: ignore[no-untyped-def]
        for f in admin.create_partitions([NewPartitions(name, total)], operation_timeout=30).values():
            f.result()
        self.partitions[name] = total
        if self.patience_s:
            self._await_topics(admin)

    def delete(self, admin, name: str) -> None:  # type: ignore[no-untyped-def]
        for f in admin.delete_topics([name], operation_timeout=30).values():
            f.result()
        del self.partitions[name]
        self.deleted.add(name)
        for key in [k for k in self.configs if k[0] == name]:
            del self.configs[key]
        for key in [k for k in self.records if k[0] == name]:
            del self.records[key]

    def set_config(self, admin, name: str, key: str, value: str) -> None:  # type: ignore[no-untyped-def]
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for f in admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])]
        ).values():
            f.result()
        self.configs[name, key] = value

    def produce(
        self, bootstrap: str, topic: str, n: int, tag: str, codec: str = "none", **conf: object
    ) -> None:
        """n records over all partitions; only what was acknowledged is remembered, in the order of its
        offsets."""
        got: list[tuple[int, int, bytes]] = []
        errors: list[KafkaError] = []

        def delivered(err, msg) -> None:  # type: ignore[no-untyped-def]
            if err is not None:
                errors.append(err)
            else:
                got.append((msg.partition(), msg.offset(), msg.value()))

        p = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, **QUIET, **conf}
        )
        for i in range(n):
            p.produce(
                topic,
                f"{tag}-{codec}-{i}-".encode() * 4,
                key=b"k%d" % i,
                partition=i % self.partitions[topic],
                on_delivery=delivered,
            )
        left = p.flush(30)
        assert not errors, errors[:3]
        assert left == 0, f"{left} records were not acknowledged in 30 s"
        for partition, offset, value in sorted(got):
            held = self.records.setdefault((topic, partition), [])
            assert offset >= len(held), f"{topic}-{partition}: offset {offset} given twice"
            held.append(value)

    def commit(self, bootstrap: str, group: str, topic: str, count: int) -> None:
        """Joins the group, consumes at least `count` records, commits the position."""
        c = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                **QUIET,
            }
        )
        try:
            c.subscribe([topic])
            seen, deadline = 0, time.monotonic() + 30
            while seen < count:
                assert time.monotonic() < deadline, (
                    f"{group} got {seen} of {count} records of {topic} in 30 s"
                )
                for m in c.consume(100, 0.05):
                    assert m.error() is None, m.error()
                    seen += 1
            for tp in c.commit(asynchronous=False):
                assert tp.error is None, tp.error
                if tp.offset >= 0:
                    self.offsets[group, tp.topic, tp.partition] = tp.offset
        finally:
            c.close()

    def _await_topics(self, admin) -> None:  # type: ignore[no-untyped-def]
        """Waits, as long as patience lasts, until the topics are as the answers said."""
        deadline = time.monotonic() + self.patience_s
        while self._user_topics(admin) != self.partitions and time.monotonic() < deadline:
            time.sleep(0.05)  # polls a server that has no way to tell

    @staticmethod
    def _user_topics(admin) -> dict[str, int]:  # type: ignore[no-untyped-def]
        topics = admin.list_topics(timeout=20).topics
        return {t: len(m.partitions) for t, m in topics.items() if not t.startswith("__")}

    def verify(self, admin, bootstrap: str, isolation: str = "read_committed") -> None:  # type: ignore[no-untyped-def]
        """Everything that was acknowledged is there, nothing else is."""
        self._await_topics(admin)
        assert self._user_topics(admin) == self.partitions
        for (topic, key), value in self.configs.items():
            found = next(
                iter(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values())
            ).result()
            assert found[key].value == value, f"{topic} {key}"
        for (topic, partition), want in self.records.items():
            assert read_partition(bootstrap, topic, partition, isolation) == want, f"{topic}-{partition}"
        for group in {g for g, _, _ in self.offsets}:
            c = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **QUIET})
            try:
                tps = [TopicPartition(t, p) for g, t, p in self.offsets if g == group]
                deadline = time.monotonic() + 20
                while True:
                    try:
                        committed = c.committed(tps, timeout=10)
                        break
                    except KafkaException:
                        if time.monotonic() > deadline:
                            raise
                for tp in committed:
                    assert tp.offset == self.offsets[group, tp.topic, tp.partition], (
                        f"{group} {tp.topic}-{tp.partition}"
                    )
            finally:
                c.close()


def read_partition(
    bootstrap: str, topic: str, partition: int, isolation: str = "read_committed"
) -> list[bytes]:
    """All values of a partition from its first offset to its end, in order."""
    c = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 20,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            **QUIET,
        }
    )
    try:
        tp = TopicPartition(topic, partition, 0)
        c.assign([tp])
        out: list[bytes] = []
        deadline = time.monotonic() + 30
        while True:
            assert time.monotonic() < deadline, (
                f"{topic}-{partition}: no end after 30 s, {len(out)} records read"
            )
            for m in c.consume(500, 0.05):
                if m.error() is not None:
                    if m.error().code() == KafkaError._PARTITION_EOF:
                        return out
                    raise AssertionError(f"{topic}-{partition}: {m.error()}")
                out.append(m.value())
    finally:
        c.close()
