"""KafkaNode on real processes: properties, formatting and restarts are the test's."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from quorate.testing import ClusterError, KafkaNode
from tests.support.ledger import admin_client

pytestmark = pytest.mark.timeout(180)


def test_a_restart_reads_changed_properties_and_keeps_data_and_addresses(tmp_path: Path) -> None:
    with KafkaNode(tmp_path, config={"num.partitions": 2}) as node:
        assert "Formatting" in node.format()
        node.start()
        admin = admin_client(node.bootstrap_servers)
        known = admin.describe_cluster().result(30)
        assert [broker.id for broker in known.nodes] == [1]
        assert node.stop() == 0
        node.config["log.dirs"] = node.data_directory.rename(tmp_path / "moved")
        node.write_properties()
        node.start()
        admin = admin_client(node.bootstrap_servers)
        assert admin.describe_cluster().result(30).cluster_id == known.cluster_id
    assert not node.is_running


def test_nodes_with_one_controller_form_a_cluster(tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "1", roles="controller") as controller:
        controller.format()
        controller.start()
        with KafkaNode(
            tmp_path / "2", 2, "broker", bootstrap_controllers=controller.bootstrap_controllers
        ) as broker:
            broker.format()
            broker.start()
            admin = admin_client(broker.bootstrap_servers)
            assert [b.id for b in admin.describe_cluster().result(30).nodes] == [2]


def test_formatting_takes_the_options_of_the_tool(tmp_path: Path) -> None:
    with KafkaNode(tmp_path) as node:
        node.format("--release-version", "4.0", "--feature", "group.version=0", cluster_id="test-cluster")
        assert "cluster.id=test-cluster" in (node.data_directory / "meta.properties").read_text()
        with pytest.raises(ClusterError, match="already formatted"):
            node.format("--standalone", cluster_id="test-cluster")


def test_what_is_wrong_is_an_error_with_the_words_of_the_tool_or_the_log(tmp_path: Path) -> None:
    with KafkaNode(tmp_path, config={"num.partitions": "many"}) as node:
        with pytest.raises(ClusterError, match=r"(?s)status 1.*num\.partitions"):
            node.format()
        with pytest.raises(ClusterError, match=r"unrecognized arguments: --no-such-option"):
            node.format("--no-such-option")
        with pytest.raises(ClusterError, match=r"(?s)ended with status 1.*num\.partitions"):
            node.start()


def test_the_port_of_a_node_that_is_down_stays_its_own_until_it_is_closed(tmp_path: Path) -> None:
    node = KafkaNode(tmp_path)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", node.broker_port))
    node.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", node.broker_port))
