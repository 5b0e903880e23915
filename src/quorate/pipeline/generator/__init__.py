"""Writes the metadata log of a large cluster's years, from a seed: real segments, indexes and snapshots.

    cluster  a simulated cluster: what its controller writes for each change
    years    what happens in the years, and how often
    cycles   repeats the log's beginning, for logs of more records than can be simulated
    files    the files of the log

The records are replayed onto the controller's image as they are written, so each of them is valid there.
"""
