"""The coordinators of a broker: state machines whose records are the partitions of internal topics.

    service          the APIs of all coordinators: what `quorate.broker.server` registers
    group/           the group coordinator: classic groups and committed offsets
    producer_ids     ids for idempotent producers

Shared by all coordinators:

    runtime          runs the shards of the partitions that this broker leads
    context          one partition of the internal topic: its shard, the committed state, the batch of a turn
    batch_writer     fills the batch of a turn, and appends it
    shard            the interface of a shard
    result           the result of a step of a shard
    timer            the timers of a shard
    loader           replays a log into a shard
    high_watermark   reads and awaits the high watermark of a partition
    responses        turns the future of a step into a response
    partitioning     the partition of a group or a transactional id
    records/         the schemas of the records in the internal topics

`quorate.broker.server` imports `service`; tools import `records`. Shards are pure, and the runtime is the
only module that owns timers and tasks.
"""
