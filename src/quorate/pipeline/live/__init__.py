"""Reads metadata as it comes: from a running quorum, as an observer, or from directories that nodes write.

    offsets     the position of a stream
    quorum      a blocking client of the active controller
    ranges      a range of a quorum's log as Arrow record batches
    tail        follows the committed log of a quorum
    directory   follows the committed log in directories
    stream      the stream reader of the data source

`quorate.pipeline.datasource.source` imports `tail` and `stream`, and in the tasks `ranges`.
"""
