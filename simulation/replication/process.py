"""Processes of a simulated cluster: the brokers through all their incarnations, the controller, and the
clients."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import errno
import random
from functools import partial
from typing import Any

from quorate.broker.server import BrokerServer
from quorate.config.kafka_config import KafkaConfig
from quorate.config.listeners import Endpoint
from quorate.controller.config import ControllerConfig
from quorate.controller.driver import QuorumController
from quorate.log.files import OpenFiles
from quorate.metadata.bootstrap import bootstrap_records
from quorate.metadata.features import ELR_VERSION
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.net.dispatch import Dispatcher, ListenerKind
from simulation.checker.invariants import InvariantError
from simulation.nodes.disk import Directory, Disk
from simulation.nodes.loop import CALLBACK_OWNER, CrashError
from simulation.replication.environment import Environment
from simulation.replication.metadata_log import (
    CONTROLLER_ADDRESS,
    CONTROLLER_HOST,
    CONTROLLER_ID,
    BrokerRaft,
    ControllerRaft,
    MetadataLog,
)
from simulation.replication.network import Network

CLUSTER_ID = "simulated-cluster-0001"
PORT = 9092
METADATA_VERSION = 27
CONTROLLED_SHUTDOWN_S = 10.0


class Owner:
    """A process as the event loop knows it. Its callbacks run in its context, while it is alive."""

    def __init__(self, environment: Environment, host: str) -> None:
        self.environment = environment
        self.host = host
        self.alive = True
        self.blocked_until = 0.0
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.dispatcher: Dispatcher | None = None
        self.context = contextvars.copy_context()
        self.context.run(CALLBACK_OWNER.set, self)

    def now(self) -> float:
        return self.environment.now

    def now_ms(self) -> int:
        return self.environment.now_ms()

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """Starts a task that belongs to this process."""
        task = self.environment.loop.create_task(coroutine, context=self.context.copy())
        task.add_done_callback(self._task_ended, context=self.context.copy())
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """An exception that nothing has caught."""
        if not isinstance(error, InvariantError):
            error = InvariantError(f"{self.host}: {type(error).__name__}: {error}")
        self.environment.errors.append(error)


class Incarnation(Owner):
    """A broker from its start to its end."""

    def __init__(self, process: BrokerProcess) -> None:
        super().__init__(process.environment, process.host)
        self.process = process
        self.server: BrokerServer | None = None
        self.died_in_step = process.died_in_step

    @property
    def broker_id(self) -> int:
        return self.process.id

    @property
    def may_have_lost(self) -> bool:
        return self.process.may_have_lost

    def failed(self, error: BaseException) -> None:
        self.process.failed(self, error)


class BrokerProcess:
    """A broker with its disks, through all its incarnations."""

    def __init__(
        self, environment: Environment, network: Network, metadata: MetadataLog, broker_id: int
    ) -> None:
        self.environment = environment
        self.network = network
        self.metadata = metadata
        self.id = broker_id
        self.host = f"b{broker_id}"
        self.disks: list[Disk] = []
        self.directory_ids: list[bytes] = []
        self.current: Incarnation | None = None
        self.may_have_lost = False
        """Whether records were lost with the power or a disk since the last complete start."""
        self.died_in_step = False
        self.leaving = False
        self.has_new_disk = False
        self._disks_made = 0
        self._copies: dict[int, Any] = {}
        for _ in range(environment.config.topology.directories):
            self._add_disk(len(self.disks))

    # --- disks ------------------------------------------------------------------------------------

    def _add_disk(self, place: int) -> None:
        """Adds an empty formatted disk, or puts one in the place of another."""
        environment = self.environment
        disk = Disk(f"{self.host}d{place}", random.Random(environment.rng.getrandbits(32)))
        disk.root.change(data=Directory())
        disk.root.sync()
        disk.losses = environment.coverage
        disk.on_crash = self._crash_in_step
        environment.filesystem.add(disk)
        self._disks_made += 1
        directory_id = bytes([0xD0, self.id, place, self._disks_made]) * 4
        if place < len(self.disks):
            self.disks[place], self.directory_ids[place] = disk, directory_id
        else:
            self.disks.append(disk)
            self.directory_ids.append(directory_id)

    @staticmethod
    def directory(disk: Disk) -> str:
        """The log directory on a disk."""
        return f"{disk.path}/data"

    def replace_disk(self) -> None:
        """Puts an empty disk in the place of one. Only while the broker is down."""
        self._add_disk(self.environment.rng.randrange(len(self.disks)))
        self._lost_records()
        self.has_new_disk = True
        self.environment.coverage["new disks"] += 1
        self.environment.trace(self.host, "gets a new disk")

    def copy_disk(self) -> None:
        """Keeps a copy of one disk as it is."""
        place = self.environment.rng.randrange(len(self.disks))
        root = self.disks[place].root
        self._copies[place] = (self.directory_ids[place], copy.deepcopy(root))

    def restore_disk(self) -> None:
        """Puts an old copy of a disk in its place, with the same directory id. Only while the broker is
        down."""
        for place, (directory_id, root) in self._copies.items():
            if self.directory_ids[place] == directory_id:
                self.disks[place].root = root
                self._lost_records()
                self.environment.coverage["old disks"] += 1
                self.environment.trace(self.host, "gets an old copy of its disk")
        self._copies.clear()

    def _lost_records(self) -> None:
        self.may_have_lost = True
        self.environment.checker.stopped_uncleanly(self.id, loses_records=True)

    def break_disk(self) -> None:
        """Lets every later change and fsync of one disk fail."""
        rng = self.environment.rng
        disk = rng.choice(self.disks)
        disk.failing_errno = rng.choice((errno.EIO, errno.ENOSPC))
        self.environment.coverage["failing disks"] += 1
        self.environment.trace(self.host, f"has a failing disk, {disk.name}")

    # --- incarnations -----------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self.current is not None

    @property
    def server(self) -> BrokerServer | None:
        """The broker, once it serves clients."""
        current = self.current
        return None if current is None or current.dispatcher is None else current.server

    def _config(self) -> KafkaConfig:
        topology = self.environment.config.topology
        return KafkaConfig(
            {
                "process.roles": "broker",
                "node.id": str(self.id),
                "listeners": f"PLAINTEXT://{self.host}:{PORT}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": "c:9093",
                "log.dirs": ",".join(map(self.directory, self.disks)),
                "broker.heartbeat.interval.ms": "500",
                "broker.session.timeout.ms": "3000",
                "replica.lag.time.max.ms": str(int(topology.lag_max_s * 1000)),
                "replica.fetch.backoff.ms": "200",
                "replica.socket.timeout.ms": "5000",
                "replica.fetch.wait.max.ms": "500",
                "replica.high.watermark.checkpoint.interval.ms": "1500",
                "log.flush.offset.checkpoint.interval.ms": "4000",
                "log.flush.start.offset.checkpoint.interval.ms": "4000",
                "log.retention.check.interval.ms": "3000",
                "log.segment.delete.delay.ms": "1000",
                "unclean.leader.election.enable": str(topology.unclean_elections).lower(),
            }
        )

    def start(self) -> None:
        environment = self.environment
        for disk in self.disks:
            disk.online = True
        self.network.rebooted(self.host)
        self.leaving = False
        incarnation = self.current = Incarnation(self)
        environment.trace(self.host, "starts")
        self.network.servers[self.host, PORT] = incarnation
        incarnation.spawn(self._main(incarnation))

    async def _main(self, incarnation: Incarnation) -> None:
        config = self._config()
        raft: Any = BrokerRaft(self.metadata, self.host, incarnation.context)
        server = incarnation.server = BrokerServer(
            config,
            raft,
            cluster_id=CLUSTER_ID,
            directory_ids=dict(zip(config.log_dirs, self.directory_ids, strict=True)),
            files=OpenFiles(256),
            clock=incarnation,
            on_fault=partial(self.failed, incarnation),
        )
        await server.start([Endpoint("PLAINTEXT", self.host, PORT)])
        dispatcher = Dispatcher(ListenerKind.BROKER, features=server.features, narrow=server.narrow)
        dispatcher.register_all(server.routes)
        incarnation.dispatcher = dispatcher
        self.may_have_lost = self.died_in_step = False
        self.environment.trace(self.host, "serves")
        found = None  # a failed directory may have more logs
        if len(server.logs.online_dirs()) == len(self.disks):
            found = {(log.topic_id, log.partition) for log in server.logs.all_logs() if log.topic_id}
        self.environment.checker.serves(self.id, found)

    def failed(self, incarnation: Incarnation, error: BaseException) -> None:
        """Handles an error after which the broker cannot go on. With a failing disk that is right, and it
        starts again later; so it is if it could not start in time. Any other error is a violation."""
        if incarnation is not self.current or isinstance(error, CrashError):
            return
        if isinstance(error, InvariantError):
            self.environment.errors.append(error)
        elif any(disk.failing_errno is not None for disk in self.disks) or isinstance(error, TimeoutError):
            self.environment.coverage["stops by a failing disk"] += 1
            self.environment.trace(self.host, f"stops: {error}")
            self.crash(lose_power=False)
            self.schedule_restart()
        else:
            self.environment.errors.append(InvariantError(f"{self.host}: {type(error).__name__}: {error}"))

    def _crash_in_step(self) -> None:
        self.environment.coverage["deaths within a step"] += 1
        self.died_in_step = True
        self.crash(self.environment.rng.random() < self.environment.config.faults.power)
        self.schedule_restart()

    def crash(self, lose_power: bool) -> None:
        """Ends the process at once. With `lose_power`, what is not durable may be lost, and peers are not
        informed."""
        incarnation = self.current
        if incarnation is None:
            return
        environment = self.environment
        incarnation.alive = False
        self.current = None
        environment.trace(self.host, "loses power" if lose_power else "is killed")
        environment.coverage["power failures" if lose_power else "kills"] += 1
        for disk in self.disks:
            if lose_power:
                disk.lose_power()
            else:
                disk.kill()
            disk.online = False
        if lose_power:
            self.may_have_lost = True
            self.network.unreachable.add(self.host)
        environment.checker.stopped_uncleanly(self.id, loses_records=lose_power)
        self._gone(incarnation, silently=lose_power)

    def _gone(self, incarnation: Incarnation, *, silently: bool) -> None:
        environment = self.environment
        environment.checker.forget_views(self.id)
        self.metadata.forget(incarnation.context)
        self.network.died(self.host, incarnation, silently=silently)
        environment.cleanups.append(partial(self._close_tasks, incarnation))

    def _close_tasks(self, incarnation: Incarnation) -> None:
        """Closes the coroutines that the dead process has left suspended. Their `finally` blocks change
        nothing: the disks are offline meanwhile."""
        online = [disk.online for disk in self.disks]
        for disk in self.disks:
            disk.online = False
        self.environment.loop.close_tasks(incarnation)
        incarnation.server = None
        for disk, was_online in zip(self.disks, online, strict=True):
            disk.online = was_online

    def schedule_restart(self) -> None:
        """Starts the process after a random downtime, unless it is up by then."""

        def start() -> None:
            if not self.alive:
                self.start()

        self.environment.after(self.environment.config.faults.down_s, start)

    def shut_down(self) -> None:
        """Shuts the broker down gracefully, and schedules its restart."""
        incarnation, server = self.current, self.server
        if incarnation is None or server is None or self.leaving:
            return
        self.leaving = True

        async def stop_serving() -> None:
            incarnation.dispatcher = None
            self.network.died(self.host, incarnation, silently=False)

        async def stop() -> None:
            await server.shutdown(CONTROLLED_SHUTDOWN_S, stop_serving=stop_serving)
            if incarnation.alive:
                self.environment.coverage["controlled shutdowns"] += 1
                self.environment.trace(self.host, "has shut down")
                incarnation.alive = False
                self.current = None
                if any(disk.failing_errno is not None for disk in self.disks):
                    # It cannot be marked as cleanly closed, so the controller takes the stop for a crash.
                    self.environment.checker.stopped_uncleanly(self.id, loses_records=False)
                for disk in self.disks:
                    disk.kill()
                    disk.online = False
                self._gone(incarnation, silently=False)
                self.schedule_restart()

        self.environment.trace(self.host, "shuts down")
        incarnation.spawn(stop())

    def pause(self, until: float) -> None:
        if self.current is not None:
            self.environment.coverage["pauses"] += 1
            self.environment.trace(self.host, f"pauses until {until:.4f}")
            self.current.blocked_until = max(self.current.blocked_until, until)

    def check(self) -> None:
        """Checks what the broker believes about its partitions."""
        current = self.current
        if current is not None and current.server is not None:
            self.environment.checker.check_views(self.id, current.server.replicas.partitions.values())


class ControllerProcess(Owner):
    """The active controller. It never stops, but its terms end."""

    def __init__(self, environment: Environment, network: Network, metadata: MetadataLog) -> None:
        super().__init__(environment, CONTROLLER_HOST)
        topology = environment.config.topology
        levels = {"metadata.version": METADATA_VERSION}
        if topology.elr:
            levels[ELR_VERSION] = 1
        raft: Any = ControllerRaft(metadata, self.context)
        self._metadata = metadata
        self._image: MetadataImage = EMPTY
        self.controller = QuorumController(
            ControllerConfig(
                CONTROLLER_ID,
                CLUSTER_ID,
                static={"unclean.leader.election.enable": str(topology.unclean_elections).lower()},
                bootstrap=bootstrap_records(levels),
                broker_session_timeout_s=3.0,
                lost_connection_grace_s=1.0,
                max_idle_interval_s=2.0,
                leader_imbalance_check_interval_s=5.0,
                unclean_election_check_interval_s=2.0,
            ),
            raft,
            clock=self,
            rng=random.Random(environment.rng.getrandbits(32)),
            on_fatal=self.failed,
        )
        metadata.on_commit = self._committed
        network.servers[CONTROLLER_ADDRESS] = self

    def start(self) -> None:
        self.spawn(self._main())

    async def _main(self) -> None:
        await self.controller.start()
        dispatcher = Dispatcher(ListenerKind.CONTROLLER, features=self.controller.features)
        dispatcher.register_all(self.controller.routes)
        self.dispatcher = dispatcher
        self._metadata.elect()

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self._image

    def _committed(self) -> None:
        before, self._image = self._image, self.controller.state.image
        if self._image is not before:
            try:
                self.environment.checker.metadata_committed(before, self._image)
            except InvariantError as error:
                self.environment.errors.append(error)
                raise

    def replace(self, rng: random.Random) -> None:
        """Ends the term. The controller is active again in another epoch after a moment."""
        if not self.controller.state.is_active:
            return
        self.environment.coverage["controllers replaced"] += 1
        self.environment.trace(self.host, "loses the leadership")
        self._metadata.depose(keeps_uncommitted=rng.random() < 0.5)
        self.environment.after((0.01, 2.0), self._metadata.elect)


class ClientOwner(Owner):
    """A process of clients. It never stops."""
