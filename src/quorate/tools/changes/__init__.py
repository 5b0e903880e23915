"""quorate metadata log: who changed what.

    options       the options of the command
    metadata_log  the command: reads the log of a directory, a file or a running quorum
    history       the changes of a log that the options ask for
    shown         changes as text and as JSON

`quorate.tools.quorate` imports `options`. No other package imports this one.
"""
