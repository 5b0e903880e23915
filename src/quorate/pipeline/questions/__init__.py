"""Questions to the tables of a lake. Each module has one question, or a few that belong together: functions
that return a DataFrame, and constants that describe its columns.

    moments       the offset or the period that a question is asked for
    spans         units of time, and states that are joined to longer ones
    state         the entities at an offset or time
    diff          what differs between two of them
    history       the states that entities had one after the other, and who changed them
    changes       who changed what
    leaders       elections, and the leaderships that brokers and racks gained and lost
    replication   time without all replicas, below min.insync.replicas, offline; changes of the ISR
    availability  when brokers were active, fenced or shutting down, and their restarts
    recovery      how long the cluster needed to recover after each failure of a broker
    growth        the numbers of topics, partitions and replicas
    balance       the replicas and leaders of brokers and racks
    quorum        failovers of the active controller, and the history of the voters
    unchanged     topics that nobody changed
"""
