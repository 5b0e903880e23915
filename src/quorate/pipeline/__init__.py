"""Reads the metadata log as a table or a stream: a PySpark data source, and jobs that use it.

    datasource/   the data source `quorate_metadata`, its options and columns
    directories/  finds, merges and reads metadata logs in directories, local ones and those of Hadoop
    live/         reads running quorums, and follows them or directories
    decoder/      decodes a slice into Arrow record batches
    spark/        creates a local Spark session, with Delta Lake and the Kafka connector
    lake_source   where the tables of a lake get a cluster's records from
    tables/       the tables of a lake: what they declare, and when they are written
    applying/     computes what new records change in them
    history/      the states of entities, computed from records as Arrow tables
    storage/      the files and commits of these tables, and functions on Spark's processes
    questions/    questions to these tables
    planning      the input of a reassignment plan from these tables
    topics/       keeps the records of topics as tables
    generator/    writes the metadata log of a large cluster's years
    jobs/         topic_history: the history of every topic

`quorate.tools` and users import these modules. `directories/` without `hadoop`, `datasource.options` and
`spark.delta` do not need the extra `spark`.

    from quorate.pipeline.datasource.source import MetadataLogSource
    spark.dataSource.register(MetadataLogSource)
    spark.read.format("quorate_metadata").load("/data/__cluster_metadata-0")
"""
