"""Runs a node as a process: reads its configuration, wires its roles together, handles signals and
serves HTTP.

- main: runs one node until a signal or a fault ends it
- server: KafkaServer, which starts and stops the parts of a node in order
- log_directories: locks the log directories and checks which are usable
- format_remedy: the advice for a directory that is not formatted
- raft_config: the settings of the Raft replica, from the configuration of the node
- connection_limits: the limits on connections, as the configuration has them now
- unsupported_configs: refuses settings that this implementation does not support
- process_setup: limit of open files, standard streams, garbage collector
- logging_config: level and layout of the log output
- properties: a node's configuration from a properties file and the command line
- monitoring/: the metrics and the health of a node
- http/: /metrics, /health, /live and /ready
- storage/: formats log directories
- local/: a cluster in one folder of this machine, for `quorate up`

Only `quorate.tools`, `quorate.testing` and tests import this package.
"""
