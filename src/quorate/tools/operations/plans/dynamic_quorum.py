"""`quorate move-to-dynamic-quorum`: from static voters to kraft.version 1 (KIP-853)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.metadata.features import KRAFT_VERSION
from quorate.protocol.uuids import ZERO_UUID
from quorate.tools.command_line import ToolError
from quorate.tools.operations.description import Cluster, ids
from quorate.tools.operations.plan import OperationPlan, Progress, Refusal, Step
from quorate.tools.operations.plans.upgrade import unsupported, update_features

if TYPE_CHECKING:
    from quorate.tools.operations.observer import Observer

VOTERS, BOOTSTRAP = "controller.quorum.voters", "controller.quorum.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class DynamicQuorum:
    """The move of a quorum. `static_voters` has the value of controller.quorum.voters of each node that has
    one. `verdict` is why the active controller refuses the upgrade, if it does."""

    static_voters: Mapping[int, str] = field(default_factory=dict)
    verdict: str | None = None

    @property
    def title(self) -> str:
        return "Move the metadata quorum to kraft.version 1"

    @property
    def again(self) -> Mapping[str, str]:
        return {}

    def plan(self, cluster: Cluster, _progress: Progress) -> OperationPlan:
        notes = self._notes()
        if cluster.kraft_version < 1:
            refusals = self._refusals(cluster)
            if refusals:
                return OperationPlan(refusals=tuple(refusals))
            step = Step(
                "upgrade-kraft-version", "upgrade kraft.version from 0 to 1, which cannot be reverted"
            )
            return OperationPlan((step, self._wait(cluster)), notes=notes)
        if any(voter.directory_id == ZERO_UUID for voter in cluster.voters):
            return OperationPlan((self._wait(cluster),), notes=notes)
        return OperationPlan(notes=notes)

    def _refusals(self, cluster: Cluster) -> list[Refusal]:
        found = unsupported(cluster, KRAFT_VERSION, 1)
        found += [
            Refusal(
                f"voter {voter.id} does not follow the leader, which therefore does not know its directory "
                "id",
                f"start controller {voter.id}, and wait until it has caught up (kafka-metadata-quorum "
                "describe --replication)",
            )
            for voter in cluster.voters
            if not voter.follows
        ]
        if not found and self.verdict is not None:
            found.append(Refusal(self.verdict, "see the log of the active controller"))
        return found

    @staticmethod
    def _wait(cluster: Cluster) -> Step:
        unknown = [voter.id for voter in cluster.voters if voter.directory_id == ZERO_UUID]
        detail = f"not known yet: {ids(unknown)}" if unknown and cluster.kraft_version else ""
        return Step("wait", "wait until the directory ids of all voters are known", waits=True, detail=detail)

    def _notes(self) -> tuple[str, ...]:
        if not self.static_voters:
            return ()
        value = next(iter(self.static_voters.values()))
        servers = ",".join(part.partition("@")[2] for part in value.split(","))
        nodes = ids(self.static_voters)
        if len(self.static_voters) == 1:
            who, restart = f"node {nodes} has {VOTERS} in its properties", "restart this node"
        else:
            who, restart = f"nodes {nodes} have {VOTERS} in their properties", "restart these nodes"
        return (
            f"{who}, which then has no effect: replace it by {BOOTSTRAP}={servers}, and then {restart} "
            f"(quorate rolling-restart --nodes {nodes.replace(' ', '')})",
        )

    async def perform(self, _step: Step, _cluster: Cluster, _progress: Progress, observer: Observer) -> None:
        """Upgrades kraft.version. Raises ToolError, KafkaError and NetError."""
        reason = await update_features(observer, {KRAFT_VERSION: 1}, validate_only=False)
        if reason is not None:
            raise ToolError(reason)
