"""The log of one partition: Apache Kafka's on disk, synchronous, without descriptors, timers or tasks.

- `partition_log`: `PartitionLog`, which joins all parts below
- `append_validation`: checks of batches before an append
- `epoch_cache`: the leader epochs and their start offsets
- `flusher`: fsync, the recovery point and the checkpoint of leader epochs
- `listing`: the files in the directory, and interrupted compactions and deletions
- `loader`: loading a directory, and its recovery after an unclean stop
- `local_log`: the segments in the partition's directory
- `partition_metadata`: `partition.metadata`, which holds the topic id
- `producer_state`: idempotent and transactional producers
- `producer_snapshots`: the snapshot files of the producer state
- `producer_state_manager`: the producer state rebuilt from snapshots and batches
- `removal`: the files of deleted segments
- `results`: the results of appends and reads
- `retention`: the segments that retention deletes
- `timestamp_search`: records found by timestamp

All of them keep these rules:

1. An append returns after its bytes are in the page cache, written by one call. Offsets and producer
   state change only then.
2. The end of a segment is a number in memory. The bytes of a failed write lie after it and are
   overwritten or truncated.
3. The recovery point moves only after fsync. All leader epochs below it are in
   `leader-epoch-checkpoint`; recovery finds later ones in the batches.
4. A new partition has no files. Its first append creates the directory, or a truncation to an offset
   above 0.

Other packages import `PartitionLog`, `AppendOrigin`, `results`, and the tools also
`producer_snapshots`.
"""
