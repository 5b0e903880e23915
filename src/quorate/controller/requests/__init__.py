"""Requests to the controller, from the listener to the handler.

  routes          the handler of each API that changes metadata
  writes          runs these handlers, writes their records and answers when the records are committed
  atomic_changes  atomic changes of many records, written in metadata transactions
  deferred        requests that arrive while this leader cannot write
  envelope        requests that brokers forward (KIP-590)
  reads           requests that every controller answers from committed metadata

Only the controller's driver and its warm-up import this package.
"""
