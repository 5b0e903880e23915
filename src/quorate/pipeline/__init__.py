"""Reads the metadata log as a table: a PySpark data source, and jobs that use it.

    source   the data source `quorate_metadata`
    layout   lists the files of a metadata log directory and divides them into slices
    decoder  decodes a slice into columns
    session  creates a local Spark session
    jobs/    topic_history: the history of every topic

`quorate.tools` and users import these modules. `layout` and `decoder` do not need the extra `spark`.

    from quorate.pipeline.source import MetadataLogSource
    spark.dataSource.register(MetadataLogSource)
    spark.read.format("quorate_metadata").load("/data/__cluster_metadata-0")
"""
