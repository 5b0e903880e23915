"""Configuration: every key of a broker, controller, topic and group, and a node's configuration read from properties.

Definitions are tables (`broker_defs`, `security_defs`, `topic_defs`, `group_defs`); what they mean to a reader is in
`docs`, loaded only when somebody asks. `KafkaConfig` is what the rooms get.
"""
