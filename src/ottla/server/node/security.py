"""How each listener of a node is secured: its protocol, its mechanisms, its credentials.

Kafka: org.apache.kafka.common.network.ChannelBuilders;
org.apache.kafka.common.security.auth.{KafkaPrincipalBuilder, AuthenticationContext}.
"""

from __future__ import annotations

import base64
import hmac
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.config.broker.endpoints import SecurityProtocol
from ottla.config.listener_settings import ListenerSettings
from ottla.config.problems import ConfigErrors, ConfigProblem
from ottla.errors import ConfigError
from ottla.network.limits import PendingLogins, pending_limit
from ottla.network.node_channel import PeerSecurity
from ottla.network.tls_context import client_context
from ottla.security.delegation_token import TokenCredentials
from ottla.security.distinguished_name import parse_rules, short_name, subject_name
from ottla.security.principal import ANONYMOUS, USER_TYPE, Principal, parse_principal
from ottla.security.sasl.client import make_mechanism_login, token_login
from ottla.security.sasl.gssapi import GSSAPI
from ottla.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerServer
from ottla.security.sasl.plain import PLAIN, PlainServer, users_of
from ottla.security.sasl.scram import MECHANISM_NUMBERS, TOKEN_SHAPE, ScramCredential, ScramServer
from ottla.security.sasl.server import SaslServer
from ottla.server.node.login_handlers import (
    JAAS,
    MAPPING_RULES,
    MECHANISMS,
    SASL_PROTOCOLS,
    SUPPORTED,
    TLS_PROTOCOLS,
    LoginHandlers,
    PeerToken,
    TokenLogins,
    jaas_options,
    kerberos_settings,
    listener_tls,
    peer_token_settings,
)
from ottla.server.node.plugins import load_plugin
from ottla.server.requests.login import LoginPolicy, SaslLogins
from ottla.server.system.kerberos import PeerTickets, acceptor
from ottla.server.system.tls import TlsContexts

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping

    from ottla.config.broker import BrokerConfig
    from ottla.network.connection import Connection
    from ottla.network.server import Listener, ListenerSecurity
    from ottla.network.tls import TlsConnection
    from ottla.security.sasl.client import MechanismLogin
    from ottla.security.sasl.mechanism import Mechanism
    from ottla.security.sasl.scram import ScramShape
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.node.resources import NodeResources
    from ottla.server.system.kerberos import KerberosSettings

log = logging.getLogger("ottla.login")
_NONCE_BYTES: Final = 24
_SECRET_BYTES: Final = 32


class NodeSecurity:
    """The security of each listener, and of connections to other nodes."""

    def __init__(self, metadata: BrokerMetadata, resources: NodeResources) -> None:
        self._metadata = metadata
        self._environment = resources.environment
        self._loop = resources.loop
        self._run_provider = resources.workers.providers.run
        self.run_handshake = resources.workers.handshakes.run
        self._contexts = TlsContexts(self._environment.clock)
        self.pending: dict[str, PendingLogins] = {}
        """By listener: a flood at one closes no login at another."""
        self._handlers = LoginHandlers()
        self._policies: dict[str, tuple[BrokerConfig, LoginPolicy]] = {}
        clock = self._environment.clock
        self.principals = PrincipalBuilder(metadata.config)
        self._peer_tokens: dict[str, PeerToken] = {}
        self._peer_tickets: dict[str, PeerTickets] = {}
        self._acceptors: dict[str, tuple[KerberosSettings, Callable[[], Mechanism]]] = {}
        self._token_logins = TokenLogins(
            resources.workers.providers.run, resources.loop.call_later, clock
        )
        self._secret = self._environment.secret_bytes(_SECRET_BYTES)
        token_key = metadata.config.delegation_token_secret_key
        self._tokens: TokenCredentials | None = None
        if token_key is not None:
            self._tokens = TokenCredentials(token_key.reveal())

    def of(self, listener: str) -> ListenerSecurity | None:
        """Return the security of a listener's connections, None for PLAINTEXT."""
        protocol = self._metadata.config.security_protocols[listener]
        if protocol is SecurityProtocol.PLAINTEXT and self.principals.is_default:
            return None
        logins = None
        pending = self.pending.setdefault(
            listener, PendingLogins(pending_limit(self._environment.limits().descriptors))
        )
        if protocol in TLS_PROTOCOLS:
            self.context(listener)  # the start logs when the certificate expires
        if protocol in SASL_PROTOCOLS:
            self._policy(listener)  # missing keys are an error of the start
            logins = SaslLogins(
                lambda: self._policy(listener),
                loop=self._loop,
                clock=self._environment.clock,
                pending=pending,
                run=self.run_handshake,
                named=lambda connection, mechanism: self.named(
                    protocol, connection, connection.principal, mechanism=mechanism
                ),
            )
        return SecuredListener(self, listener, protocol, pending, logins)

    def named(
        self,
        protocol: SecurityProtocol,
        connection: Connection,
        principal: Principal,
        *,
        mechanism: str | None = None,
        certificate: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the principal of a connection; ValueError refuses the connection."""
        connection.principal = self.principals.build(
            ConnectionContext(
                protocol.name,
                connection.listener_name,
                connection.peer_host,
                principal,
                mechanism,
                certificate,
            )
        )

    def brokers(self) -> PeerSecurity | None:
        """Return the security of connections to other brokers."""
        config = self._metadata.config
        mechanism = config.sasl_mechanism_inter_broker_protocol
        return self._peers(config.inter_broker_endpoint_name, mechanism)

    def controllers(self) -> PeerSecurity | None:
        """Return the security of connections to controllers."""
        config = self._metadata.config
        name = next(iter(config.controller_listener_names or ()), "").upper()
        return self._peers(name, config.sasl_mechanism_controller_protocol)

    def _peers(self, listener: str, mechanism: str) -> PeerSecurity | None:
        protocol = self._metadata.config.security_protocols.get(listener)
        if protocol is None or protocol is SecurityProtocol.PLAINTEXT:
            return None

        def context() -> ssl.SSLContext | None:
            if protocol not in TLS_PROTOCOLS:
                return None
            return client_context(listener_tls(self.settings(listener)))

        if protocol in SASL_PROTOCOLS and mechanism == OAUTHBEARER:
            known = self._peer_tokens.get(listener)
            if known is None:
                known = self._peer_tokens[listener] = PeerToken(
                    peer_token_settings(lambda: self.settings(listener), self._environment),
                    run=self._run_provider,
                    loop=self._loop,
                    rng=self._environment.rng,
                )
            own = known
            return PeerSecurity(context, lambda _host: token_login(own.token))
        if protocol in SASL_PROTOCOLS and mechanism == GSSAPI:
            tickets = self._tickets_for(listener)
            return PeerSecurity(context, tickets.login, tickets.prepare)

        def login(_host: str) -> MechanismLogin:
            options = jaas_options(self.settings(listener), mechanism)
            nonce = base64.b64encode(self._environment.secret_bytes(_NONCE_BYTES)).decode()
            made = make_mechanism_login(
                mechanism, options.get("username", ""), options.get("password", ""), nonce
            )
            assert made is not None, mechanism
            return made

        return PeerSecurity(context, login if protocol in SASL_PROTOCOLS else None)

    def _tickets_for(self, listener: str) -> PeerTickets:
        """Return the tickets for a listener of other nodes, fetched once."""
        known = self._peer_tickets.get(listener)
        if known is None:
            try:
                known = PeerTickets(
                    kerberos_settings(self.settings(listener)),
                    run=self._run_provider,
                    loop=self._loop,
                    rng=self._environment.rng,
                )
            except ConfigError as error:
                raise ConfigErrors([ConfigProblem(JAAS, None, str(error))]) from error
            self._peer_tickets[listener] = known
        return known

    def settings(self, listener: str) -> ListenerSettings:
        """Return a listener's settings in force."""
        return ListenerSettings(self._metadata.config, listener)

    def expires_s(self, listener: str) -> float | None:
        """Return when the certificate of a listener expires, in seconds since 1970."""
        return self._contexts.expires_s(listener)

    def context(self, listener: str) -> ssl.SSLContext:
        """Return the TLS context of a listener."""
        return self._contexts.of(listener, listener_tls(self.settings(listener)))

    def _policy(self, listener: str) -> LoginPolicy:
        """Return the policy of the settings in force, which all connections share."""
        config = self._metadata.config
        known = self._policies.get(listener)
        if known is None or known[0] is not config:
            known = self._policies[listener] = config, self._make_policy(config, listener)
        return known[1]

    def _make_policy(self, config: BrokerConfig, listener: str) -> LoginPolicy:
        settings = ListenerSettings(config, listener)
        mechanisms = {
            name: self._mechanism(name, settings)
            for name in settings.value(MECHANISMS)
            if name in SUPPORTED
        }

        def max_session_ms(mechanism: str) -> int:
            return int(settings.value("connections.max.reauth.ms", mechanism))

        def new_server(previous: SaslServer | None) -> SaslServer:
            return SaslServer(mechanisms, max_session_ms=max_session_ms, previous=previous)

        return LoginPolicy(
            new_server,
            max_receive_bytes=settings.value("sasl.server.max.receive.size"),
            failure_delay_ms=settings.value("connection.failed.authentication.delay.ms"),
        )

    def _mechanism(self, name: str, settings: ListenerSettings) -> Callable[[], Mechanism]:
        if name == OAUTHBEARER:
            verify = self._handlers.tokens(settings)
            if verify is not None:
                return lambda: OAuthBearerServer(verify)
            return self._token_logins.mechanism(settings)
        if name == GSSAPI:
            given = kerberos_settings(settings)
            known = self._acceptors.get(settings.listener)
            if known is None or known[0] != given:
                try:
                    known = given, acceptor(given)
                except ConfigError as error:
                    raise ConfigErrors([ConfigProblem(MECHANISMS, GSSAPI, str(error))]) from error
                self._acceptors[settings.listener] = known
            return known[1]
        if name == PLAIN:
            is_valid = self._handlers.passwords(settings) or users_of(jaas_options(settings, name))
            return lambda: PlainServer(is_valid)
        find = self._handlers.credentials(settings, name) or partial(self._password, name)

        def shapes(is_token: bool) -> Iterable[ScramShape]:  # noqa: FBT001 - as the search
            number = MECHANISM_NUMBERS[name]
            return (TOKEN_SHAPE,) if is_token else self._metadata.image.scram.shapes.get(number, ())

        return lambda: ScramServer(
            name,
            lambda user, is_token: self._token(name, user) if is_token else find(user),
            nonce=base64.b64encode(self._environment.secret_bytes(_NONCE_BYTES)).decode(),
            secret=self._salt_secret(),
            shapes=shapes,
        )

    def _token(self, mechanism: str, token_id: str) -> ScramCredential | None:
        token = self._metadata.image.delegation_tokens.by_id.get(token_id)
        if self._tokens is None or token is None:
            return None
        return self._tokens.of(mechanism, token, self._salt_secret())

    def _salt_secret(self) -> bytes:
        """Return a secret that all nodes share and keep when they start again.

        It is derived from the random id of a log directory. Only clients that may describe the
        cluster see such ids, and they may list users as well. A cluster without registered
        directories has the node's own secret.
        """
        brokers = self._metadata.image.cluster.brokers
        directories = brokers[min(brokers)].log_directories if brokers else ()
        if not directories:
            return self._secret
        return hmac.digest(bytes(min(directories)), b"salts of unknown users", "sha256")

    def _password(self, mechanism: str, user: str) -> ScramCredential | None:
        by_user = self._metadata.image.scram.by_user
        record = by_user.get((user, MECHANISM_NUMBERS[mechanism]))
        if record is None:
            return None
        return ScramCredential(
            bytes(record.salt),
            bytes(record.stored_key),
            bytes(record.server_key),
            record.iterations,
        )


class SecuredListener:
    """Encrypts the connections of one listener and lets their clients log in."""

    def __init__(
        self,
        owner: NodeSecurity,
        listener: str,
        protocol: SecurityProtocol,
        pending: PendingLogins,
        logins: SaslLogins | None,
    ) -> None:
        self._owner = owner
        self._listener = listener
        self._protocol = protocol
        self._pending = pending
        self._logins = logins

    def context(self) -> ssl.SSLContext | None:
        """Return the context for a new connection, None without TLS."""
        if self._protocol not in TLS_PROTOCOLS:
            return None
        return self._owner.context(self._listener)

    def expires_s(self) -> float | None:
        """Return when the certificate expires, in seconds since 1970; None without TLS."""
        return self._owner.expires_s(self._listener)

    def accepted(self, connection: Connection, listener: Listener) -> None:
        """Begin the login of a new connection, where the listener needs one."""
        if self._protocol is SecurityProtocol.PLAINTEXT:
            try:
                self._owner.named(self._protocol, connection, ANONYMOUS)
            except ValueError as error:
                event = {"event": "principal.failed", "client": connection.peer_host}
                log.info("%s: %s", connection.peer_host, error, extra=event)
                connection.close()
            return
        self._pending.add(connection)
        if self._logins is not None:
            self._logins.accepted(connection, listener)

    def run(self, job: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
        """Run a step of a handshake in a worker."""
        self._owner.run_handshake(job, done)

    def secured(self, connection: TlsConnection, tls: ssl.SSLSocket) -> None:
        """Set the principal of the client's certificate; ValueError when no rule matches."""
        if self._logins is not None:
            return  # the login names the client
        self._pending.discard(connection)
        certificate: Any = tls.getpeercert()
        principal = ANONYMOUS
        if certificate:
            rules = parse_rules(self._owner.settings(self._listener).value(MAPPING_RULES))
            encoded = tls.getpeercert(binary_form=True)
            assert encoded is not None
            name = short_name(subject_name(encoded), rules)
            principal = Principal(USER_TYPE, name)
        self._owner.named(self._protocol, connection, principal, certificate=certificate)


PRINCIPAL_BUILDER: Final = "principal.builder.class"
DEFAULT_BUILDER: Final = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)
BUILDER_METHODS: Final = ("configure", "build")


class ConnectionContext(NamedTuple):
    """The properties of a connection after its handshake or login."""

    security_protocol: str
    listener_name: str
    client_address: str
    principal: Principal
    """The principal of the default builder, from the certificate or the login."""
    mechanism: str | None = None
    """The mechanism of the SASL login."""
    certificate: Mapping[str, Any] | None = None
    """The client's certificate, as `ssl.SSLSocket.getpeercert` returns it."""


class PrincipalBuilder:
    """Makes the principals of a node's connections."""

    def __init__(self, config: BrokerConfig) -> None:
        """Load the class that the node's own settings name. Raises PluginError."""
        name = str(config.given.get(PRINCIPAL_BUILDER) or DEFAULT_BUILDER)
        self._plugin: Any = None
        if name != DEFAULT_BUILDER:
            self._plugin = load_plugin(name, BUILDER_METHODS, config.given)

    @property
    def is_default(self) -> bool:
        """Whether principals are Kafka's."""
        return self._plugin is None

    def build(self, context: ConnectionContext) -> Principal:
        """Return the principal; ValueError refuses the connection."""
        if self._plugin is None:
            return context.principal
        try:
            built = self._plugin.build(context)
            return built if isinstance(built, Principal) else parse_principal(str(built))
        except Exception as error:
            raise ValueError(f"{PRINCIPAL_BUILDER} refuses the connection: {error}") from error
