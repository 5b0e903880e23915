"""The configuration keys of brokers, controllers, topics and groups, and the configuration of a node.

- definitions: types, validation and errors of keys
- broker_defs, coordinator_defs, security_defs: the tables of the keys of a node
- topic_defs, group_defs: the tables of the keys of topics, groups and client metrics subscriptions
- dynamic_configs: what can be changed while a node runs, and the reason where it cannot
- without_effect: the keys that are accepted without an effect, and why
- unknown_keys: obsolete and misspelt keys, and what was probably meant
- diagnosis: all errors of a configuration, not only the first
- docs: the documentation of the keys, imported only on request
- listeners: parses lists of listeners and of addresses
- cordoned_dirs: the log directories that get no new replicas
- node_rules: checks the rules between several keys of a node
- kafka_config: KafkaConfig, the configuration of a node

Every package may import this one, except protocol and records.
"""
