"""Replication of the partitions that a broker hosts.

    replica_manager       hosts partitions, follows the metadata, appends for coordinators
    replica_directories   in which log directories the replicas are
    partition             one replica: role, ISR, high watermark
    replica_state         a leader's followers, and its ISR change in flight
    purgatory             requests that wait for a partition
    log_reader            reads partitions for Fetch
    replica_selector      sends a consumer to the replica in its rack (KIP-392)
    fetch_session         fetch sessions of the broker (KIP-227)
    quiet_partitions      the partitions of a session that need not be read
    fetcher/              copies partitions from their leaders
    replication_quota     limits the rate of throttled replicas (KIP-73)
    partition_reports     sends reports about partitions to the controller until it has settled them
    alter_partition       reports ISR changes
    directory_assignments reports log directories to the controller

The other packages of the broker import `replica_manager`, `partition`, `purgatory`, `log_reader` and
`fetch_session`; `quorate.broker.server` joins all of them.
"""
