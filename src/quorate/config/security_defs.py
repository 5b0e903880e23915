"""Keys of TLS, SASL and delegation tokens.

The definitions are those of Apache Kafka 4.4. `docs` documents the keys.
"""

from __future__ import annotations

from quorate.config.definitions import (
    ConfigDef,
    ConfigType,
    Importance,
    Scope,
    at_least,
    between,
    items,
    one_of,
    one_of_any_case,
)
from quorate.config.definitions import (
    define as _d,
)

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
SHORT = ConfigType.SHORT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
CLASS = ConfigType.CLASS
PASSWORD = ConfigType.PASSWORD
HIGH = Importance.HIGH
LOW = Importance.LOW
PER_BROKER = Scope.PER_BROKER


SECURITY_ROWS: tuple[ConfigDef, ...] = (
    _d("sasl.mechanism.controller.protocol", STRING, "GSSAPI", importance=HIGH),
    _d("connections.max.reauth.ms", LONG, "0"),
    _d("sasl.server.max.receive.size", INT, "524288"),
    _d("security.providers", STRING, None, importance=LOW),
    _d(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        dynamic=PER_BROKER,
    ),
    _d("ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), dynamic=PER_BROKER),
    _d("ssl.principal.mapping.rules", STRING, "DEFAULT", importance=LOW),
    _d("ssl.allow.dn.changes", BOOLEAN, "false", importance=LOW),
    _d("ssl.allow.san.changes", BOOLEAN, "false", importance=LOW),
    _d("ssl.protocol", STRING, "TLSv1.3", dynamic=PER_BROKER),
    _d("ssl.provider", STRING, None, dynamic=PER_BROKER),
    _d("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", items(), dynamic=PER_BROKER),
    _d("ssl.keystore.type", STRING, "JKS", dynamic=PER_BROKER),
    _d("ssl.keystore.location", STRING, None, dynamic=PER_BROKER),
    _d("ssl.keystore.password", PASSWORD, None, dynamic=PER_BROKER),
    _d("ssl.key.password", PASSWORD, None, dynamic=PER_BROKER),
    _d("ssl.keystore.key", PASSWORD, None, dynamic=PER_BROKER),
    _d("ssl.keystore.certificate.chain", PASSWORD, None, dynamic=PER_BROKER),
    _d("ssl.truststore.type", STRING, "JKS", dynamic=PER_BROKER),
    _d("ssl.truststore.location", STRING, None, dynamic=PER_BROKER),
    _d("ssl.truststore.password", PASSWORD, None, dynamic=PER_BROKER),
    _d("ssl.truststore.certificates", PASSWORD, None, dynamic=PER_BROKER),
    _d("ssl.keymanager.algorithm", STRING, "SunX509", dynamic=PER_BROKER),
    _d("ssl.trustmanager.algorithm", STRING, "PKIX", dynamic=PER_BROKER),
    _d("ssl.endpoint.identification.algorithm", STRING, "https", importance=LOW, dynamic=PER_BROKER),
    _d("ssl.secure.random.implementation", STRING, None, importance=LOW, dynamic=PER_BROKER),
    _d("ssl.cipher.suites", LIST, "", items(), dynamic=PER_BROKER),
    _d("ssl.engine.factory.class", CLASS, None, importance=LOW, dynamic=PER_BROKER),
    _d("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", dynamic=PER_BROKER),
    _d("sasl.enabled.mechanisms", LIST, "GSSAPI", items(), dynamic=PER_BROKER),
    _d("sasl.server.callback.handler.class", CLASS, None),
    _d("sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT", items(), dynamic=PER_BROKER),
    _d("sasl.jaas.config", PASSWORD, None, dynamic=PER_BROKER),
    _d("sasl.client.callback.handler.class", CLASS, None),
    _d("sasl.login.class", CLASS, None),
    _d("sasl.login.callback.handler.class", CLASS, None),
    _d("sasl.kerberos.service.name", STRING, None, dynamic=PER_BROKER),
    _d("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", dynamic=PER_BROKER),
    _d("sasl.kerberos.ticket.renew.window.factor", DOUBLE, "0.8", dynamic=PER_BROKER),
    _d("sasl.kerberos.ticket.renew.jitter", DOUBLE, "0.05", dynamic=PER_BROKER),
    _d("sasl.kerberos.min.time.before.relogin", LONG, "60000", dynamic=PER_BROKER),
    _d("sasl.login.refresh.window.factor", DOUBLE, "0.8", dynamic=PER_BROKER),
    _d("sasl.login.refresh.window.jitter", DOUBLE, "0.05", dynamic=PER_BROKER),
    _d("sasl.login.refresh.min.period.seconds", SHORT, "60", dynamic=PER_BROKER),
    _d("sasl.login.refresh.buffer.seconds", SHORT, "300", dynamic=PER_BROKER),
    _d("sasl.login.connect.timeout.ms", INT, None, importance=LOW),
    _d("sasl.login.read.timeout.ms", INT, None, importance=LOW),
    _d("sasl.login.retry.backoff.max.ms", LONG, "10000", importance=LOW),
    _d("sasl.login.retry.backoff.ms", LONG, "100", importance=LOW),
    _d(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    ),
    _d(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    ),
    _d("sasl.oauthbearer.scope", STRING, None),
    _d("sasl.oauthbearer.client.credentials.client.id", STRING, None),
    _d("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None),
    _d("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", one_of_any_case("ES256", "RS256")),
    _d("sasl.oauthbearer.assertion.claim.aud", STRING, None),
    _d("sasl.oauthbearer.assertion.claim.exp.seconds", INT, "300", between(0, 86400), importance=LOW),
    _d("sasl.oauthbearer.assertion.claim.iss", STRING, None),
    _d("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, "false"),
    _d("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, "60", between(0, 3600), importance=LOW),
    _d("sasl.oauthbearer.assertion.claim.sub", STRING, None),
    _d("sasl.oauthbearer.assertion.file", STRING, None),
    _d("sasl.oauthbearer.assertion.private.key.file", STRING, None),
    _d("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None),
    _d("sasl.oauthbearer.assertion.template.file", STRING, None),
    _d("sasl.oauthbearer.scope.claim.name", STRING, "scope", importance=LOW),
    _d("sasl.oauthbearer.sub.claim.name", STRING, "sub", importance=LOW),
    _d("sasl.oauthbearer.token.endpoint.url", STRING, None),
    _d("sasl.oauthbearer.jwks.endpoint.url", STRING, None),
    _d("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, "3600000", importance=LOW),
    _d("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, "100", importance=LOW),
    _d("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, "10000", importance=LOW),
    _d("sasl.oauthbearer.clock.skew.seconds", INT, "30", importance=LOW),
    _d("sasl.oauthbearer.allow.unverified.audience", BOOLEAN, "false"),
    _d("sasl.oauthbearer.allow.unverified.issuer", BOOLEAN, "false"),
    _d("sasl.oauthbearer.expected.audience", LIST, "", items(), importance=HIGH),
    _d("sasl.oauthbearer.expected.issuer", STRING, None, importance=HIGH),
    _d("delegation.token.secret.key", PASSWORD, None),
    _d("delegation.token.max.lifetime.ms", LONG, "604800000", at_least(1)),
    _d("delegation.token.expiry.time.ms", LONG, "86400000", at_least(1)),
    _d("delegation.token.expiry.check.interval.ms", LONG, "3600000", at_least(1), importance=LOW),
)
