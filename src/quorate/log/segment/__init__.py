"""One segment of a log: a file of batches and its indexes.

- `segment`: appending, reading and truncating a segment
- `header_scan`: the batch headers of its file, with or without waiting for the disk
- `indexes`: `.index` (offset to position) and `.timeindex` (timestamp to offset)
- `index_rebuild`: rebuilds both outside of the event loop
- `transaction_index`: `.txnindex`, the aborted transactions
- `recovery`: recovery after an unclean stop; damage and torn tails

`quorate.log.partition` imports them; `quorate doctor` imports `recovery` too.
"""
