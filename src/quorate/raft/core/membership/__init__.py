"""Changes of the voter set (KIP-853).

- `voter_changes`: AddRaftVoter and RemoveRaftVoter on the leader.
- `update_voter`: UpdateRaftVoter on the leader.
- `kraft_version`: the upgrade of kraft.version on the leader.
- `auto_join`: what a replica requests for itself: UpdateRaftVoter, and with
  `controller.quorum.auto.join.enable` its place in the voter set.

Other packages may import `voter_changes`.
"""
