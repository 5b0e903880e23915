"""`quorate plan`: plans reassignments, and carries them out on a running cluster.

    options    the options of the command
    command    makes a plan, shows it and writes it
    collect    partitions, their bytes and brokers of a running cluster, as the planner's input
    from_lake  the same from the tables of a lake
    log_dirs   the log directories of brokers: the bytes of replicas, and room for more
    files      the folder of a plan
    execute    carries a plan out, wave by wave

The plans themselves are those of `quorate.planner`. `quorate.tools.operations` uses `log_dirs`.
"""
