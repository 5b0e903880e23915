"""Computes the history of entities from records: which states each one had, one after the other.

    codes        equal numbers for equal values of any type, so that states are compared as numbers
    steps        what records do to the entities of a declaration, one row for each record and entity
    names        gives records the id and the name of a topic, where they have one of the two
    parts        divides the steps of an entity among processes
    fold         joins the steps of each entity to its states
    differences  what differs from one state to the next, as text

These modules read and write Arrow tables and do no I/O. The rows of a table are a function of the log: which rows a
table has up to an offset depends on nothing but the records before it. So a range of the log may be applied again, from
any earlier offset on, and gives the same rows.
"""
