"""`quorate rolling-restart`: restarts nodes one after the other, the active controller last.

A node counts as restarted if it started after the time `since`. So an interrupted restart continues where it
was: the command is run again with the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.tools.operations.description import Cluster, Start, counted, ids, some
from quorate.tools.operations.node_command import filled, placeholder_values, run_command
from quorate.tools.operations.plan import OperationPlan, Progress, Refusal, Step
from quorate.tools.operations.safety import split, stop_blocks
from quorate.tools.times import time_text

if TYPE_CHECKING:
    from quorate.tools.operations.observer import Observer


@dataclass(frozen=True, slots=True)
class RollingRestart:
    """The restart of some nodes, or of all. `since_ms` is the time after which a start counts."""

    since_ms: int
    nodes: Collection[int] | None = None
    brokers: bool = True
    controllers: bool = True
    allow_unavailable: bool = False
    command: str = ""
    """The user's command that restarts a node."""
    command_timeout_s: float = 300.0

    @property
    def title(self) -> str:
        return f"Restart each node that has not started since {time_text(self.since_ms)}"

    @property
    def again(self) -> Mapping[str, str]:
        return {"--since": time_text(self.since_ms)}

    def plan(self, cluster: Cluster, progress: Progress) -> OperationPlan:
        selected = self._selected(cluster)
        refusals = self._unknown(cluster, selected)
        pending = [n for n in selected if not self._restarted(cluster, n, progress)]
        pending.sort(key=lambda node: (node not in progress.commanded, *_order(cluster, node)))
        notes: list[str] = []
        for node in pending:
            refused, accepted, _ = split(stop_blocks(cluster, node), allow_unavailable=self.allow_unavailable)
            refusals += refused
            notes += accepted
        if refusals:
            return OperationPlan(refusals=tuple(dict.fromkeys(refusals)), notes=tuple(notes))
        done = [node for node in selected if node not in pending]
        # A node that does not run is started first: others may not become in sync before it is back.
        urgent = [n for n in pending if n in progress.commanded or is_down(cluster, n)]
        steps: list[Step] = []
        self._add_restarts(steps, cluster, urgent, progress)
        steps += [wait_until_back(cluster, n, reason) for n in done if (reason := not_back(cluster, n))]
        self._add_restarts(steps, cluster, [n for n in pending if n not in urgent], progress)
        notes += self._clocks(cluster, done)
        down = [n for n in urgent if n not in progress.commanded]
        notes += [f"{node_text(cluster, n)} does not run: it is the first" for n in down]
        return OperationPlan(tuple(steps), notes=tuple(notes))

    def _clocks(self, cluster: Cluster, done: Collection[int]) -> list[str]:
        """Warns of nodes that have restarted, but whose start times are before the restart began."""
        behind = [n for n in done if (s := start_of(cluster, n)) is not None and not s.since(self.since_ms)]
        if not behind:
            return []
        return [
            f"the clock of node {ids(behind)} is behind that of the active controller: if this restart is "
            "continued, it is restarted again"
        ]

    def _selected(self, cluster: Cluster) -> list[int]:
        if self.nodes is not None:
            return sorted(self.nodes)
        found: set[int] = set()
        if self.brokers:
            found |= set(cluster.brokers)
        if self.controllers:
            found |= set(cluster.controllers) | {voter.id for voter in cluster.voters}
        return sorted(found)

    def _unknown(self, cluster: Cluster, selected: Collection[int]) -> list[Refusal]:
        missing = [n for n in selected if start_of(cluster, n) is None]
        if not missing:
            return []
        if any(cluster.voter(node) is not None for node in missing):
            return [
                Refusal(
                    f"controller {ids(missing)} has not registered, so nothing tells when it started",
                    "start it; controllers register from metadata.version 3.7-IV0 on (quorate upgrade)",
                )
            ]
        return [
            Refusal(f"the cluster has no node {ids(missing)}", "quorate status lists the nodes; see --nodes")
        ]

    def _restarted(self, cluster: Cluster, node: int, progress: Progress) -> bool:
        start = start_of(cluster, node)
        if start is None:
            return False
        before = progress.commanded.get(node)
        return start.since(self.since_ms) or before not in (None, start.incarnation_id)

    def _add_restarts(
        self, steps: list[Step], cluster: Cluster, nodes: Collection[int], progress: Progress
    ) -> None:
        """Adds the steps for nodes that are left. The first step of all may have to wait for other nodes."""
        for node in nodes:
            if node in progress.commanded:
                steps.append(wait_until_back(cluster, node, "it has not registered since its restart"))
                continue
            if not steps:
                _, _, passing = split(stop_blocks(cluster, node), allow_unavailable=self.allow_unavailable)
                text = f"wait until {node_text(cluster, node)} may stop"
                steps += [Step("wait", text, node, True, detail=f"{b.reason}: {b.remedy}") for b in passing]
            steps.append(Step("restart", f"restart {node_text(cluster, node)}", node))
            steps.append(wait_until_back(cluster, node, ""))

    async def perform(self, step: Step, cluster: Cluster, progress: Progress, _observer: Observer) -> None:
        """Restarts the node of a step."""
        assert step.node is not None
        start = start_of(cluster, step.node)
        option = "--restart-command"
        text = filled(option, self.command, placeholder_values(cluster, step.node))
        await run_command(option, text, self.command_timeout_s)
        progress.commanded[step.node] = start.incarnation_id if start is not None else b""


def start_of(cluster: Cluster, node: int) -> Start | None:
    """The start of a node, or None if it is not registered. A node with both roles has registered twice."""
    known = cluster.brokers.get(node) or cluster.controllers.get(node)
    return known.start if known is not None else None


def node_text(cluster: Cluster, node: int) -> str:
    """Names a node with its roles and address."""
    broker, controller = cluster.brokers.get(node), cluster.controllers.get(node)
    is_controller = controller is not None or cluster.voter(node) is not None
    role = "+".join(name for name, has in (("broker", broker), ("controller", is_controller)) if has)
    known = broker or controller
    where = f" at {known.host}:{known.port}" if known is not None and known.host else ""
    rack = f", rack {broker.rack}" if broker is not None and broker.rack else ""
    active = ", the active controller" if node == cluster.leader_id else ""
    return f"{role or 'node'} {node}{where}{rack}{active}"


def is_down(cluster: Cluster, node: int) -> bool:
    """Whether a node is known not to serve: a broker that is fenced or stops, or a voter that does not
    follow."""
    broker, voter = cluster.brokers.get(node), cluster.voter(node)
    return (broker is not None and not broker.active) or (voter is not None and not voter.follows)


def not_back(cluster: Cluster, node: int) -> str:
    """Returns what a node lacks until the next one may stop, or an empty text."""
    broker = cluster.brokers.get(node)
    if broker is not None:
        if broker.fenced:
            return "it is fenced"
        if broker.in_controlled_shutdown:
            return "it is in controlled shutdown"
        behind = [p.tp for p in cluster.partitions.on(node) if node not in p.isr]
        if behind:
            return f"it is not in the ISR of {counted(len(behind), 'partition')}: {some(behind)}"
    voter = cluster.voter(node)
    if voter is not None and not voter.follows:
        return "it does not follow the metadata leader yet"
    return ""


def wait_until_back(cluster: Cluster, node: int, reason: str) -> Step:
    """The step that waits for a node that was started."""
    what = "in each ISR and follows the quorum"
    if node not in cluster.brokers:
        what = "a follower in the quorum"
    elif cluster.voter(node) is None:
        what = "unfenced and in each ISR"
    return Step("wait", f"wait until node {node} is {what}", node, waits=True, detail=reason)


def _order(cluster: Cluster, node: int) -> tuple[bool, bool, bool, str, int]:
    """Nodes that are down, brokers by rack, controllers, and the active controller at the end."""
    broker = cluster.brokers.get(node)
    return (
        not is_down(cluster, node),
        node == cluster.leader_id,
        cluster.voter(node) is not None or node in cluster.controllers,
        (broker.rack or "") if broker is not None else "",
        node,
    )
