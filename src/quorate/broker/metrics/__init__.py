"""The metrics of a broker, under Kafka's names.

    topic_stats    counts batches, bytes and requests by topic (`BrokerTopicStats`)
    replicas       the replicas, their logs and the requests that wait for them
    coordinators   the groups that this broker coordinates
    families       all metrics of a broker

`quorate.broker.server` and the handlers of Produce and Fetch use `topic_stats`. `quorate.node.server` imports
`families` if the node serves metrics.
"""
