"""Ids, names and addresses of simulated nodes, the same at every level of the simulation."""

from __future__ import annotations

from quorate.raft.core.voters import Voter
from quorate.raft.types import Address, OffsetEpoch, ReplicaKey

CLUSTER_ID = "world"
LISTENER = "CONTROLLER"
BASE_PORT = 9000
# A formatted directory of kraft.version 1 has its voters in it (KIP-853).
BOOTSTRAP_SNAPSHOT = OffsetEpoch(0, 0)


def directory_id(node_id: int, number: int = 0) -> bytes:
    """Returns the id of the n-th metadata directory of a node, counted from zero."""
    return bytes([node_id, number] * 8)


def address(node_id: int) -> Address:
    """Returns the address of a node's controller listener.

    Observers have one too, although no process connects to it.
    """
    return (f"n{node_id}", BASE_PORT + node_id)


def voter(node_id: int, number: int = 0) -> Voter:
    """Returns the voter entry of a node with its n-th metadata directory."""
    return Voter(ReplicaKey(node_id, directory_id(node_id, number)), {LISTENER: address(node_id)}, (0, 1))
