"""Injects faults: crashes, disks, cut links, pauses, and the end of the controller's terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from simulation.replication.environment import Environment
from simulation.replication.metadata_log import CONTROLLER_HOST
from simulation.replication.network import Network
from simulation.replication.process import BrokerProcess, ControllerProcess


class Nemesis:
    """The faults of one cluster."""

    def __init__(
        self,
        environment: Environment,
        network: Network,
        controller: ControllerProcess,
        brokers: dict[int, BrokerProcess],
    ) -> None:
        self._environment = environment
        self._network = network
        self._controller = controller
        self._brokers = brokers
        self._rng = environment.rng

    def intervals(self) -> Iterator[tuple[Callable[[], None], float]]:
        """Each fault with its mean interval in seconds; 0 means never."""
        faults = self._environment.config.faults
        yield self.crash, faults.crash_every_s
        yield self.cut, faults.cut_every_s
        yield self.pause, faults.pause_every_s
        yield self.break_disk, faults.bad_disk_every_s
        yield self.replace_disk, faults.new_disk_every_s
        yield self.restore_disk, faults.old_disk_every_s
        yield self.replace_controller, faults.new_controller_every_s

    def _broker(self) -> BrokerProcess | None:
        """Draws a broker that is up."""
        found = [broker for broker in self._brokers.values() if broker.alive]
        return self._rng.choice(found) if found else None

    def crash(self) -> None:
        """Kills a broker or takes its power, now or within one of its next steps."""
        broker, faults = self._broker(), self._environment.config.faults
        if broker is None:
            return
        if self._rng.random() < faults.mid_step:
            self._rng.choice(broker.disks).crash_after_changes = self._rng.randrange(30)
        else:
            broker.crash(self._rng.random() < faults.power)
            broker.schedule_restart()

    def cut(self) -> None:
        """Holds back what is sent over some links, in one direction or both."""
        hosts = [broker.host for broker in self._brokers.values()] + [CONTROLLER_HOST, "cl"]
        one = self._rng.choice(hosts[:-2])
        others = [host for host in hosts if host != one]
        if self._rng.random() < 0.6:
            others = [self._rng.choice(others)]
        directions = self._rng.choice(("both", "both", "to", "from"))
        pairs = [(one, other) for other in others if directions != "from"]
        pairs += [(other, one) for other in others if directions != "to"]
        for pair in pairs:
            self._network.cut(*pair)
        self._environment.coverage["links cut" if directions == "both" else "links cut one way"] += 1
        self._environment.trace(one, f"is cut {directions} {', '.join(others)}")

        def heal() -> None:
            for pair in pairs:
                self._network.heal(*pair)

        self._environment.after(self._environment.config.faults.cut_s, heal)

    def pause(self) -> None:
        """Stops a broker or the controller for a while, as SIGSTOP does."""
        span = self._environment.config.faults.pause_s
        until = self._environment.now + self._environment.draw(span)
        if self._rng.random() < 0.2:
            self._controller.blocked_until = max(self._controller.blocked_until, until)
            return
        broker = self._broker()
        if broker is not None:
            broker.pause(until)

    def break_disk(self) -> None:
        broker = self._broker()
        if broker is not None:
            broker.break_disk()
            self._environment.after((1.0, 10.0), lambda: self._repair(broker))

    def _repair(self, broker: BrokerProcess) -> None:
        """Restarts a broker whose disk has failed, with the disk as it is."""
        if broker.alive:
            broker.crash(lose_power=False)
            broker.schedule_restart()

    def replace_disk(self) -> None:
        """Kills a broker, which starts with an empty disk in the place of one."""
        broker = self._broker()
        if broker is not None:
            broker.crash(lose_power=False)
            broker.replace_disk()
            broker.schedule_restart()

    def restore_disk(self) -> None:
        """Copies a disk. Later the broker is killed and starts with the copy."""
        broker = self._broker()
        if broker is None:
            return
        broker.copy_disk()

        def restore() -> None:
            broker.crash(lose_power=False)
            broker.restore_disk()
            broker.schedule_restart()

        self._environment.after((1.0, 6.0), restore)

    def replace_controller(self) -> None:
        self._controller.replace(self._rng)
