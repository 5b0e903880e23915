"""kafka-consumer-groups.

    consumer_groups  the options, and the commands to list, describe and delete
    reset_offsets    `--reset-offsets`

Nothing else imports this package.
"""
