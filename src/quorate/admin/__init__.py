"""The admin client.

    client            AdminClient, for asyncio
    sync              AdminClient with blocking methods
    operations/       the methods of both, by what they administer
    types             the values that the methods take and return
    errors            the errors that they raise, and their texts
    explanations      the cause and the remedy of each error code
    metadata_log      fetches batches and snapshots of the metadata log of a quorum
    quorum_log        reads the committed log with them, over changes of the leader
    transport         bootstrap, the choice of the node for a request, retries
    non_kafka_server  detects servers that are not Kafka

Users import `client`, `sync`, `types` and `errors`. `quorate.tools` also imports `operations.topics`,
`metadata_log`, `quorum_log` and `non_kafka_server`, and `quorate.pipeline` imports `client`, `metadata_log`
and `operations.topics`.
"""
