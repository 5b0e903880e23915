"""Jobs that read the data source and need no lake.

    topic_history  the history of every topic

`quorate.tools.topic_history` and users import it.
"""
