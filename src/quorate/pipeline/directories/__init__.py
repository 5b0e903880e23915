"""Finds, merges and reads metadata logs in directories, local ones and those of Hadoop's file systems.

    files      lists and reads files, wherever they are
    hadoop     calls Hadoop's file systems
    temporary  names temporary files, and deletes those of processes that were killed
    layout     lists the files of a metadata log directory and divides them into slices
    copies     finds the nodes' copies of a metadata log and merges them
    committed  finds out up to where copies are known to be committed

The data source, `live` and `quorate.tools` import these modules.
"""
