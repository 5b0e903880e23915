"""What the admin client says of an address where something else than Kafka listens."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest

from quorate.admin.client import AdminClient
from quorate.admin.errors import NotKafkaError, RequestTimedOut
from quorate.admin.non_kafka_server import foreign_server
from quorate.admin.types import TopicPartition
from tests.broker.controllers import ScriptedController, run

HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
LATE = HTTP + b"it waited for the end of a line"
ALERT = b"\x15\x03\x03\x00\x02\x02\x46"


class Stranger:
    """Reads what is sent, answers `says` (nothing where it is None, for ever) and closes."""

    def __init__(self, says: bytes | None, tls: ssl.SSLContext | None = None) -> None:
        self.says = says
        self.tls = tls
        self.connections = 0

    async def __aenter__(self) -> Stranger:
        self.server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self.tls)
        self.port: int = self.server.sockets[0].getsockname()[1]
        return self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.says is None:
            await reader.read()
        else:
            await reader.readuntil(b"\r\n") if self.says == LATE else await reader.read(1)
            writer.write(self.says)
        writer.close()

    async def __aexit__(self, *_: object) -> None:
        self.server.close()


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (HTTP, "it is an HTTP server (HTTP/1.1 400 Bad Request): give the port of a Kafka listener"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "it is an SSH server (SSH-2.0-OpenSSH_9.6): give"),
        (ALERT, "it speaks TLS: set security.protocol to SSL or SASL_SSL"),
        (bytes(64), "which is not Kafka's protocol"),
        (b"+OK\r\n", r"it answered b'+OK\r\n', which is not Kafka's protocol"),
    ],
)
def test_what_is_certain_is_told_at_once_and_not_tried_again(says: bytes, told: str) -> None:
    async def body() -> None:
        async with Stranger(says) as stranger, AdminClient(f"127.0.0.1:{stranger.port}") as admin:
            for _ in range(2):
                with pytest.raises(NotKafkaError) as caught:
                    await asyncio.wait_for(admin.describe_cluster(), 5)
                assert str(caught.value).startswith(f"127.0.0.1:{stranger.port} cannot be used: ")
                assert told in str(caught.value)
            assert stranger.connections <= 3

    run(body)


def test_a_tls_listener_that_closes_without_a_word_is_known_by_a_handshake(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        ["openssl", *words.split(), "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=30
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    async def body() -> None:
        async with Stranger(b"", context) as stranger:
            told = await foreign_server("127.0.0.1", stranger.port)
            assert told is not None and told.startswith("it speaks TLS")

    run(body)


def test_nothing_is_said_against_a_kafka_listener_or_one_that_is_silent_or_closed() -> None:
    async def body() -> None:
        node = ScriptedController({})
        port = await node.start()
        assert await foreign_server("127.0.0.1", port) is None
        await node.close()
        assert await foreign_server("127.0.0.1", port) is None
        async with Stranger(None) as silent, Stranger(b"") as closing:
            assert await foreign_server("127.0.0.1", silent.port, 0.2) is None
            assert await foreign_server("127.0.0.1", closing.port, 0.2) is None

    run(body)


def test_a_server_that_waits_for_the_end_of_a_line_is_known_when_it_did_not_answer() -> None:
    async def body() -> None:
        async with (
            Stranger(LATE) as stranger,
            AdminClient(f"127.0.0.1:{stranger.port}", request_timeout_s=0.3) as admin,
        ):
            with pytest.raises(NotKafkaError, match="HTTP server"):
                await asyncio.wait_for(admin.describe_cluster(), 5)

    run(body)


def test_another_server_is_asked_when_one_of_them_is_no_kafka() -> None:
    async def body() -> None:
        from tests.admin.test_silent_nodes import World

        world = World()
        (first, *_) = await world.start()
        async with Stranger(HTTP) as stranger, AdminClient([f"127.0.0.1:{stranger.port}", first]) as admin:
            assert (await admin.describe_cluster()).cluster_id == "c"
        await world.close()

    run(body)


def test_the_end_of_the_patience_names_what_was_in_the_way() -> None:
    async def body() -> None:
        async with Stranger(None) as silent:
            where = f"127.0.0.1:{silent.port}"
            async with AdminClient(where, request_timeout_s=0.3, api_timeout_s=0.8) as admin:
                with pytest.raises(RequestTimedOut, match=where):
                    await admin.delete_records({TopicPartition("t", 0): 1})

    run(body)
