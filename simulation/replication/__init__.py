"""Clusters of complete, unmodified brokers and a controller on virtual time, with simulated network and
disks.

cluster       the cluster: all processes, the loop over events, the final comparison of the logs
config        the configuration of one simulation
environment   what its processes share: time, chance, files, checker, trace
process       brokers through all their incarnations, and the controller
metadata_log  the metadata log as a quorum that never errs
network       connections in memory
files         disks, and the scheduler of slow disk work
clients       producers and consumers
operators     what operators do
nemesis       faults
observer      reports what logs and partitions do
checker       the invariants
log_model     the model of a log that they are about
runner        runs the simulations of many seeds, and replays one

`python -m simulation.replication` is the command; `cluster` and `runner` are the entry points.
"""
