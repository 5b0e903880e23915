"""Creates a Spark session, and gives it the libraries that lakes and topics need.

    session    creates a local Spark session
    cluster    creates a Spark session on a cluster
    delta      Delta Lake for a session
    connector  Spark's Kafka connector for a session
    jars       where a session gets the jars of both from

`quorate.tools` and users import `session` and `delta`.
"""
