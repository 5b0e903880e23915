"""`quorate replace-disk`: replaces a disk of a broker, of a controller, or of a node that is both.

The directory id on the old disk tells what is left to do. The disk has been replaced when the node has
registered without this id, and its voter in the metadata quorum, if it is a controller, has another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from quorate.admin.errors import ErrorCode
from quorate.dataclass import dataclass
from quorate.protocol.uuids import ZERO_UUID, is_reserved, parse_uuid, uuid_text
from quorate.tools.command_line import ToolError
from quorate.tools.operations.description import Cluster, Partition, counted, some
from quorate.tools.operations.node_command import filled, placeholder_values, run_command
from quorate.tools.operations.observer import ignoring
from quorate.tools.operations.plan import OperationPlan, Progress, Refusal, Step
from quorate.tools.operations.plans.rolling_restart import node_text, not_back, wait_until_back
from quorate.tools.operations.safety import in_sync_without, split, stop_blocks, voter_blocks

if TYPE_CHECKING:
    from quorate.tools.operations.observer import Observer


def directories(cluster: Cluster, node: int) -> list[bytes]:
    """The directory ids by which the cluster knows a node: of its log directories and its metadata log."""
    broker = cluster.brokers.get(node)
    found = list(broker.directories) if broker is not None else []
    replica = cluster.replica(node)
    if replica is not None and replica.directory_id != ZERO_UUID:
        found.append(replica.directory_id)
    return list(dict.fromkeys(found))


def single_directory(cluster: Cluster, node: int, given: str | None, *, unattended: bool) -> bytes:
    """Returns the id of the directory to replace: the given one, or the only one of the node.

    Raises ToolError if it is not clear. A script must give it, because a second run without it would replace
    the new disk.
    """
    if given is not None:
        try:
            return parse_uuid(given)
        except ValueError as error:
            raise ToolError(f"--directory-id: {error}") from error
    known = directories(cluster, node)
    if not known:
        raise ToolError(f"The cluster knows no directory of node {node}. `quorate status` lists the nodes.")
    if len(known) > 1:
        lines = [f"  {uuid_text(d)}  {_contents(cluster, node, d)}" for d in known]
        raise ToolError(
            f"Node {node} has several directories. Give --directory-id, which is directory.id in the "
            "meta.properties of the disk:\n" + "\n".join(lines)
        )
    if unattended:
        raise ToolError(
            f"With --yes, give --directory-id {uuid_text(known[0])}: without it, the command would replace "
            "the new disk when it is run again."
        )
    return known[0]


def _contents(cluster: Cluster, node: int, directory: bytes) -> str:
    """What a directory contains."""
    parts = []
    replicas = sum(1 for p in cluster.partitions.on(node) if _directory_of(p, node) == directory)
    if replicas:
        parts.append(counted(replicas, "replica"))
    replica = cluster.replica(node)
    if replica is not None and replica.directory_id == directory:
        parts.append("the metadata log")
    return ", ".join(parts) or "nothing that is known"


def _directory_of(partition: Partition, node: int) -> bytes | None:
    """The directory of a replica, or None if it is not known."""
    found = dict(zip(partition.replicas, partition.directories, strict=False)).get(node)
    return found if found is not None and not is_reserved(found) else None


@dataclass(frozen=True, slots=True)
class ReplaceDisk:
    """The replacement of the disk with a directory id."""

    node: int
    directory_id: bytes
    allow_unavailable: bool = False
    stop_command: str | None = None
    replace_command: str | None = None
    command_timeout_s: float = 300.0

    @property
    def title(self) -> str:
        return f"Replace the disk with directory id {uuid_text(self.directory_id)} of node {self.node}"

    @property
    def again(self) -> Mapping[str, str]:
        return {"--directory-id": uuid_text(self.directory_id)}

    def plan(self, cluster: Cluster, progress: Progress) -> OperationPlan:
        node = self.node
        if not directories(cluster, node) and node not in cluster.brokers and node not in cluster.controllers:
            return OperationPlan(
                refusals=(Refusal(f"the cluster has no node {node}", "quorate status lists the nodes"),)
            )
        if self._has_new_disk(cluster):
            return OperationPlan(tuple(self._afterwards(cluster)))
        accepted: tuple[str, ...] = ()
        refusals = [*self._losses(cluster), *self._quorum_refusals(cluster)]
        steps: list[Step] = []
        if self._runs(cluster):
            refused, accepted, passing = split(
                stop_blocks(cluster, node), allow_unavailable=self.allow_unavailable
            )
            refusals += refused
            text = f"wait until node {node} may stop"
            steps += [Step("wait", text, node, True, detail=f"{b.reason}: {b.remedy}") for b in passing]
            steps.append(self._stop_step(cluster, progress))
        if refusals:
            return OperationPlan(refusals=tuple(dict.fromkeys(refusals)))
        steps.append(self._replace_step(cluster, progress))
        return OperationPlan((*steps, *self._afterwards(cluster)), notes=accepted)

    # -- the state of the node

    def _runs(self, cluster: Cluster) -> bool:
        """Whether the node runs, on either disk."""
        broker = cluster.brokers.get(self.node)
        if broker is not None:
            return not broker.fenced
        replica = cluster.replica(self.node)
        return replica is not None and replica.follows

    def _has_new_disk(self, cluster: Cluster) -> bool:
        """Whether the node runs, and not with the old disk."""
        broker = cluster.brokers.get(self.node)
        if not self._runs(cluster) or (broker is not None and self.directory_id in broker.directories):
            return False
        replica = cluster.replica(self.node)
        return replica is None or replica.directory_id != self.directory_id

    def _on_disk(self, cluster: Cluster) -> list[Partition]:
        """The partitions with a replica on the disk, or perhaps on it."""
        return [
            p
            for p in cluster.partitions.on(self.node)
            if _directory_of(p, self.node) in (self.directory_id, None)
        ]

    # -- what must not happen

    def _losses(self, cluster: Cluster) -> list[Refusal]:
        lost = [p.tp for p in self._on_disk(cluster) if not in_sync_without(cluster, p, self.node)]
        if not lost:
            return []
        return [
            Refusal(
                f"no other in-sync replica of {some(lost)} is available: its data would be lost "
                "with the disk",
                "start the brokers with the other replicas and wait until they are in sync, or move the "
                "replicas away first (kafka-reassign-partitions --execute, quorate decommission)",
            )
        ]

    def _quorum_refusals(self, cluster: Cluster) -> list[Refusal]:
        voter = cluster.voter(self.node)
        if voter is None or voter.directory_id not in (self.directory_id, ZERO_UUID):
            return []
        if cluster.kraft_version < 1:
            return [
                Refusal(
                    f"node {self.node} is one of the static voters, which have no directory ids "
                    "(kraft.version 0)",
                    "quorate move-to-dynamic-quorum",
                )
            ]
        if len(cluster.voters) < 3:
            return [
                Refusal(
                    f"the metadata quorum has {counted(len(cluster.voters), 'voter')}: the others cannot "
                    f"remove voter {self.node}, and its disk may have records that they lack",
                    "add controllers first (kafka-metadata-quorum add-controller)",
                )
            ]
        return [b.refusal for b in voter_blocks(cluster, self.node)]

    # -- steps

    def _stop_step(self, cluster: Cluster, progress: Progress) -> Step:
        name = node_text(cluster, self.node)
        if self.stop_command is None:
            return Step("wait-stopped", f"wait until you have stopped {name}", self.node, True, by_user=True)
        if self.node in progress.commanded:
            return Step("wait-stopped", f"wait until {name} has stopped", self.node, waits=True)
        return Step("stop", f"stop {name}", self.node)

    def _replace_step(self, cluster: Cluster, progress: Progress) -> Step:
        if self.replace_command is not None and not progress.replaced:
            return Step(
                "replace", f"replace and format the disk of node {self.node}, and start it", self.node
            )
        if self.replace_command is not None:
            text = f"wait until node {self.node} has registered with its new disk"
            return Step("wait-registered", text, self.node, waits=True)
        format_options = "--no-initial-controllers " if cluster.voter(self.node) is not None else ""
        return Step(
            "wait-replaced",
            f"wait until you have replaced the disk, formatted it, and started node {self.node}",
            self.node,
            waits=True,
            by_user=True,
            detail=f"kafka-storage format --cluster-id {cluster.cluster_id} --config <properties> "
            f"{format_options}--ignore-formatted",
        )

    def _afterwards(self, cluster: Cluster) -> list[Step]:
        """The steps after the node has started with the new disk."""
        steps = []
        node, voter, replica = self.node, cluster.voter(self.node), cluster.replica(self.node)
        has_new_voter = voter is not None and voter.directory_id not in (self.directory_id, ZERO_UUID)
        if (node in cluster.controllers or voter is not None) and not has_new_voter and cluster.kraft_version:
            new_id = None
            if replica is not None and replica.follows and replica.directory_id != self.directory_id:
                new_id = replica.directory_id
            if new_id is None:
                text = f"wait until controller {node} has the metadata log"
                steps.append(Step("wait-metadata", text, node, waits=True))
            if voter is not None:
                text = f"remove voter {node} with the old directory id"
                steps.append(Step("remove-voter", text, node, data=voter.directory_id))
            shown = f" {uuid_text(new_id)}" if new_id is not None else ""
            steps.append(
                Step("add-voter", f"add voter {node} with the new directory id{shown}", node, data=new_id)
            )
        old = [p.tp for p in self._on_disk(cluster) if _directory_of(p, node) == self.directory_id]
        started = self._has_new_disk(cluster)
        reason = not_back(cluster, node) if started else ""
        if started and old and not reason:
            reason = f"not in another directory yet: {some(old)} (if the disk has failed, stop the node)"
        if reason or steps or not started:
            steps.append(replace(wait_until_back(cluster, node, reason), unlimited=started and not old))
        return steps

    async def perform(self, step: Step, cluster: Cluster, progress: Progress, observer: Observer) -> None:
        """Performs one step. Raises ToolError, KafkaError and NetError."""
        match step.kind:
            case "stop" | "replace":
                command = self.stop_command if step.kind == "stop" else self.replace_command
                assert command is not None
                option = f"--{step.kind}-command"
                text = filled(option, command, placeholder_values(cluster, self.node))
                await run_command(option, text, self.command_timeout_s)
                if step.kind == "stop":
                    progress.commanded[self.node] = b""
                else:
                    progress.replaced = True
            case "remove-voter":
                admin = await observer.controllers()
                await ignoring(
                    ErrorCode.VOTER_NOT_FOUND, admin.remove_raft_voter(self.node, cast("bytes", step.data))
                )
            case "add-voter":
                admin = await observer.controllers()
                endpoints = cluster.controllers[self.node].endpoints[:1]
                await ignoring(
                    ErrorCode.DUPLICATE_VOTER,
                    admin.add_raft_voter(self.node, cast("bytes", step.data), endpoints),
                )
