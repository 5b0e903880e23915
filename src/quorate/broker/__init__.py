"""The broker role of a node.

    server                creates, starts and closes the parts of a broker
    lifecycle             registration, heartbeats and controlled shutdown
    early_heartbeats      decides when a heartbeat does not wait for its turn
    controller_channel    sends requests to the active controller
    handlers/             one module for each API
    replication/          the partitions of this broker, as leader and follower
    metadata/             the metadata that this broker has published
    coordinators/         the coordinators, whose records are in internal topics
    alter_log_dirs/       moves of replicas between log directories
    log_assignment        whether the metadata assigns a log on disk to this broker
    log_maintenance       the periodic tasks on logs
    topic_creation        creates topics that clients and coordinators need
    topic_names           legal and internal names of topics
    authorized_operations what a client may do with a resource (KIP-430)
    metrics/              the metrics, under Kafka's names

`quorate.node` runs `server`, and reads `lifecycle` and `metrics`. Tools import `log_assignment` and
the records of coordinators.
"""
