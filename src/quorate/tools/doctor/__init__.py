"""`quorate doctor`: checks a properties file or log directories offline.

    findings         what a check returns
    properties       checks the text of a properties file
    rules            the checks of valid settings that probably do not do what the operator wants
    kafka_refusals   what Apache Kafka says about the properties when it does not start
    directories      checks the log directories of a node: identity, checkpoints, partitions, leftovers
    metadata_log     checks the metadata log: quorum-state, segments, snapshots
    partitions       checks the directories of partitions, also against the metadata
    disks            checks file systems, free space, owners and permissions
    fixes            what `--fix` does, and its backup
    report           the findings as text and as JSON
    command          the command
    options          its options

Each check takes paths or texts and returns findings. Only `fixes` writes.
"""
