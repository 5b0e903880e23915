"""Keys of topics, groups and client metrics subscriptions."""

TEXT = """\
segment.bytes  Largest size of a segment file before a new one is begun.
segment.ms  Longest time after which a segment is closed even if it is not full, so that retention can
    delete it.
segment.jitter.ms  Random part taken off segment.ms, so that segments of many partitions do not roll at once.
segment.index.bytes  Size of the offset index of a segment.
flush.messages  Records after which the log is forced to disk; the default leaves it to the operating
    system and replication.
flush.ms  Time after which written records are forced to disk.
retention.bytes  Bytes of each partition that are kept under the delete policy; -1 for no limit.
retention.ms  How long records are kept under the delete policy; -1 for ever.
max.message.bytes  Largest batch of records, as compressed, that is taken.
index.interval.bytes  Bytes of log between two entries of its offset index.
delete.retention.ms  How long a tombstone stays in a compacted topic, and with it the time a reader has to
    see it.
min.compaction.lag.ms  Time that a record stays uncompacted at least.
max.compaction.lag.ms  Time after which a record becomes eligible for compaction whatever the dirty ratio.
file.delete.delay.ms  Time between a segment's removal from the log and the removal of its file.
min.cleanable.dirty.ratio  Uncompacted share of a log at which it is compacted.
cleanup.policy  What happens to old segments: delete by age and size, compact to the last record of each
    key, or both.
unclean.leader.election.enable  Whether a replica that lacks acknowledged records may lead when no other
    can; it loses them.
min.insync.replicas  In-sync replicas without which a write with acks=all is refused.
compression.type  Compression of the log: a codec, uncompressed, or producer for whatever the producer used.
compression.gzip.level  Level for gzip, if compression.type selects it.
compression.lz4.level  Level for lz4, if compression.type selects it.
compression.zstd.level  Level for zstd, if compression.type selects it.
preallocate  Whether the file of a new segment is given its full size at once.
message.timestamp.type  CreateTime keeps the producer's timestamps, LogAppendTime replaces them by the
    broker's clock.
message.timestamp.before.max.ms  How far behind the broker's clock a producer's timestamp may be.
message.timestamp.after.max.ms  How far ahead of the broker's clock a producer's timestamp may be.
leader.replication.throttled.replicas  Replicas whose leader's sending is throttled (partition:broker, or
    *).
follower.replication.throttled.replicas  Replicas whose fetching is throttled (partition:broker, or *).
remote.storage.enable  Whether segments are also kept in remote storage (not available here).
local.retention.ms  How long segments stay on local disk beside remote storage; -2 for retention.ms.
local.retention.bytes  Bytes that stay on local disk beside remote storage; -2 for retention.bytes.
remote.copy.lag.ms  How long a segment waits before it is copied to remote storage; without effect here.
remote.copy.lag.bytes  Bytes that are not copied to remote storage yet; without effect here.
remote.log.copy.disable  Stops copying to remote storage.
remote.log.delete.on.disable  Deletes what remote storage holds when it is switched off.
errors.deadletterqueue.group.enable  Whether the topic may be the dead-letter queue of share groups; without
    effect here.
max.decompressed.message.bytes  Largest record of a compressed batch, decompressed. The records of a batch
    are at most 100 MiB here in any case.
internal.segment.bytes  Segment size without the lower limit, for tests.
consumer.session.timeout.ms  Silence after which a member of this consumer group is removed.
consumer.heartbeat.interval.ms  Time between two heartbeats of this consumer group's members.
share.session.timeout.ms  Silence after which a member of this share group is removed.
share.heartbeat.interval.ms  Time between two heartbeats of this share group's members.
share.record.lock.duration.ms  How long a record stays with the share consumer that fetched it.
share.auto.offset.reset  Where a share group begins: latest, earliest, or by_duration:PERIOD.
share.isolation.level  Whether a share group reads records of open transactions.
streams.session.timeout.ms  Silence after which a member of this streams group is removed.
streams.heartbeat.interval.ms  Time between two heartbeats of this streams group's members.
streams.num.standby.replicas  Standby copies of each task's state in this streams group.
streams.num.warmup.replicas  Copies of state that are prepared at once for tasks that move.
streams.acceptable.recovery.lag  Lag up to which a copy counts as caught up.
streams.task.offset.interval.ms  Time between two reports of the offsets of tasks.
streams.initial.rebalance.delay.ms  Wait for more members before this streams group's first assignment.
streams.rack.aware.assignment.tags  Tags of clients by which standby copies are spread.
streams.assignor.name  The assignor of this streams group, one of group.streams.assignors.
share.delivery.count.limit  Deliveries of a record before it is given up.
share.partition.max.record.locks  Records of a partition with consumers at once.
share.renew.acknowledge.enable  Whether consumers may renew the lock of a record.
errors.deadletterqueue.topic.name  Topic that gets the records which this share group gives up; empty
    for none.
errors.deadletterqueue.copy.record.enable  Whether such a record is copied, or only its coordinates.
consumer.assignment.interval.ms  Shortest time between two assignments of this consumer group.
consumer.assignor.offload.enable  Whether assignments of this consumer group are computed in other threads.
share.assignment.interval.ms  Shortest time between two assignments of this share group.
share.assignor.offload.enable  Whether assignments of this share group are computed in other threads.
streams.assignment.interval.ms  Shortest time between two assignments of this streams group.
streams.assignor.offload.enable  Whether assignments of this streams group are computed in other threads.
metrics  Prefixes of the metric names that clients shall report.
interval.ms  Time between two pushes of client metrics.
match  Which clients a subscription is for: key=pattern pairs.
"""
