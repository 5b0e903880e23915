"""Computes the history of entities from records: each state, and the offsets at which it was valid.

    codes         equal numbers for equal values of any type, so that states are compared as numbers
    steps         what records do to the entities of a declaration, one row for each record and entity
    names         gives records the id and the name of a topic, where they have one of the two
    parts         divides the steps of an entity among processes
    replay        replays the steps of each entity and gives its history
    differences   what differs from one state to the next, as text
    topic_events  what happened to topics, partitions and the configs of topics

These modules take and return Arrow tables and do no I/O. The rows of a table up to an offset depend on
nothing but the records before that offset. So a range of the log may be applied again, from any earlier
offset on, and gives the same rows.
"""
