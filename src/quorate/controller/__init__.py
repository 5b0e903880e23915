"""The controller: pure handlers by area, soft state, and the driver that joins them to Raft.

A handler is a function of (view, request, context) to a `Result`: the records to write and the response
that is released once they commit. Nothing here reads a clock, draws a random number or does I/O, except
`driver` and `tasks`. State changes only where records are replayed (`quorate.metadata.image`).
"""
