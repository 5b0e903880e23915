"""Keeps topics as Delta tables, exactly once.

brokers    which topics there are, and from where to where their partitions reach
positions  which offsets the lake has, and which ones it is about to have
formats    what becomes of the values of records: bytes, or columns by a schema
schemas    schema files, and whether a table can take the columns of one
tables     reads records from the brokers and appends them to tables
keep       plans batches, applies and confirms them

tables = TopicTables(lake, "production", brokers.servers, brokers.properties, RawFormat())
keep(Keeper(brokers, Positions(lake, "production"), tables, lambda name: name == "orders", print), print)
"""
