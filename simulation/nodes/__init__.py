"""Clusters of complete, unmodified Raft clients on virtual time, with simulated network and disks.

cluster        the cluster: all processes, and the loop over events
environment    what its processes share: time, chance, filesystem, checker, trace
process        a node on one metadata directory, through all its incarnations
incarnation    a process from its start to its end: its clock, its transport, its fsyncs
observer       follows a process from outside and reports to the invariant checker
state_machine  a state machine that records which records it was given
network        carries requests and responses as bytes
loop           the asyncio event loop on virtual time
disk           disks in memory, with the durability of real ones
filesystem     the functions of `os` on these disks

`cluster` is the entry point. `disk` and `loop` can be used without it.
"""
