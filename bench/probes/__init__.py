"""Probes that measure Apache Kafka and Quorate with the same clients, from the same properties files.

    python -m bench.probes quorate coldstart topics     one JSON line for each probe
    python -m bench.compare coldstart topics            both implementations in turn, with the ratios

An absolute time says little on a shared machine, so compare the ratio of interleaved runs.

cluster         starts nodes of either implementation from properties files
one_node        coldstart, topics, partitions
quorum          quorum_topics, failover, failover_term, fencing
throughput      produce, replicated, perf_tools, perf_tools_rf3, end_to_end
requests        requests: many connections with one small request each
wire            requests over plain sockets, encoded by kio, which belongs to neither implementation
"""
