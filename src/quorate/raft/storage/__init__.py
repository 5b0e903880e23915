"""The files of a replica.

- `metadata_log`: log and snapshots of the metadata partition.
- `log_batches`: decodes batches of the log.
- `lazy_batch_values`: the values of a large batch, decoded on access.
- `snapshots`: snapshot files and downloads.
- `quorum_state`, `quorum_state_data`, `quorum_state_writer`: epoch, leader and vote.
- `membership_record`: whether this replica is or was a voter.
- `voter_marker`: marks the directory of a voter, so that a lost log is noticed.
- `recovery`: opens all of them when a replica starts.
- `recovery_advice`: what to do if they are damaged.
- `fsync`: fsync in the loop, or in a thread if the disk is slow.
"""
