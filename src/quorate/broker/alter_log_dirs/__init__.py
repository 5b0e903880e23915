"""Moves of replicas between the log directories of a broker (KIP-113, KIP-858).

- `manager`: `ReplicaAlterLogDirsManager`, which starts, resumes and ends moves
- `move`: `LogDirMove`, one move: copies the log, throttled, reports the new directory, and replaces the log

The broker's server creates the manager. The handlers of AlterReplicaLogDirs and DescribeLogDirs use it.
"""
