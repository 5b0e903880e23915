"""Quorums of pure Raft cores on virtual time, with a simulated network and logs in memory.

world             the quorum: time, network, and all replicas
replica           one replica: the real core, and a driver that performs its effects
environment       what a replica uses of its quorum
memory_disk       log, snapshots and quorum state of a replica, and which of that is durable
leader_contact    whether a replica is in contact with its leader
interrupted_step  the effects of a step that a crash interrupts
wakeup_limit      detects a core that asks to be woken again and again at the same time

`world` is the entry point. The explorer uses `replica` without a `world`.
"""
