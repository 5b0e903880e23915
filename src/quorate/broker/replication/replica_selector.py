"""Chooses the replica that a consumer reads from: the one in the consumer's rack (KIP-392;
`RackAwareReplicaSelector` and `ReplicaManager.findPreferredReadReplica` in Kafka).

A leader without a selector serves all consumers itself. Selectors of the user's own are Java classes, which
cannot be loaded here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorate.broker.metadata.cache import MetadataCache
    from quorate.broker.replication.partition import Partition

logger = logging.getLogger("quorate.broker.fetch")
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER = -1


def selects_by_rack(selector_class: str | None) -> bool:
    """Whether `replica.selector.class` names Kafka's rack-aware selector. Any other class has no effect, and
    is logged."""
    if selector_class and selector_class != RACK_AWARE:
        logger.warning(
            "[Fetch] replica.selector.class %s cannot be loaded; leaders serve all consumers themselves",
            selector_class,
        )
    return selector_class == RACK_AWARE


def preferred_read_replica(
    partition: Partition, metadata: MetadataCache, rack: str, listener: str, offset: int
) -> int:
    """Returns the id of the follower in `rack` that a consumer reads `offset` from, or LEADER.

    A follower outside of the ISR is never chosen: it may fall behind, and the consumer with it. Of several
    followers, the one with the longest log is chosen, then the one that caught up last. Only for a leader.
    """
    leader = metadata.broker(partition.leader_id)
    if leader is not None and leader.rack == rack:
        return LEADER
    best, best_rank = LEADER, (-1, 0.0, -1)
    for replica, state in partition.followers.items():
        if replica not in partition.isr or not state.log_start_offset <= offset <= state.log_end_offset:
            continue
        broker = metadata.broker(replica)
        if broker is None or broker.fenced or broker.rack != rack or broker.endpoint(listener) is None:
            continue
        rank = (state.log_end_offset, state.last_caught_up, replica)
        if rank > best_rank:
            best, best_rank = replica, rank
    return best
