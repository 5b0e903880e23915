"""Plans reassignments of partitions: for balance, to drain brokers, to add brokers, to change
replication factors.

    cluster     the input: brokers and partitions in arrays
    sizes       the bytes of replicas
    request     what a plan is for, and its limits
    plan        `make_plan`, and the result
    goals       the goals in their order: bands of load for each broker, the rule of racks
    state       the assignment that is worked on, and its loads
    placement   brokers for replicas that need one
    balance     moves until loads are in their bands
    leadership  preferred leaders
    search      pairs of steps, for small clusters
    waves       parts of a plan that are carried out one after the other
    reasons     why a goal is missed
    report      the plan explained: before and after, goals, reasons

Pure, without dependencies on other packages. `quorate plan` and `quorate.pipeline.planning` use
`cluster`, `sizes`, `request`, `plan` and `report`; `quorate decommission` uses them too.
"""
