"""The configurations that limit the rate of reassignments (KIP-73) and of moves between directories.

A reassignment is limited by a rate on each broker, and by the list of a topic's replicas to which it applies:
the sources of each move on the leader's side, and its destinations on the follower's side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, error_text
from quorate.admin.types import ConfigOp, Reassignment, TopicPartition
from quorate.dataclass import dataclass
from quorate.protocol.config_resource import ConfigResourceType
from quorate.tools.command_line import ToolError

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER_LEVEL = (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE)

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
TOPIC_LEVEL = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

Changes = dict[tuple[ConfigResourceType, str], list[tuple[ConfigOp, str, str | None]]]


@dataclass(slots=True, frozen=True)
class PartitionMove:
    """The brokers that have a partition, and those that get it."""

    sources: frozenset[int]
    destinations: frozenset[int]


def proposed_moves(
    ongoing: Mapping[TopicPartition, Reassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, PartitionMove]:
    """Returns the moves of all partitions that are reassigned: those in progress and the proposed ones.

    The sources of a partition that is already being reassigned are its replicas from before.
    """
    moves = {
        tp: PartitionMove(
            frozenset(reassignment.replicas) - frozenset(reassignment.adding), frozenset(reassignment.adding)
        )
        for tp, reassignment in ongoing.items()
    }
    for tp, replicas in proposed.items():
        sources = moves[tp].sources if tp in moves else frozenset(current[tp])
        moves[tp] = PartitionMove(sources, frozenset(replicas) - sources)
    return moves


async def throttle_reassignments(
    admin: AdminClient,
    moves: Mapping[TopicPartition, PartitionMove],
    rate: int,
    say: Callable[[str], None] = print,
) -> None:
    """Limits the rate of moves between brokers, in bytes per second for each broker."""
    topics: dict[str, tuple[set[str], set[str]]] = {}
    for tp, move in moves.items():
        leaders, followers = topics.setdefault(tp.topic, (set(), set()))
        leaders.update(f"{tp.partition}:{broker}" for broker in move.sources)
        followers.update(f"{tp.partition}:{broker}" for broker in move.destinations)
    await _apply(
        admin,
        {
            (ConfigResourceType.TOPIC, topic): [
                (ConfigOp.SET, LEADER_REPLICAS, ",".join(sorted(leaders))),
                (ConfigOp.SET, FOLLOWER_REPLICAS, ",".join(sorted(followers))),
            ]
            for topic, (leaders, followers) in topics.items()
        },
    )
    brokers = {broker for move in moves.values() for broker in move.sources | move.destinations}
    await _apply(admin, _rates(brokers, (LEADER_RATE, FOLLOWER_RATE), rate))
    say(f"The inter-broker throttle limit was set to {rate} B/s")


async def throttle_log_dir_moves(admin: AdminClient, brokers: Iterable[int], rate: int) -> None:
    """Limits the rate of moves between directories, in bytes per second for each broker."""
    await _apply(admin, _rates(brokers, (LOG_DIR_RATE,), rate))
    print(f"The replica-alter-dir throttle limit was set to {rate} B/s")


async def clear_throttles(
    admin: AdminClient, brokers: Iterable[int], topics: Iterable[str], say: Callable[[str], None] = print
) -> None:
    """Removes all limits of brokers and topics.

    A plan does not name the brokers that were sources of its moves, therefore callers pass all brokers.
    Raises ToolError after all others are removed if some cannot be.
    """
    ids, names = sorted(set(brokers)), sorted(set(topics))
    say(f"Clearing broker-level throttles on broker{'' if len(ids) == 1 else 's'} {_joined(ids)}")
    failures = await _failures(
        admin,
        {
            (ConfigResourceType.BROKER, str(broker)): [(ConfigOp.DELETE, name, None) for name in BROKER_LEVEL]
            for broker in ids
        },
    )
    say(f"Clearing topic-level throttles on topic{'' if len(names) == 1 else 's'} {_joined(names)}")
    failures += await _failures(
        admin,
        {
            (ConfigResourceType.TOPIC, topic): [(ConfigOp.DELETE, name, None) for name in TOPIC_LEVEL]
            for topic in names
        },
    )
    if failures:
        raise ToolError("\n".join(failures))


def _joined(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def _rates(brokers: Iterable[int], names: Sequence[str], rate: int) -> Changes:
    return {
        (ConfigResourceType.BROKER, str(broker)): [(ConfigOp.SET, name, str(rate)) for name in names]
        for broker in sorted(brokers)
    }


async def _apply(admin: AdminClient, changes: Changes) -> None:
    """Changes configurations. Raises ToolError with the resources and the reasons if some are refused."""
    failures = await _failures(admin, changes)
    if failures:
        raise ToolError("\n".join(failures))


async def _failures(admin: AdminClient, changes: Changes) -> list[str]:
    """Changes configurations. Returns the texts of the errors."""
    results = await admin.incremental_alter_configs(changes) if changes else {}
    found = []
    for (kind, name), error in results.items():
        if error is None:
            continue
        names = ",".join(config for _, config, _ in changes[kind, name])
        text = f"Cannot change {names} of {kind.name.lower()} {name}: {error_text(error)}"
        if error.code is ErrorCode.BROKER_NOT_AVAILABLE:
            text += (
                " Start the broker, or use kafka-configs --bootstrap-controller <host:port> --alter "
                f"--entity-type brokers --entity-name {name} {_option(changes[kind, name])}"
            )
        found.append(text)
    return found


def _option(changes: Sequence[tuple[ConfigOp, str, str | None]]) -> str:
    """Returns the option of kafka-configs that makes changes."""
    if changes[0][0] is ConfigOp.DELETE:
        return f"--delete-config {','.join(name for _, name, _ in changes)}"
    return f"--add-config {','.join(f'{name}={value}' for _, name, value in changes)}"
