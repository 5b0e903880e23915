"""The metadata log as tables: a PySpark data source and jobs on it. `layout` and `decoder` do without
the extra `spark`.

from quorate.pipeline.source import MetadataLogSource
spark.dataSource.register(MetadataLogSource)
spark.read.format("quorate_metadata").load("/data/__cluster_metadata-0")
"""
