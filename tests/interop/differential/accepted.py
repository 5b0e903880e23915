"""The intended differences between the responses of Quorate and of Apache Kafka 4.4.0, with the reasons."""

from __future__ import annotations

import re
from dataclasses import dataclass

NOT_SERVED = frozenset(
    {24, 25, 26, 65, 66, 68, 69, 76, 77, 78, 79, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93}
)
"""API keys of the broker listener that are not advertised; docs/features.md has the list in words."""

NOT_HANDLED = frozenset({41, 50})
"""Kafka's controller listener advertises these two (tokens and SCRAM users described), but has no
handler for them."""


@dataclass(frozen=True)
class Accepted:
    """A difference: regular expressions for the case, the step and the line of the response."""

    where: str
    label: str
    line: str
    why: str
    depends_on_timing: bool = False
    """Whether the difference may be absent."""

    def about(self, where: str) -> bool:
        return re.fullmatch(self.where, where) is not None

    def covers(self, where: str, label: str, line: str) -> bool:
        return (
            self.about(where)
            and re.fullmatch(self.label, label) is not None
            and re.search(self.line, line) is not None
        )


ACCEPTED: tuple[Accepted, ...] = (
    # -- DescribeQuorum
    Accepted(
        ".*quorum.*",
        ".*",
        "uncommitted(Added|Removed)Voters",
        "tagged fields of ours, which Kafka's clients skip",
    ),
    # -- Produce
    Accepted(
        "strange Produce",
        "(ones|negative|greatest|least) .*",
        "errorCode: ours (3|21|100), Kafka's 2",
        "Kafka looks for transactional batches before it looks at acks or whether the topic exists, and "
        "trips over garbage",
    ),
    Accepted(
        "strange Produce",
        "twice .*",
        r"\.responses",
        "a partition twice: Kafka keeps the last, this node appends and answers both",
    ),
    Accepted("strange Produce", "real .*", "baseOffset", "follows from the line above"),
    # -- WriteTxnMarkers
    Accepted(
        "strange WriteTxnMarkers",
        "twice .*",
        'Kafka\'s "silence"',
        "a partition twice: Kafka never answers, this node writes and answers both",
    ),
    # -- Fetch, ListOffsets
    Accepted(
        "strange Fetch",
        "(greatest|least) .*",
        r"errorCode|sessionId|\.responses",
        "replica ids that no broker has: Kafka fails with -1 inside a session, this node finds that there is "
        "no such session",
    ),
    Accepted(
        "strange ListOffsets", "twice .*", r"\.topics", "a topic twice: INVALID_REQUEST, by Kafka told once"
    ),
    # -- Metadata
    Accepted(
        "strange Metadata",
        "(ones|negative|null) .*",
        r"ours 0, Kafka's 3|Kafka's \"\(absent\)\"|nope",
        "automatic creation: this node answers when the topic is usable, Kafka that it is unknown and the "
        "client asks again",
    ),
    Accepted(
        "strange FindCoordinator",
        "(ones|null) .*",
        "ours 0, Kafka's 15|nodeId|host|port",
        "the topic behind the coordinator is made first: this node waits for it, Kafka lets the client ask "
        "again",
        depends_on_timing=True,
    ),
    # -- configurations
    Accepted(
        "describe_configs",
        "broker .*",
        r"\[broker\.id\]",
        "here broker.id is what was given: nothing; node.id says it",
    ),
    Accepted(
        "describe_configs", "broker .*", r"append\.linger\.ms", "another default: docs/configuration.md"
    ),
    Accepted("describe_configs", "broker .*", r"\[quorate\.", "keys of our own"),
    Accepted(
        "describe_configs",
        "broker .*",
        r"fetch\.snapshot\.max\.bytes",
        "another default: docs/configuration.md",
    ),
    # -- the quorum
    Accepted(
        "the_quorum",
        ".*: quorum, good .*",
        "highWatermark|logEndOffset|leaderEpoch",
        "each log has its own length",
    ),
    # -- topics and partitions named twice in one request
    Accepted("strange DeleteRecords", "twice .*", r"\.topics", "answered as often as asked, by Kafka once"),
    Accepted(
        "strange AlterReplicaLogDirs",
        "twice .*",
        r"\.partitions",
        "answered as often as asked, by Kafka once",
    ),
    Accepted(
        "strange DescribeLogDirs",
        "null .*",
        "partitionSize",
        "follows from a partition written twice, and from what groups wrote",
    ),
    # -- transactions
    Accepted(
        "strange (InitProducerId|TxnOffsetCommit)",
        "(?!default|empty).*",
        "ours 53|producerId|producerEpoch",
        "transactions are not served: one error that every client takes as final (docs/features.md)",
    ),
    # -- what has no effect or is not enforced here
    Accepted(
        "alter_configs",
        "broker '1?' (log.cleaner.threads|max.connection.creation.rate|nope)=.*",
        "errorCode: ours 42, Kafka's 0",
        "no part of this broker reads these keys, so they are not set: docs/configuration.md",
    ),
    Accepted(
        "quotas_and_credentials",
        "set",
        "ours 35, Kafka's 0",
        "quotas are not enforced, so not taken: docs/features.md",
    ),
    Accepted(
        "strange AlterClientQuotas.*",
        ".*",
        'ours 35|"errorCode": 35',
        "refused before the entity is looked at: docs/features.md",
    ),
    Accepted(
        "strange (Create|Delete|Describe)Acls.*",
        "(default|empty|twice|real) .*",
        'Kafka\'s "closed"',
        "codes that Kafka's classes do not know end its connection; here the answer is SECURITY_DISABLED as "
        "for others",
    ),
    # -- the controller
    Accepted(
        "strange IncrementalAlterConfigs to the controller",
        "twice .*",
        "responses",
        "a resource twice, of an unknown type: which of the two is told",
    ),
    Accepted(
        "strange AlterPartitionReassignments.*",
        "empty v1",
        "allowReplicationFactorChange",
        "an answer about nothing",
    ),
    Accepted(
        "strange AlterPartition to the controller",
        "(default|empty) .*",
        "ours 77, Kafka's 0",
        "an answer about nothing",
    ),
)
