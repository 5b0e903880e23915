"""What a node tells at /health and /ready: its phase, its progress, and whether it serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from quorate.broker.server import BrokerServer
    from quorate.raft.runtime.client import RaftClient


class Stage(NamedTuple):
    """A part of the start whose length is known: how much is done, and of how much."""

    what: str
    done: int
    total: int


class StartupProgress:
    """Estimates the time that a stage of the start still takes, from the time that it has taken."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stage: Stage | None = None
        self._began = 0.0

    def fields(self, stage: Stage | None) -> dict[str, object]:
        """The fields of /health for the current stage. There are none without a stage."""
        if stage is None or stage.total <= 0:
            self._stage = None
            return {}
        now = self._clock()
        first = self._stage
        if first is None or (first.what, first.total) != (stage.what, stage.total) or stage.done < first.done:
            first = self._stage = stage
            self._began = now
        share = min(1.0, stage.done / stage.total)
        fields: dict[str, object] = {
            "progress": f"{stage.what}: {stage.done} of {stage.total}",
            "percent": round(100 * share, 1),
        }
        since = stage.done - first.done
        if since > 0:
            left_s = (now - self._began) * (stage.total - stage.done) / since
            fields["secondsLeft"] = round(max(0.0, left_s), 1)
        return fields


def current_stage(
    raft: RaftClient | None, logs_opened: Mapping[Path, tuple[int, int]] | None, *, recovers: bool
) -> Stage | None:
    """The stage that a starting node is in. `recovers` says whether its broker is opening its logs."""
    if raft is None:
        return None
    loading = raft.snapshot_progress
    if loading is not None:
        return Stage("bytes of the snapshot loaded", *loading)
    if recovers and logs_opened:
        done = sum(opened for opened, _ in logs_opened.values())
        return Stage("logs opened", done, sum(found for _, found in logs_opened.values()))
    delivered, end = raft.delivered_offset, raft.high_watermark
    return Stage("metadata records replayed", max(0, delivered), end) if delivered < end else None


def not_ready_reason(
    raft: RaftClient, broker: BrokerServer | None, node_id: int, *, is_controller: bool
) -> str | None:
    """Why a running node must not get requests, or None: a broker must be unfenced, and a
    controller must be a voter. Both must hear from the leader of the quorum."""
    if not raft.hears_leader:
        return "no contact with the leader of the metadata quorum"
    if is_controller and node_id not in raft.voters.ids:
        return "this controller is not a voter"
    if broker is not None:
        registration = broker.metadata.image.cluster.brokers.get(node_id)
        if registration is None:
            return "this broker is not registered"
        if registration.fenced:
            return "this broker is fenced"
    return None
