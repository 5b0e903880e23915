"""Tools that describe and change topics and their partitions.

    topics           kafka-topics
    get_offsets      kafka-get-offsets
    delete_records   kafka-delete-records
    leader_election  kafka-leader-election

Nothing else imports this package.
"""
