"""Snapshots of the metadata log on disk (KIP-630).

- `files`: names, header, footer and content of a snapshot file.
- `writer`: writes a snapshot of the state machine.
- `download`: fetches a snapshot from the leader.
- `partial`: the file of an incomplete download.
- `verification`: checks the bytes of a snapshot.
"""
