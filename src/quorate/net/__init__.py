"""Framing, listeners, dispatch and client connections: all between a socket and a decoded message.

- `client`: connections to peers, with negotiated versions and back-off
- `connection`: one accepted connection
- `connection_owner`: what a connection needs of its listener
- `dispatch`: requests and their handlers, ApiVersions
- `errors`: exceptions
- `framing`: length-prefixed frames in a stream
- `limits`: the limits of connections and listeners
- `output`: ordered writing of buffers and file regions
- `produce_frames`: what a Produce request has, before it is decoded
- `release`: freeing large messages
- `request_metrics`: the number of requests and how long they take
- `response_queue`: responses in the order of their requests
- `server`: listeners
- `sockets`: listening sockets
- `turns`: the time of the event loop, shared among connections

Other packages import `client`, `dispatch`, `errors`, `limits`, `request_metrics`, `server` and `sockets`.
This package imports `protocol` only. It starts no service by itself: a `Listener` carries requests to the handlers of
a `Dispatcher`, and a `Connection` carries requests to a peer.
"""
