"""kafka-dump-log.

    dump_log            the options, and the dump of segments and snapshots
    indexes             the dump of indexes, producer snapshots and transaction indexes
    record_parsers      the parsers of keys and values, by the kind of the topic
    legacy_records      metadata records of old releases, which nodes no longer read
    remote_log_records  records of `__remote_log_metadata` (KIP-405)

Nothing else imports this package.
"""
