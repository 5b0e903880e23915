"""The controller: pure handlers, soft state, and the driver that joins them to Raft.

A handler is a function of (view, request, context) to a `Result`: the records to write, and the response
to release when they are committed. State changes only where records are replayed
(`quorate.metadata.image`). Only `driver`, `controller_registrar`, `standby_preload` and `brokers.probes`
use asyncio tasks and timers.

  context               the input and the result of a handler
  handlers/             one module for each API
  replication/          partition changes and placement of replicas
  brokers/              sessions, connections and failures of brokers
  requests/             requests from the listener to the handler
  changes/              what becomes of the records of a handler: batches, author, audit, response
  state                 the images, the term, and the way to write records
  driver                `QuorumController`, the listener of Raft
  periodic_tasks        tasks that the active controller runs on a schedule
  activation_records    the first records of a new active controller
  controller_registrar  registers this controller (KIP-919)
  standby_preload       prepares a standby for its activation
  config                the controller's part of a node's configuration
  config_schema         the effective configuration of a topic
  metrics               the metrics of kafka.controller
  topic_names           rules for the names of topics and nodes

Other packages import `config.ControllerConfig`, `driver.QuorumController` and `metrics`.
"""
