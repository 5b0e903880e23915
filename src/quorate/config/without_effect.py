"""The keys of Apache Kafka that are accepted without an effect, each with the reason. A node warns at its
start about those that are set to another value than their default.

`tests/config/test_without_effect.py` compares this table with the keys that the code reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quorate.config.listeners import OF_LISTENERS, base_key, listener_key

_GROUPS = (
    (
        "remote storage is not available",
        """
        follower.fetch.last.tiered.offset.enable log.local.retention.bytes log.local.retention.ms
        log.remote.copy.lag.bytes log.remote.copy.lag.ms remote.fetch.max.wait.ms
        remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
        remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size
        remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
        remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
        remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
        remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size
        remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
        remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
        remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
        remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
        remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
        remote.log.reader.max.pending.tasks remote.log.reader.threads
        remote.log.storage.manager.class.name remote.log.storage.manager.class.path
        remote.log.storage.manager.impl.prefix
        """,
    ),
    (
        "logs are not compacted yet",
        """
        log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
        log.cleaner.enable log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
        log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms
        log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.threads
        """,
    ),
    (
        "transactions are not served yet",
        """
        add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
        transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
        transaction.partition.verification.enable
        transaction.remove.expired.transaction.cleanup.interval.ms transaction.two.phase.commit.enable
        transactional.id.expiration.ms
        """,
    ),
    (
        "the consumer group protocol of KIP-848 is not served yet",
        """
        group.consumer.assignment.interval.ms group.consumer.assignor.offload.enable
        group.consumer.assignors group.consumer.heartbeat.interval.ms
        group.consumer.max.assignment.interval.ms group.consumer.max.heartbeat.interval.ms
        group.consumer.max.session.timeout.ms group.consumer.max.size group.consumer.migration.policy
        group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
        group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms
        group.consumer.session.timeout.ms group.coordinator.rebalance.protocols
        """,
    ),
    (
        "share groups are not served yet",
        """
        errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix
        group.share.assignment.interval.ms group.share.assignor.offload.enable group.share.assignors
        group.share.delivery.count.limit group.share.dlq.manager.class.name
        group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms
        group.share.max.assignment.interval.ms group.share.max.delivery.count.limit
        group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
        group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms
        group.share.max.share.sessions group.share.max.size group.share.min.assignment.interval.ms
        group.share.min.delivery.count.limit group.share.min.heartbeat.interval.ms
        group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms
        group.share.min.session.timeout.ms group.share.partition.max.record.locks
        group.share.persister.class.name group.share.record.lock.duration.ms
        group.share.session.timeout.ms share.coordinator.append.linger.ms
        share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms
        share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
        share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
        share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
        share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
        share.coordinator.threads share.coordinator.write.timeout.ms
        share.fetch.purgatory.purge.interval.requests
        """,
    ),
    (
        "streams groups are not served yet",
        """
        group.streams.acceptable.recovery.lag group.streams.assignment.interval.ms
        group.streams.assignor.offload.enable group.streams.heartbeat.interval.ms
        group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
        group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms
        group.streams.max.size group.streams.min.assignment.interval.ms
        group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
        group.streams.num.standby.replicas group.streams.num.warmup.replicas
        group.streams.rack.aware.assignment.tags group.streams.session.timeout.ms
        group.streams.task.offset.interval.ms group.streams.topology.description.plugin.class
        """,
    ),
    (
        "TLS and SASL are not available yet",
        """
        connection.failed.authentication.delay.ms connections.max.reauth.ms principal.builder.class
        sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.jaas.config
        sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
        sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
        sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
        sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
        sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
        sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
        sasl.mechanism.inter.broker.protocol sasl.oauthbearer.allow.unverified.audience
        sasl.oauthbearer.allow.unverified.issuer sasl.oauthbearer.assertion.algorithm
        sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
        sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
        sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
        sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
        sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
        sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
        sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class
        sasl.server.max.receive.size security.providers ssl.allow.dn.changes ssl.allow.san.changes
        ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
        ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain
        ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
        ssl.principal.mapping.rules ssl.protocol ssl.provider ssl.secure.random.implementation
        ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
        ssl.truststore.password ssl.truststore.type
        """,
    ),
    (
        "quotas of users and client ids are not enforced yet, and the rates of addresses have fixed windows",
        """
        client.quota.callback.class controller.quota.window.num controller.quota.window.size.seconds
        quota.window.num quota.window.size.seconds
        """,
    ),
    (
        "a node cannot load Java classes",
        """
        alter.config.policy.class.name create.topic.policy.class.name
        """,
    ),
    (
        "metrics are served over HTTP (quorate.http.listen)",
        """
        kafka.metrics.polling.interval.secs kafka.metrics.reporters metric.reporters metrics.num.samples
        metrics.recording.level metrics.sample.window.ms
        """,
    ),
    (
        "values are not looked up by config providers",
        """
        config.providers
        """,
    ),
    (
        "client telemetry is not collected",
        """
        telemetry.max.bytes
        """,
    ),
    (
        "a node has one event loop, whose queues are bounded by size",
        """
        background.threads group.coordinator.background.threads group.coordinator.threads num.io.threads
        num.network.threads queued.max.request.bytes queued.max.requests
        """,
    ),
    (
        "a broker has one fetcher for each leader",
        """
        num.replica.fetchers
        """,
    ),
    (
        "requests that wait leave no garbage to be purged",
        """
        delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests
        producer.purgatory.purge.interval.requests
        """,
    ),
    (
        "coordinators write at the end of a turn of the event loop and read their logs in pieces of a "
        "fixed size",
        """
        group.coordinator.append.linger.ms group.coordinator.cached.buffer.max.bytes
        offsets.load.buffer.size transaction.state.log.load.buffer.size
        """,
    ),
    (
        "the operating system chooses the buffers of sockets",
        """
        replica.socket.receive.buffer.bytes socket.receive.buffer.bytes socket.send.buffer.bytes
        """,
    ),
    (
        "the length of the accept queue is fixed",
        """
        socket.listen.backlog.size
        """,
    ),
    (
        "the time limits of connections to other nodes are fixed",
        """
        controller.socket.timeout.ms socket.connection.setup.timeout.max.ms
        socket.connection.setup.timeout.ms
        """,
    ),
    (
        "listeners are opened in a fixed order",
        """
        early.start.listeners
        """,
    ),
    (
        "the start has no time limit",
        """
        server.max.startup.time.ms
        """,
    ),
    (
        "there are no unstable versions of requests",
        """
        unstable.api.versions.enable
        """,
    ),
    (
        "the lag of the event loop is logged and measured instead",
        """
        controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
        """,
    ),
    (
        "the size of metadata batches is fixed",
        """
        internal.metadata.max.batch.size.in.bytes
        """,
    ),
    (
        "segments are not allocated in advance",
        """
        log.preallocate
        """,
    ),
    (
        "the maintenance of logs begins with the broker",
        """
        log.initial.task.delay.ms
        """,
    ),
)

WITHOUT_EFFECT: Mapping[str, str] = {key: reason for reason, keys in _GROUPS for key in keys.split()}
"""Key -> why it has no effect. Some are dynamic configurations only."""


_NOT_OF_ONE_LISTENER = "a listener has no value of its own for this key"


def no_effect_of(name: str) -> str | None:
    """The reason why a key, of one listener too, has no effect, or None."""
    of_listener = listener_key(name)
    if of_listener is None:
        return WITHOUT_EFFECT.get(name)
    if of_listener.key in OF_LISTENERS:
        return None
    return WITHOUT_EFFECT.get(base_key(of_listener.key), _NOT_OF_ONE_LISTENER)


def warnings_for(keys: Iterable[str]) -> list[str]:
    """One warning for each reason why some of these keys have no effect."""
    by_reason: dict[str, list[str]] = {}
    for key in keys:
        if (reason := no_effect_of(key)) is not None:
            by_reason.setdefault(reason, []).append(key)
    return [
        f"{', '.join(sorted(found))} {'has' if len(found) == 1 else 'have'} no effect: {reason}"
        for reason, found in by_reason.items()
    ]
