"""Keys of TLS, SASL and delegation tokens."""

TEXT = """\
connections.max.reauth.ms  Longest life of an authentication before a client has to authenticate again; 0
    for no limit.
sasl.server.max.receive.size  Largest token that is taken before a client is authenticated.
security.providers  Java's security providers; without effect here.
principal.builder.class  Java's principal builder; here principals are built as Kafka's default one does.
ssl.client.auth  Whether clients must show a certificate: required, requested or none.
ssl.principal.mapping.rules  Rules that turn a certificate's subject into a user name.
ssl.allow.dn.changes  Whether a renewed certificate may have another subject.
ssl.allow.san.changes  Whether a renewed certificate may lack former alternative names.
ssl.protocol  Protocol family of TLS contexts.
ssl.provider  Java's TLS provider; without effect here.
ssl.enabled.protocols  TLS versions that are offered.
ssl.keystore.type  Format of the key store; PEM here.
ssl.keystore.location  File with the node's key and certificate chain.
ssl.keystore.password  Password of the key store.
ssl.key.password  Password of the private key.
ssl.keystore.key  The private key itself, as PEM.
ssl.keystore.certificate.chain  The certificate chain itself, as PEM.
ssl.truststore.type  Format of the trust store; PEM here.
ssl.truststore.location  File with the certificates that are trusted.
ssl.truststore.password  Password of the trust store.
ssl.truststore.certificates  The trusted certificates themselves, as PEM.
ssl.keymanager.algorithm  Java's key manager; without effect here.
ssl.trustmanager.algorithm  Java's trust manager; without effect here.
ssl.endpoint.identification.algorithm  https checks that a peer's certificate names its host; empty does not.
ssl.secure.random.implementation  Java's random numbers; without effect here.
ssl.cipher.suites  Cipher suites that are offered; empty for the library's.
ssl.engine.factory.class  Java's TLS engine factory; without effect here.
sasl.mechanism.inter.broker.protocol  SASL mechanism between brokers.
sasl.mechanism.controller.protocol  SASL mechanism towards the controllers.
sasl.enabled.mechanisms  SASL mechanisms that clients may choose among. GSSAPI, the default, is not available.
sasl.server.callback.handler.class  Java's server callbacks; without effect here.
sasl.kerberos.principal.to.local.rules  Kerberos; not available.
sasl.jaas.config  Login module and its options: credentials of this node, users of PLAIN.
sasl.client.callback.handler.class  Java's client callbacks; without effect here.
sasl.login.class  Java's login; without effect here.
sasl.login.callback.handler.class  Java's login callbacks; without effect here.
sasl.kerberos.service.name  Kerberos; not available.
sasl.kerberos.kinit.cmd  Kerberos; not available.
sasl.kerberos.ticket.renew.window.factor  Kerberos; not available.
sasl.kerberos.ticket.renew.jitter  Kerberos; not available.
sasl.kerberos.min.time.before.relogin  Kerberos; not available.
sasl.login.refresh.window.factor  Share of an OAuth token's life after which it is renewed.
sasl.login.refresh.window.jitter  Random part of the time after which an OAuth token is renewed.
sasl.login.refresh.min.period.seconds  Least time between two renewals of an OAuth token.
sasl.login.refresh.buffer.seconds  Time before its end at which an OAuth token is renewed at the latest.
sasl.login.connect.timeout.ms  How long connecting to the OAuth server may take.
sasl.login.read.timeout.ms  How long the OAuth server's answer may take.
sasl.login.retry.backoff.max.ms  Longest wait between two attempts at the OAuth server.
sasl.login.retry.backoff.ms  First wait between two attempts at the OAuth server.
sasl.oauthbearer.jwt.retriever.class  Java's token retriever; without effect here.
sasl.oauthbearer.jwt.validator.class  Java's token validator; without effect here.
sasl.oauthbearer.scope  Scope requested with client credentials.
sasl.oauthbearer.client.credentials.client.id  Client id of the client-credentials grant.
sasl.oauthbearer.client.credentials.client.secret  Client secret of the client-credentials grant.
sasl.oauthbearer.assertion.algorithm  Signature algorithm of a JWT assertion.
sasl.oauthbearer.assertion.claim.aud  Audience in the assertion.
sasl.oauthbearer.assertion.claim.exp.seconds  Life of the assertion.
sasl.oauthbearer.assertion.claim.iss  Issuer in the assertion.
sasl.oauthbearer.assertion.claim.jti.include  Whether the assertion has an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds  How far in the past the assertion begins.
sasl.oauthbearer.assertion.claim.sub  Subject in the assertion.
sasl.oauthbearer.assertion.file  File with a ready assertion.
sasl.oauthbearer.assertion.private.key.file  Key that signs the assertion.
sasl.oauthbearer.assertion.private.key.passphrase  Passphrase of the key that signs the assertion.
sasl.oauthbearer.assertion.template.file  File with header and claims of the assertion.
sasl.oauthbearer.scope.claim.name  Claim that holds a token's scope.
sasl.oauthbearer.sub.claim.name  Claim that holds a token's subject.
sasl.oauthbearer.token.endpoint.url  The OAuth server's token address.
sasl.oauthbearer.jwks.endpoint.url  Address of the keys that tokens are verified with.
sasl.oauthbearer.jwks.endpoint.refresh.ms  Time between two reads of the keys that tokens are verified
    with.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms  First wait between two attempts to read the keys that
    tokens are verified with.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms  Longest wait between two attempts to read the keys
    that tokens are verified with.
sasl.oauthbearer.clock.skew.seconds  Difference of clocks that is tolerated in a token's times.
sasl.oauthbearer.allow.unverified.audience  Whether a token is accepted if no audience is expected.
sasl.oauthbearer.allow.unverified.issuer  Whether a token is accepted if no issuer is expected.
sasl.oauthbearer.expected.audience  Audiences of which a token must name one.
sasl.oauthbearer.expected.issuer  Issuer that a token must have.
delegation.token.secret.key  Key that signs delegation tokens, the same on every node; without it there
    are none.
delegation.token.max.lifetime.ms  Longest life of a delegation token.
delegation.token.expiry.time.ms  Time by which a token expires unless it is renewed.
delegation.token.expiry.check.interval.ms  Time between two removals of expired tokens.
"""
