"""A small network of its own: every node in a network namespace, joined by a router whose links the
test cuts. Needs root.

A cut is silent, as when a cable is pulled: nothing is refused or reset, packets are gone. It can be
one-way. The namespaces have no names; the kernel drops them, and all links, with the last process that
holds them.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pytest

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _enter(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _new_namespace() -> int:
    """A descriptor that holds a new namespace; made in a thread, so that the caller stays where it is."""
    made: list[int] = []
    error: list[OSError] = []

    def make() -> None:
        if _libc.unshare(_CLONE_NEWNET):
            error.append(OSError(ctypes.get_errno(), "unshare"))
        else:
            made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if error:
        raise error[0]
    return made[0]


class Network:
    """Hosts 1 to `hosts`, each at `address(host)`. Inside `with`, the calling thread, and every thread
    and process that it starts, stands at the router, from which all hosts are reached whatever is cut."""

    def __init__(self, hosts: int) -> None:
        self._spaces: dict[int, int] = {}
        self._cuts: set[tuple[int, int]] = set()
        try:
            self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            self._router = _new_namespace()
            self._run(self._router, "link", "set", "lo", "up")
            # A rule that drops one direction must not make the other one look forged.
            self._sysctl("net/ipv4/ip_forward", "1")
            self._sysctl("net/ipv4/conf/all/rp_filter", "0")
            self._sysctl("net/ipv4/conf/default/rp_filter", "0")
            for host in range(1, hosts + 1):
                space = self._spaces[host] = _new_namespace()
                here, there = f"r{host}", "eth0"
                self._run(
                    self._router,
                    "link",
                    "add",
                    here,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    there,
                    "netns",
                    self._path(space),
                )
                self._run(self._router, "addr", "add", f"10.77.{host}.1/24", "dev", here)
                self._run(self._router, "link", "set", here, "up")
                self._run(space, "link", "set", "lo", "up")
                self._run(space, "addr", "add", f"{self.address(host)}/24", "dev", there)
                self._run(space, "link", "set", there, "up")
                self._run(space, "route", "add", "default", "via", f"10.77.{host}.1")
        except (OSError, subprocess.CalledProcessError) as e:
            self.close()
            reason = e.stderr.decode().strip() if isinstance(e, subprocess.CalledProcessError) else e
            pytest.skip(f"network namespaces need root, iproute2 and a kernel that allows them: {reason}")

    @staticmethod
    def address(host: int) -> str:
        return f"10.77.{host}.2"

    @staticmethod
    def _path(fd: int) -> str:
        return f"/proc/{os.getpid()}/fd/{fd}"

    @staticmethod
    def _run(space: int, *args: str) -> None:
        subprocess.run(["ip", *args], check=True, capture_output=True, preexec_fn=lambda: _enter(space))

    def _sysctl(self, key: str, value: str) -> None:
        subprocess.run(
            ["sh", "-c", f"echo {value} > /proc/sys/{key}"],
            check=True,
            capture_output=True,
            preexec_fn=lambda: _enter(self._router),
        )

    def inside(self, host: int) -> Callable[[], None]:
        """For Popen's preexec_fn: the process lives at `host`."""
        space = self._spaces[host]
        return lambda: _enter(space)

    # -- cuts

    def cut_one_way(self, sender: int, receiver: int) -> None:
        """What `sender` says to `receiver` is lost from now on; the other direction is as it was."""
        if (sender, receiver) not in self._cuts:
            self._cuts.add((sender, receiver))
            self._rule("add", sender, receiver)

    def cut(self, one: int, other: int) -> None:
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def heal(self) -> None:
        """Everybody hears everybody again."""
        for sender, receiver in self._cuts:
            self._rule("del", sender, receiver)
        self._cuts.clear()

    def _rule(self, what: str, sender: int, receiver: int) -> None:
        addresses = ("from", self.address(sender), "to", self.address(receiver))
        self._run(self._router, "rule", what, *addresses, "type", "blackhole")

    # -- life

    def __enter__(self) -> Self:
        _enter(self._router)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _enter(self._home)
        self.close()

    def close(self) -> None:
        for fd in (*self._spaces.values(), getattr(self, "_router", -1), getattr(self, "_home", -1)):
            if fd >= 0:
                os.close(fd)
        self._spaces.clear()
        self._router = self._home = -1
