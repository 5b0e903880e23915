"""The metadata log's Raft quorum (KIP-595, KIP-630, KIP-853, KIP-996).

- `core`: the rules, as a pure state machine.
- `storage`: log, snapshots and quorum state on disk.
- `runtime`: the core in an event loop, with network, timers and listeners.
- `types`: values that all parts share.
- `config`: the configuration of a replica.

Other packages may import `types`, `config`, `runtime.client`, `runtime.delivery`, `runtime.metrics`,
`runtime.interfaces`, `core.voters`, and what they read of `storage`. `storage` imports the values of `core`,
and `runtime` imports both.
"""
