"""Keys of a group and of a client metrics subscription.

The definitions are those of Apache Kafka 4.4. `docs` documents the keys. The synonym of a group's key is the
broker key that gives its default.
"""

from __future__ import annotations

from quorate.config.definitions import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    LOW,
    STRING,
    ConfigDef,
    at_least,
    items,
    one_of,
)
from quorate.config.definitions import (
    define as _d,
)


def _offset_reset(name: str, value: object) -> str | None:
    if value in ("earliest", "latest") or (isinstance(value, str) and value.startswith("by_duration:P")):
        return None
    return (
        f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or "
        "of the format 'by_duration:<PnDTnHnMn.nS>'."
    )


_ROWS: tuple[ConfigDef, ...] = (
    _d(
        "consumer.session.timeout.ms",
        INT,
        "45000",
        at_least(1),
        synonyms=("group.consumer.session.timeout.ms",),
    ),
    _d(
        "consumer.heartbeat.interval.ms",
        INT,
        "5000",
        at_least(1),
        synonyms=("group.consumer.heartbeat.interval.ms",),
    ),
    _d(
        "consumer.assignment.interval.ms",
        INT,
        "1000",
        at_least(0),
        synonyms=("group.consumer.assignment.interval.ms",),
    ),
    _d(
        "consumer.assignor.offload.enable",
        BOOLEAN,
        "true",
        internal=True,
        synonyms=("group.consumer.assignor.offload.enable",),
    ),
    _d("share.session.timeout.ms", INT, "45000", at_least(1), synonyms=("group.share.session.timeout.ms",)),
    _d(
        "share.heartbeat.interval.ms",
        INT,
        "5000",
        at_least(1),
        synonyms=("group.share.heartbeat.interval.ms",),
    ),
    _d(
        "share.assignment.interval.ms",
        INT,
        "1000",
        at_least(0),
        synonyms=("group.share.assignment.interval.ms",),
    ),
    _d(
        "share.assignor.offload.enable",
        BOOLEAN,
        "true",
        internal=True,
        synonyms=("group.share.assignor.offload.enable",),
    ),
    _d(
        "share.record.lock.duration.ms",
        INT,
        "30000",
        at_least(1000),
        synonyms=("group.share.record.lock.duration.ms",),
    ),
    _d("share.delivery.count.limit", INT, "5", at_least(2), synonyms=("group.share.delivery.count.limit",)),
    _d(
        "share.partition.max.record.locks",
        INT,
        "2000",
        at_least(100),
        synonyms=("group.share.partition.max.record.locks",),
    ),
    _d("share.auto.offset.reset", STRING, "latest", _offset_reset),
    _d("share.isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted")),
    _d("share.renew.acknowledge.enable", BOOLEAN, "true"),
    _d(
        "streams.session.timeout.ms",
        INT,
        "45000",
        at_least(1),
        synonyms=("group.streams.session.timeout.ms",),
    ),
    _d(
        "streams.heartbeat.interval.ms",
        INT,
        "5000",
        at_least(1),
        synonyms=("group.streams.heartbeat.interval.ms",),
    ),
    _d(
        "streams.assignment.interval.ms",
        INT,
        "1000",
        at_least(0),
        synonyms=("group.streams.assignment.interval.ms",),
    ),
    _d(
        "streams.assignor.offload.enable",
        BOOLEAN,
        "true",
        internal=True,
        synonyms=("group.streams.assignor.offload.enable",),
    ),
    _d(
        "streams.num.standby.replicas",
        INT,
        "0",
        at_least(0),
        synonyms=("group.streams.num.standby.replicas",),
    ),
    _d(
        "streams.num.warmup.replicas",
        INT,
        "2",
        at_least(0),
        internal=True,
        synonyms=("group.streams.num.warmup.replicas",),
    ),
    _d(
        "streams.acceptable.recovery.lag",
        LONG,
        "10000",
        at_least(0),
        internal=True,
        synonyms=("group.streams.acceptable.recovery.lag",),
    ),
    _d(
        "streams.task.offset.interval.ms",
        INT,
        "60000",
        at_least(1),
        internal=True,
        synonyms=("group.streams.task.offset.interval.ms",),
    ),
    _d(
        "streams.initial.rebalance.delay.ms",
        INT,
        "3000",
        at_least(0),
        synonyms=("group.streams.initial.rebalance.delay.ms",),
    ),
    _d(
        "streams.rack.aware.assignment.tags",
        LIST,
        "",
        items(),
        importance=LOW,
        synonyms=("group.streams.rack.aware.assignment.tags",),
    ),
    _d("streams.assignor.name", STRING, None, synonyms=("group.streams.assignors",)),
    _d("errors.deadletterqueue.topic.name", STRING, ""),
    _d("errors.deadletterqueue.copy.record.enable", BOOLEAN, "false"),
)

GROUP_CONFIGS: dict[str, ConfigDef] = {d.name: d for d in _ROWS}

CLIENT_METRICS_CONFIGS: dict[str, ConfigDef] = {
    d.name: d
    for d in (
        _d("metrics", LIST, "", items()),
        _d("interval.ms", INT, "300000"),
        _d("match", LIST, "", items()),
    )
}
