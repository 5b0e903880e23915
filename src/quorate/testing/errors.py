"""What a test cluster raises."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster, or one of its nodes, cannot do what was asked for; the message says why and shows
    the node's log."""
