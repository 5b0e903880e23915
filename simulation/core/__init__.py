"""Quorums of pure Raft cores on virtual time, with a simulated network and logs in memory.

world        the quorum: time, network, and all replicas
replica      one replica: the real core, and a driver that performs its effects
environment  what a replica uses of its quorum
memory_disk  log, snapshots and quorum state of a replica, and which of that is durable

`world` is the entry point. The explorer uses `replica` without a `world`.
"""
