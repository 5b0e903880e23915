"""One accepted connection: its requests are read, and their responses written in order.

It guarantees:

1. The handler of a request starts after the request has arrived completely and all earlier requests
   of the connection have been answered. Requests that `Dispatcher.may_overlap` allows start
   earlier: after the handlers of all earlier requests have started.
2. Responses are written in the order of their requests, in whatever order the handlers finish.
3. Reading stops while too many requests are in flight, while too many bytes of responses wait for
   an earlier one, or while the peer does not read its responses.
4. In one turn of the event loop, the handlers of one connection run for a few milliseconds (see
   `quorate.net.turns`).
5. A malformed request closes its connection and no other. It gets no response, but responses to
   earlier requests are still written.
6. A peer that has closed its sending direction gets the pending responses, then the connection is
   closed, as in Apache Kafka. With TLS, unwritten responses are lost: asyncio closes both
   directions together.

- `connection`: the connection, which keeps these guarantees: reading, and the start of handlers
- `connection_owner`: what a connection needs of its listener
- `output`: ordered writing of buffers and file regions
- `produce_frames`: what a Produce request has, before it is decoded
- `release`: freeing large messages
- `response_queue`: responses in the order of their requests
- `response_writer`: the half of a connection that writes them

`quorate.net.server` imports `connection` and `release`. Handlers import `response_queue`.
"""
