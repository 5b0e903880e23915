"""Bad requests of the admin APIs that have no case elsewhere: ACLs, tokens, registrations, moves,
producers."""

from __future__ import annotations

from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from quorate.protocol.messages.create_acls import CreateAclsRequest
from quorate.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from quorate.protocol.messages.delete_acls import DeleteAclsRequest
from quorate.protocol.messages.delete_groups import DeleteGroupsRequest
from quorate.protocol.messages.describe_acls import DescribeAclsRequest
from quorate.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from quorate.protocol.messages.describe_producers import DescribeProducersRequest
from quorate.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from quorate.protocol.messages.offset_delete import OffsetDeleteRequest
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from quorate.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from quorate.protocol.messages.unregister_controller import UnregisterControllerRequest
from quorate.protocol.messages.update_features import UpdateFeaturesRequest
from tests.interop.differential.script import Script, case


@case
def acls_and_tokens(s: Script) -> None:
    rule = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3}
    creation = CreateAclsRequest.AclCreation(permission_type=3, **rule)
    s.ask("create ACLs", CreateAclsRequest(creations=[creation]), 3)
    any_of = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    wanted: dict[str, object] = {
        **any_of,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
    }
    s.ask("delete ACLs", DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**wanted)]), 3)
    s.ask("describe ACLs", DescribeAclsRequest(**wanted), 3)
    s.ask("create a token", CreateDelegationTokenRequest(max_lifetime_ms=1000), 3)
    s.ask("renew a token", RenewDelegationTokenRequest(hmac=b"none", renew_period_ms=1000), 2)
    s.ask("expire a token", ExpireDelegationTokenRequest(hmac=b"none", expiry_time_period_ms=1000), 2)
    s.ask("describe tokens", DescribeDelegationTokenRequest(owners=None), 3)


@case
def voters(s: Script) -> None:
    listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host="127.0.0.1", port=1)
    other = AddRaftVoterRequest.Listener(name="X", host="h", port=1)
    strange_id = bytes(range(16))
    for label, voter_id, listeners in (
        ("known", 1, [listener]),
        ("-1", -1, [listener]),
        ("no listener", 5, []),
        ("another listener", 5, [other]),
        ("nobody there", 5, [listener]),
    ):
        request = AddRaftVoterRequest(
            cluster_id=None,
            voter_id=voter_id,
            voter_directory_id=strange_id,
            listeners=listeners,
            timeout_ms=300,
        )
        s.ask(f"add: {label}", request, 0)
    for label, voter_id in (("unknown", 5), ("another directory", 1), ("-1", -1)):
        gone = RemoveRaftVoterRequest(cluster_id=None, voter_id=voter_id, voter_directory_id=strange_id)
        s.ask(f"remove: {label}", gone, 0)


@case
def registrations_and_levels(s: Script) -> None:
    for controller in (1, 9, -1):
        s.ask(f"unregister controller {controller}", UnregisterControllerRequest(controller_id=controller), 0)
    update = UpdateFeaturesRequest.FeatureUpdateKey
    for label, rows in (
        ("two unknown", [("nope", 1), ("other", 1)]),
        ("one unknown, one too high", [("nope", 1), ("metadata.version", 40)]),
        ("a dependency", [("metadata.version", 22), ("eligible.leader.replicas.version", 1)]),
    ):
        updates = [update(feature=name, max_version_level=level, upgrade_type=1) for name, level in rows]
        request = UpdateFeaturesRequest(timeout_ms=3000, feature_updates=updates, validate_only=True)
        s.ask(f"levels: {label}", request, 2)


@case
def moves_producers_and_groups(s: Script) -> None:
    s.topic("mv")
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
    for label, path, name, partition in (
        ("unknown directory", "/no/such/directory", s.name("mv"), 0),
        ("relative directory", "x", s.name("mv"), 0),
        ("unknown topic", "/no/such/directory", "nope", 0),
        ("unknown partition", "/no/such/directory", s.name("mv"), 9),
    ):
        where = AlterReplicaLogDirsRequest.AlterReplicaLogDir(
            path=path, topics=[topic(name=name, partitions=[partition])]
        )
        s.ask(f"move: {label}", AlterReplicaLogDirsRequest(dirs=[where]), 2)
    producers = DescribeProducersRequest.TopicRequest
    for label, name, partition in (
        ("topic", "nope", 0),
        ("name", "a b", 0),
        ("partition", s.name("mv"), 9),
    ):
        asked = [producers(name=name, partition_indexes=[partition])]
        s.ask(f"producers of an unknown {label}", DescribeProducersRequest(topics=asked), 0)
    group = s.group("g")
    s.ask("delete groups", DeleteGroupsRequest(groups_names=[group, ""]), 3)
    s.ask("delete offsets of no group", OffsetDeleteRequest(group_id=group), 0)
    s.ask("delete offsets of ''", OffsetDeleteRequest(group_id=""), 0)
