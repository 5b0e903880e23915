"""Tools that describe and change a complete cluster.

    cluster              kafka-cluster
    acls                 kafka-acls
    broker_api_versions  kafka-broker-api-versions
    configs              kafka-configs
    features             kafka-features
    log_dirs             kafka-log-dirs

Nothing else imports this package.
"""
