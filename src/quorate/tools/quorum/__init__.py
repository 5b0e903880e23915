"""kafka-metadata-quorum, whose commands describe the metadata quorum and change its voters.

    metadata_quorum       the options and the choice of the command
    describe              `describe --status` and `describe --replication`
    add_controller        `add-controller`
    controller_config     reads what `add-controller` needs from a controller's configuration
    remove_controller     `remove-controller`
    status                `quorate status`
    status_options        its options
    leader_wait           ends a request with a useful error when the quorum has no leader
    endpoints             the text form of a controller's endpoint

`quorate.tools.quorate` imports `status_options`. Nothing else imports this package.
"""
