"""Reads the metadata log as a table or a stream: a PySpark data source, and jobs that use it.

    source    the data source `quorate_metadata`
    options   its options
    columns   its columns, and the choice among them
    bounds    bounds of offset and time, and what happens about damage
    pushdown  what the filters of a query say about these bounds
    files     lists and reads files, local ones and those of Hadoop's file systems
    hadoop    calls Hadoop's file systems
    copies    finds the nodes' copies of a metadata log and merges them
    committed finds out up to where copies are known to be committed
    layout    lists the files of a metadata log directory and divides them into slices
    tasks     what the tasks of Spark read
    live/     reads running quorums, and follows them or directories
    decoder/  decodes a slice into Arrow record batches
    session   creates a local Spark session
    delta     Delta Lake for a session
    connector  Spark's Kafka connector for a session
    jars      where a session gets the jars of both from
    sources   where the tables get a cluster's records from
    tables/   the tables of a lake, and what keeps them up to date
    generator/  writes the metadata log of a large cluster's years
    questions/  questions to these tables
    planning  the input of a reassignment plan from these tables
    topics/   keeps the records of topics as tables
    jobs/     topic_history: the history of every topic

`quorate.tools` and users import these modules. `files`, `copies`, `committed`, `layout`, `options` and `delta` do
not need the extra `spark`.

    from quorate.pipeline.source import MetadataLogSource
    spark.dataSource.register(MetadataLogSource)
    spark.read.format("quorate_metadata").load("/data/__cluster_metadata-0")
"""
