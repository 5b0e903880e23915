"""The log directories of a node and the logs in them.

- `manager`: `LogManager`, all logs of a broker
- `listing`: lists the logs in a directory, by the names of their directories
- `opening`: opens the logs of a directory in several threads
- `periodic_jobs`: retention, the expiration of producers, flushes
- `future_logs`: future logs, the copies of logs that move to another directory
- `deletion`: deleted logs, whose directories are renamed and removed later
- `strays`: logs that the metadata does not assign to this broker
- `offset_checkpoints`: the periodic checkpoints of recovery points, log starts and high watermarks
- `clean_shutdown`: `.kafka_cleanshutdown`, the marker of a clean stop
- `lock`: `.lock`, which keeps other processes out
- `meta_properties`: `meta.properties`, the identity of a directory
- `metrics`: which directories are offline or cordoned

Other packages import all of them except `listing`, `opening`, `future_logs`, `deletion`, `strays` and
`offset_checkpoints`.
"""
