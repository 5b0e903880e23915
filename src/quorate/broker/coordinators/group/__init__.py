"""The group coordinator: classic groups and committed offsets.

    service                   the group APIs (`GroupCoordinatorService`)
    requests/                 the requests about offsets, and the most common forms of requests
    shard                     one partition of `__consumer_offsets` as a state machine
    classic/                  classic groups: their members, rebalances and requests
    offset_metadata_manager   committed offsets
    timer_events              the events of a shard's timers
    record_serde              encodes and decodes the records of `__consumer_offsets`
    model                     the records and the state as values
    config                    the settings

`quorate.broker.coordinators.service` imports `service` and `config`; nothing else is imported from other
packages. All modules except `service` and those of `requests` are pure.
"""
