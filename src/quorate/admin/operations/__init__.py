"""The methods of the admin client, by what they administer.

    topics            topics, partitions and offsets
    reassignments     reassignments of partitions to brokers
    log_dirs          log directories, and moves of replicas between them
    configs           configurations, quotas and SCRAM credentials
    acls              access control lists
    delegation_tokens delegation tokens
    groups            consumer groups
    cluster           the cluster and its metadata quorum

`quorate.admin.client` imports these modules; other packages import the offsets of `topics`.
"""
