"""kafka-metadata-shell.

    metadata_shell  the tool: options, one command or the interactive shell
    source          reads the metadata from a snapshot, a segment or a metadata log directory
    follower        the metadata of a running quorum, kept up to date
    nodes           the tree of directories and files that shows an image
    texts           registrations and other objects as text
    paths           paths with wildcards
    commands        ls, cat, cd and the other commands
    columns         names in columns
    interactive     reads lines, with completion and history

`quorate.tools.changes` and `quorate.tools.operations` import `source`.
"""
