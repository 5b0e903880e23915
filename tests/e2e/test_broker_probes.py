"""A killed broker is fenced at once, and a live one only when its session ends.

The sessions of these tests are so long that nothing but a probe can fence a broker in time.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from quorate.protocol.uuids import random_uuid, uuid_text
from tests.support.cluster import Node, free_ports, running, wait_for
from tests.support.resetting_proxy import ResettingProxy

LONG_SESSIONS = {"broker.session.timeout.ms": 120_000, "broker.heartbeat.interval.ms": 40_000}
CUTS = 100


@contextlib.contextmanager
def controller_and_brokers(
    tmp_path: Path, count: int, **settings: object
) -> Iterator[tuple[Node, list[Node]]]:
    controller = Node(tmp_path / "c", node_id=1, roles="controller", extra=LONG_SESSIONS | settings)
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(controller))
        brokers = [
            stack.enter_context(
                running(
                    Node(
                        tmp_path / f"b{node_id}",
                        node_id=node_id,
                        roles="broker",
                        voters=controller.voters,
                        extra=LONG_SESSIONS,
                    )
                )
            )
            for node_id in range(2, 2 + count)
        ]
        yield controller, brokers


def wait_until_reached(controller: Node, broker: Node) -> None:
    """Waits until the controller has connected to the listener of the broker, and the broker serves."""
    log = controller.base / "out.log"
    wait_for(
        f"a connection to broker {broker.node_id}",
        lambda: f"Reached broker {broker.node_id} " in log.read_text(),
    )


def test_a_killed_broker_leaves_the_metadata_and_its_leaderships_move(tmp_path: Path) -> None:
    with controller_and_brokers(tmp_path, 2) as (controller, (survivor, victim)):
        admin = survivor.admin()
        new = NewTopic("t", 1, replica_assignment=[[victim.node_id, survivor.node_id]])
        admin.create_topics([new])["t"].result(20)
        wait_until_reached(controller, victim)
        victim.kill()
        wait_for(
            "the killed broker to leave Metadata",
            lambda: victim.node_id not in admin.list_topics(timeout=5).brokers,
            20,
        )
        delivered: list[object] = []
        producer = Producer({"bootstrap.servers": survivor.bootstrap, "acks": "all", "log_level": 0})
        producer.produce("t", b"x", on_delivery=lambda error, _: delivered.append(error))
        assert producer.flush(20) == 0
        assert delivered == [None]
        assert f"Fencing broker {victim.node_id}" in controller.log_tail()


def test_without_probes_a_killed_broker_is_left_to_its_session(tmp_path: Path) -> None:
    settings = {"quorate.broker.probe.enable": "false"}
    with controller_and_brokers(tmp_path, 2, **settings) as (_, (survivor, victim)):
        victim.kill()
        time.sleep(2.0)  # several times as long as the probes take
        assert victim.node_id in survivor.admin().list_topics(timeout=5).brokers


def test_a_broker_that_is_killed_together_with_the_active_controller_leaves_the_metadata(
    tmp_path: Path,
) -> None:
    """The new active controller has never had a connection to this broker."""
    ports = free_ports(3)
    voters = dict(zip((1, 2, 3), ports, strict=True))
    initial = ",".join(f"{i}@127.0.0.1:{voters[i]}:{uuid_text(random_uuid())}" for i in voters)
    with contextlib.ExitStack() as stack:
        nodes = []
        for node_id, port in voters.items():
            node = Node(
                tmp_path / f"n{node_id}",
                node_id=node_id,
                voters=voters,
                controller_port=port,
                extra=LONG_SESSIONS,
            )
            node.format("--initial-controllers", initial)
            nodes.append(node)
        for node in nodes:  # they need a majority to become ready
            stack.callback(node.kill)
            node.start(wait=False)
        for node in nodes:
            node.wait_ready()

        def active() -> Node | None:
            found = [n for n in nodes if "Becoming the active controller" in n.log_tail(1000)]
            return found[0] if len(found) == 1 else None

        victim = active()
        assert victim is not None
        others = [node for node in nodes if node is not victim]
        for other in others:
            wait_until_reached(other, victim)
        victim.kill()
        admin = others[0].admin()
        wait_for(
            "the killed node to leave Metadata",
            lambda: victim.node_id not in admin.list_topics(timeout=5).brokers,
            20,
        )


class LiveBroker:
    """A broker whose connections to the controller go through a proxy."""

    def __init__(self, tmp_path: Path, stack: contextlib.ExitStack, *, open_files: int | None = None) -> None:
        (to_controller,) = free_ports(1)
        self.controller = Node(
            tmp_path / "c",
            node_id=1,
            roles="controller",
            extra=LONG_SESSIONS | {"advertised.listeners": f"CONTROLLER://127.0.0.1:{to_controller}"},
        )
        self.broker = Node(
            tmp_path / "b",
            node_id=2,
            roles="broker",
            voters={1: to_controller},
            extra=LONG_SESSIONS,
        )
        self.link = ResettingProxy(to_controller, self.controller.controller_port)
        stack.enter_context(self.link.running())
        stack.enter_context(running(self.controller))
        stack.enter_context(running(self.broker, open_files=open_files))
        wait_until_reached(self.controller, self.broker)

    def cut(self) -> None:
        """Resets the connections of the broker to the controller, as soon as there are any."""
        wait_for("the broker to connect again", lambda: self.link.ends, 20, 0.001)
        self.link.reset()

    @property
    def times_fenced(self) -> int:
        return (self.controller.base / "out.log").read_text().count("Fencing broker 2")


def test_a_live_broker_whose_connections_are_reset_again_and_again_is_not_fenced(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        live = LiveBroker(tmp_path, stack)
        for cut in range(CUTS):
            live.cut()
            time.sleep(0.02 * (cut % 11))  # up to the time between two probes
        assert live.link.resets == CUTS
        time.sleep(1.0)  # longer than all probes take
        assert not live.times_fenced


def test_a_frozen_broker_whose_connections_are_reset_is_not_fenced_by_probes(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        live = LiveBroker(tmp_path, stack)
        assert live.broker.proc is not None
        for _ in range(CUTS // 10):
            wait_for("the broker to connect again", lambda: live.link.ends, 20, 0.001)
            live.broker.proc.send_signal(signal.SIGSTOP)
            try:
                live.cut()
                time.sleep(1.0)  # longer than the probes of a killed broker take
            finally:
                live.broker.proc.send_signal(signal.SIGCONT)
        assert not live.times_fenced


def test_a_broker_without_free_file_descriptors_is_not_fenced_by_probes(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        live = LiveBroker(tmp_path, stack, open_files=128)
        for _ in range(400):  # the last ones wait in the backlog, or are closed at once
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", live.broker.broker_port))
        for cut in range(CUTS):
            live.cut()
            time.sleep(0.02 * (cut % 11))
        time.sleep(1.0)
        assert not live.times_fenced
