"""Classic groups: the protocol in which clients assign partitions among themselves.

    group_metadata_manager    JoinGroup, SyncGroup, Heartbeat, LeaveGroup
    rebalance                 the transitions of classic groups
    member_timers             the timers of member sessions
    classic_group             one classic group
    classic_responses         responses of the classic protocol

All modules are pure. `quorate.broker.coordinators.group.shard` joins them to the log.
"""
