"""Operations that need a runbook elsewhere, each as one command of `quorate`.

    options            the options of the commands
    commands           from the options to an operation
    description        the description of a cluster, from which operations are planned
    plan               steps, and the reasons why an operation is refused
    safety             what stopping a node would make unavailable, or lose
    observer           reads the description from a running cluster
    registrations      when processes registered before the last snapshot
    runner             shows the plan, asks, performs one step after the other
    node_command       the user's own command that stops or starts a node
    plans/             the operations: decommission, rolling restart, ...

A plan is a function of the cluster's description. The runner performs the first step of it, observes the
cluster, and plans again. So the cluster itself holds the state of an operation: after an interruption at any
point, the same command continues.

No other package imports this one, except for its options.
"""
