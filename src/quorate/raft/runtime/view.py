"""What the rest of the process reads of its Raft client; nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.raft.core.membership import reply_endpoints
from quorate.raft.core.voters import VoterSet
from quorate.raft.types import Address, LeaderAndEpoch, OffsetEpoch

if TYPE_CHECKING:
    from quorate.raft.config import RaftConfig
    from quorate.raft.core.raft import Raft
    from quorate.raft.runtime.delivery import Delivery
    from quorate.raft.runtime.metrics import Metric, RaftMeters
    from quorate.raft.runtime.ports import Clock
    from quorate.raft.runtime.proposals import Proposals
    from quorate.raft.storage.metadata_log import MetadataLog


class RaftView:
    """Valid once the client has started."""

    config: RaftConfig
    core: Raft
    log: MetadataLog
    _delivery: Delivery
    _proposals: Proposals
    _clock: Clock
    meters: RaftMeters

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return self.core.leader_and_epoch

    @property
    def epoch(self) -> int:
        return self.core.epoch

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader

    @property
    def hears_leader(self) -> bool:
        """Whether this replica leads, or has had an answer of the leader that it follows within the
        fetch timeout."""
        f = self.core.following
        return self.core.is_leader or (f is not None and f.heard and self._clock.now() < f.fetch_deadline)

    @property
    def high_watermark(self) -> int:
        """What is known to be committed; 0 while nothing is."""
        return self._delivery.hwm

    @property
    def log_end_offset(self) -> int:
        """The offset that the next proposed record gets."""
        return self._proposals.next_offset if self.core.is_leader else self.log.end_offset

    @property
    def voters(self) -> VoterSet:
        return self.core.voters

    @property
    def kraft_version(self) -> int:
        """The level in force, committed or not."""
        return self.core.members.kraft_version

    @property
    def kraft_version_finalised(self) -> int:
        """The level below the high watermark, as ApiVersions tells it."""
        return self.core.members.kraft_version_at(self._delivery.hwm - 1)

    @property
    def ignores_static_voters(self) -> bool:
        """Whether controller.quorum.voters is set in vain, since the log has the voters."""
        return bool(self.config.voters) and self.kraft_version > 0

    def leader_address(self, listener: str | None = None) -> Address | None:
        """Where the leader's controller listener is; None while no leader is known."""
        core = self.core
        if core.leader_id is None:
            return None
        name = listener if listener is not None else self.config.listener_name
        return reply_endpoints(core, name).get(name)

    def node_endpoints(self, listener: str) -> dict[int, Address]:
        """Every voter's address under one listener name."""
        out = {v.id: v.endpoints[listener] for v in self.core.voters if listener in v.endpoints}
        leader = self.leader_address(listener)
        if leader is not None and self.core.leader_id is not None:
            out[self.core.leader_id] = leader
        return out

    def metrics(self) -> list[Metric]:
        """The current values of Kafka's raft-metrics group (`KafkaRaftMetrics`, KIP-595, KIP-853)."""
        from quorate.raft.runtime.metrics import raft_metrics

        return list(raft_metrics(self, self.meters, self._clock.now()))

    def broker_metrics(self) -> list[Metric]:
        """kafka.server:type=broker-metadata-metrics, what Raft knows of it."""
        from quorate.raft.runtime.metrics import ignored_static_voters

        return [ignored_static_voters("ignored-static-voters", self)]

    def controller_metrics(self) -> list[Metric]:
        """kafka.controller:type=KafkaController, what Raft knows of it."""
        from quorate.raft.runtime.metrics import ignored_static_voters

        return [ignored_static_voters("IgnoredStaticVoters", self)]

    def latest_snapshot(self) -> OffsetEpoch | None:
        return self.log.latest_snapshot()
