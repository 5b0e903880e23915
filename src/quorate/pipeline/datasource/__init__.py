"""The PySpark data source `quorate_metadata`.

    source    the data source, and its reader of tables
    options   its options
    columns   its columns, and the choice among them
    bounds    bounds of offset and time, and what happens about damage
    tasks     what the tasks of Spark read

Users import `source`. `decoder` and `live` share `columns`, `bounds` and `options`.
"""
