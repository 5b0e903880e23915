"""`quorate decommission`: takes a broker out of the cluster, without its data.

The order of the steps keeps each of them safe to repeat. The broker gets no new replicas first (KIP-1066), so
that the moves come to an end. It leaves the voters before it stops. Its configurations are deleted before its
registration, because without a registration nothing would lead back to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from quorate.admin.errors import ErrorCode
from quorate.admin.types import ConfigOp, TopicPartition
from quorate.config.cordoned_dirs import ALL, CORDONED_LOG_DIRS
from quorate.dataclass import dataclass
from quorate.metadata.features import FIRST_CONTROLLER_UNREGISTRATION, FIRST_CORDONED_DIRECTORIES
from quorate.protocol.config_resource import ConfigResourceType
from quorate.tools.command_line import ToolError
from quorate.tools.operations.description import Broker, Cluster, Partition, counted, ids, some
from quorate.tools.operations.node_command import filled, placeholder_values, run_command
from quorate.tools.operations.observer import ignoring
from quorate.tools.operations.plan import OperationPlan, Progress, Refusal, Step
from quorate.tools.operations.plans.moves import Moves, plan_moves
from quorate.tools.operations.safety import in_sync_without
from quorate.tools.reassign.throttles import (
    LEADER_REPLICAS,
    PartitionMove,
    clear_throttles,
    throttle_reassignments,
)

if TYPE_CHECKING:
    from quorate.admin.client import AdminClient
    from quorate.tools.operations.observer import Observer


@dataclass(frozen=True, slots=True)
class Decommission:
    """Takes one broker out of the cluster. `throttle` is a rate in bytes per second, or None."""

    broker: int
    rack_aware: bool = True
    max_moves: int = 50
    throttle: int | None = None
    stop_command: str | None = None
    command_timeout_s: float = 300.0

    @property
    def title(self) -> str:
        return f"Decommission broker {self.broker}"

    @property
    def again(self) -> Mapping[str, str]:
        return {}

    def plan(self, cluster: Cluster, progress: Progress) -> OperationPlan:
        broker = cluster.brokers.get(self.broker)
        if broker is None:
            return self._without_registration(cluster)
        on_broker = list(cluster.partitions.on(self.broker))
        staying = [p for p in on_broker if self.broker in p.target]
        moving = [p for p in on_broker if self.broker not in p.target]
        others_moves = [p for p in staying if p.reassigning]
        ready = [p for p in staying if not p.reassigning]
        moves = self._moves(cluster, ready, progress)
        refusals = [
            *self._data_refusals(cluster, broker, on_broker),
            *moves.refusals,
            *self._voter_refusals(cluster),
        ]
        if refusals:
            return OperationPlan(refusals=tuple(refusals))
        steps: list[Step] = []
        name = f"broker {self.broker}"
        can_cordon = cluster.metadata_version >= FIRST_CORDONED_DIRECTORIES
        if can_cordon and broker.active and broker.config.get(CORDONED_LOG_DIRS) != ALL:
            steps.append(Step("cordon", f"let {name} get no new replicas", self.broker))
        steps += self._move_steps(ready, moving, others_moves, moves.after)
        if self._throttled_topics(cluster) or (self.throttle is not None and on_broker):
            steps.append(Step("clear-throttle", "remove the limit of the rate of the moves"))
        if cluster.voter(self.broker) is not None:
            text = f"remove controller {self.broker} from the voters"
            steps.append(Step("remove-voter", text, self.broker))
        if not broker.fenced:
            steps.append(self._stop_step(broker, progress))
        if broker.config or (can_cordon and not broker.fenced):
            steps.append(Step("delete-configs", f"delete the configurations of {name}", self.broker))
        if self.broker in cluster.controllers and cluster.metadata_version >= FIRST_CONTROLLER_UNREGISTRATION:
            steps.append(Step("unregister-controller", f"unregister controller {self.broker}", self.broker))
        steps.append(Step("unregister", f"unregister {name}", self.broker))
        return OperationPlan(tuple(steps), notes=self._notes(cluster, moves, ready, can_cordon))

    def _without_registration(self, cluster: Cluster) -> OperationPlan:
        """The plan for an id that is not registered. Nothing is left to do unless it is a controller's."""
        if self.broker in cluster.controllers or cluster.voter(self.broker) is not None:
            return OperationPlan(
                refusals=(
                    Refusal(
                        f"node {self.broker} is a controller, and no broker",
                        f"kafka-metadata-quorum remove-controller --controller-id {self.broker} --unregister",
                    ),
                )
            )
        return OperationPlan(notes=(f"broker {self.broker} is not registered",))

    def _data_refusals(self, cluster: Cluster, broker: Broker, on_broker: list[Partition]) -> list[Refusal]:
        found = []
        arriving = [p.tp for p in on_broker if self.broker in p.adding]
        if arriving:
            found.append(
                Refusal(
                    f"a reassignment in progress moves {some(arriving)} to broker {self.broker}",
                    "wait for it, or cancel it (kafka-reassign-partitions --cancel)",
                )
            )
        if not broker.active:
            lost = [p.tp for p in on_broker if not in_sync_without(cluster, p, self.broker)]
            if lost:
                found.append(
                    Refusal(
                        f"broker {self.broker} does not run, and no other in-sync replica of {some(lost)} is "
                        "available: its data would be lost",
                        f"start broker {self.broker}, or the brokers that have other replicas in sync",
                    )
                )
        return found

    def _voter_refusals(self, cluster: Cluster) -> list[Refusal]:
        if cluster.voter(self.broker) is None:
            return []
        others = [voter for voter in cluster.voters if voter.id != self.broker]
        if not others:
            return [
                Refusal(
                    f"node {self.broker} is the last voter of the metadata quorum",
                    "add another controller first (kafka-metadata-quorum add-controller)",
                )
            ]
        if cluster.kraft_version < 1:
            return [
                Refusal(
                    f"node {self.broker} is one of the static voters, which cannot be changed "
                    "(kraft.version 0)",
                    "quorate move-to-dynamic-quorum",
                )
            ]
        away = [voter.id for voter in others if not voter.follows]
        if len(others) - len(away) < len(others) // 2 + 1:
            return [
                Refusal(
                    f"without voter {self.broker} the metadata quorum would have no majority: voter "
                    f"{ids(away)} does not follow the leader",
                    f"start controller {ids(away)}, or remove it first (kafka-metadata-quorum "
                    "remove-controller)",
                )
            ]
        return []

    def _move_steps(
        self,
        ready: list[Partition],
        moving: list[Partition],
        others_moves: list[Partition],
        targets: Mapping[TopicPartition, tuple[int, ...]],
    ) -> list[Step]:
        steps = []
        room = self.max_moves - len(moving)
        left = f"{counted(len(ready) + len(others_moves) + len(moving), 'partition')} left"
        # New moves begin when half of the places are free, so that a request starts several.
        if ready and room * 2 >= min(self.max_moves, len(ready)):
            wave = {p.tp: targets[p.tp] for p in sorted(ready, key=lambda p: p.tp)[:room]}
            steps.append(
                Step(
                    "move",
                    f"move the replicas of broker {self.broker} to other brokers",
                    self.broker,
                    detail=f"{left}, at most {self.max_moves} at once",
                    data=wave,
                )
            )
        if ready or moving or others_moves:
            shown = f"{left}, {len(moving)} in progress" if moving or others_moves else ""
            steps.append(
                Step(
                    "wait-moves",
                    f"wait until broker {self.broker} has no replicas",
                    self.broker,
                    waits=True,
                    detail=shown,
                    unlimited=True,
                )
            )
        return steps

    def _stop_step(self, broker: Broker, progress: Progress) -> Step:
        if self.stop_command is None:
            return Step(
                "wait-stopped", f"wait until you have stopped broker {self.broker}", self.broker, waits=True,
                detail=f"stop it now, at {broker.host}", by_user=True,
            )  # fmt: skip
        if progress.commanded.get(self.broker) == broker.start.incarnation_id:
            return Step(
                "wait-stopped", f"wait until broker {self.broker} has stopped", self.broker, waits=True,
                detail="it is not fenced yet",
            )  # fmt: skip
        return Step("stop", f"stop broker {self.broker} at {broker.host}", self.broker)

    def _throttled_topics(self, cluster: Cluster) -> list[str]:
        """The topics whose limits name the broker as a source. They are removed when it has no replicas."""
        return [
            topic
            for topic, config in cluster.throttled.items()
            if any(part.endswith(f":{self.broker}") for part in config.get(LEADER_REPLICAS, "").split(","))
        ]

    def _moves(self, cluster: Cluster, ready: list[Partition], progress: Progress) -> Moves:
        """The moves of the partitions that can begin to leave: those that were planned, while they are
        possible."""
        if not ready:
            return Moves()
        moves = progress.kept
        if not isinstance(moves, Moves) or not moves.still_hold(cluster, ready):
            moves = progress.kept = plan_moves(cluster, self.broker, rack_aware=self.rack_aware)
        return moves

    def _notes(
        self, cluster: Cluster, moves: Moves, ready: list[Partition], can_cordon: bool
    ) -> tuple[str, ...]:
        notes = []
        received = moves.received(ready)
        for broker, (replicas, held) in sorted(received.items()):
            size = f", {held:,} bytes" if held else ""
            notes.append(f"broker {broker} gets {counted(replicas, 'replica')}{size}")
        for broker, size_bytes in sorted(moves.beyond_a_volume(cluster, ready).items()):
            notes.append(
                f"not every directory of broker {broker} has room for {size_bytes:,} bytes, and it places a "
                "replica in the one with the fewest replicas: watch it (kafka-log-dirs --describe), or move "
                "these replicas with log_dirs (kafka-reassign-partitions)"
            )
        others = sum(voter.id != self.broker for voter in cluster.voters)
        if others < min(3, len(cluster.voters)):
            notes.append(f"the metadata quorum then has {counted(others, 'voter')}, and tolerates no failure")
        if received and not can_cordon:
            notes.append(
                "below metadata.version 4.3-IV0 new topics may still be placed on the broker; they are "
                "moved too"
            )
        return tuple(notes)

    async def perform(self, step: Step, cluster: Cluster, progress: Progress, observer: Observer) -> None:
        """Performs one step. Raises ToolError, KafkaError and NetError."""
        admin = await observer.controllers()
        match step.kind:
            case (
                "cordon"
            ):  # only the broker itself accepts it, because controllers do not know its directories
                await self._configure(await observer.brokers(), [(ConfigOp.SET, CORDONED_LOG_DIRS, ALL)])
            case "move":
                await self._move(admin, cluster, cast("Mapping[TopicPartition, tuple[int, ...]]", step.data))
            case "clear-throttle":
                topics = self._throttled_topics(cluster)
                await clear_throttles(admin, cluster.brokers, topics, _say_nothing)
            case "remove-voter":
                voter = cluster.voter(self.broker)
                assert voter is not None
                await ignoring(
                    ErrorCode.VOTER_NOT_FOUND, admin.remove_raft_voter(self.broker, voter.directory_id)
                )
            case "stop":
                assert self.stop_command is not None
                option = "--stop-command"
                text = filled(option, self.stop_command, placeholder_values(cluster, self.broker))
                await run_command(option, text, self.command_timeout_s)
                progress.commanded[self.broker] = cluster.brokers[self.broker].start.incarnation_id
            case "delete-configs":
                names = cluster.brokers[self.broker].config
                await self._configure(admin, [(ConfigOp.DELETE, name, None) for name in names])
            case "unregister-controller":
                await ignoring(
                    ErrorCode.CONTROLLER_ID_NOT_REGISTERED, admin.unregister_controller(self.broker)
                )
            case "unregister":
                await ignoring(ErrorCode.BROKER_ID_NOT_REGISTERED, admin.unregister_broker(self.broker))

    async def _configure(self, admin: AdminClient, changes: list[tuple[ConfigOp, str, str | None]]) -> None:
        resource = ConfigResourceType.BROKER, str(self.broker)
        error = (await admin.incremental_alter_configs({resource: changes}))[resource]
        if error is not None:
            raise error

    async def _move(
        self, admin: AdminClient, cluster: Cluster, wave: Mapping[TopicPartition, tuple[int, ...]]
    ) -> None:
        """Starts the moves of some partitions."""
        if self.throttle is not None:
            in_progress = {p.tp: p.target for p in cluster.partitions if p.reassigning}
            limited = {}
            for tp, new in {**in_progress, **wave}.items():
                sources = frozenset(cluster.partitions[tp].replicas) - frozenset(
                    cluster.partitions[tp].adding
                )
                limited[tp] = PartitionMove(sources, frozenset(new) - sources)
            await throttle_reassignments(admin, limited, self.throttle, _say_nothing)
        results = await admin.alter_partition_reassignments(wave)
        # A topic that was deleted meanwhile is no error: it has left the broker as well.
        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        failed = {tp: e for tp, e in results.items() if e is not None and e.code is not gone}
        if failed:
            texts = [f"{tp}: {error}" for tp, error in sorted(failed.items())]
            raise ToolError("These partitions cannot be moved:\n" + "\n".join(texts))


def _say_nothing(_text: str) -> None:
    """Takes the messages of the throttles, which are for the output of kafka-reassign-partitions."""
