"""Formats the log directories of a node, as Kafka's package org.apache.kafka.metadata.storage does.

    formatter       formats log directories
    dynamic_voters  parses the initial voters of a quorum
    old_metadata    finds the files of a node that ran
    scram_parser    parses the credentials that are given to `kafka-storage format`

`quorate.tools` and `quorate.node.local.cluster` import these modules.
"""
