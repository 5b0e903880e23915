"""Partitions on disk, in Apache Kafka's formats.

- `partition/`: the log of one partition
- `segment/`: one segment of a log with its indexes
- `directories/`: the log directories of a node, and the manager of all logs in them
- `checkpoints`: checkpoint files of offsets and leader epochs
- `config`: the configuration of a topic's logs
- `errors`: exceptions, and the translation of OSError
- `files`: the cache of open files, atomic writes
- `properties_text`: the format of `java.util.Properties`
- `scheduler`: slow disk work in a background thread

Other packages import `partition.partition_log.PartitionLog` with its results and `AppendOrigin`,
`directories`, and the modules of this package. Only tests and tools import the parts of a log and its
segments.
"""
