"""Decodes slices of segments and snapshots into Arrow record batches.

    read      a slice as record batches
    batches   intact batches, damage and missing offsets
    framing   finds the values of the records in batches
    table     decodes the values of a record batch, by columns where it can
    shape     the positions of the fields of records of equal shape
    arrays    Arrow arrays of fields at fixed positions
    entities  the entity columns of each record type
    objects   decodes records one by one

`quorate.pipeline.datasource.source` imports `read`, in the tasks only.
`quorate.pipeline.directories.copies` finds the end of a log with `batches`.
"""
