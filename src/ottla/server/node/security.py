"""How each listener of a node is secured: its protocol, its mechanisms, its credentials.

Kafka: org.apache.kafka.common.network.ChannelBuilders.
"""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, Any, Final

from ottla.config.broker.endpoints import SecurityProtocol
from ottla.config.listener_settings import ListenerSettings
from ottla.config.problems import ConfigProblem
from ottla.network.limits import PendingLogins, pending_limit
from ottla.network.node_channel import PeerSecurity
from ottla.network.tls_context import (
    client_context,
    identity_change,
    identity_of,
    server_context,
    tls_settings,
)
from ottla.security.delegation_token import TokenCredentials
from ottla.security.distinguished_name import parse_rules, short_name, subject_name
from ottla.security.jaas import parse_jaas
from ottla.security.principal import ANONYMOUS, USER_TYPE, Principal
from ottla.security.sasl.client import make_mechanism_login
from ottla.security.sasl.oauthbearer import OAUTHBEARER
from ottla.security.sasl.plain import PLAIN, PlainServer, users_of
from ottla.security.sasl.scram import (
    HASHES,
    MECHANISM_NUMBERS,
    ScramCredential,
    ScramServer,
)
from ottla.security.sasl.server import SaslServer
from ottla.server.node.plugins import load_plugin
from ottla.server.node.principals import ConnectionContext, PrincipalBuilder
from ottla.server.node.token_logins import TokenLogins, token_problems
from ottla.server.requests.login import LoginPolicy, SaslLogins
from ottla.server.system.tls import TlsContexts

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping

    from ottla.config.broker import BrokerConfig
    from ottla.network.connection import Connection
    from ottla.network.server import Listener, ListenerSecurity
    from ottla.network.tls import TlsConnection
    from ottla.network.tls_context import TlsSettings
    from ottla.security.sasl.client import MechanismLogin
    from ottla.security.sasl.mechanism import Mechanism
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.node.resources import NodeResources

log = logging.getLogger("ottla.login")
_JAAS: Final = "sasl.jaas.config"
_MECHANISMS: Final = "sasl.enabled.mechanisms"
_SUPPORTED: Final = (PLAIN, *HASHES, OAUTHBEARER)
_BETWEEN_NODES: Final = (PLAIN, *HASHES)
_HANDLER: Final = "sasl.server.callback.handler.class"
HANDLER_METHODS: Final = ("configure", "authenticate")
_NONCE_BYTES: Final = 24
_SECRET_BYTES: Final = 32
_CLIENT_AUTH: Final = "ssl.client.auth"
_MAPPING_RULES: Final = "ssl.principal.mapping.rules"
SASL_PROTOCOLS: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
TLS_PROTOCOLS: Final = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


class NodeSecurity:
    """Makes what secures each listener."""

    def __init__(self, metadata: BrokerMetadata, resources: NodeResources) -> None:
        self._metadata = metadata
        self._environment = resources.environment
        self._loop = resources.loop
        self.run_handshake = resources.workers.handshakes.run
        self._contexts = TlsContexts(self._environment.clock)
        self.pending = PendingLogins(pending_limit(self._environment.limits().descriptors))
        self._handlers: dict[str, Any] = {}
        self._policies: dict[str, tuple[BrokerConfig, LoginPolicy]] = {}
        clock = self._environment.clock
        self.principals = PrincipalBuilder(metadata.config)
        self._token_logins = TokenLogins(resources.workers.handshakes.run, clock)
        self._secret = self._environment.secret_bytes(_SECRET_BYTES)
        token_key = metadata.config.delegation_token_secret_key
        self._tokens: TokenCredentials | None = None
        if token_key is not None:
            self._tokens = TokenCredentials(token_key.reveal(), self._secret)

    def of(self, listener: str) -> ListenerSecurity | None:
        """Return what secures a listener's connections, None for PLAINTEXT."""
        protocol = self._metadata.config.security_protocols[listener]
        if protocol is SecurityProtocol.PLAINTEXT and self.principals.is_default:
            return None
        logins = None
        if protocol in TLS_PROTOCOLS:
            self.context(listener)  # the log says at the start when the certificate expires
        if protocol in SASL_PROTOCOLS:
            self._policy(listener)  # keys that cannot be had are an error of the start
            logins = SaslLogins(
                lambda: self._policy(listener),
                loop=self._loop,
                clock=self._environment.clock,
                pending=self.pending,
                named=lambda connection, mechanism: self.named(
                    protocol, connection, connection.principal, mechanism=mechanism
                ),
            )
        return SecuredListener(self, listener, protocol, logins)

    def named(
        self,
        protocol: SecurityProtocol,
        connection: Connection,
        principal: Principal,
        *,
        mechanism: str | None = None,
        certificate: Mapping[str, Any] | None = None,
    ) -> None:
        """Give a connection its principal; ValueError refuses it."""
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
        """Return what secures connections to other brokers."""
        config = self._metadata.config
        mechanism = config.sasl_mechanism_inter_broker_protocol
        return self._peers(config.inter_broker_endpoint_name, mechanism)

    def controllers(self) -> PeerSecurity | None:
        """Return what secures connections to controllers."""
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

        def login() -> MechanismLogin:
            options = _options(self.settings(listener), mechanism)
            nonce = base64.b64encode(self._environment.secret_bytes(_NONCE_BYTES)).decode()
            made = make_mechanism_login(
                mechanism, options.get("username", ""), options.get("password", ""), nonce
            )
            assert made is not None, mechanism
            return made

        return PeerSecurity(context, login if protocol in SASL_PROTOCOLS else None)

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
        """Return the policy of the settings in force; it is made once for all connections."""
        config = self._metadata.config
        known = self._policies.get(listener)
        if known is None or known[0] is not config:
            known = self._policies[listener] = config, self._make_policy(config, listener)
        return known[1]

    def _make_policy(self, config: BrokerConfig, listener: str) -> LoginPolicy:
        settings = ListenerSettings(config, listener)
        mechanisms = {
            name: self._mechanism(name, settings)
            for name in settings.value(_MECHANISMS)
            if name in _SUPPORTED
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
            return self._token_logins.mechanism(settings)
        if name == PLAIN:
            is_valid = self._checker(settings) or users_of(_options(settings, name))
            return lambda: PlainServer(is_valid)
        return lambda: ScramServer(
            name,
            lambda user, is_token: (self._token if is_token else self._password)(name, user),
            nonce=base64.b64encode(self._environment.secret_bytes(_NONCE_BYTES)).decode(),
            secret=self._secret,
        )

    def _checker(self, settings: ListenerSettings) -> Callable[[str, str], bool] | None:
        """Return the check of the class that the node's own settings name, if there is one."""
        name = handler_name(settings)
        if name is None:
            return None
        if name not in self._handlers:
            self._handlers[name] = load_plugin(name, HANDLER_METHODS, settings.config.given)
        plugin = self._handlers[name]

        def is_valid(user: str, password: str) -> bool:
            try:
                return plugin.authenticate(user, password) is True
            except Exception:
                log.exception(
                    "%s failed: the login is refused; correct the class, the traceback says where",
                    name,
                    extra={"event": "login.plugin"},
                )
                return False

        return is_valid

    def _token(self, mechanism: str, token_id: str) -> ScramCredential | None:
        token = self._metadata.image.delegation_tokens.by_id.get(token_id)
        if self._tokens is None or token is None:
            return None
        return self._tokens.of(mechanism, token)

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
        logins: SaslLogins | None,
    ) -> None:
        self._owner = owner
        self._listener = listener
        self._protocol = protocol
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
        """Begin a login where one is asked for."""
        if self._protocol is SecurityProtocol.PLAINTEXT:
            try:
                self._owner.named(self._protocol, connection, ANONYMOUS)
            except ValueError as error:
                event = {"event": "principal.failed", "client": connection.peer_host}
                log.info("%s: %s", connection.peer_host, error, extra=event)
                connection.close()
            return
        self._owner.pending.add(connection)
        if self._logins is not None:
            self._logins.accepted(connection, listener)

    def run(self, job: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
        """Run a step of a handshake in a worker."""
        self._owner.run_handshake(job, done)

    def secured(self, connection: TlsConnection, tls: ssl.SSLSocket) -> None:
        """Take the principal from the client's certificate; ValueError when no rule names it."""
        if self._logins is None:
            self._owner.pending.discard(connection)
        if self._logins is not None:
            return
        certificate: Any = tls.getpeercert()
        principal = ANONYMOUS
        if certificate:
            rules = parse_rules(self._owner.settings(self._listener).value(_MAPPING_RULES))
            name = short_name(subject_name(certificate["subject"]), rules)
            principal = Principal(USER_TYPE, name)
        self._owner.named(self._protocol, connection, principal, certificate=certificate)


def listener_tls(settings: ListenerSettings) -> TlsSettings:
    """Return the TLS settings of a listener.

    SASL names the clients of SASL_SSL: there ssl.client.auth counts only as the listener's own
    setting, as in Kafka.
    """
    protocol = settings.config.security_protocols[settings.listener]
    own = settings.own(_CLIENT_AUTH)
    is_named = protocol in SASL_PROTOCOLS
    client_auth = own or ("none" if is_named else settings.config.ssl_client_auth)
    made = tls_settings(settings.value, client_auth)
    return made._replace(
        allows_dn_changes=settings.value("ssl.allow.dn.changes"),
        allows_san_changes=settings.value("ssl.allow.san.changes"),
    )


def handler_name(settings: ListenerSettings) -> str | None:
    """Return the class that checks PLAIN's passwords: of the node's file, not of AlterConfigs."""
    given = settings.config.given
    keys = (f"{settings.prefix}{PLAIN.lower()}.{_HANDLER}", _HANDLER)
    return next((str(given[key]) for key in keys if given.get(key)), None)


def _options(settings: ListenerSettings, mechanism: str) -> Mapping[str, str]:
    text = settings.own(_JAAS, mechanism)
    return {} if text is None else parse_jaas(text.reveal()).options


def _peer_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield what is wrong with the logins of this node at other nodes."""
    controllers = next(iter(config.controller_listener_names or ()), "").upper()
    is_quorum = len(config.voters) > 1 or len(config.bootstrap_controllers) > 1
    for listener, key in (
        (config.inter_broker_endpoint_name, "sasl.mechanism.inter.broker.protocol"),
        (controllers, "sasl.mechanism.controller.protocol"),
    ):
        if config.security_protocols.get(listener) not in SASL_PROTOCOLS:
            continue
        mechanism = config.value(key)
        if mechanism not in _BETWEEN_NODES:
            text = f"{key}={mechanism} is not supported, use one of {', '.join(_BETWEEN_NODES)}"
            yield ConfigProblem(key, mechanism, text)
            continue
        if listener == controllers and mechanism in HASHES and is_quorum:
            text = (
                f"{key}={mechanism}: the voters of a quorum cannot log in with credentials that "
                "are in the metadata log, which they would wait for; use PLAIN or TLS"
            )
            yield ConfigProblem(key, mechanism, text)
        try:
            options = _options(ListenerSettings(config, listener), mechanism)
        except ValueError:
            continue  # reported with the listener
        if not {"username", "password"} <= set(options):
            name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{_JAAS}"
            text = f"{name} must have username and password: this node logs in at other nodes"
            yield ConfigProblem(name, None, text)


def security_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield what is wrong with the logins and certificates of listeners."""
    yield from _peer_problems(config)
    for endpoint in config.endpoints:
        settings = ListenerSettings(config, endpoint.listener)
        if endpoint.security_protocol in SASL_PROTOCOLS:
            yield from _login_problems(settings)
        if endpoint.security_protocol in TLS_PROTOCOLS:
            try:
                server_context(listener_tls(settings))
                parse_rules(settings.value(_MAPPING_RULES))
            except ValueError as error:
                text = f"listener {endpoint.listener}: {error}"
                yield ConfigProblem("listeners", str(endpoint), text)


def security_refusal(current: BrokerConfig, proposed: BrokerConfig) -> str | None:
    """Say why changed settings leave a listener without certificates or a usable login.

    A listener's new certificate must name the same node.
    """
    found = next((one.message for one in security_problems(proposed)), None)
    if found is not None:
        return found
    known = {endpoint.listener for endpoint in current.endpoints}
    for endpoint in proposed.endpoints:
        if endpoint.listener in known and endpoint.security_protocol in TLS_PROTOCOLS:
            before, after = (
                listener_tls(ListenerSettings(config, endpoint.listener))
                for config in (current, proposed)
            )
            refusal = before.keys != after.keys and identity_change(
                identity_of(before.keys),
                identity_of(after.keys),
                allows_dn=after.allows_dn_changes,
                allows_san=after.allows_san_changes,
            )
            if refusal:
                return refusal
    return None


def _login_problems(settings: ListenerSettings) -> Iterator[ConfigProblem]:
    names = settings.value(_MECHANISMS)
    shown = ",".join(names)
    unsupported = [name for name in names if name not in _SUPPORTED]
    if unsupported:
        text = (
            f"{_MECHANISMS}={shown} for listener {settings.listener}: {', '.join(unsupported)} is "
            f"not supported, use some of {', '.join(_SUPPORTED)}"
        )
        yield ConfigProblem(_MECHANISMS, shown, text)
    if OAUTHBEARER in names:
        yield from token_problems(settings)
    for name in names:
        key = f"{settings.prefix}{name.lower()}.{_JAAS}"
        try:
            options = _options(settings, name)
        except ValueError as error:
            yield ConfigProblem(key, "[hidden]", f"{key}: {error}")
            continue
        if (
            name == PLAIN
            and handler_name(settings) is None
            and not any(option.startswith("user_") for option in options)
        ):
            text = f'{key} must name users, as user_alice="password" of the PlainLoginModule'
            yield ConfigProblem(key, None, text)
