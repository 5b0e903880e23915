"""Framing, listeners, dispatch and client connections: everything between a socket and a decoded message.

This room knows `protocol` only. It starts no service of its own: a `Listener` carries frames to the
handlers that a `Dispatcher` was given, a `Connection` carries requests to a peer.
"""
