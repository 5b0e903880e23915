"""Keys of a group and of a client metrics subscription.

Generated once from Apache Kafka 4.1's own definitions and maintained by hand since. `docs` documents the
keys.
"""

from __future__ import annotations

from quorate.config.definitions import (
    ConfigDef,
    ConfigType,
    at_least,
    one_of,
)
from quorate.config.definitions import (
    define as _d,
)

STRING = ConfigType.STRING
LIST = ConfigType.LIST
INT = ConfigType.INT


def _offset_reset(name: str, value: object) -> str | None:
    if value in ("earliest", "latest") or (isinstance(value, str) and value.startswith("by_duration:P")):
        return None
    return "Value must be one of: earliest, latest, by_duration:PnDTnHnMn.nS"


GROUP_CONFIGS: dict[str, ConfigDef] = {
    d.name: d
    for d in (
        _d("consumer.session.timeout.ms", INT, "45000", at_least(1)),
        _d("consumer.heartbeat.interval.ms", INT, "5000", at_least(1)),
        _d("share.session.timeout.ms", INT, "45000", at_least(1)),
        _d("share.heartbeat.interval.ms", INT, "5000", at_least(1)),
        _d("share.record.lock.duration.ms", INT, "30000", at_least(1000)),
        _d("share.auto.offset.reset", STRING, "latest", _offset_reset),
        _d("share.isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted")),
        _d("streams.session.timeout.ms", INT, "45000", at_least(1)),
        _d("streams.heartbeat.interval.ms", INT, "5000", at_least(1)),
        _d("streams.num.standby.replicas", INT, "0", at_least(0)),
    )
}

CLIENT_METRICS_CONFIGS: dict[str, ConfigDef] = {
    d.name: d
    for d in (
        _d("metrics", LIST, ""),
        _d("interval.ms", INT, "300000"),
        _d("match", LIST, ""),
    )
}
