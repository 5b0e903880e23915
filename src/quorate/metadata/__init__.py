"""The metadata of a cluster: its records, their image at an offset, features, snapshots and the files
of a formatted directory.

Knows `protocol` and `records`; does no I/O outside of `snapshot.write_snapshot` and `bootstrap`'s files.
KIP-500, KIP-631, KIP-746.
"""
