"""Copies partitions from the brokers that lead them.

    replica_fetcher_manager  starts and stops fetchers
    replica_fetcher          copies partitions from one leader
    fetch_session_handler    the fetch sessions of a fetcher (KIP-227)
    fetch_positions          the positions that a Fetch must contain

`replica_manager` and `quorate.broker.server` import `replica_fetcher_manager`.
"""
