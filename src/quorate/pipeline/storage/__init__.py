"""Reads and writes the data files of Delta tables without Spark's rows, and commits them.

    data_files  writes Arrow tables as Parquet files with statistics, and reads them
    commits     the files of a table, and transactions that add and remove some
    jobs        runs functions on the processes of Spark, and sends Arrow tables between them

The files are those that any reader of Delta expects. Delta's own transaction adds them to the table.
"""
