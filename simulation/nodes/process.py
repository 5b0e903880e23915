"""A simulated process: a complete RaftClient on a simulated disk, with operations for workload and faults."""

from __future__ import annotations

import asyncio
import errno
import random
from functools import partial
from pathlib import Path
from typing import Any

from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.protocol.messages.api_versions import ApiVersionsResponse
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from quorate.protocol.messages.vote import VoteRequest
from quorate.protocol.schema import Request
from quorate.raft.config import RaftConfig
from quorate.raft.core import messages as m
from quorate.raft.core.raft import Raft
from quorate.raft.core.voters import VoterSet
from quorate.raft.runtime.client import RaftClient
from quorate.raft.storage.snapshots.files import footer_batch, header_batch, snapshot_name
from quorate.raft.types import Address, NotLeaderError, ReplicaKey
from simulation.checker.invariants import InvariantError, ReplicaModel, keys_of
from simulation.identifiers import BOOTSTRAP_SNAPSHOT, CLUSTER_ID, LISTENER, address
from simulation.nodes.disk import Directory, Disk, File
from simulation.nodes.environment import Environment
from simulation.nodes.incarnation import Incarnation
from simulation.nodes.loop import CrashError
from simulation.nodes.network import Network
from simulation.nodes.observer import LOG_DIRECTORY, ProcessObserver
from simulation.nodes.state_machine import RecordingStateMachine


class Process:
    """A node on one metadata directory, through all its incarnations."""

    def __init__(
        self,
        environment: Environment,
        network: Network,
        key: ReplicaKey,
        *,
        can_vote: bool,
        static_voters: VoterSet,
        bootstrap_voters: VoterSet | None,
        bootstrap_servers: tuple[Address, ...],
    ) -> None:
        self.environment = environment
        self.network = network
        self.key = key
        self.id = key.id
        self.can_vote = can_vote
        self.static_voters = static_voters
        self.bootstrap_voters = bootstrap_voters
        self.bootstrap_servers = bootstrap_servers
        self.address = address(key.id)
        disk = Disk(f"n{key.id}-{key.directory_id[1]}", random.Random(environment.rng.getrandbits(32)))
        self.disk = environment.filesystem.add(disk)
        self.disk.on_crash = self._crash_mid_step
        voters = bootstrap_voters if bootstrap_voters is not None else static_voters
        self.observer = ProcessObserver(self, keys_of(voters))
        self.current: Incarnation | None = None  # None while the process is down
        self.replaced = False  # the node has another directory by now: this one is not started again
        self.without_power = False  # the host is off: it does not even refuse connections
        self.rate = 1.0  # of its clock
        self.wall_offset_ms = environment.rng.randint(-1000, 1000)
        self._format(bootstrap_voters)

    def _format(self, bootstrap_voters: VoterSet | None) -> None:
        """Leaves on the disk what `kafka-storage format` does, all of it durable."""
        root = self.disk.root
        root.change(meta=Directory())
        root.sync()
        if bootstrap_voters is not None:
            meta = root.names["meta"]
            assert isinstance(meta, Directory)
            directory, file = Directory(), File()
            file.write(
                0,
                bytes(
                    header_batch(BOOTSTRAP_SNAPSHOT, 1, 1, 1, bootstrap_voters)
                    + footer_batch(BOOTSTRAP_SNAPSHOT, 3, 1)
                ),
            )
            file.sync()
            directory.change(**{snapshot_name(BOOTSTRAP_SNAPSHOT): file})
            directory.sync()
            meta.change(**{LOG_DIRECTORY: directory})
            meta.sync()

    # --- incarnations -----------------------------------------------------------------------------

    @property
    def model(self) -> ReplicaModel:
        return self.observer.model

    @property
    def alive(self) -> bool:
        return self.current is not None

    @property
    def leads(self) -> bool:
        """Whether it believes to lead, and is not paused."""
        incarnation = self.current
        if incarnation is None or not incarnation.ready or incarnation.blocked_until > self.environment.now:
            return False
        return incarnation.client.is_leader

    @property
    def started(self) -> bool:
        return self.current is not None and self.current.ready

    @property
    def client(self) -> RaftClient:
        assert self.current is not None
        return self.current.client

    @property
    def core(self) -> Raft:
        return self.client.core

    @property
    def state_machine(self) -> RecordingStateMachine:
        assert self.current is not None
        return self.current.state_machine

    @property
    def committed(self) -> int:
        return self.state_machine.next_offset if self.current is not None else 0

    def raft_config(self) -> RaftConfig:
        """Returns the client's configuration: that of the node, with the simulation's topology and times."""
        config = self.environment.config
        return RaftConfig(
            node_id=self.id,
            directory_id=self.key.directory_id,
            cluster_id=CLUSTER_ID,
            metadata_dir=Path(self.disk.path) / "meta",
            listener_name=LISTENER,
            endpoints={LISTENER: self.address} if self.can_vote else {},
            is_controller=self.can_vote,
            voters={v.id: v.endpoints[LISTENER] for v in self.static_voters} or None,
            bootstrap_servers=self.bootstrap_servers,
            segment_ms=config.disks.segment_ms,
            retention_bytes=config.disks.retention_bytes,
            clean_interval_s=2.0,
            file_delete_delay_s=1.0,
            quick_failover=config.topology.quick_failover,
            auto_join=config.topology.auto_join,
            request_timeout_s=config.network.request_timeout_s,
        )

    def start(self) -> None:
        environment = self.environment
        incarnation = self.current = Incarnation(self)
        self.disk.online, self.without_power, self.observer.hears_leader = True, False, False
        environment.trace(self.id, "starts")
        raft_config = self.raft_config()
        raft_config.on_fatal = incarnation.failed
        rng = random.Random(environment.rng.getrandbits(32))
        incarnation.client = RaftClient(raft_config, incarnation.transport, clock=incarnation, rng=rng)
        incarnation.context.run(incarnation.client.register, incarnation.state_machine)
        environment.loop.create_task(self._main(incarnation), context=incarnation.context)

    async def _main(self, incarnation: Incarnation) -> None:
        """Starts the client, and lets the observer read the recovered log."""
        try:
            await incarnation.client.start()
            incarnation.ready = True
            self.observer.after_start(incarnation)
        except Exception as e:
            self.failed(incarnation, e)

    def failed(self, incarnation: Incarnation, error: BaseException) -> None:
        """Handles an error that the driver reports or a callback raises.

        With a failing disk the process has to stop, and starts again later. Any other error is a violation.
        """
        if incarnation is not self.current or isinstance(error, CrashError):
            return
        if self.disk.failing_errno is not None and not isinstance(error, InvariantError):
            self.environment.trace(self.id, f"stops: {error}")
            self.environment.coverage["stops by a failing disk"] += 1
            self.crash(lose_power=False)
            self.schedule_restart()
        elif isinstance(error, InvariantError):
            self.environment.errors.append(error)
        else:
            self.environment.errors.append(InvariantError(f"n{self.id}: {type(error).__name__}: {error}"))

    def _crash_mid_step(self) -> None:
        self.environment.coverage["deaths within a step"] += 1
        self.crash(self.environment.crash_loses_power())

    def crash(self, lose_power: bool) -> None:
        """Ends the process at once.

        With `lose_power` the host loses power: what is not durable may be lost, and peers receive nothing.
        """
        incarnation = self.current
        if incarnation is None:
            return
        self.observer.before_death()
        incarnation.alive = False
        self.current = None
        self.without_power = lose_power
        if lose_power:
            self.disk.lose_power()
        else:
            self.disk.kill()
        self.disk.online = False
        self.environment.trace(self.id, "loses power" if lose_power else "is killed")
        self.environment.coverage["power failures" if lose_power else "kills"] += 1
        self.network.died(incarnation, lose_power)
        self.environment.cleanups.append(partial(self._close_tasks, incarnation))

    def _close_tasks(self, incarnation: Incarnation) -> None:
        """Closes the coroutines of a dead incarnation now rather than when the garbage collector finds them.

        Their `finally` blocks change nothing: the disk is offline meanwhile.
        """
        online, self.disk.online = self.disk.online, False
        self.environment.loop.close_tasks(incarnation)
        self.disk.online = online

    def schedule_restart(self) -> None:
        """Starts the process after a random downtime.

        Nothing happens if it is up by then, or if its directory has been replaced.
        """
        environment = self.environment

        def start(_: None) -> None:
            if not self.alive and not self.replaced:
                self.start()

        environment.schedule(
            environment.now + environment.rng.uniform(*environment.config.faults.down_s), start, None
        )

    # --- operations -------------------------------------------------------------------------------

    def propose(self, values: list[Any]) -> bool:
        """Appends one record for each value and returns True, or False if this process does not lead.

        A record holds a unique number in place of the value, by which the state machines recognise it.
        """
        incarnation = self.current
        if incarnation is None or not incarnation.ready:
            return False
        identities = [self.environment.unique_number() for _ in values]
        epoch = incarnation.client.epoch
        try:
            incarnation.context.run(
                incarnation.client.append, epoch, [i.to_bytes(8, "big") for i in identities]
            )
        except NotLeaderError:
            return False
        incarnation.state_machine.proposed.update(dict.fromkeys(identities, epoch))
        self.environment.loop.active_owners[incarnation] = None
        return True

    def request_from_outside(self, request: m.RaftRequest) -> None:
        """Sends AddRaftVoter or RemoveRaftVoter to this process. The response is ignored."""
        message: Request
        if isinstance(request, m.AddVoter):
            v = request.voter
            host, port = v.endpoints[LISTENER]
            listeners = [AddRaftVoterRequest.Listener(name=LISTENER, host=host, port=port)]
            message = AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                timeout_ms=5000,
                voter_id=v.id,
                voter_directory_id=v.key.directory_id,
                listeners=listeners,
            )
        else:
            assert isinstance(request, m.RemoveVoter)
            message = RemoveRaftVoterRequest(
                cluster_id=CLUSTER_ID, voter_id=request.key.id, voter_directory_id=request.key.directory_id
            )
        if self.current is not None:
            outside = Incarnation(self)  # a sender on whose end nothing depends
            self.network.send(outside, self.address, message, 10.0).add_done_callback(lambda f: f.exception())

    def resign(self) -> None:
        incarnation = self.current
        if incarnation is not None and incarnation.ready:
            incarnation.context.run(incarnation.client.resign, incarnation.client.epoch)

    def upgrade(self) -> None:
        incarnation = self.current
        if (
            incarnation is not None
            and incarnation.ready
            and incarnation.client.is_leader
            and incarnation.client.kraft_version == 0
        ):
            upgrade = incarnation.client.upgrade_kraft_version(incarnation.client.epoch, 1)
            self.environment.loop.create_task(upgrade, context=incarnation.context).add_done_callback(
                lambda t: t.cancelled() or t.exception()
            )

    def stop(self) -> None:
        """Shuts the process down gracefully, and schedules its restart."""
        incarnation = self.current
        if incarnation is None or not incarnation.ready:
            return

        async def stop() -> None:
            try:
                await incarnation.client.shutdown(3.0)
            except Exception as e:  # a failing disk, for example
                self.failed(incarnation, e)
            if incarnation.alive:
                self.crash(lose_power=False)
                self.schedule_restart()

        self.environment.loop.create_task(stop(), context=incarnation.context)

    def pause(self, until: float) -> None:
        if self.current is not None:
            self.environment.coverage["pauses"] += 1
            self.current.blocked_until = max(self.current.blocked_until, until)

    def crash_mid_step(self, changes: int) -> None:
        """Ends the process at the change of its disk that follows this many others."""
        self.disk.crash_after_changes = changes

    def break_disk(self) -> None:
        """Lets every later change and fsync of the disk fail. The process must notice and stop."""
        self.environment.coverage["failing disks"] += 1
        self.disk.failing_errno = self.environment.rng.choice((errno.EIO, errno.ENOSPC))

    def take_snapshot(self, clean: bool = True) -> None:
        incarnation = self.current
        if incarnation is None or not incarnation.ready or incarnation.state_machine.next_offset == 0:
            return
        state_machine = incarnation.state_machine

        async def snapshot() -> None:
            made = await incarnation.client.create_snapshot(
                state_machine.next_offset,
                state_machine.epoch,
                state_machine.timestamp_ms,
                state_machine.snapshot_batches(),
            )
            if made is not None:
                self.environment.coverage["snapshots taken"] += 1
                self.environment.trace(self.id, f"takes the snapshot {made.offset}-{made.epoch}")

        task = self.environment.loop.create_task(snapshot(), context=incarnation.context)
        task.add_done_callback(lambda t: self._snapshot_done(incarnation, t))

    def _snapshot_done(self, incarnation: Incarnation, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if (
            error is not None
            and incarnation.alive
            and self.disk.failing_errno is None
            and not isinstance(error, CrashError)
        ):
            self.environment.errors.append(InvariantError(f"n{self.id} cannot take a snapshot: {error!r}"))

    def api_versions(self) -> ApiVersionsResponse:
        """The answer of this node's controller listener, which the simulation does without."""
        feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
        vote = ApiVersionsResponse.ApiVersion(api_key=VoteRequest.KEY, max_version=VoteRequest.MAX_VERSION)
        return ApiVersionsResponse(api_keys=[vote], supported_features=[feature])
