"""Reads the metadata log as a table: a PySpark data source, and jobs that use it.

    source    the data source `quorate_metadata`
    options   its options
    columns   its columns, and the choice among them
    bounds    bounds of offset and time, and what happens about damage
    pushdown  what the filters of a query say about these bounds
    copies    finds the nodes' copies of a metadata log and merges them
    layout    lists the files of a metadata log directory and divides them into slices
    decoder/  decodes a slice into Arrow record batches
    session   creates a local Spark session
    jobs/     topic_history: the history of every topic

`quorate.tools` and users import these modules. `copies`, `layout` and `options` do not need the extra
`spark`.

    from quorate.pipeline.source import MetadataLogSource
    spark.dataSource.register(MetadataLogSource)
    spark.read.format("quorate_metadata").load("/data/__cluster_metadata-0")
"""
