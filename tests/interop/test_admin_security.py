"""The admin client's calls about ACLs, quotas and credentials, on a node of Apache Kafka that
enforces them."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.admin.sync import AdminClient
from quorate.admin.types import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from tests.support import java
from tests.support.cluster import Node, running, wait_for

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def test_acls_quotas_and_credentials_of_a_java_node(tmp_path: Path) -> None:
    java.require_java(java.LATEST_VERSION)
    node = Node(tmp_path / "node", impl="java", kafka=java.LATEST_VERSION, extra=dict(AUTHORIZED))
    with running(node), AdminClient(node.bootstrap) as admin:
        read = AclBinding(ResourceType.TOPIC, "orders", "User:ann", AclOperation.READ)
        deny = AclBinding(
            ResourceType.GROUP,
            "app-",
            "User:bob",
            AclOperation.ALL,
            AclPermissionType.DENY,
            "10.0.0.1",
            PatternType.PREFIXED,
        )
        assert admin.create_acls([read, deny]) == {read: None, deny: None}
        wait_for("both ACLs", lambda: set(admin.describe_acls()) == {read, deny})
        of_ann = AclBindingFilter(principal="User:ann")
        assert admin.describe_acls(of_ann) == [read]
        assert admin.delete_acls([of_ann]) == {of_ann: [read]}
        wait_for("the deletion", lambda: admin.describe_acls() == [deny])

        entity = (("user", "ann"),)
        admin.alter_client_quotas(entity, {"producer_byte_rate": 1024.0}, validate_only=True)
        assert admin.describe_client_quotas([]) == {}
        admin.alter_client_quotas(entity, {"producer_byte_rate": 1024.0})
        wait_for(
            "the quota", lambda: admin.describe_client_quotas([]) == {entity: {"producer_byte_rate": 1024.0}}
        )
        admin.alter_scram(upserts=[("ann", 1, 4096, b"salt" * 8, b"p" * 32)])
        wait_for("the credential", lambda: admin.describe_scram(["ann"]) == {"ann": [(1, 4096)]})
