"""The metadata of a cluster: records, images, features, snapshots and bootstrap files. KIP-500, KIP-631,
KIP-746.

  records/            the record types of the metadata log
  image/              the metadata as an immutable value
  framing             the frame of a record in the log
  json                records as JSON, as Kafka's dump tool prints them
  features            metadata.version and the other features
  changes             divides batches into changes, with who made them
  loader              builds images from committed batches and snapshots
  shared_replay       shares images between the two roles of a combined node
  snapshot            snapshot files
  snapshot_generator  decides when to write a snapshot
  metrics             the metrics of features and snapshots
  stored_voters       reads the voters from the files of nodes
  bootstrap           bootstrap.checkpoint and the first snapshot of a formatted directory
  errors              the exception of this package

Other packages may import all modules. This package imports only `protocol` and `records`. Only
`snapshot.write_snapshot`, `stored_voters`, `bootstrap` and `snapshot_generator` do I/O or start tasks.
"""
