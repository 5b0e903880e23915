"""Workload and faults, the same for pure cores and for whole nodes.

interfaces   what a simulated replica and a simulated quorum offer to the actions
recurring    actions that recur at random intervals
workload     appends, voter changes, snapshots, resignations, graceful restarts, upgrades
nemesis      crashes, power failures, cut links, partitions, failing disks, pauses
run          one complete simulation: workload under faults, then recovery without them

Other packages import `run`; tests also start and stop `workload` and `nemesis` themselves.
"""
