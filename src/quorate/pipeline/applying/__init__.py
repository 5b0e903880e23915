"""Writes new records to the tables of a lake, in this process if they are few, otherwise in those of Spark.

    summary    which types of records a range of the events has
    arrivals   writes new records to the table `events`
    news       the events that the tables of entities have not applied yet
    histories  computes the tables of entities from these

`quorate.pipeline.tables.update` decides what is written when.
"""
