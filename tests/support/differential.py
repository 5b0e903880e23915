"""The same requests to two nodes, and where their answers differ.

Requests are our own message objects, sent over plain sockets; an answer is its JSON, or "closed" where
the node ended the connection, or "silence" where none came in time. What cannot be equal (ids that a
node draws, ports, times, texts of messages) is masked.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

from quorate.protocol.api import decode_response, encode_request, frame
from quorate.protocol.json import to_json
from quorate.protocol.schema import Request
from quorate.protocol.uuids import ZERO_UUID, uuid_text

CLOSED, SILENCE = "closed", "silence"

MASKED = frozenset(
    {
        "throttleTimeMs", "errorMessage", "batchIndexErrorMessage", "port", "sessionId", "memberId", "leader",
        "topicId", "producerId", "logAppendTimeMs", "lastTimestamp", "clusterAuthorizedOperations", "usableBytes", "totalBytes",
        "lastCaughtUpTimestamp", "lastFetchTimestamp", "finalizedFeaturesEpoch", "size", "directoryId", "brokerEpoch",
        "clientInstanceId", "replicaDirectoryId",
    }
)  # fmt: skip
"""Fields that each node fills in its own way. Masked values still tell nothing, something, or the
protocol's "none"."""

_OURS = frozenset({"startTimeMs", "snapshotEndOffset"})
"""Our tagged fields (quorate.protocol.our_tags): others skip them."""

_IDENTITY = (
    "name", "topicName", "topic", "resourceName", "groupId", "key", "apiKey", "partitionIndex", "partitionId", "partition",
    "index", "brokerId", "nodeId", "entityType", "user", "transactionalId", "configName",
)  # fmt: skip


@dataclass
class Answer:
    """What came back: the response, if any, and its JSON with the volatile parts masked."""

    response: Any
    shown: Any
    messages: list[str] = field(default_factory=list)
    """The texts of errors in it, which are for people and not compared."""


class Peer:
    """One node, asked over one connection to each listener; a connection that it ends is made anew for
    the next request."""

    def __init__(self, name: str, ports: dict[str, int], data: str = "") -> None:
        """ports: of the listeners "broker" and "controller". data: the node's directory, which is masked."""
        self.name = name
        self.ports = ports
        self.data = data
        self._sockets: dict[str, socket.socket] = {}
        self._correlation = 0

    def ask(
        self,
        request: Request,
        version: int,
        *,
        to: str = "broker",
        via: str = "",
        timeout_s: float = 8.0,
        client_id: str | None = "differ",
    ) -> Answer:
        """The answer to one request. Connections are told apart by `via`. Raises EncodeError when the
        version cannot say it."""
        self.send(request, version, to=to, via=via, client_id=client_id)
        return self.answer(request, version, to=to, via=via, timeout_s=timeout_s)

    def send(
        self,
        request: Request,
        version: int,
        *,
        to: str = "broker",
        via: str = "",
        client_id: str | None = "differ",
    ) -> None:
        """Sends a request whose answer is read later, by `answer` with the same arguments."""
        self._correlation += 1
        data = b"".join(
            bytes(p) for p in frame([encode_request(self._correlation, client_id, request, version)])
        )
        with contextlib.suppress(ConnectionError):  # the answer tells
            self._socket(to, via).sendall(data)

    def answer(
        self, request: Request, version: int, *, to: str = "broker", via: str = "", timeout_s: float = 8.0
    ) -> Answer:
        raw = self._read(to, via, timeout_s)
        if isinstance(raw, str):
            return Answer(None, raw)
        read_version = version
        if request.KEY == 18 and struct.unpack_from(">h", raw, 4)[0] == 35:
            read_version = 0
        _, response = decode_response(memoryview(raw), request.KEY, read_version)
        messages: list[str] = []
        return Answer(response, self._anywhere(mask(to_json(response, read_version), messages)), messages)

    def _anywhere(self, shown: Any) -> Any:
        """The same wherever the node lies and listens."""
        text = json.dumps(shown)
        if self.data:
            text = text.replace(self.data, "DATA")
        for to, port in self.ports.items():
            text = text.replace(f":{port}", f":{to.upper()}")
        return json.loads(text)

    def _socket(self, to: str, via: str) -> socket.socket:
        s = self._sockets.get(to + via)
        if s is None:
            s = self._sockets[to + via] = socket.create_connection(("127.0.0.1", self.ports[to]), 5)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def _read(self, to: str, via: str, timeout_s: float) -> bytes | str:
        s = self._socket(to, via)
        s.settimeout(timeout_s)
        try:
            return _exactly(s, struct.unpack(">i", _exactly(s, 4))[0])
        except TimeoutError:
            self._drop(to + via)
            return SILENCE
        except (ConnectionError, EOFError):
            self._drop(to + via)
            return CLOSED

    def _drop(self, name: str) -> None:
        with contextlib.suppress(OSError, KeyError):
            self._sockets.pop(name).close()

    def close(self) -> None:
        for name in list(self._sockets):
            self._drop(name)


def _exactly(s: socket.socket, n: int) -> bytes:
    data = bytearray()
    while len(data) < n:
        piece = s.recv(min(n - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def mask(value: Any, messages: list[str], key: str = "") -> Any:
    """The JSON with volatile values replaced by what they tell, lists of things in the order of their
    names."""
    if isinstance(value, dict):
        return {k: mask(v, messages, k) for k, v in value.items() if k not in _OURS}
    if isinstance(value, list):
        items = [mask(v, messages, key) for v in value]
        return sorted(items, key=_order) if items and isinstance(items[0], dict) else items
    if key in MASKED:
        if key in ("errorMessage", "batchIndexErrorMessage"):
            if value:
                messages.append(value)
            return "text"
        if key == "throttleTimeMs":
            return 0
        none = value in (None, "", 0, -1, uuid_text(ZERO_UUID))
        return value if none else "some"
    return value


def _identity(item: Any) -> str:
    return json.dumps([item.get(name) for name in _IDENTITY]) if isinstance(item, dict) else json.dumps(item)


def _order(item: dict[str, Any]) -> str:
    return _identity(item) + json.dumps(item, sort_keys=True)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """One line for each place where two answers differ: path, ours, theirs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for k in dict.fromkeys([*ours, *theirs]):
            found += differences(ours.get(k, "(absent)"), theirs.get(k, "(absent)"), f"{path}.{k}")
        return found
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) == len(theirs):
            return [
                d
                for i, (a, b) in enumerate(zip(ours, theirs, strict=True))
                for d in differences(a, b, f"{path}[{i}]")
            ]
        mine, kafkas = ({_identity(item): item for item in items} for items in (ours, theirs))
        if len(mine) == len(ours) and len(kafkas) == len(theirs):  # each tells what it is about
            found = []
            for k in dict.fromkeys([*mine, *kafkas]):
                names = ",".join(str(x) for x in json.loads(k) if x is not None) if k[0] == "[" else k
                found += differences(mine.get(k, "(absent)"), kafkas.get(k, "(absent)"), f"{path}[{names}]")
            return found
    if ours == theirs:
        return []
    return [f"{path or '.'}: ours {json.dumps(ours)[:300]}, Kafka's {json.dumps(theirs)[:300]}"]
