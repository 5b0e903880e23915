"""A client's login by SASL: the exchange of SCRAM, and Kafka's client properties."""

from __future__ import annotations

import base64
import hmac

import pytest

from quorate.admin.sasl import SaslLogin, sasl_login
from quorate.security.jaas import parse_jaas
from quorate.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramMechanism
from quorate.security.scram_client import MAX_ITERATIONS, ScramClient, ScramError

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROVEN = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
VERIFIED = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_exchange_of_rfc_7677() -> None:
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", NONCE)
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.final(CHALLENGE) == PROVEN
    client.verify(VERIFIED)


def test_names_are_escaped_and_a_token_is_announced() -> None:
    assert (
        ScramClient(SCRAM_SHA_512, "a=b,c", "p", "x", token=True).first()
        == b"n,,n=a=3Db=2Cc,r=x,tokenauth=true"
    )


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"r=other,s=W22Z,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", "nonce"),
        (CHALLENGE.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (CHALLENGE.replace(b"i=4096", f"i={MAX_ITERATIONS + 1}".encode()), "iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=" + b"9" * 5000), "iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=many"), "iterations is 'many'"),
        (CHALLENGE.replace(b",s=W22ZaJ0SNY7soEsUEjb6gQ==", b""), "no s"),
        (CHALLENGE.replace(b"W22Z", b"W2~Z"), "not base64"),
        (b"\xff\xfe", "not UTF-8"),
        (b"", "no r"),
        (b"m=unknown," + CHALLENGE, "extension"),
        (CHALLENGE + b",i=5000", "more than one i"),
    ],
)
def test_a_wrong_first_message_of_the_server_is_refused(message: bytes, says: str) -> None:
    with pytest.raises(ScramError, match=says):
        ScramClient(SCRAM_SHA_256, "user", "pencil", NONCE).final(message)


@pytest.mark.parametrize(
    "message", [VERIFIED.replace(b"6rri", b"7rri"), b"v=", b"e=other-error", b"", b"v=~"]
)
def test_a_server_that_does_not_know_the_credential_is_refused(message: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", NONCE)
    client.final(CHALLENGE)
    with pytest.raises(ScramError):
        client.verify(message)


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_the_proof_is_what_a_server_computes(mechanism: ScramMechanism) -> None:
    """The server knows the stored key only: the proof must yield the client key of it (RFC 5802, section 3)."""
    client = ScramClient(mechanism, "änn", "pässword", "c")
    challenge = b"r=cs,s=" + base64.b64encode(b"salt") + b",i=5000"
    final = client.final(challenge)
    unproven, _, proof = final.rpartition(b",p=")
    exchanged = b",".join([client.first()[3:], challenge, unproven])
    stored = mechanism.stored_key(mechanism.client_key(mechanism.salted_password("pässword", b"salt", 5000)))
    signature = hmac.digest(stored, exchanged, mechanism.hash_name)
    key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert mechanism.stored_key(key) == stored


def test_properties_of_a_login() -> None:
    text = "org.apache.kafka.common.security.scram.ScramLoginModule required username='ann' password='s' tokenauth=true;"
    found = sasl_login({"sasl.mechanism": "scram-sha-512", "sasl.jaas.config": text})
    assert found == SaslLogin("SCRAM-SHA-512", "ann", "s", token=True)
    assert "'s'" not in repr(found), "a password in a log"


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({}, "Invalid value GSSAPI for configuration sasl.mechanism"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"}, "Invalid value for configuration sasl.jaas.config"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "a.PlainLoginModule required username=u;"},
            "PlainLoginModule needs password",
        ),
        (
            {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": "a.PlainLoginModule required;"},
            "PlainLoginModule does not have the mechanism SCRAM-SHA-256",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.login.callback.handler.class": "my.Handler"},
            "Java's classes cannot be used",
        ),
    ],
)  # fmt: skip
def test_a_login_that_cannot_be_made_is_refused(properties: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sasl_login(properties)


@pytest.mark.parametrize(
    ("value", "password"),
    [
        ('"p;q required"', "p;q required"),
        ("'it''", None),
        ('""', ""),
        ("bare", "bare"),
        (r'"a\"b\\c"', r'a"b\c'),
        (r'"tab\tbell\7end\0601"', "tab\tbell\aend01"),
        ('"never closed', None),
        ('a"b', None),
        ('"a" junk', None),
        ('"a"; c.D required password="b"', None),
    ],
)
def test_a_password_is_read_as_kafka_reads_it_or_refused(value: str, password: str | None) -> None:
    text = f'a.PlainLoginModule required username="u" password={value};'
    if password is None:
        with pytest.raises(ValueError, match="it must be one login module") as refused:
            parse_jaas(text)
        assert value not in str(refused.value)
    else:
        assert parse_jaas(text) == ("PlainLoginModule", {"username": "u", "password": password})
