"""Runs a node as a process: reads its configuration, wires its roles together, handles signals and
serves HTTP.

- main: runs one node until a signal or a fault ends it
- server: KafkaServer, which starts and stops the parts of a node in order
- unsupported: refuses settings that this implementation does not support
- process: limit of open files, standard streams, garbage collector
- logging_config: level and layout of the log output
- properties: a node's configuration from a properties file and the command line
- metrics: collects the metrics of a node's parts for Prometheus
- loop_lag: measures the lag of the event loop
- http_server: /metrics and /health; imported only where quorate.http.listen is set
- formatter: formats log directories
- dynamic_voters: parses the initial voters of a quorum
- scram_parser: parses the credentials that are given to kafka-storage format
- local_cluster: a cluster in one folder of this machine, for `quorate up`
- stored_voters: reads the voters from the files of stopped nodes

Only tools may import this package, and tests.
"""
