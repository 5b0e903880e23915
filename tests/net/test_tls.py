"""Requests over TLS: responses are written through the transport, file regions are read into memory."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from quorate.net.client import Connection, KafkaConnectionError
from quorate.net.dispatch import Dispatcher, ListenerKind, SecurityProtocol
from quorate.net.errors import TlsError
from quorate.net.limits import ConnectionLimits
from quorate.net.server import Listener
from quorate.protocol.api import ApiKey
from quorate.protocol.file_region import FileRegion
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.net.served import served_for

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is missing: it makes the test's certificate"
)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=certificate)


def test_requests_and_file_regions_over_tls(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], tmp_path: Path
) -> None:
    content = os.urandom(3 << 20)
    path = tmp_path / "segment"
    path.write_bytes(content)
    received: list[bytes] = []

    async def main() -> None:
        with path.open("rb") as file:

            def fetch(context: object, request: FetchRequest) -> FetchResponse:
                partitions = [
                    FetchResponse.PartitionData(partition_index=0, records=FileRegion(file, 10, 2_500_000)),
                    FetchResponse.PartitionData(partition_index=1, records=b"behind"),
                ]
                return FetchResponse(
                    responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)]
                )

            def produce(context: object, request: ProduceRequest) -> ProduceResponse:
                received.append(bytes(request.topic_data[0].partition_data[0].records))  # type: ignore[arg-type]
                return ProduceResponse()

            dispatcher = Dispatcher(ListenerKind.BROKER)
            dispatcher.register(ApiKey.FETCH, fetch)
            dispatcher.register(ApiKey.PRODUCE, produce)
            listener = Listener()
            await listener.start(
                "127.0.0.1", 0, dispatcher, "SSL", security_protocol=SecurityProtocol.SSL, ssl=contexts[0]
            )
            connection = await Connection.connect("127.0.0.1", listener.port, ssl=contexts[1])
            data = ProduceRequest.PartitionProduceData(records=content)
            topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
            answers = await asyncio.gather(
                connection.call(FetchRequest(), 10, 12),
                connection.call(ProduceRequest(acks=1, topic_data=[topic]), 10, 9),
                connection.call(FetchRequest(), 10, 12),
            )
            for answer in (answers[0], answers[2]):
                assert [bytes(p.records) for p in answer.responses[0].partitions] == [
                    content[10:2_500_010],
                    b"behind",
                ]
            assert received == [content]
            with pytest.raises(KafkaConnectionError):  # in the clear on a TLS listener
                await Connection.connect("127.0.0.1", listener.port, timeout_s=5)
            await listener.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_region_that_cannot_be_read_ends_its_connection(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], tmp_path: Path
) -> None:
    """As without TLS. Otherwise the client would wait for its timeout on an open connection."""

    async def main() -> None:
        with (tmp_path / "segment").open("wb") as file:  # not readable
            records = FileRegion(file, 0, 1000)
            answer = FetchResponse(
                responses=[
                    FetchResponse.FetchableTopicResponse(
                        topic="t", partitions=[FetchResponse.PartitionData(records=records)]
                    )
                ]
            )

            async def fetch(context: object, request: FetchRequest) -> FetchResponse:
                await asyncio.sleep(0)
                return answer

            dispatcher = Dispatcher(ListenerKind.BROKER)
            dispatcher.register(ApiKey.FETCH, fetch)
            listener = Listener()
            await listener.start(
                "127.0.0.1", 0, dispatcher, "SSL", security_protocol=SecurityProtocol.SSL, ssl=contexts[0]
            )
            connection = await Connection.connect("127.0.0.1", listener.port, ssl=contexts[1])
            try:
                with pytest.raises(KafkaConnectionError):
                    await connection.call(FetchRequest(), 20, 12)
            finally:
                connection.close()
                await listener.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_reader_of_long_standing_may_pause(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Its last response that did not go out at once may be older than a connection may be idle."""
    idle_s = 2.0

    async def main() -> None:
        size = 100
        dispatcher = Dispatcher(ListenerKind.BROKER)
        dispatcher.register(ApiKey.METADATA, lambda c, r: MetadataResponse(cluster_id="x" * size))
        listener = Listener()
        limits = ConnectionLimits(max_idle_s=idle_s)
        await listener.start("127.0.0.1", 0, dispatcher, "SSL", limits, ssl=contexts[0])
        connection = await Connection.connect("127.0.0.1", listener.port, ssl=contexts[1])
        (served,) = listener.connections
        await served_for(connection, idle_s)
        assert connection._transport is not None and served._output is not None
        connection._transport.pause_reading()
        size = 30_000
        waiting = [connection.send(MetadataRequest(), 5) for _ in range(1000)]
        while not served._output.pending:
            await asyncio.sleep(0.001)
        served.check(asyncio.get_running_loop().time())
        assert not served.closed
        connection._transport.resume_reading()
        await asyncio.gather(*waiting)
        connection.close()
        await listener.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_an_unknown_certificate_is_refused(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def main() -> None:
        listener = Listener()
        await listener.start("127.0.0.1", 0, Dispatcher(ListenerKind.BROKER), "SSL", ssl=contexts[0])
        with pytest.raises(TlsError, match="its certificate is not trusted"):
            await Connection.connect(
                "127.0.0.1", listener.port, ssl=ssl.create_default_context(), timeout_s=5
            )
        await listener.close()

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_a_certificate_of_an_ipv6_address_is_trusted(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], host: str
) -> None:
    """`bootstrap.servers` has such addresses in brackets, certificates have not."""

    async def main() -> None:
        listener = Listener()
        await listener.start("::1", 0, Dispatcher(ListenerKind.BROKER), "SSL", ssl=contexts[0])
        connection = await Connection.connect(host, listener.port, ssl=contexts[1], timeout_s=5)
        connection.close()
        await listener.close()

    asyncio.run(asyncio.wait_for(main(), 30))
