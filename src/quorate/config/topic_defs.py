"""Keys of a topic, and the broker keys that determine their defaults.

The definitions are those of Apache Kafka 4.4. `docs` documents the keys.
"""

from __future__ import annotations

from quorate.config.definitions import (
    BOOLEAN,
    DOUBLE,
    GZIP_LEVEL,
    INT,
    LIST,
    LONG,
    STRING,
    THROTTLED,
    ConfigDef,
    at_least,
    between,
    list_of,
    one_of,
)
from quorate.config.definitions import (
    define as _d,
)

_ROWS: tuple[ConfigDef, ...] = (
    _d("segment.bytes", INT, "1073741824", at_least(1048576), synonyms=("log.segment.bytes",)),
    _d(
        "segment.ms",
        LONG,
        "604800000",
        at_least(1),
        synonyms=(
            "log.roll.ms",
            "log.roll.hours",
        ),
    ),
    _d(
        "segment.jitter.ms",
        LONG,
        "0",
        at_least(0),
        synonyms=(
            "log.roll.jitter.ms",
            "log.roll.jitter.hours",
        ),
    ),
    _d("segment.index.bytes", INT, "10485760", at_least(4), synonyms=("log.index.size.max.bytes",)),
    _d("flush.messages", LONG, "9223372036854775807", at_least(1), synonyms=("log.flush.interval.messages",)),
    _d(
        "flush.ms",
        LONG,
        "9223372036854775807",
        at_least(0),
        synonyms=(
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
        ),
    ),
    _d("retention.bytes", LONG, "-1", synonyms=("log.retention.bytes",)),
    _d(
        "retention.ms",
        LONG,
        "604800000",
        at_least(-1),
        synonyms=(
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
        ),
    ),
    _d("max.message.bytes", INT, "1048588", at_least(0), synonyms=("message.max.bytes",)),
    _d(
        "max.decompressed.message.bytes",
        INT,
        "2147483639",
        between(1, 2147483639),
        synonyms=("max.decompressed.message.bytes",),
    ),
    _d("index.interval.bytes", INT, "4096", at_least(0), synonyms=("log.index.interval.bytes",)),
    _d("delete.retention.ms", LONG, "86400000", at_least(0), synonyms=("log.cleaner.delete.retention.ms",)),
    _d("min.compaction.lag.ms", LONG, "0", at_least(0), synonyms=("log.cleaner.min.compaction.lag.ms",)),
    _d(
        "max.compaction.lag.ms",
        LONG,
        "9223372036854775807",
        at_least(1),
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    ),
    _d("file.delete.delay.ms", LONG, "60000", at_least(0), synonyms=("log.segment.delete.delay.ms",)),
    _d(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        "0.5",
        between(0, 1),
        synonyms=("log.cleaner.min.cleanable.ratio",),
    ),
    _d("cleanup.policy", LIST, "delete", list_of("compact", "delete"), synonyms=("log.cleanup.policy",)),
    _d("unclean.leader.election.enable", BOOLEAN, "false", synonyms=("unclean.leader.election.enable",)),
    _d("min.insync.replicas", INT, "1", at_least(1), synonyms=("min.insync.replicas",)),
    _d(
        "compression.type",
        STRING,
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=("compression.type",),
    ),
    _d("compression.gzip.level", INT, "-1", GZIP_LEVEL, synonyms=("compression.gzip.level",)),
    _d("compression.lz4.level", INT, "9", between(1, 17), synonyms=("compression.lz4.level",)),
    _d("compression.zstd.level", INT, "3", between(-131072, 22), synonyms=("compression.zstd.level",)),
    _d("preallocate", BOOLEAN, "false", synonyms=("log.preallocate",)),
    _d(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        synonyms=("log.message.timestamp.type",),
    ),
    _d(
        "message.timestamp.before.max.ms",
        LONG,
        "9223372036854775807",
        at_least(0),
        synonyms=("log.message.timestamp.before.max.ms",),
    ),
    _d(
        "message.timestamp.after.max.ms",
        LONG,
        "3600000",
        at_least(0),
        synonyms=("log.message.timestamp.after.max.ms",),
    ),
    _d("leader.replication.throttled.replicas", LIST, "", THROTTLED),
    _d("follower.replication.throttled.replicas", LIST, "", THROTTLED),
    _d("remote.storage.enable", BOOLEAN, "false"),
    _d("local.retention.ms", LONG, "-2", at_least(-2), synonyms=("log.local.retention.ms",)),
    _d("local.retention.bytes", LONG, "-2", at_least(-2), synonyms=("log.local.retention.bytes",)),
    _d("remote.copy.lag.ms", LONG, "0", at_least(-1), synonyms=("log.remote.copy.lag.ms",)),
    _d("remote.copy.lag.bytes", LONG, "-1", at_least(-1), synonyms=("log.remote.copy.lag.bytes",)),
    _d("remote.log.copy.disable", BOOLEAN, "false"),
    _d("remote.log.delete.on.disable", BOOLEAN, "false"),
    _d("errors.deadletterqueue.group.enable", BOOLEAN, "false"),
    _d("internal.segment.bytes", INT, None, internal=True),
)

TOPIC_CONFIGS: dict[str, ConfigDef] = {d.name: d for d in _ROWS}
