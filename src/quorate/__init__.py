"""Apache Kafka's KRaft quorum and a Kafka cluster around it, in Python."""

__version__ = "0.1.0"
