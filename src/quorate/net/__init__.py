"""Framing, listeners, dispatch and client connections: all between a socket and a decoded message.

- `client`: connections to peers, with negotiated versions and back-off
- `connections/`: one accepted connection
- `dispatch`: requests and their handlers, ApiVersions
- `errors`: exceptions
- `framing`: length-prefixed frames in a stream
- `limits`: the limits of connections and listeners
- `request_metrics`: the number of requests and how long they take
- `server`: listeners
- `sockets`: listening sockets
- `turns`: the time of the event loop, shared among connections

Other packages import `client`, `connections.response_queue`, `dispatch`, `errors`, `limits`,
`request_metrics`, `server`, `sockets` and `turns`.
This package imports `protocol` only. It starts no service by itself: a `Listener` carries requests to the handlers of
a `Dispatcher`, and a `Connection` carries requests to a peer.
"""
