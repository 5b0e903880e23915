"""Checks valid settings that probably do not do what the operator wants.

A node starts with them. Each check takes the configuration and yields findings without a place, which
`rule_findings` adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from quorate.config.kafka_config import KafkaConfig
from quorate.config.listeners import Endpoint, shown_address
from quorate.tools.doctor.findings import Finding, Severity

_TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/run"))
_NOWHERE = Path()
_LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""


def rule_findings(path: Path, config: KafkaConfig, lines: Mapping[str, int]) -> list[Finding]:
    """The findings about a configuration that a node accepts. `lines` has the line of each key."""
    return [
        replace(finding, path=path, line=lines.get(finding.key, 0))
        for check in (_quorum, _ports, _log_dirs, _times, _sizes, _replication)
        for finding in check(config)
    ]


def _warning(
    code: str,
    key: str,
    text: str,
    remedy: str,
    *,
    correction: Mapping[str, str | None] | None = None,
    kafka: str = "",
) -> Finding:
    return Finding(
        Severity.WARNING, code, _NOWHERE, text, remedy, key, correction=correction or {}, kafka=kafka
    )


# --- quorum and listeners -------------------------------------------------------------------------


def _quorum(config: KafkaConfig) -> Iterator[Finding]:
    voters = config.quorum_voters
    if voters and config.quorum_bootstrap_servers:
        yield _warning(
            "static-and-dynamic-quorum",
            "controller.quorum.voters",
            "controller.quorum.voters (a static quorum) and controller.quorum.bootstrap.servers (a dynamic "
            "one) are both set. A cluster of kraft.version 1 ignores the voters; one of kraft.version 0 "
            "has only them",
            "keep controller.quorum.bootstrap.servers if kafka-features describe shows kraft.version 1 or "
            "the directories were formatted with --standalone, --initial-controllers or "
            "--no-initial-controllers; otherwise keep controller.quorum.voters",
            kafka="also takes both without a word",
        )
    own = voters.get(config.node_id)
    listener = next(iter(config.controller_listeners), None)
    if config.is_controller and own is not None and listener is not None and listener.port not in (0, own[1]):
        advertised = {endpoint.port for endpoint in config.advertised_controller_listeners}
        if own[1] not in advertised:
            yield _warning(
                "voter-elsewhere",
                "controller.quorum.voters",
                f"the voters have this controller at {shown_address(*own)}, but it listens at {listener}",
                f"correct the port of voter {config.node_id} on every node, or of {listener.name} in "
                "listeners",
            )
    if config.is_controller and not voters and not config.quorum_bootstrap_servers:
        return
    names = [name for name in config.controller_listener_names if config.is_controller]
    if names and listener is not None and listener.name != names[0]:
        yield _warning(
            "first-controller-listener",
            "controller.listener.names",
            f"brokers and the other controllers use the first of controller.listener.names, {names[0]}",
            f"put {names[0]} first in listeners too",
        )


def _ports(config: KafkaConfig) -> Iterator[Finding]:
    http = config.http_listen
    if http is None or not http[1]:
        return
    for endpoint in config.listeners:
        if endpoint.port == http[1] and _overlap(endpoint, http[0]):
            yield Finding(
                Severity.ERROR,
                "port-used-twice",
                _NOWHERE,
                f"quorate.http.listen={shown_address(*http)} has the port of the listener {endpoint}",
                "give /metrics and /health a port of their own",
                "quorate.http.listen",
                kafka="does not know the key",
            )


def _overlap(endpoint: Endpoint, host: str) -> bool:
    """Whether both would bind the port on a shared address."""
    return endpoint.wildcard or host in ("", "0.0.0.0", "::") or endpoint.host == host


def used_ports(path: Path, config: KafkaConfig, lines: Mapping[str, int], sockets: str) -> list[Finding]:
    """The findings about ports that another process listens on now. `sockets` is the content of /proc/net/tcp
    and /proc/net/tcp6."""
    listening = {
        int(fields[1].rpartition(":")[2], 16)
        for fields in map(str.split, sockets.splitlines())
        if len(fields) > 3 and fields[3] == _LISTEN
    }
    http = config.http_listen
    wanted = [(endpoint.port, "listeners", str(endpoint)) for endpoint in config.listeners]
    wanted += [(http[1], "quorate.http.listen", shown_address(*http))] if http is not None else []
    return [
        Finding(
            Severity.WARNING,
            "port-in-use",
            path,
            f"another process listens on port {port} of this machine, which {shown} needs",
            f"ss -ltnp 'sport = :{port}' names the process; stop it, or choose another port",
            key,
            lines.get(key, 0),
        )
        for port, key, shown in wanted
        if port in listening
    ]


# --- directories ----------------------------------------------------------------------------------


def _log_dirs(config: KafkaConfig) -> Iterator[Finding]:
    key = "log.dirs" if config.explicit("log.dirs") else "log.dir"
    for directory in config.all_dirs:
        if any(directory.is_relative_to(folder) for folder in _TEMPORARY):
            default = "" if config.explicit(key) else f"; it is the default of {key}"
            yield _warning(
                "temporary-directory",
                key,
                f"{directory} is in a directory that a reboot or a cleaner may empty{default}",
                "set log.dirs to a directory that stays, and move the data there while the node is stopped",
            )
    for name in ("log.dirs", "log.dir", "metadata.log.dir"):
        value = config.get(name)
        given = value if isinstance(value, list) else [value] if value else []
        for text in given if config.explicit(name) else ():
            if not Path(text).is_absolute():
                yield _warning(
                    "relative-directory",
                    name,
                    f"{text} depends on the directory in which the node is started; here it is "
                    f"{Path(text).absolute()}",
                    "write an absolute path",
                )


# --- values that contradict each other ------------------------------------------------------------


def _times(config: KafkaConfig) -> Iterator[Finding]:
    heartbeat = config.get("broker.heartbeat.interval.ms")
    session = config.get("broker.session.timeout.ms")
    if heartbeat * 2 > session:
        yield _warning(
            "session-too-short",
            "broker.session.timeout.ms",
            f"broker.session.timeout.ms={session} is less than two of "
            f"broker.heartbeat.interval.ms={heartbeat}: a broker that loses one heartbeat is fenced",
            "the heartbeat counts on brokers, the session on controllers: set one of them on all nodes",
            correction={"broker.heartbeat.interval.ms": str(max(1, session // 4))},
            kafka="logs an error at the start, and starts",
        )
    election = config.get("controller.quorum.election.timeout.ms")
    fetch = config.get("controller.quorum.fetch.timeout.ms")
    if config.is_controller and fetch < election:
        yield _warning(
            "fetch-timeout-too-short",
            "controller.quorum.fetch.timeout.ms",
            f"controller.quorum.fetch.timeout.ms={fetch} is less than "
            f"controller.quorum.election.timeout.ms={election}: followers give a slow leader up sooner than "
            "an election takes",
            "set it to at least the election timeout",
            correction={"controller.quorum.fetch.timeout.ms": str(election)},
        )


def _sizes(config: KafkaConfig) -> Iterator[Finding]:
    if not config.is_broker:
        return
    message, segment = config.get("message.max.bytes"), config.get("log.segment.bytes")
    request = config.get("socket.request.max.bytes")
    if message > segment:
        yield _warning(
            "message-above-segment",
            "message.max.bytes",
            f"message.max.bytes={message} is above log.segment.bytes={segment}: a batch that does not fit "
            "into a segment is rejected with RECORD_LIST_TOO_LARGE",
            "lower message.max.bytes, or raise log.segment.bytes",
            correction={"message.max.bytes": str(segment)},
        )
    if message > request:
        yield _warning(
            "message-above-request",
            "socket.request.max.bytes",
            f"socket.request.max.bytes={request} is below message.max.bytes={message}: the connection of a "
            "producer that sends such a batch is closed",
            "raise it above message.max.bytes",
            correction={"socket.request.max.bytes": str(message + (1 << 20))},
        )
    retention = config.get("log.retention.bytes")
    if 0 <= retention < segment:
        yield _warning(
            "retention-below-segment",
            "log.retention.bytes",
            f"log.retention.bytes={retention} is below log.segment.bytes={segment}: the active segment is "
            "not deleted, so a partition keeps up to a segment",
            "lower log.segment.bytes too",
        )
    if config.log_retention_time_ms > 0 and config.log_roll_time_ms > 2 * config.log_retention_time_ms:
        yield Finding(
            Severity.NOTE,
            "roll-above-retention",
            _NOWHERE,
            f"segments are rolled after {config.log_roll_time_ms} ms, but records are kept for "
            f"{config.log_retention_time_ms} ms: those of a quiet partition stay until its segment is rolled",
            "lower log.roll.ms",
            "log.roll.ms",
        )


def _replication(config: KafkaConfig) -> Iterator[Finding]:
    pairs = (
        ("default.replication.factor", "min.insync.replicas", "the topics that are created without a factor"),
        ("offsets.topic.replication.factor", "min.insync.replicas", "__consumer_offsets"),
        ("transaction.state.log.replication.factor", "transaction.state.log.min.isr", "__transaction_state"),
    )
    for factor_key, isr_key, what in pairs:
        factor, isr = config.get(factor_key), config.get(isr_key)
        if 0 < factor < isr:
            yield _warning(
                "isr-above-replication",
                isr_key,
                f"{isr_key}={isr} is above {factor_key}={factor}: producers with acks=all cannot write to "
                f"{what}",
                f"lower {isr_key} to {max(1, factor - 1)}, or raise {factor_key}",
                kafka="also accepts it",
            )
