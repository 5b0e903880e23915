"""A cluster of a hundred nodes on one machine: start, topics, rolling restart, loss of a rack.

__main__   `python -m bench.hundred_nodes`: the options, and the record
steps      the steps in their order, and what each measures
client     what a client sees: brokers, leaders, ISRs, the quorum
processes  the nodes: start, end, memory, CPU time, pauses of the event loop
"""
