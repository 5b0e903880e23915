"""`quorate plan`: plans reassignments of a running cluster and carries them out.

    options  the options of the command
    command  makes a plan, shows it and writes it
    collect  partitions, their bytes and brokers of a cluster, as the planner's input
    files    the folder of a plan
    execute  carries a plan out, wave by wave

The plans themselves are those of `quorate.planner`.
"""
