"""Record batches: their format, compression, validation and control records. KIP-98.

  batch         reads and builds complete batches; exports the names of the other format modules
  batch_header  the layout and the header of a batch
  record        the records of a batch
  control       control records of Raft and of transactions
  compression   codecs
  scan          checks records without creating an object for each of them
  validate      validates a produced batch and converts it to the topic's format
  record_runs   finds runs of records of equal size
  varint        variable-length integers
  errors        the exceptions of this package

Other packages may import all modules. This package imports only `protocol`.
"""
