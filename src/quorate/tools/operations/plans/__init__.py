"""The operations: what each one does to a cluster, as steps that depend on its description.

    moves              other brokers for the replicas of a broker
    decommission       takes a broker out of the cluster
    rolling_restart    restarts all nodes, one after the other
    replace_disk       replaces a disk of a broker or controller
    upgrade            finalizes the features of a release
    dynamic_quorum     moves from static voters to kraft.version 1 (KIP-853)

A module may import those above it in this list.
"""
