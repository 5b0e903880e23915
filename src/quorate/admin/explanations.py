"""The cause and the remedy of each error code, for people.

The tools print them for a response without a message. docs/errors.md is generated from this table
and from the places that answer with these codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.protocol.errors import ErrorCode


class Explanation(NamedTuple):
    """What a code means, and what an operator does about it.

    `remedy` is empty if clients handle the error.
    """

    cause: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.cause} {self.remedy}".rstrip()


_E = Explanation
_LEADER = "Clients ask again after new metadata. kafka-topics --describe shows the leader."
_ACLS = "Allow the operation to the principal in the ACLs of the cluster."
_REJOIN = "Consumers join again by themselves."
_TRANSACTIONS = "Transactions are not served (docs/features.md): run the producer without transactional.id."

EXPLANATIONS: Final[Mapping[ErrorCode, Explanation]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: _E(
        "The node met an error that it did not expect.", "Its log has the traceback."
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: _E(
        "The offset is outside of what the partition holds.",
        "kafka-get-offsets shows the range; kafka-consumer-groups --reset-offsets moves a group into it.",
    ),
    ErrorCode.CORRUPT_MESSAGE: _E(
        "A record batch has a wrong checksum or a wrong length.",
        "Send it again. If the log of a node reports it, kafka-dump-log shows the batch.",
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _E(
        "There is no such topic or partition.", "kafka-topics --list shows the topics that exist."
    ),
    ErrorCode.INVALID_FETCH_SIZE: _E("The maximum size of a fetch is negative.", "Correct the client."),
    ErrorCode.LEADER_NOT_AVAILABLE: _E(
        "The partition has no leader now.",
        "Start a broker of its ISR: kafka-topics --describe --unavailable-partitions names them.",
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _E(
        "The broker does not lead or hold this partition any more.", _LEADER
    ),
    ErrorCode.REQUEST_TIMED_OUT: _E(
        "The request was not completed in time; it may still take effect.",
        "See whether it has, then repeat it. kafka-metadata-quorum describe --status shows whether "
        "there is a leader.",
    ),
    ErrorCode.BROKER_NOT_AVAILABLE: _E("The node is not available.", "Start it, or ask another one."),
    ErrorCode.REPLICA_NOT_AVAILABLE: _E(
        "A replica is on a broker that is not available.", "kafka-topics --describe names it."
    ),
    ErrorCode.MESSAGE_TOO_LARGE: _E(
        "A record batch is larger than the topic admits.",
        "Raise max.message.bytes of the topic with kafka-configs, or send smaller batches.",
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: _E(
        "The metadata of a committed offset is larger than offset.metadata.max.bytes.", "Shorten it."
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _E(
        "The coordinator is being loaded.", "Clients ask again by themselves."
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _E(
        "The coordinator is not available.",
        "Clients ask again. If it lasts, kafka-topics --describe --topic __consumer_offsets shows why.",
    ),
    ErrorCode.NOT_COORDINATOR: _E("Another broker is the coordinator.", "Clients look for it by themselves."),
    ErrorCode.INVALID_TOPIC_EXCEPTION: _E(
        "The name of the topic is invalid, or the operation is not allowed for an internal topic.",
        "A name has 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'.",
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: _E(
        "A record batch is larger than a segment.",
        "Raise segment.bytes of the topic, or send smaller batches.",
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: _E(
        "The ISR is smaller than min.insync.replicas, so nothing was written.",
        "Start the brokers that kafka-topics --describe --under-min-isr-partitions shows as missing.",
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _E(
        "The ISR became smaller than min.insync.replicas after the records were written.",
        "Idempotent producers send them again. Start the missing brokers.",
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: _E("acks is neither 0, 1 nor -1 (all).", "Correct the producer."),
    ErrorCode.ILLEGAL_GENERATION: _E("The group has rebalanced since.", _REJOIN),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: _E(
        "The members of the group have no assignor or no protocol type in common.",
        "Give all members the same partition.assignment.strategy.",
    ),
    ErrorCode.INVALID_GROUP_ID: _E("The name of the group is empty.", "Set group.id."),
    ErrorCode.UNKNOWN_MEMBER_ID: _E("The group does not have this member any more.", _REJOIN),
    ErrorCode.INVALID_SESSION_TIMEOUT: _E(
        "session.timeout.ms is outside of the broker's limits.",
        "Choose a value from group.min.session.timeout.ms to group.max.session.timeout.ms.",
    ),
    ErrorCode.REBALANCE_IN_PROGRESS: _E("The group is rebalancing.", _REJOIN),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _E("Not allowed for the topic.", _ACLS),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _E("Not allowed for the group.", _ACLS),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _E("Not allowed for the cluster.", _ACLS),
    ErrorCode.INVALID_TIMESTAMP: _E(
        "The timestamp of a record is too far from the broker's clock.",
        "Correct the clock, or message.timestamp.before.max.ms and message.timestamp.after.max.ms "
        "of the topic.",
    ),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: _E(
        "The node does not know this SASL mechanism.", "sasl.enabled.mechanisms has those that it does."
    ),
    ErrorCode.UNSUPPORTED_VERSION: _E(
        "The cluster does not serve this version of the API.",
        "kafka-broker-api-versions shows those that it does.",
    ),
    ErrorCode.ILLEGAL_SASL_STATE: _E(
        "A SASL request reached a listener without SASL, or came out of turn.",
        "Compare security.protocol of the client with listener.security.protocol.map of the node.",
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: _E(
        "The node does not know this user with this password and mechanism.",
        "Compare sasl.jaas.config of the client with the credentials of the node.",
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: _E("A topic with this name exists already.", "Choose another name."),
    ErrorCode.INVALID_PARTITIONS: _E(
        "The number of partitions is invalid.", "It is at least 1, and it can only grow."
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: _E(
        "The replication factor is invalid, or larger than the number of brokers that can get replicas.",
        "quorate status shows the brokers and their states.",
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: _E(
        "The assignment of replicas to brokers is invalid.", "quorate status shows the brokers."
    ),
    ErrorCode.INVALID_CONFIG: _E(
        "A configuration is unknown or has an invalid value.",
        "docs/configuration.md has all keys and values.",
    ),
    ErrorCode.NOT_CONTROLLER: _E(
        "The node is not the active controller.",
        "Clients look for it. kafka-metadata-quorum describe --status names the leader.",
    ),
    ErrorCode.INVALID_REQUEST: _E("The request contradicts itself or the protocol.", "Correct the client."),
    ErrorCode.POLICY_VIOLATION: _E(
        "The request is larger than one change may be, or a policy of the topic forbids it.", "Divide it."
    ),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: _E(
        "A batch of an idempotent producer is missing before this one.",
        "The producer must be created again; librdkafka and Java do so by themselves.",
    ),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: _E("The batch was written before.", "Nothing needs to be done."),
    ErrorCode.INVALID_PRODUCER_EPOCH: _E("A newer producer has the same producer id.", "End one of the two."),
    ErrorCode.INVALID_TXN_STATE: _E("The batch belongs to a transaction that is not open.", _TRANSACTIONS),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _E("Transactional ids are refused.", _TRANSACTIONS),
    ErrorCode.SECURITY_DISABLED: _E(
        "The cluster has no authorizer (authorizer.class.name).",
        "ACLs are not enforced here (docs/features.md): limit access at the network.",
    ),
    ErrorCode.OPERATION_NOT_ATTEMPTED: _E("Another part of the same request failed first.", "Mend that one."),
    ErrorCode.KAFKA_STORAGE_ERROR: _E(
        "The log directory of the replica is offline.",
        "kafka-log-dirs --describe shows it; replace the disk.",
    ),
    ErrorCode.LOG_DIR_NOT_FOUND: _E(
        "The broker has no such log directory.", "kafka-log-dirs --describe shows those that it has."
    ),
    ErrorCode.UNKNOWN_PRODUCER_ID: _E(
        "The broker knows nothing of this producer any more.", "Create the producer again."
    ),
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: _E(
        "Delegation tokens are disabled on the cluster (delegation.token.secret.key).",
        "Set the same secret on all nodes.",
    ),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: _E(
        "There is no delegation token with this HMAC.", "Create another."
    ),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: _E(
        "The principal is neither owner nor renewer of the delegation token.", "Ask as one of them."
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: _E(
        "Delegation tokens are served only over SASL or mutual TLS, and not to who is authenticated "
        "by a token.",
        "Use such a listener.",
    ),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: _E("The delegation token has expired.", "Create another."),
    ErrorCode.INVALID_PRINCIPAL_TYPE: _E("The type of a principal is unknown.", "Write User:name."),
    ErrorCode.NON_EMPTY_GROUP: _E(
        "The group is not empty.", "Stop its members; kafka-consumer-groups --describe --members lists them."
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: _E(
        "The group does not exist.", "kafka-consumer-groups --list shows those that do."
    ),
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: _E(
        "The fetch session was evicted or is of an earlier process.", "Clients open another."
    ),
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: _E(
        "A request of the fetch session was lost.", "Clients open another."
    ),
    ErrorCode.LISTENER_NOT_FOUND: _E(
        "The leader has no listener of the name over which the client asks.",
        "Give all brokers a listener of this name (listeners, advertised.listeners).",
    ),
    ErrorCode.TOPIC_DELETION_DISABLED: _E(
        "Topics cannot be deleted (delete.topic.enable=false).", "Set it to true on the controllers."
    ),
    ErrorCode.FENCED_LEADER_EPOCH: _E("The client knows an older leader of the partition.", _LEADER),
    ErrorCode.UNKNOWN_LEADER_EPOCH: _E(
        "The client knows a newer leader of the partition than this broker.", "Clients ask again."
    ),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: _E(
        "The version of the request does not admit this compression.", "Use a newer client, or another codec."
    ),
    ErrorCode.STALE_BROKER_EPOCH: _E(
        "The request is of an earlier process of the broker, or the broker is not registered.",
        "Restart the broker. If it lasts, two processes have the same node.id.",
    ),
    ErrorCode.OFFSET_NOT_AVAILABLE: _E(
        "The new leader does not know the end offset yet, or the follower does not have the offset yet.",
        "Clients ask again.",
    ),
    ErrorCode.MEMBER_ID_REQUIRED: _E("The member has to join again with the id that it was given.", _REJOIN),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: _E(
        "The preferred replica is not in the ISR, or its broker is not active.",
        "Start the broker and wait for it.",
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: _E(
        "The group has group.max.size members.", "Raise it, or end members."
    ),
    ErrorCode.FENCED_INSTANCE_ID: _E(
        "Another member has the same group.instance.id.", "Give each member its own."
    ),
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: _E(
        "No replica of the partition can lead.", "Start a broker that has one."
    ),
    ErrorCode.ELECTION_NOT_NEEDED: _E("The partition has the right leader already."),
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: _E(
        "The partition is not being reassigned.", "kafka-reassign-partitions --list shows those that are."
    ),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: _E(
        "A member of the group reads this topic.", "Stop the members that read it."
    ),
    ErrorCode.INVALID_RECORD: _E(
        "A record does not fit the topic or the format.", "A compacted topic takes only records with keys."
    ),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: _E("An open transaction commits offsets.", "Clients ask again."),
    ErrorCode.RESOURCE_NOT_FOUND: _E("The resource does not exist."),
    ErrorCode.DUPLICATE_RESOURCE: _E("The request names a resource twice.", "Name it once."),
    ErrorCode.UNACCEPTABLE_CREDENTIAL: _E(
        "The SCRAM credential is not acceptable.", "Use 4096 to 16384 iterations."
    ),
    ErrorCode.INCONSISTENT_VOTER_SET: _E(
        "The nodes disagree on the voters of the metadata quorum.", "Correct controller.quorum.voters."
    ),
    ErrorCode.INVALID_UPDATE_VERSION: _E(
        "A feature cannot get this level, or the epoch of a partition has moved on.",
        "kafka-features upgrade --dry-run names everything that blocks.",
    ),
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: _E(
        "A forwarded request has no valid principal.", "Run brokers and controllers of one release."
    ),
    ErrorCode.SNAPSHOT_NOT_FOUND: _E("The leader has a newer snapshot.", "The replica asks for that one."),
    ErrorCode.POSITION_OUT_OF_RANGE: _E(
        "The snapshot has no such position.", "The replica downloads it again."
    ),
    ErrorCode.UNKNOWN_TOPIC_ID: _E(
        "There is no topic with this id.", "kafka-topics --describe shows the ids of those that exist."
    ),
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: _E(
        "Another running broker is registered with this id.",
        "Wait for broker.session.timeout.ms after a crash, or give one of the two another node.id.",
    ),
    ErrorCode.BROKER_ID_NOT_REGISTERED: _E(
        "No broker is registered with this id.", "quorate status shows those that are."
    ),
    ErrorCode.INCONSISTENT_TOPIC_ID: _E("The topic was deleted and created again.", _LEADER),
    ErrorCode.INCONSISTENT_CLUSTER_ID: _E(
        "The node belongs to another cluster.",
        "Compare cluster.id in meta.properties with kafka-cluster cluster-id.",
    ),
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: _E(
        "A fetch session mixes topic names and ids.", "Clients open another session."
    ),
    ErrorCode.INELIGIBLE_REPLICA: _E("A replica that is fenced or shutting down cannot join the ISR."),
    ErrorCode.NEW_LEADER_ELECTED: _E("The change of the ISR completed a reassignment with another leader."),
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: _E(
        "A request for brokers reached a controller, or the other way.",
        "Use --bootstrap-server for brokers and --bootstrap-controller for controllers.",
    ),
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: _E("The type of the endpoint is unknown.", "Correct the client."),
    ErrorCode.INVALID_REGISTRATION: _E(
        "The registration of a node is invalid.", "The log of the active controller has the reason."
    ),
    ErrorCode.INVALID_VOTER_KEY: _E(
        "The request is for a voter with another directory id.",
        "kafka-metadata-quorum describe --replication shows the directory ids.",
    ),
    ErrorCode.DUPLICATE_VOTER: _E(
        "The voters have one with this id already.",
        "kafka-metadata-quorum remove-controller removes it first.",
    ),
    ErrorCode.VOTER_NOT_FOUND: _E(
        "There is no such voter.", "kafka-metadata-quorum describe --replication shows them."
    ),
    ErrorCode.REBOOTSTRAP_REQUIRED: _E(
        "The client knows a cluster or a node that is not this one.",
        "Clients begin with bootstrap.servers again.",
    ),
    ErrorCode.CONTROLLER_ID_NOT_REGISTERED: _E(
        "No controller is registered with this id.",
        "kafka-cluster list-endpoints --bootstrap-controller shows those that are.",
    ),
}
