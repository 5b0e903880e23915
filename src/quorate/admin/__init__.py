"""The admin client.

    client            AdminClient, for asyncio
    sync              AdminClient with blocking methods
    types             the values that the methods take and return
    errors            the errors that they raise, and their texts
    explanations      the cause and the remedy of each error code
    topics            operations on topics, partitions and offsets
    reassignments     operations on reassignments of partitions to brokers
    log_dirs          operations on log directories, and moves of replicas between them
    configs           operations on configurations, quotas and SCRAM credentials
    acls              operations on access control lists
    delegation_tokens operations on delegation tokens
    groups            operations on consumer groups
    cluster           operations on the cluster and its metadata quorum
    metadata_log      fetches batches and snapshots of the metadata log of a quorum
    quorum_log        reads the committed log with them, over changes of the leader
    transport         bootstrap, the choice of the node for a request, retries
    non_kafka_server  detects servers that are not Kafka

Users import `client`, `sync`, `types` and `errors`. `quorate.tools` also imports `topics`,
`metadata_log` and `non_kafka_server`, and `quorate.pipeline` imports `client` and `metadata_log`.
"""
