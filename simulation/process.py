"""A simulated process: a whole RaftClient on a simulated disk, and what workload and faults do to it."""

from __future__ import annotations

import asyncio
import errno
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.protocol.messages.api_versions import ApiVersionsResponse
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from quorate.protocol.messages.vote import VoteRequest
from quorate.protocol.schema import Request
from quorate.raft import messages as m
from quorate.raft.config import RaftConfig
from quorate.raft.core import Raft
from quorate.raft.driver import RaftClient
from quorate.raft.snapshots import footer_batch, header_batch, snapshot_name
from quorate.raft.types import NotLeaderError, ReplicaKey
from quorate.raft.voters import VoterSet
from simulation.disk import Directory, Disk, File
from simulation.invariants import InvariantError, Subject, keys_of
from simulation.life import Life
from simulation.loop import CrashError
from simulation.machine import Machine
from simulation.memory import BOOTSTRAP
from simulation.replica import CLUSTER, LISTENER
from simulation.witness import LOG, Witness

if TYPE_CHECKING:
    from simulation.cluster import Cluster


class Process:
    """A node through its lives, on one directory."""

    def __init__(self, cluster: Cluster, key: ReplicaKey, *, can_vote: bool, static: VoterSet, boot: VoterSet | None) -> None:
        self.cluster = cluster
        self.key = key
        self.id = key.id
        self.can_vote = can_vote
        self.static = static
        self.boot = boot
        self.address = (f"n{key.id}", 9000 + key.id)
        self.disk = cluster.files.add(Disk(f"n{key.id}-{key.directory_id[1]}", random.Random(cluster.rng.getrandbits(32))))
        self.disk.on_die = self._dies_within_a_step
        self.witness = Witness(self, keys_of(boot if boot is not None else static))
        self.life = 0
        self.now_living: Life | None = None
        self.silent = False  # without power: connections are not even refused
        self.rate = 1.0
        self.wall_offset_ms = cluster.rng.randint(-1000, 1000)
        self.replies: dict[object, m.Reply] = {}
        self._format(boot)

    def _format(self, boot: VoterSet | None) -> None:
        """As the storage tool leaves it, durable."""
        root = self.disk.root
        root.change(meta=Directory())
        root.sync()
        if boot is not None:
            meta = root.names["meta"]
            assert isinstance(meta, Directory)
            directory, file = Directory(), File()
            file.write(0, bytes(header_batch(BOOTSTRAP, 1, 1, 1, boot) + footer_batch(BOOTSTRAP, 3, 1)))
            file.sync()
            directory.change(**{snapshot_name(BOOTSTRAP): file})
            directory.sync()
            meta.change(**{LOG: directory})
            meta.sync()

    # --- life -------------------------------------------------------------------------------------------------------

    @property
    def subject(self) -> Subject:
        return self.witness.subject

    @property
    def alive(self) -> bool:
        return self.now_living is not None

    @property
    def leads(self) -> bool:
        life = self.now_living
        return life is not None and life.ready and life.blocked_until <= self.cluster.now and life.client.is_leader

    @property
    def started(self) -> bool:
        return self.now_living is not None and self.now_living.ready

    @property
    def client(self) -> RaftClient:
        assert self.now_living is not None
        return self.now_living.client

    @property
    def core(self) -> Raft:
        return self.client.core

    @property
    def machine(self) -> Machine:
        assert self.now_living is not None
        return self.now_living.machine

    @property
    def committed(self) -> int:
        return self.machine.next_offset if self.now_living is not None else 0

    def config(self) -> RaftConfig:
        plan = self.cluster.plan
        return RaftConfig(
            node_id=self.id,
            directory_id=self.key.directory_id,
            cluster_id=CLUSTER,
            metadata_dir=Path(self.disk.path) / "meta",
            listener_name=LISTENER,
            endpoints={LISTENER: self.address} if self.can_vote else {},
            is_controller=self.can_vote,
            voters={v.id: v.endpoints[LISTENER] for v in self.static} or None,
            bootstrap_servers=self.cluster.bootstrap,
            segment_ms=plan.disks.segment_ms,
            retention_bytes=plan.disks.retention_bytes,
            clean_interval_s=2.0,
            file_delete_delay_s=1.0,
            quick_failover=plan.topology.quick_failover,
            auto_join=plan.topology.auto_join,
            request_timeout_s=plan.links.request_timeout_s,
        )

    def start(self) -> None:
        cluster = self.cluster
        self.life += 1
        life = self.now_living = Life(self)
        self.disk.online, self.silent, self.witness.hears = True, False, False
        self.replies.clear()
        cluster.note(self, "starts")
        config = self.config()
        config.on_fatal = life.failed
        rng = random.Random(cluster.rng.getrandbits(32))
        life.client = RaftClient(config, life.transport, clock=life, rng=rng)
        life.context.run(life.client.register, life.machine)
        cluster.loop.create_task(self._main(life), context=life.context)

    async def _main(self, life: Life) -> None:
        try:
            await life.client.start()
            life.ready = True
            self.witness.reread(life)
        except Exception as e:
            self.failed(life, e)

    def failed(self, life: Life, error: BaseException) -> None:
        if life is not self.now_living or isinstance(error, CrashError):
            return
        if self.disk.fails is not None and not isinstance(error, InvariantError):
            self.cluster.note(self, f"stops: {error}")
            self.cluster.happened["stops by a failing disk"] += 1
            self.die(power=False)
            self.cluster.start_later(self)
        elif isinstance(error, InvariantError):
            self.cluster.errors.append(error)
        else:
            self.cluster.errors.append(InvariantError(f"n{self.id}: {type(error).__name__}: {error}"))

    def _dies_within_a_step(self) -> None:
        self.cluster.happened["deaths within a step"] += 1
        self.die(self.cluster.dies_by_power())

    def die(self, power: bool) -> None:
        life = self.now_living
        if life is None:
            return
        self.witness.dies()
        life.alive = False
        self.now_living = None
        self.silent = power
        if power:
            self.disk.lose_power()
        else:
            self.disk.kill()
        self.disk.online = False
        self.cluster.note(self, "loses power" if power else "is killed")
        self.cluster.happened["power failures" if power else "kills"] += 1
        self.cluster.network.died(life, power)
        self.cluster.dead.append(life)

    # --- what is asked of it ----------------------------------------------------------------------------------------

    def propose(self, values: list[Any]) -> bool:
        life = self.now_living
        if life is None or not life.ready:
            return False
        identities = [self.cluster.unique() for _ in values]
        epoch = life.client.epoch
        try:
            life.context.run(life.client.append, epoch, [i.to_bytes(8, "big") for i in identities])
        except NotLeaderError:
            return False
        life.machine.mine.update(dict.fromkeys(identities, epoch))
        self.cluster.loop.touched[life] = None
        return True

    def ask(self, request: m.RaftRequest) -> None:
        """AddVoter or RemoveVoter, over the wire; nobody waits for the answer."""
        message: Request
        if isinstance(request, m.AddVoter):
            v = request.voter
            host, port = v.endpoints[LISTENER]
            listeners = [AddRaftVoterRequest.Listener(name=LISTENER, host=host, port=port)]
            message = AddRaftVoterRequest(
                cluster_id=CLUSTER, timeout_ms=5000, voter_id=v.id, voter_directory_id=v.key.directory_id, listeners=listeners
            )
        else:
            assert isinstance(request, m.RemoveVoter)
            message = RemoveRaftVoterRequest(
                cluster_id=CLUSTER, voter_id=request.key.id, voter_directory_id=request.key.directory_id
            )
        if self.now_living is not None:
            outside = Life(self)  # of no consequence when it dies
            self.cluster.network.send(outside, self.address, message, 10.0).add_done_callback(lambda f: f.exception())

    def resign(self) -> None:
        life = self.now_living
        if life is not None and life.ready:
            life.context.run(life.client.resign, life.client.epoch)

    def upgrade(self) -> None:
        life = self.now_living
        if life is not None and life.ready and life.client.is_leader and life.client.kraft_version == 0:
            upgrade = life.client.upgrade_kraft_version(life.client.epoch, 1)
            self.cluster.loop.create_task(upgrade, context=life.context).add_done_callback(
                lambda t: t.cancelled() or t.exception()
            )

    def stop(self) -> None:
        """Gracefully; starts again later."""
        life = self.now_living
        if life is None or not life.ready:
            return

        async def stop() -> None:
            try:
                await life.client.shutdown(3.0)
            except Exception as e:  # its disk, perhaps
                self.failed(life, e)
            if life.alive:
                self.die(power=False)
                self.cluster.start_later(self)

        self.cluster.loop.create_task(stop(), context=life.context)

    def pause(self, until: float) -> None:
        if self.now_living is not None:
            self.cluster.happened["pauses"] += 1
            self.now_living.blocked_until = max(self.now_living.blocked_until, until)

    def doom(self, changes: int) -> None:
        """Dies in the midst of something: so many changes of its disk later."""
        self.disk.dies_in = changes

    def break_disk(self) -> None:
        """From now on it takes nothing more; the process must notice and stop."""
        self.cluster.happened["failing disks"] += 1
        self.disk.fails = self.cluster.rng.choice((errno.EIO, errno.ENOSPC))

    def take_snapshot(self, clean: bool = True) -> None:
        life = self.now_living
        if life is None or not life.ready or life.machine.next_offset == 0:
            return
        machine = life.machine

        async def snapshot() -> None:
            made = await life.client.create_snapshot(
                machine.next_offset, machine.epoch, machine.timestamp_ms, machine.snapshot_batches()
            )
            if made is not None:
                self.cluster.happened["snapshots taken"] += 1
                self.cluster.note(self, f"takes the snapshot {made.offset}-{made.epoch}")

        task = self.cluster.loop.create_task(snapshot(), context=life.context)
        task.add_done_callback(lambda t: self._snapshot_done(life, t))

    def _snapshot_done(self, life: Life, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and life.alive and self.disk.fails is None and not isinstance(error, CrashError):
            self.cluster.errors.append(InvariantError(f"n{self.id} cannot take a snapshot: {error!r}"))

    def api_versions(self) -> ApiVersionsResponse:
        feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
        vote = ApiVersionsResponse.ApiVersion(api_key=VoteRequest.KEY, max_version=VoteRequest.MAX_VERSION)
        return ApiVersionsResponse(api_keys=[vote], supported_features=[feature])
