"""Runs the Raft core in an event loop.

- `client`: a replica as the rest of the process sees it.
- `driver`: performs the core's effects.
- `delivery`: delivers committed batches to the listeners.
- `proposals`: records proposed and not yet written.
- `responses`: answers requests of other nodes.
- `hang_ups`: ends requests whose clients hang up.
- `request_sender`: sends requests to other nodes.
- `transport`: connections to other nodes.
- `wire`: Kafka's messages and the core's.
- `interfaces`: the interface to the network.
- `peer_monitor`: keeps voters connected, and warns if they are not.
- `reachability`: which addresses do not answer, and why.
- `timers`: alarms and waiting.
- `metrics`: what a replica measures.

Other packages may import `client`, `delivery`, `metrics` and `interfaces`.
"""
