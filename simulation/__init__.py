"""Deterministic simulation of Raft quorums and of brokers, and exhaustive exploration of quorums, for the
tests. It is not part of the wheel.

config          the configuration of one simulation: topology, network, disks, workload, faults
identifiers     ids, names and addresses of simulated nodes
checker/        the invariants, and the model of a log that they are about
actions/        workload and nemesis, at every level of the simulation
core/           quorums of pure Raft cores on virtual time, with logs in memory
nodes/          clusters of complete Raft clients on virtual time, with simulated network and disks
replication/    clusters of complete brokers and a controller on virtual time
explorer/       all states that a small quorum can reach
transcripts/    scenarios of the core as text files with commands and their output
runner          runs the simulations of many seeds, and replays one
seeds           runs and replays seeds, in one process or in several, for every kind of simulation
run_statistics  what the simulations of a run have done, in numbers
run_report      keeps the statistics of long runs in a JSON file

`python -m simulation`, `python -m simulation.replication` and `python -m simulation.explorer` are the
commands. Only tests import this package: `config`, `runner`, `core.world`, `nodes.cluster`,
`replication.cluster`, `replication.runner`, `explorer.search` and `transcripts.session` are its entry
points.
"""
