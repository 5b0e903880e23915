"""Requests that are answered on their way to a shard.

    offset_requests           OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit
    small_commit              the most common form of OffsetCommit
    small_heartbeat           the most common form of Heartbeat
    known_requests            what is known of requests by their bytes

`quorate.broker.coordinators.group.service` imports these modules.
"""
