"""kafka-reassign-partitions.

    reassign_partitions  the tool: options and actions
    plan                 the JSON files of reassignments and of topics to move
    progress             the states of reassignments and moves, as text
    throttles            the configurations that limit the rate of reassignments and moves

No other package imports this one.
"""
