"""The requests and responses of Apache Kafka 4.1, one module for each API, named after it.

Two modules hold what is not an API: consumer_protocol (subscriptions and assignments of the classic group protocol,
inside JoinGroup and SyncGroup) and principal_data (the principal inside an Envelope).

No node serves these APIs yet. Their messages are declared so that captures and other servers' answers can be decoded
and so that the codec is compared with Kafka's as a whole:

- transactions (KIP-98): add_offsets_to_txn, add_partitions_to_txn, describe_transactions, end_txn, list_transactions,
  write_txn_markers
- consumer groups of the new protocol (KIP-848): consumer_group_describe, consumer_group_heartbeat
- share groups (KIP-932): alter_share_group_offsets, delete_share_group_offsets, delete_share_group_state,
  describe_share_group_offsets, initialize_share_group_state, read_share_group_state, read_share_group_state_summary,
  share_acknowledge, share_fetch, share_group_describe, share_group_heartbeat, write_share_group_state
- streams groups (KIP-1071): streams_group_describe, streams_group_heartbeat
- client telemetry (KIP-714): get_telemetry_subscriptions, push_telemetry

A test compares this list with what the listeners of a node advertise.
"""
