"""Framing, listeners, dispatch and client connections: all between a socket and a decoded message.

- `accept_throttle`: the rate at which a listener takes new connections (KIP-612)
- `client`: connections to peers, with negotiated versions and back-off
- `connections/`: one accepted connection
- `dispatch`: requests and their handlers, ApiVersions
- `errors`: exceptions
- `framing`: length-prefixed frames in a stream
- `ip_throttle`: the rate at which one IP address opens connections (KIP-612)
- `limits`: the limits of connections and listeners
- `name_lookup`: connections to a host by its name
- `request_metrics`: the number of requests and how long they take
- `sampled_rate`: rates over the last seconds, as Kafka's quotas measure them
- `server`: listeners
- `sockets`: listening sockets
- `turns`: the time of the event loop, shared among connections

Other packages import all modules except `framing`, and of `connections` only `response_queue`.
This package imports `protocol` only. It starts no service by itself: a `Listener` carries requests to the
handlers of a `Dispatcher`, and a `Connection` carries requests to a peer.
"""
