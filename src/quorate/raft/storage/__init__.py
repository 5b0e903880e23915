"""What a Raft replica keeps on disk: the metadata log, snapshots, the quorum state, and their recovery
at start."""
