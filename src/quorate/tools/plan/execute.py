"""Carries a plan out, wave by wave.

No progress is stored: the cluster shows which moves are completed. So an execution that was interrupted at
any point continues when it is started again. A wave begins when the one before is completed and its preferred
leaders are elected.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, NetError, error_text
from quorate.admin.types import Reassignment, TopicPartition, TopicPartitionReplica
from quorate.planner.report import size
from quorate.tools.client.admin_client import with_admin
from quorate.tools.command_line import ToolError
from quorate.tools.plan.files import PlanFolder
from quorate.tools.reassign.progress import PartitionState, partition_states
from quorate.tools.reassign.throttles import clear_throttles, proposed_moves, throttle_reassignments

MOST_PARTITIONS = 1_000
"""Of one request."""

POLL_S = 0.2
"""The interval at which the end of a wave is looked for."""

ANSWER_S = 5.0
"""For how long a broker is asked for the progress of its replicas."""

SETTLE_S = 15.0
"""For how long an unexpected answer is asked for again. A reassignment is over when the controller says so,
but the broker that describes the partition may apply the last change later."""

PREFERRED = 0

Assignment = dict[TopicPartition, list[int]]
T = TypeVar("T")


def run(args: argparse.Namespace, folder: PlanFolder) -> int:
    """Executes a plan. Raises ToolError if it cannot continue."""
    again = f"quorate plan --bootstrap-server {args.bootstrap_server} --execute {folder.path}"
    folder.resume()
    try:
        return with_admin(args, lambda admin: Execution(admin, folder, args, again).run())
    except KeyboardInterrupt:
        print(
            f"\nInterrupted: the cluster completes the moves that have begun. To continue: {again}; "
            f"to cancel them: {again.replace('--execute', '--cancel')}"
        )
        return 130


class Execution:
    """One run of `--execute`."""

    def __init__(self, admin: AdminClient, folder: PlanFolder, args: argparse.Namespace, again: str) -> None:
        self._admin = admin
        self._folder = folder
        self._throttle: int | None = args.throttle
        self._preserve_throttles: bool = args.preserve_throttles
        self._interval_s: float = args.interval
        self._again = again
        self._before: Assignment = {}

    async def run(self) -> int:
        folder = self._folder
        await check_cluster(self._admin, folder)
        self._before = folder.before().assignment
        count = len(folder.wave_files)
        for number in range(count):
            if folder.paused:
                print(f"Paused before wave {number + 1} of {count}. To continue: {self._again}")
                return 0
            await self._run_wave(f"Wave {number + 1} of {count}", folder.wave(number).assignment)
        return await self._verify()

    # -- one wave

    async def _run_wave(self, name: str, targets: Assignment) -> None:
        pending, ongoing = await self._pending(targets)
        if pending:
            await self._start(name, pending, ongoing)
            await self._wait(name, pending)
        elected = await self._elect(targets)
        if pending:
            print(f"{name}: completed, {partitions(len(targets))}", flush=True)
        else:
            what = f"elected {elected:,} preferred leaders" if elected else "was completed already"
            print(f"{name}: {what}, {partitions(len(targets))}", flush=True)

    async def _pending(self, targets: Assignment) -> tuple[Assignment, Mapping[TopicPartition, Reassignment]]:
        """Returns the partitions that are not yet as planned, and all reassignments that are under way.

        Raises ToolError if others than the plan have changed the partitions, or are doing so.
        """
        ongoing = await self._admin.list_partition_reassignments()
        foreign = sorted(set(ongoing) - set(targets))
        if foreign:
            raise ToolError(
                f"{partitions(len(foreign))} in a reassignment, among them {foreign[0]}, but not by this "
                "wave. Wait until that is done, or cancel it (kafka-reassign-partitions --list)."
            )
        states = await _settled(
            lambda: partition_states(self._admin, targets.items(), ongoing),
            lambda found: not any(self._is_changed(tp, state) for tp, state in found.items()),
        )
        changed = [tp for tp, state in sorted(states.items()) if self._is_changed(tp, state)]
        if changed:
            tp, state = changed[0], states[changed[0]]
            raise ToolError(
                f"{tp} has the replicas {_joined(state.current)}, but the plan expects "
                f"{_joined(self._before.get(tp, ()))} and is to give it {_joined(state.target)}. Make a new "
                "plan."
            )
        pending = {
            tp: targets[tp]
            for tp, state in states.items()
            if not state.done or (state.current and state.current != state.target)
        }
        return pending, ongoing

    def _is_changed(self, tp: TopicPartition, state: PartitionState) -> bool:
        """Whether a partition has other replicas than before the plan and than planned."""
        return state.done and state.current not in ((), state.target, tuple(self._before.get(tp, ())))

    async def _start(
        self, name: str, pending: Assignment, ongoing: Mapping[TopicPartition, Reassignment]
    ) -> None:
        current = {
            tp: [b for b in ongoing[tp].replicas if b not in ongoing[tp].adding]
            if tp in ongoing
            else self._before[tp]
            for tp in pending
        }
        if self._throttle is not None:
            moves = proposed_moves(ongoing, pending, current)
            copied = {tp: move for tp, move in moves.items() if move.destinations}
            if copied:
                await throttle_reassignments(self._admin, copied, self._throttle)
        new = [tp for tp in pending if tp not in ongoing or _target(ongoing[tp]) != set(pending[tp])]
        for batch in _batches(new):
            results = await self._admin.alter_partition_reassignments({tp: pending[tp] for tp in batch})
            failed = [f"{tp}: {error_text(error)}" for tp, error in sorted(results.items()) if error]
            if failed:
                raise ToolError(
                    "\n".join([f"{name}: cannot reassign {partitions(len(failed))}:", *failed[:10]])
                )
        going_on = f", {len(pending) - len(new):,} were under way" if len(new) < len(pending) else ""
        print(f"{name}: started {partitions(len(new))}{going_on}", flush=True)

    async def _wait(self, name: str, pending: Assignment) -> None:
        """Waits until no partition is being reassigned. Raises ToolError if one has not got its replicas."""
        loop = asyncio.get_running_loop()
        progress = await _Progress.create(self._admin, pending, self._before)
        next_report = loop.time() + self._interval_s
        while True:
            ongoing = await self._admin.list_partition_reassignments(pending)
            if not ongoing:
                break
            if loop.time() >= next_report:
                print(f"{name}: {await progress.text(ongoing)}", flush=True)
                next_report = loop.time() + self._interval_s
            await asyncio.sleep(POLL_S)
        _, wrong = await _settled(lambda: self._differences(pending), lambda found: not found[1])
        if wrong:
            raise ToolError("\n".join([f"{name} was changed or cancelled by others:", *wrong[:10]]))

    async def _differences(self, targets: Assignment) -> tuple[int, list[str]]:
        """Returns how many partitions do not exist any more, and texts of those that are not as planned."""
        states = await partition_states(self._admin, targets.items(), {})
        gone = sum(1 for state in states.values() if not state.current)
        return gone, [
            state.text(tp) for tp, state in sorted(states.items()) if state.current not in ((), state.target)
        ]

    async def _elect(self, targets: Assignment) -> int:
        """Elects the preferred leaders where others lead. Returns how many."""
        needed = await self._led_by_others(targets)
        elected = 0
        for batch in _batches(needed):
            results = await self._admin.elect_leaders(PREFERRED, batch)
            elected += sum(1 for error in results.values() if error is None)
            failed = {
                tp: error
                for tp, error in results.items()
                if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED
            }
            for tp, error in islice(sorted(failed.items()), 10):
                print(f"{tp}: its preferred leader cannot be elected: {error_text(error)}", flush=True)
        return elected

    async def _led_by_others(self, targets: Assignment) -> list[TopicPartition]:
        topics = {tp.topic for tp in targets} & {t.name for t in await self._admin.list_topics()}
        leaders = await self._admin.leaders(sorted(topics)) if topics else {}
        return [tp for tp in sorted(targets) if tp in leaders and leaders[tp] != targets[tp][0]]

    # -- the end

    async def _verify(self) -> int:
        """Compares the cluster with the plan, and removes throttles. Raises ToolError if they differ."""
        folder = self._folder
        targets: Assignment = {}
        for number in range(len(folder.wave_files)):
            targets |= folder.wave(number).assignment
        if not self._preserve_throttles and targets:
            await _remove_throttles(self._admin, targets)
        gone, wrong = await _settled(lambda: self._differences(targets), lambda found: not found[1])
        if wrong:
            raise ToolError("\n".join([f"Not as planned: {partitions(len(wrong))}", *wrong[:10]]))
        others = len(await _settled(lambda: self._led_by_others(targets), lambda found: not found))
        print(
            f"Verified: {partitions(len(targets) - gone)} with the planned replicas, "
            f"{len(targets) - gone - others:,} led by the preferred one"
            + (f"; {gone:,} do not exist any more" if gone else "")
        )
        return 0


class _Progress:
    """How much of a wave is copied."""

    def __init__(self, admin: AdminClient, sizes: Mapping[TopicPartitionReplica, int]) -> None:
        self._admin = admin
        self._sizes = sizes
        """The bytes that each new replica will have."""
        self._total = sum(sizes.values())
        self._begin_s = asyncio.get_running_loop().time()
        self._begin_bytes: int | None = None

    @staticmethod
    async def create(admin: AdminClient, pending: Assignment, before: Assignment) -> _Progress:
        """Asks for the bytes of the replicas that are copied."""
        leaders = await admin.leaders(sorted({tp.topic for tp in pending}))
        copied = {
            tp: leaders[tp]
            for tp, replicas in pending.items()
            if set(replicas) - set(before[tp]) and leaders.get(tp, -1) >= 0
        }
        found, _ = await _sizes(admin, [TopicPartitionReplica(*tp, b) for tp, b in copied.items()])
        sizes = {
            TopicPartitionReplica(*tp, b): found.get(TopicPartitionReplica(*tp, leader), 0)
            for tp, leader in copied.items()
            for b in pending[tp]
            if b not in before[tp]
        }
        return _Progress(admin, sizes)

    async def text(self, ongoing: Mapping[TopicPartition, Reassignment]) -> str:
        growing = [
            replica for replica in self._sizes if TopicPartition(replica.topic, replica.partition) in ongoing
        ]
        there, silent = await _sizes(self._admin, growing)
        left = sum(max(0, self._sizes[replica] - there.get(replica, 0)) for replica in growing)
        done = self._total - left
        shown = f"{partitions(len(ongoing))} left, {size(done)} of {size(self._total)} copied"
        now = asyncio.get_running_loop().time()
        if self._begin_bytes is None:
            self._begin_s, self._begin_bytes = now, done
        elif done > self._begin_bytes:
            rate = (done - self._begin_bytes) / (now - self._begin_s)
            shown += f", {size(round(rate))}/s, {left / rate:,.0f} s left"
        if silent:
            shown += f"; waiting for broker {_joined(silent)}, which is not available"
        return shown


async def _sizes(
    admin: AdminClient, replicas: Sequence[TopicPartitionReplica]
) -> tuple[dict[TopicPartitionReplica, int], list[int]]:
    """Returns the bytes of replicas, and the brokers that do not answer."""
    by_broker: dict[int, list[TopicPartitionReplica]] = {}
    for replica in replicas:
        by_broker.setdefault(replica.broker_id, []).append(replica)

    async def ask(broker: int) -> dict[TopicPartitionReplica, int] | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await admin.describe_replica_sizes(by_broker[broker])
        except (KafkaError, NetError, TimeoutError):
            return None

    brokers = sorted(by_broker)
    answers = dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))
    found = {replica: count for answer in answers.values() if answer for replica, count in answer.items()}
    return found, [broker for broker, answer in answers.items() if answer is None]


async def cancel(admin: AdminClient, folder: PlanFolder) -> int:
    """Cancels the reassignments of a plan that are under way, and removes throttles."""
    await check_cluster(admin, folder)
    targets = folder.before().assignment
    ongoing = sorted(set(await admin.list_partition_reassignments()) & set(targets))
    for batch in _batches(ongoing):
        results = await admin.alter_partition_reassignments(dict.fromkeys(batch))
        failed = [
            f"{tp}: {error_text(error)}"
            for tp, error in sorted(results.items())
            if error is not None and error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS  # just completed
        ]
        if failed:
            raise ToolError("\n".join(["Cannot cancel:", *failed[:10]]))
    print(f"Cancelled the moves of {partitions(len(ongoing))}", flush=True)
    await _remove_throttles(admin, targets)
    return 0


async def check_cluster(admin: AdminClient, folder: PlanFolder) -> None:
    found = (await admin.describe_cluster()).cluster_id
    if found != folder.cluster_id:
        raise ToolError(
            f"{folder.path} is a plan for the cluster {folder.cluster_id}, but this one is {found}"
        )


async def _remove_throttles(admin: AdminClient, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
    brokers = {node.id for node in (await admin.describe_cluster()).nodes}
    existing = {topic.name for topic in await admin.list_topics()}
    await clear_throttles(admin, brokers, {tp.topic for tp in targets} & existing)


async def _settled(ask: Callable[[], Awaitable[T]], is_settled: Callable[[T], bool]) -> T:
    """Asks until the answer is as expected, or until SETTLE_S have passed. Returns the last answer."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_S
    while True:
        found = await ask()
        if is_settled(found) or loop.time() >= deadline:
            return found
        await asyncio.sleep(POLL_S)


def _target(reassignment: Reassignment) -> set[int]:
    return set(reassignment.replicas) - set(reassignment.removing)


def partitions(count: int) -> str:
    return f"{count:,} partition" if count == 1 else f"{count:,} partitions"


def _batches(tps: Sequence[TopicPartition]) -> list[Sequence[TopicPartition]]:
    return [tps[at : at + MOST_PARTITIONS] for at in range(0, len(tps), MOST_PARTITIONS)]


def _joined(values: Sequence[int]) -> str:
    return ",".join(map(str, values))
