"""kafka-reassign-partitions: moves partitions between brokers, and replicas between log directories."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, NetError, error_text
from quorate.admin.types import Node, TopicPartition, TopicPartitionReplica
from quorate.lazy import lazy_module
from quorate.tools.client.admin_client import add_connection, with_admin
from quorate.tools.client.options import tool_parser
from quorate.tools.command_line import Parser, ToolError, run
from quorate.tools.reassign.plan import ProposedReassignment, plan_json, read_brokers, read_plan, read_topics
from quorate.tools.reassign.progress import by_broker, joined, move_states, partition_states
from quorate.tools.reassign.throttles import (
    clear_throttles,
    proposed_moves,
    throttle_log_dir_moves,
    throttle_reassignments,
)

if TYPE_CHECKING:
    from quorate.controller.replication import placement
else:
    placement = lazy_module("quorate.controller.replication.placement")

ACTIONS: Mapping[str, tuple[str, ...]] = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
"""The options that each action requires."""

_CONTROLLERS = "bootstrap-controller"
_PERMITTED: Mapping[str, tuple[str, ...]] = {
    "generate": ("disable-rack-aware",),
    "execute": (
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
    ),
    "verify": ("preserve-throttles",),
    "cancel": (_CONTROLLERS, "preserve-throttles", "timeout"),
    "list": (_CONTROLLERS,),
}
"""The further options that each action accepts, beside --bootstrap-server and --command-config."""

RETRY_S = 0.1
"""The interval at which a move to a directory is requested until the broker has the replica."""

_ONGOING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this "
    "and create a new partition assignment in addition to the existing one. The --additional flag can also "
    "be used to change the throttle by resubmitting the current reassignment."
)
_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle "
    "is removed."
)


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser(
        "kafka-reassign-partitions", "This tool helps to move topic partitions between replicas."
    )
    add_connection(parser, controllers=True)
    add = parser.add_argument
    add(
        "--generate",
        action="store_true",
        help="Propose brokers for the partitions of topics. Nothing is moved.",
    )
    add("--execute", action="store_true", help="Start the reassignment in --reassignment-json-file.")
    add(
        "--verify", action="store_true",
        help="Show whether the reassignment in --reassignment-json-file is completed, and remove its "
        "throttles if so.",
    )  # fmt: skip
    add("--cancel", action="store_true", help="Cancel the reassignment in --reassignment-json-file.")
    add("--list", action="store_true", help="List all active partition reassignments.")
    add(
        "--reassignment-json-file", metavar="<String: manual assignment json file path>",
        help='The brokers of partitions: {"version": 1, "partitions": [{"topic": "foo", "partition": 1, '
        '"replicas": [1, 2, 3], "log_dirs": ["any", "/dir2", "any"]}]}. "log_dirs" may be left out.',
    )  # fmt: skip
    add(
        "--topics-to-move-json-file", metavar="<String: topics to reassign json file path>",
        help='The topics to move: {"version": 1, "topics": [{"topic": "foo"}]}.',
    )  # fmt: skip
    add("--broker-list", metavar="<String: brokerlist>", help="The brokers to which --generate moves: 0,1,2.")
    add("--disable-rack-aware", action="store_true", help="Ignore the racks of the brokers.")
    add(
        "--throttle", type=int, metavar="<Long: throttle>",
        help="The rate in bytes/sec to which each broker limits moves between brokers. With --additional it "
        "replaces the rate of the current reassignment.",
    )  # fmt: skip
    add(
        "--replica-alter-log-dirs-throttle", type=int, metavar="<Long: replicaAlterLogDirsThrottle>",
        help="The rate in bytes/sec to which each broker limits moves between its log directories.",
    )  # fmt: skip
    add(
        "--timeout", type=int, metavar="<Long: timeout>",
        help="How long to wait until the moves to log directories have begun, in ms (default: 10000).",
    )  # fmt: skip
    add("--additional", action="store_true", help="Execute in addition to reassignments in progress.")
    add("--preserve-throttles", action="store_true", help="Do not remove throttles.")
    add(
        "--disallow-replication-factor-change", action="store_true",
        help="Refuse to change the number of replicas of a partition.",
    )  # fmt: skip
    return parser


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    action = _check(parser, args)
    work = {
        "generate": _generate,
        "execute": _execute,
        "verify": _verify,
        "cancel": _cancel,
        "list": _list,
    }[action]
    try:
        return with_admin(args, lambda admin: work(admin, args))
    except (KafkaError, NetError) as error:
        raise ToolError(f"Error: {error_text(error)}") from error


def _check(parser: Parser, args: argparse.Namespace) -> str:
    """Returns the action. Ends the tool for options that do not fit together."""

    def has(option: str) -> bool:
        return getattr(args, option.replace("-", "_")) not in (None, False)

    actions = [action for action in ACTIONS if has(action)]
    if len(actions) != 1:
        shown = ", ".join(f"--{action}" for action in ACTIONS)
        parser.error(f"Command must include exactly one action: {shown}")
    (action,) = actions
    if args.bootstrap_server and args.bootstrap_controller:
        parser.error("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if not args.bootstrap_server and not args.bootstrap_controller:
        parser.error("Please specify either --bootstrap-server or --bootstrap-controller")
    for option in ACTIONS[action]:
        if not has(option):
            parser.error(f'Missing required argument "[{option}]"')
    known = {option for options in (*ACTIONS.values(), *_PERMITTED.values()) for option in options}
    for option in sorted(known - set(ACTIONS[action]) - set(_PERMITTED[action])):
        if has(option):
            parser.error(f'Option "[{option}]" can\'t be used with action "[{action}]"')
    return action


async def _list(admin: AdminClient, _args: argparse.Namespace) -> int:
    ongoing = await admin.list_partition_reassignments()
    if not ongoing:
        print("No partition reassignments found.")
        return 0
    print("Current partition reassignments:")
    for tp in sorted(ongoing):
        found = ongoing[tp]
        adding = f" adding: {joined(found.adding)}." if found.adding else ""
        removing = f" removing: {joined(found.removing)}." if found.removing else ""
        print(f"{tp}: replicas: {joined(found.replicas)}.{adding}{removing}")
    return 0


async def _generate(admin: AdminClient, args: argparse.Namespace) -> int:
    brokers = read_brokers(args.broker_list)
    topics = read_topics(args.topics_to_move_json_file)
    described = await admin.describe_topics(topics) if topics else {}
    current = {
        TopicPartition(name, p.partition): list(p.replicas)
        for name, topic in described.items()
        for p in topic.partitions
    }
    alive = (await admin.describe_cluster()).nodes
    log_dirs = await _current_log_dirs(admin, current, alive)
    racks = placement.Racks(_usable_brokers(alive, brokers, rack_aware=not args.disable_rack_aware))
    rng = Random()
    proposed = {}
    for name, topic in described.items():
        placer = placement.StripedPlacer(racks, rng)
        factor = len(topic.partitions[0].replicas)
        placer.check(factor)
        for p in topic.partitions:
            proposed[TopicPartition(name, p.partition)] = placer.place(factor)
    print(f"Current partition replica assignment\n{plan_json(current, log_dirs)}\n")
    print(f"Proposed partition reassignment configuration\n{plan_json(proposed, {})}")
    return 0


def _usable_brokers(
    alive: Sequence[Node], wanted: Sequence[int], *, rack_aware: bool
) -> list[placement.UsableBroker]:
    found = [
        placement.UsableBroker(node.id, node.rack if rack_aware else None, fenced=False)
        for node in alive
        if node.id in wanted
    ]
    if not found:
        raise ToolError(
            f"None of the brokers {joined(wanted)} of --broker-list is available. The brokers of the cluster "
            f"are {joined(node.id for node in alive)}."
        )
    without = [broker.id for broker in found if broker.rack is None]
    if rack_aware and without and len(without) != len(found):
        raise ToolError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            f"assignment without rack information. Brokers without broker.rack: {joined(without)}"
        )
    return found


async def _current_log_dirs(
    admin: AdminClient, assignment: Mapping[TopicPartition, Sequence[int]], alive: Sequence[Node]
) -> dict[TopicPartitionReplica, str]:
    """Returns the directories of the replicas on the brokers that are available."""
    ids = {node.id for node in alive}
    replicas = [
        TopicPartitionReplica(*tp, broker)
        for tp, brokers in assignment.items()
        for broker in brokers
        if broker in ids
    ]
    found = await admin.describe_replica_log_dirs(replicas)
    return {replica: info.current_path for replica, info in found.items() if info.current_path is not None}


async def _execute(admin: AdminClient, args: argparse.Namespace) -> int:
    plan = read_plan(args.reassignment_json_file)
    plan.check_executable()
    proposed = plan.assignment
    ongoing = await admin.list_partition_reassignments()
    if ongoing and not args.additional:
        raise ToolError(_ONGOING)
    alive = (await admin.describe_cluster()).nodes
    for broker in sorted({broker for brokers in proposed.values() for broker in brokers}):
        if all(node.id != broker for node in alive):
            raise ToolError(
                f"Error: Unknown broker id {broker}. The brokers of the cluster are "
                f"{joined(node.id for node in alive)}."
            )
    current = await _current_replicas(admin, proposed)
    print(
        "Current partition replica assignment\n\n"
        f"{plan_json(current, await _current_log_dirs(admin, current, alive))}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    if args.throttle is not None or args.replica_alter_log_dirs_throttle is not None:
        print(_VERIFY)
        if args.throttle is not None and args.throttle >= 0:
            await throttle_reassignments(admin, proposed_moves(ongoing, proposed, current), args.throttle)
        if args.replica_alter_log_dirs_throttle is not None and args.replica_alter_log_dirs_throttle >= 0:
            brokers = {replica.broker_id for replica in plan.log_dirs}
            await throttle_log_dir_moves(admin, brokers, args.replica_alter_log_dirs_throttle)
    results = await admin.alter_partition_reassignments(
        proposed, allow_replication_factor_change=not args.disallow_replication_factor_change
    )
    _raise_errors("Error reassigning partition(s):", results)
    print(
        f"Successfully started partition reassignment{_plural(proposed)} for {joined(sorted(proposed))}",
        flush=True,
    )
    if plan.log_dirs:
        await _start_moves(admin, plan.log_dirs, args.timeout)
    return 0


async def _current_replicas(
    admin: AdminClient, wanted: Mapping[TopicPartition, object]
) -> dict[TopicPartition, list[int]]:
    described = await admin.describe_topics(sorted({tp.topic for tp in wanted}))
    current = {
        TopicPartition(name, p.partition): list(p.replicas)
        for name, topic in described.items()
        for p in topic.partitions
    }
    missing = sorted(tp for tp in wanted if tp not in current)
    if missing:
        raise ToolError(f"Error: Unable to find partition: {', '.join(map(str, missing))}")
    return {tp: current[tp] for tp in wanted}


async def _start_moves(
    admin: AdminClient, moves: Mapping[TopicPartitionReplica, str], timeout_ms: int | None
) -> None:
    """Requests moves to directories until each has begun.

    A broker that is only about to get a replica refuses its move until it has the replica.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (10_000 if timeout_ms is None else timeout_ms) / 1000
    pending = dict(moves)
    while True:
        results = await admin.alter_replica_log_dirs(pending)
        for replica in sorted(results, key=by_broker):
            error = results[replica]
            if error is None:
                print(
                    f"Successfully started moving log directory to {pending.pop(replica)} for replica "
                    f"{replica.topic}-{replica.partition} with broker {replica.broker_id} ",
                    flush=True,
                )
            elif error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                raise ToolError(f"Error: Failed to alter dir for {replica}: {error_text(error)}") from error
        if not pending:
            return
        if loop.time() >= deadline:
            waiting = sorted(pending, key=by_broker)
            raise ToolError(
                f"Timed out before log directory move{_plural(pending)} could be started for: "
                f"{joined(waiting)}"
            )
        await asyncio.sleep(RETRY_S)


async def _verify(admin: AdminClient, args: argparse.Namespace) -> int:
    plan = read_plan(args.reassignment_json_file)
    ongoing = await admin.list_partition_reassignments()
    partitions = await partition_states(admin, plan.partitions, ongoing)
    print("Status of partition reassignment:")
    for tp in sorted(partitions):
        print(partitions[tp].text(tp))
    moves = await move_states(admin, plan.log_dirs)
    print("\n".join(moves[replica].text(replica) for replica in sorted(moves, key=by_broker)))
    if not ongoing and all(move.done for move in moves.values()) and not args.preserve_throttles:
        brokers = {node.id for node in (await admin.describe_cluster()).nodes}
        await _clear_throttles(admin, plan, brokers)
    return 0


async def _cancel(admin: AdminClient, args: argparse.Namespace) -> int:
    plan = read_plan(args.reassignment_json_file)
    ongoing = await admin.list_partition_reassignments(plan.assignment)
    active = {tp: found for tp, found in ongoing.items() if found.adding or found.removing}
    brokers = {broker for found in active.values() for broker in found.replicas}
    if active:
        results = await admin.alter_partition_reassignments(dict.fromkeys(active))
        _raise_errors(f"Error cancelling partition reassignment{_plural(active)} for:", results)
        print(
            f"Successfully cancelled partition reassignment{_plural(active)} for: {joined(sorted(active))}",
            flush=True,
        )
    else:
        print("None of the specified partition reassignments are active.")
    moves = await move_states(admin, plan.log_dirs)
    back = {
        replica: move.found.current_path
        for replica, move in moves.items()
        if move.active and move.found.current_path is not None
    }
    if back:
        await _start_moves(admin, back, args.timeout)
    else:
        print("None of the specified partition moves are active.")
    if not args.preserve_throttles:
        if args.bootstrap_server:
            brokers |= {node.id for node in (await admin.describe_cluster()).nodes}
        await _clear_throttles(admin, plan, brokers)
    return 0


async def _clear_throttles(admin: AdminClient, plan: ProposedReassignment, brokers: set[int]) -> None:
    targets = {broker for _, replicas in plan.partitions for broker in replicas}
    await clear_throttles(admin, brokers | targets, {tp.topic for tp, _ in plan.partitions})


def _raise_errors(what: str, results: Mapping[TopicPartition, KafkaError | None]) -> None:
    """Raises ToolError with the errors of all partitions."""
    failed = [f"{tp}: {error_text(error)}" for tp, error in sorted(results.items()) if error is not None]
    if failed:
        raise ToolError("\n".join([what, *failed]))


def _plural(things: Mapping[TopicPartition, object] | Mapping[TopicPartitionReplica, object]) -> str:
    return "" if len(things) == 1 else "s"
