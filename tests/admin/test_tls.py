"""The TLS settings of a client, with Kafka's names. Handshakes are in tests/net/test_tls.py and tests/interop."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

import pytest

from quorate.admin.client import AdminClient
from quorate.admin.tls import client_context
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca", "authority")


@pytest.fixture(scope="module")
def ann(authority: Authority) -> Path:
    return authority.issue("ann")


def test_a_trust_store_is_a_file_or_a_text(authority: Authority) -> None:
    location = {"ssl.truststore.location": str(authority.certificate), "ssl.truststore.type": "PEM"}
    text = {"ssl.truststore.certificates": authority.certificate.read_text()}
    for properties in (location, text):
        context = client_context(properties)
        [found] = context.get_ca_certs()
        assert found["subject"] == ((("commonName", "authority"),),)
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    with pytest.raises(ValueError, match="exclude each other"):
        client_context(location | text)


def test_a_key_store_is_a_file_or_two_texts(ann: Path, tmp_path: Path) -> None:
    client_context({"ssl.keystore.location": str(ann)})
    key, separator, chain = ann.read_text().partition("-----END PRIVATE KEY-----\n")
    parts = {"ssl.keystore.key": key + separator, "ssl.keystore.certificate.chain": chain}
    client_context(parts)
    with pytest.raises(ValueError, match="must be given together"):
        client_context({"ssl.keystore.key": parts["ssl.keystore.key"]})
    with pytest.raises(ValueError, match=r"configuration ssl\.keystore\.key: no certificate with its key"):
        client_context(parts | {"ssl.keystore.key": "nonsense"})


def test_the_key_of_a_key_store_is_not_copied(ann: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(*args: object, **options: object) -> None:
        pytest.fail("the private key was written to another file")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", copied)
    client_context({"ssl.keystore.location": str(ann), "ssl.keystore.type": "PEM"})


def test_versions_and_host_names() -> None:
    only = client_context({"ssl.enabled.protocols": "TLSv1.2", "ssl.endpoint.identification.algorithm": ""})
    assert (only.minimum_version, only.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    assert (only.check_hostname, only.verify_mode) == (False, ssl.CERT_REQUIRED)
    both = client_context({})
    assert (both.minimum_version, both.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"ssl.truststore.location": "/nowhere/ca.pem"}, "cannot read /nowhere/ca.pem"),
        ({"ssl.truststore.certificates": "nonsense"}, "it has no certificate"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, r"Invalid value TLSv1\.1"),
        ({"ssl.endpoint.identification.algorithm": "dns"}, "Invalid value dns"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "OpenSSL's configuration"),
        ({"ssl.engine.factory.class": "my.Factory"}, "Java's classes cannot be used"),
    ],
)
def test_what_cannot_be_is_refused(properties: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        client_context(properties)


@pytest.mark.parametrize("store", ["truststore", "keystore"])
def test_a_store_of_java_is_refused_with_the_command_that_converts_it(store: str, tmp_path: Path) -> None:
    jks = tmp_path / "store.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(ValueError, match=f"is not a PEM file.*Convert it .*set ssl.{store}.type=PEM"):
        client_context({f"ssl.{store}.location": str(jks)})


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"Invalid value TLS for configuration security\.protocol: it must be one of"
    ):
        AdminClient.from_properties({"security.protocol": "TLS"}, bootstrap_servers="localhost:9092")
