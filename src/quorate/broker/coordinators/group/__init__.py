"""The group coordinator: classic groups and committed offsets.

    service                   the group APIs (`GroupCoordinatorService`)
    offset_requests           OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit
    small_commit              the most common form of OffsetCommit
    small_heartbeat           the most common form of Heartbeat
    shard                     one partition of `__consumer_offsets` as a state machine
    group_metadata_manager    JoinGroup, SyncGroup, Heartbeat, LeaveGroup
    offset_metadata_manager   committed offsets
    rebalance                 the transitions of classic groups
    member_timers             the timers of member sessions
    classic_group             one classic group
    classic_responses         responses of the classic protocol
    timer_events              the events of a shard's timers
    record_serde              encodes and decodes the records of `__consumer_offsets`
    model                     the records and the state as values
    config                    the settings

`quorate.broker.coordinators.service` imports `service` and `config`; nothing else is imported from other
packages. All modules except `service`, `offset_requests`, `small_commit` and `small_heartbeat`
are pure.
"""
