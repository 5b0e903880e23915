"""The error of a test cluster."""

from __future__ import annotations


class ClusterError(Exception):
    """An operation on the cluster or on a node failed. The message has the reason and the end of the node's
    log.
    """
