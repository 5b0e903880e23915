"""The Raft core: a pure state machine without I/O, clock or tasks. Events go in, effects come out.

From the bottom up:

- `voters`: voter sets and their history.
- `messages`: the requests and replies of Raft.
- `events`: what the core reacts to.
- `effects`: what the driver must do after a step, and in which order.
- `role_state`: the state of each role.
- `state`: the whole state of a replica, its queries, and the operations on effects.
- `control_records`: control records as values, and their application.
- `leader_conflict`: which of two leaders of one epoch to believe.
- `leader_checks`: what a leader checks before it serves a request.
- `transitions`: the transitions between roles, and the begin and end of leadership.
- `replies`: what the rules for all responses share.
- `election`: Vote, BeginQuorumEpoch and EndQuorumEpoch.
- `membership`: changes of the voter set.
- `follower`: Fetch, truncation and snapshot downloads.
- `leader`: the answers to Fetch, the high watermark and the leader's timers.
- `raft`: the entrance, which dispatches events to the rules. It also handles that records were appended
  or are durable.

A module imports only those above it in this list. The packages `storage` and `runtime` import the core;
other packages may import `voters`.
"""
