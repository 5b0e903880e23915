"""Replication of a broker's partitions: leaders, followers, ISR changes, purgatory, fetch sessions."""
