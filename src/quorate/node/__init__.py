"""Runs a node as a process: reads its configuration, wires its roles together, handles signals and
serves HTTP.

- main: runs one node until a signal or a fault ends it
- server: KafkaServer, which starts and stops the parts of a node in order
- log_directories: locks the log directories and checks which are usable
- raft_config: the settings of the Raft replica, from the configuration of the node
- unsupported_configs: refuses settings that this implementation does not support
- process_setup: limit of open files, standard streams, garbage collector
- logging_config: level and layout of the log output
- properties: a node's configuration from a properties file and the command line
- metrics: collects the metrics of a node's parts and writes them for Prometheus
- metric_sources: joins the parts of a node to its metrics
- process_metrics: the metrics of the process
- health: the phase, progress and readiness of a node
- loop_lag: measures the lag of the event loop and its idle time
- http/: /metrics, /health, /live and /ready
- storage/: formats log directories
- local_cluster: a cluster in one folder of this machine, for `quorate up`
- local_processes: starts and stops the processes of such a cluster

Only `quorate.tools`, `quorate.testing` and tests import this package.
"""
