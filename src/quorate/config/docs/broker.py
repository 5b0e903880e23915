"""Keys of brokers and controllers, except those of security."""

TEXT = """\
process.roles  The roles of this node: broker, controller, or both.
node.id  The node's number, unique in the cluster.
broker.id  Old name of node.id.
broker.rack  The rack, zone or region of this broker; replicas are spread over racks.
listeners  The listeners of the node: NAME://host:port, comma separated; an empty host means every
    address.
advertised.listeners  The addresses that clients and other nodes connect to, if they differ from
    listeners.
listener.security.protocol.map  Security protocol of each listener name.
inter.broker.listener.name  The listener for connections between brokers.
security.inter.broker.protocol  Security protocol between brokers, if inter.broker.listener.name is not
    set.
controller.listener.names  Names of the controllers' listeners; nodes talk to the quorum by the first.
early.start.listeners  Listeners that serve before the broker's metadata is complete.
config.providers  Java's config providers; without effect here.
controller.quorum.voters  The voters of a static quorum: id@host:port, comma separated.
controller.quorum.bootstrap.servers  Addresses at which the controllers of a dynamic quorum are found; one
    that answers is enough.
controller.quorum.auto.join.enable  Whether a controller that is not a voter adds itself to the quorum.
controller.quorum.election.timeout.ms  Time without a result after which a candidate begins another election.
controller.quorum.fetch.timeout.ms  Time without an answer of the leader after which a follower begins an
    election.
controller.quorum.election.backoff.max.ms  Longest random wait before another election.
controller.quorum.append.linger.ms  Time that the leader collects records before it writes them. The
    default is 0 here and 25 in Apache Kafka, since records that arrive during a write form the next batch
    anyway.
quorate.broker.probe.enable  Whether a controller connects to the listeners of brokers, to fence a broker
    whose process has ended before its session expires. Not in Apache Kafka.
quorate.max.records.per.user.op  Most metadata records that one request may write. Above 10000, large
    changes are metadata transactions, which no node of Apache Kafka should read. Not in Apache Kafka.
quorate.metadata.attribution.enable  Whether the active controller writes who made each change of the
    metadata into a tagged record of the same batch. Not in Apache Kafka, whose nodes skip the record.
quorate.http.listen  host:port of the HTTP server for /metrics (Prometheus) and /health; empty for none.
    Not in Apache Kafka.
controller.quorum.request.timeout.ms  Time that a request among controllers may take.
controller.quorum.retry.backoff.ms  First wait before a request is sent again.
controller.quorum.fetch.max.bytes  Bytes of records in the answer to one fetch of the metadata log, a first
    batch aside.
controller.quorum.fetch.snapshot.max.bytes  Bytes of a snapshot in the answer to one request. The default
    is 4 MiB here and 1 MiB in Apache Kafka.
initial.broker.registration.timeout.ms  Time within which a starting broker must have registered.
broker.heartbeat.interval.ms  Time between two heartbeats to the controller.
broker.session.timeout.ms  Silence after which the controller fences a broker.
controller.performance.sample.period.ms  Time between two reports of slow controller events.
controller.performance.always.log.threshold.ms  A controller event that takes longer is always logged.
controller.socket.timeout.ms  Time that a broker waits for a controller on a connection.
server.max.startup.time.ms  Time within which a node must have started.
metadata.log.dir  Directory of the metadata log; the first of log.dirs if not set.
metadata.log.segment.bytes  Largest segment of the metadata log.
metadata.log.segment.ms  Longest time before a new segment of the metadata log.
metadata.log.max.record.bytes.between.snapshots  New metadata after which a snapshot is written.
metadata.log.max.snapshot.interval.ms  Time after which a snapshot is written; 0 for never.
metadata.max.retention.bytes  Size of metadata log and snapshots above which the oldest go.
metadata.max.retention.ms  Age of metadata snapshots and segments above which they go.
metadata.max.idle.interval.ms  Idle time after which the active controller writes an empty record; 0 for
    never.
internal.metadata.log.segment.bytes  Segment size of the metadata log without its lower limit, for tests.
internal.metadata.max.batch.size.in.bytes  Largest batch of the metadata log.
internal.metadata.delete.delay.millis  Time before files removed from the metadata log leave the disk.
log.dir  Directory of the data, where log.dirs is not set.
log.dirs  Directories of the data, comma separated.
cordoned.log.dirs  Those of log.dirs that get no new replicas, comma separated; * for all of them.
log.dir.failure.timeout.ms  Time within which a failed directory must have been reported to the controller.
log.initial.task.delay.ms  Time after start before cleaning and checkpoints begin.
num.recovery.threads.per.data.dir  Threads that recover the logs of each directory after an unclean stop.
num.partitions  Partitions of a topic created without a number.
default.replication.factor  Replicas of a topic created without a number; set it on controllers and brokers.
auto.create.topics.enable  Whether a topic that a client requests is created.
delete.topic.enable  Whether topics may be deleted.
create.topic.policy.class.name  Java's policy for new topics; without effect here.
alter.config.policy.class.name  Java's policy for changed configurations; without effect here.
min.insync.replicas  In-sync replicas without which a write with acks=all is refused.
unclean.leader.election.enable  Whether a replica that lacks acknowledged records may lead when no other can.
unclean.leader.election.interval.ms  Time between two looks for partitions that need an unclean election.
auto.leader.rebalance.enable  Whether leaderships go back to the preferred replicas by themselves.
leader.imbalance.check.interval.seconds  Time between two checks for partitions that are not led by their
    preferred replica.
message.max.bytes  Largest batch of records, as compressed, that is taken.
max.decompressed.message.bytes  Largest record of a compressed batch, decompressed. The records of a batch
    are at most 100 MiB here in any case.
compression.type  Compression of logs: a codec, uncompressed, or producer for whatever the producer used.
compression.gzip.level  Level for gzip.
compression.lz4.level  Level for lz4.
compression.zstd.level  Level for zstd.
log.segment.bytes  Largest size of a segment file before a new one is begun.
log.roll.ms  Longest time before a new segment is begun; wins over log.roll.hours.
log.roll.hours  Longest time before a new segment is begun, in hours.
log.roll.jitter.ms  Random part taken off log.roll.ms; wins over log.roll.jitter.hours.
log.roll.jitter.hours  Random part taken off log.roll.hours, in hours.
log.retention.ms  How long records are kept; wins over the keys in minutes and hours; -1 for ever.
log.retention.minutes  How long records are kept, in minutes; wins over log.retention.hours.
log.retention.hours  How long records are kept, in hours.
log.retention.bytes  Bytes of each partition that are kept; -1 for no limit.
log.retention.check.interval.ms  Time between two looks for segments to delete.
log.cleanup.policy  What happens to old segments: delete, compact, or both.
log.index.size.max.bytes  Size of the offset index of a segment.
log.index.interval.bytes  Bytes of log between two entries of its offset index.
log.preallocate  Whether the file of a new segment is given its full size at once.
log.flush.interval.messages  Records after which a log is forced to disk.
log.flush.interval.ms  Time after which written records are forced to disk.
log.flush.scheduler.interval.ms  Time between two looks for logs to force to disk.
log.flush.offset.checkpoint.interval.ms  Time between two records of how far the logs are on disk.
log.flush.start.offset.checkpoint.interval.ms  Time between two records of where the logs begin.
log.segment.delete.delay.ms  Time between a segment's removal from a log and the removal of its file.
log.message.timestamp.type  CreateTime keeps producers' timestamps, LogAppendTime replaces them.
log.message.timestamp.before.max.ms  How far behind the broker's clock a producer's timestamp may be.
log.message.timestamp.after.max.ms  How far ahead of the broker's clock a producer's timestamp may be.
log.cleaner.enable  Whether compaction runs.
log.cleaner.threads  Threads of compaction.
log.cleaner.io.max.bytes.per.second  Bytes that compaction reads and writes in a second at most.
log.cleaner.dedupe.buffer.size  Memory for the keys of all compactions.
log.cleaner.io.buffer.size  Memory for reading and writing of all compactions.
log.cleaner.io.buffer.load.factor  How full the table of keys may be.
log.cleaner.backoff.ms  Time that compaction rests when it finds nothing to do.
log.cleaner.min.cleanable.ratio  Uncompacted share of a log at which it is compacted.
log.cleaner.delete.retention.ms  How long a tombstone stays in a compacted log.
log.cleaner.min.compaction.lag.ms  Time that a record stays uncompacted at least.
log.cleaner.max.compaction.lag.ms  Time after which a record is eligible for compaction in any case.
log.local.retention.ms  How long segments stay on local disk beside remote storage.
log.local.retention.bytes  Bytes that stay on local disk beside remote storage.
log.remote.copy.lag.ms  How long a segment waits before it is copied to remote storage; without effect here.
log.remote.copy.lag.bytes  Bytes that are not copied to remote storage yet; without effect here.
replica.lag.time.max.ms  Time without having caught up after which a follower leaves the in-sync replicas.
replica.socket.timeout.ms  Time that a follower's request may take on the network.
replica.socket.receive.buffer.bytes  Receive buffer of followers' connections.
replica.fetch.max.bytes  Bytes of one partition in a follower's fetch, a first batch aside.
replica.fetch.wait.max.ms  Time that the leader may hold a follower's fetch.
replica.fetch.backoff.ms  Wait after a failed fetch.
replica.fetch.min.bytes  Bytes for which the leader holds a follower's fetch.
replica.fetch.response.max.bytes  Bytes in the answer to a follower's fetch, a first batch aside.
num.replica.fetchers  Fetchers for each leader that a broker follows.
num.replica.alter.log.dirs.threads  Replicas that are copied between directories at the same time; by
    default as many as there are directories.
replica.high.watermark.checkpoint.interval.ms  Time between two records of the high watermarks.
replica.selector.class  Class that chooses the replica a consumer reads from; of
    org.apache.kafka.common.replica.RackAwareReplicaSelector the effect is built in, others have none.
follower.fetch.last.tiered.offset.enable  Whether a new follower begins after the records that remote
    storage has; without effect here.
leader.replication.throttled.rate  Bytes per second that this broker sends to throttled followers.
follower.replication.throttled.rate  Bytes per second that this broker fetches as a throttled follower.
replica.alter.log.dirs.io.max.bytes.per.second  Bytes per second for moving replicas between directories.
fetch.max.bytes  Bytes in the answer to a fetch, a first batch aside.
fetch.purgatory.purge.interval.requests  Kafka's bookkeeping of waiting fetches; without effect here.
producer.purgatory.purge.interval.requests  Kafka's bookkeeping of waiting writes; without effect here.
delete.records.purgatory.purge.interval.requests  Kafka's bookkeeping of waiting deletions; without effect
    here.
share.fetch.purgatory.purge.interval.requests  Kafka's bookkeeping of waiting share fetches; without
    effect here.
max.incremental.fetch.session.cache.slots  Fetch sessions that a broker remembers.
max.request.partition.size.limit  Partitions in one answer to DescribeTopicPartitions.
num.network.threads  Kafka's network threads; a node here has one event loop.
num.io.threads  Kafka's request threads; a node here has one event loop.
background.threads  Threads for background work.
queued.max.requests  Requests that wait in a Kafka node; here requests wait in their connections.
queued.max.request.bytes  Bytes of requests that wait to be handled; -1 for no limit.
request.timeout.ms  Time that a request of this node may take.
socket.connection.setup.timeout.ms  Time that connecting may take at first.
socket.connection.setup.timeout.max.ms  Time that connecting may take after failures.
socket.send.buffer.bytes  Send buffer of connections; -1 for the system's.
socket.receive.buffer.bytes  Receive buffer of connections; -1 for the system's.
socket.request.max.bytes  Largest request that is taken.
socket.listen.backlog.size  Connections that wait to be accepted.
max.connections  Connections of a listener at most.
max.connections.per.ip  Connections from one address at most.
max.connections.per.ip.overrides  Connections from single addresses at most: host:count, comma separated.
max.connection.creation.rate  New connections in a second at most; further ones wait.
connections.max.idle.ms  Idle time after which a connection is closed.
connection.failed.authentication.delay.ms  Wait before a connection that failed to authenticate is closed.
controlled.shutdown.enable  Whether a broker that stops has its leaderships moved away first.
authorizer.class.name  The authorizer; empty allows everything to everybody.
unstable.api.versions.enable  Whether versions that may still change are advertised.
unstable.feature.versions.enable  Whether feature levels that may still change may be used.
offsets.topic.num.partitions  Partitions of __consumer_offsets, fixed when it is created.
offsets.topic.replication.factor  Replicas of __consumer_offsets; it is not created before the cluster has
    this number of brokers.
offsets.topic.segment.bytes  Segment size of __consumer_offsets.
offsets.topic.compression.codec  Compression of __consumer_offsets, by number.
offsets.commit.timeout.ms  Time that an offset commit may wait for replicas.
offsets.load.buffer.size  Bytes read at a time when offsets are loaded.
offsets.retention.minutes  How long offsets of an empty group are kept.
offsets.retention.check.interval.ms  Time between two looks for offsets to forget.
offset.metadata.max.bytes  Longest text beside a committed offset.
group.min.session.timeout.ms  Shortest session timeout that a consumer may request.
group.max.session.timeout.ms  Longest session timeout that a consumer may request.
group.initial.rebalance.delay.ms  Wait for more members before a new group's first assignment.
group.max.size  Members of a classic group at most.
group.coordinator.rebalance.protocols  Group protocols that are served.
group.coordinator.threads  Kafka's coordinator threads; a node here has one event loop.
group.coordinator.append.linger.ms  Time that a coordinator gathers records before it writes them; without
    effect here, where the commits of one turn of the event loop are one batch, as in Kafka with -1.
group.coordinator.background.threads  Kafka's threads for assignors; a node here has one event loop.
group.coordinator.cached.buffer.max.bytes  Largest buffer that a Java coordinator keeps; without effect here.
group.consumer.session.timeout.ms  Silence after which a member of a consumer group is removed.
group.consumer.min.session.timeout.ms  Shortest session timeout that a consumer group may set.
group.consumer.max.session.timeout.ms  Longest session timeout that a consumer group may set.
group.consumer.heartbeat.interval.ms  Time between two heartbeats of a consumer group's members.
group.consumer.min.heartbeat.interval.ms  Shortest heartbeat interval that a consumer group may set.
group.consumer.max.heartbeat.interval.ms  Longest heartbeat interval that a consumer group may set.
group.consumer.max.size  Members of a consumer group at most.
group.consumer.assignors  Assignors on the broker's side, the first is the default.
group.consumer.migration.policy  Whether groups may change between the classic and the consumer protocol.
group.consumer.regex.refresh.interval.ms  Time between two resolutions of a subscribed pattern.
group.share.session.timeout.ms  Silence after which a member of a share group is removed.
group.share.min.session.timeout.ms  Shortest session timeout that a share group may set.
group.share.max.session.timeout.ms  Longest session timeout that a share group may set.
group.share.heartbeat.interval.ms  Time between two heartbeats of a share group's members.
group.share.min.heartbeat.interval.ms  Shortest heartbeat interval that a share group may set.
group.share.max.heartbeat.interval.ms  Longest heartbeat interval that a share group may set.
group.share.max.size  Members of a share group at most.
group.share.assignors  Assignors of share groups.
group.share.delivery.count.limit  Deliveries of a record before it is given up.
group.share.record.lock.duration.ms  How long a record stays with the consumer that fetched it.
group.share.min.record.lock.duration.ms  Shortest record lock duration that a share group may set.
group.share.max.record.lock.duration.ms  Longest record lock duration that a share group may set.
group.share.partition.max.record.locks  Records of a partition with consumers at once.
group.share.max.share.sessions  Share sessions that a broker remembers.
group.share.persister.class.name  Java's persister of share groups; without effect here.
group.share.dlq.manager.class.name  Java's manager of dead-letter queues; without effect here.
group.share.initialize.retry.interval.ms  Time after which the state of a share partition is initialized
    again.
group.share.min.delivery.count.limit  Smallest delivery count limit that a share group may set.
group.share.max.delivery.count.limit  Largest delivery count limit that a share group may set.
group.share.min.partition.max.record.locks  Smallest number of record locks that a share group may set.
group.share.max.partition.max.record.locks  Largest number of record locks that a share group may set.
errors.deadletterqueue.topic.name.prefix  Prefix of the names of dead-letter queues that are created.
errors.deadletterqueue.auto.create.topics.enable  Whether a dead-letter queue that does not exist is created.
share.coordinator.state.topic.num.partitions  Partitions of __share_group_state.
share.coordinator.state.topic.replication.factor  Replicas of __share_group_state.
share.coordinator.state.topic.min.isr  min.insync.replicas of __share_group_state.
share.coordinator.state.topic.segment.bytes  Segment size of __share_group_state.
share.coordinator.state.topic.compression.codec  Compression of __share_group_state, by number.
share.coordinator.state.topic.prune.interval.ms  Time between two removals of old share state.
share.coordinator.threads  Kafka's share coordinator threads.
share.coordinator.snapshot.update.records.per.snapshot  Updates between two snapshots of a share partition.
share.coordinator.load.buffer.size  Bytes read at a time when share state is loaded.
share.coordinator.append.linger.ms  Time that the share coordinator gathers records.
share.coordinator.cached.buffer.max.bytes  Largest buffer that a Java share coordinator keeps; without
    effect here.
share.coordinator.write.timeout.ms  Time that a write of share state may wait for replicas.
share.coordinator.cold.partition.snapshot.interval.ms  Time after which an idle share partition is
    snapshotted.
group.streams.session.timeout.ms  Silence after which a member of a streams group is removed.
group.streams.min.session.timeout.ms  Shortest session timeout that a streams group may set.
group.streams.max.session.timeout.ms  Longest session timeout that a streams group may set.
group.streams.heartbeat.interval.ms  Time between two heartbeats of a streams group's members.
group.streams.min.heartbeat.interval.ms  Shortest heartbeat interval that a streams group may set.
group.streams.max.heartbeat.interval.ms  Longest heartbeat interval that a streams group may set.
group.streams.max.size  Members of a streams group at most.
group.streams.num.standby.replicas  Standby copies of each task's state.
group.streams.max.standby.replicas  Standby copies that a group may request at most.
group.streams.num.warmup.replicas  Copies of state that are prepared at once for tasks that move.
group.streams.max.warmup.replicas  Largest number of such copies that a streams group may set.
group.streams.acceptable.recovery.lag  Lag up to which a copy counts as caught up.
group.streams.task.offset.interval.ms  Time between two reports of the offsets of tasks.
group.streams.min.task.offset.interval.ms  Shortest such time that a streams group may set.
group.streams.initial.rebalance.delay.ms  Wait for more members before a streams group's first assignment.
group.streams.assignors  Assignors of streams groups, the first is the default.
group.streams.rack.aware.assignment.tags  Tags of clients by which standby copies are spread.
group.streams.topology.description.plugin.class  Java's plugin for descriptions of topologies; without
    effect here.
group.consumer.assignment.interval.ms  Shortest time between two assignments of a consumer group.
group.consumer.min.assignment.interval.ms  Smallest assignment interval that a consumer group may set.
group.consumer.max.assignment.interval.ms  Largest assignment interval that a consumer group may set.
group.consumer.assignor.offload.enable  Whether assignments of consumer groups are computed in other threads.
group.share.assignment.interval.ms  Shortest time between two assignments of a share group.
group.share.min.assignment.interval.ms  Smallest assignment interval that a share group may set.
group.share.max.assignment.interval.ms  Largest assignment interval that a share group may set.
group.share.assignor.offload.enable  Whether assignments of share groups are computed in other threads.
group.streams.assignment.interval.ms  Shortest time between two assignments of a streams group.
group.streams.min.assignment.interval.ms  Smallest assignment interval that a streams group may set.
group.streams.max.assignment.interval.ms  Largest assignment interval that a streams group may set.
group.streams.assignor.offload.enable  Whether assignments of streams groups are computed in other threads.
transaction.state.log.num.partitions  Partitions of __transaction_state, fixed when it is created.
transaction.state.log.replication.factor  Replicas of __transaction_state.
transaction.state.log.min.isr  min.insync.replicas of __transaction_state.
transaction.state.log.segment.bytes  Segment size of __transaction_state.
transaction.state.log.load.buffer.size  Bytes read at a time when transactions are loaded.
transaction.max.timeout.ms  Longest timeout that a transactional producer may request.
transactional.id.expiration.ms  Idle time after which a transactional id is forgotten.
transaction.abort.timed.out.transaction.cleanup.interval.ms  Time between two looks for transactions that
    took too long.
transaction.remove.expired.transaction.cleanup.interval.ms  Time between two removals of expired
    transactional ids.
transaction.partition.verification.enable  Whether a broker checks that a transaction has a partition
    before it is written to.
transaction.two.phase.commit.enable  Whether producers may take part in two-phase commits.
producer.id.expiration.ms  Idle time after which a partition forgets an idempotent producer.
producer.id.expiration.check.interval.ms  Time between two looks for producers to forget.
add.partitions.to.txn.retry.backoff.ms  First wait before partitions are added to a transaction again.
add.partitions.to.txn.retry.backoff.max.ms  Time after which adding partitions to a transaction is given
    up.
metrics.num.samples  Samples that a metric is computed from.
metrics.sample.window.ms  Length of one sample of a metric.
metrics.recording.level  Most detailed level of metrics that are recorded.
metric.reporters  Java's metric reporters; here metrics are for Prometheus.
kafka.metrics.reporters  Java's metric reporters; without effect here.
kafka.metrics.polling.interval.secs  Time between two reports of Java's metric reporters; without effect
    here.
telemetry.max.bytes  Largest push of client metrics.
quota.window.num  Samples that client quotas are computed from.
quota.window.size.seconds  Length of one sample of client quotas.
replication.quota.window.num  Samples that replication quotas are computed from.
replication.quota.window.size.seconds  Length of one sample of replication quotas.
alter.log.dirs.replication.quota.window.num  Samples that the quota of moves between directories is
    computed from.
alter.log.dirs.replication.quota.window.size.seconds  Length of one sample of the quota of moves between
    directories.
controller.quota.window.num  Samples that the quota of metadata changes is computed from.
controller.quota.window.size.seconds  Length of one sample of the quota of metadata changes.
client.quota.callback.class  Java's quota callback; without effect here.
remote.log.storage.system.enable  Whether remote storage is there (it is not available here).
remote.log.storage.manager.impl.prefix  Prefix of the remote storage manager's keys.
remote.log.metadata.manager.impl.prefix  Prefix of the remote metadata manager's keys.
remote.log.storage.manager.class.name  Java's remote storage manager; without effect here.
remote.log.storage.manager.class.path  Class path of Java's remote storage manager; without effect here.
remote.log.metadata.manager.class.name  Java's remote metadata manager; without effect here.
remote.log.metadata.manager.class.path  Class path of Java's remote metadata manager; without effect here.
remote.log.metadata.manager.listener.name  Listener that Java's remote metadata manager uses; without
    effect here.
remote.log.metadata.custom.metadata.max.bytes  Largest piece of its own that a storage manager may keep.
remote.log.index.file.cache.total.size.bytes  Disk for indexes fetched from remote storage.
remote.log.manager.thread.pool.size  Threads of remote storage.
remote.log.manager.copier.thread.pool.size  Threads that copy to remote storage.
remote.log.manager.expiration.thread.pool.size  Threads that delete from remote storage.
remote.log.manager.follower.thread.pool.size  Threads that read remote metadata on followers.
remote.log.index.file.cache.ttl.ms  Time for which unused indexes of remote segments are kept; -1 for ever.
remote.log.manager.task.interval.ms  Time between two rounds of remote storage.
remote.log.manager.task.retry.backoff.ms  First wait after a failed round.
remote.log.manager.task.retry.backoff.max.ms  Longest wait after a failed round.
remote.log.manager.task.retry.jitter  Random part of the wait after a failed round of remote storage.
remote.log.reader.threads  Threads that read from remote storage.
remote.log.reader.max.pending.tasks  Reads from remote storage that may wait for a thread.
remote.log.manager.copy.max.bytes.per.second  Bytes per second copied to remote storage.
remote.log.manager.copy.quota.window.num  Samples that the rate of copies to remote storage is computed
    from.
remote.log.manager.copy.quota.window.size.seconds  Length of one sample of the rate of copies to remote
    storage.
remote.log.manager.fetch.max.bytes.per.second  Bytes per second read from remote storage.
remote.log.manager.fetch.quota.window.num  Samples that the rate of reads from remote storage is computed
    from.
remote.log.manager.fetch.quota.window.size.seconds  Length of one sample of the rate of reads from remote
    storage.
remote.fetch.max.wait.ms  Time that a fetch waits for remote storage.
remote.list.offsets.request.timeout.ms  Time that ListOffsets waits for remote storage.
"""
