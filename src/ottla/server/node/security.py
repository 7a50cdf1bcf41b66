"""How each listener of a node is secured: its protocol, its mechanisms, its credentials.

Kafka: org.apache.kafka.common.network.ChannelBuilders.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from ottla.config.broker.endpoints import SecurityProtocol
from ottla.config.listener_settings import ListenerSettings
from ottla.config.problems import ConfigProblem
from ottla.security.jaas import parse_jaas
from ottla.security.sasl.plain import PLAIN, PlainServer, users_of
from ottla.security.sasl.scram import (
    HASHES,
    MECHANISM_NUMBERS,
    ScramCredential,
    ScramServer,
)
from ottla.security.sasl.server import SaslServer
from ottla.server.requests.login import LoginPolicy, SaslLogins

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Mapping

    from ottla.config.broker import BrokerConfig
    from ottla.network.server import ListenerSecurity
    from ottla.security.sasl.mechanism import Mechanism
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.system.environment import Environment

_JAAS: Final = "sasl.jaas.config"
_MECHANISMS: Final = "sasl.enabled.mechanisms"
_SUPPORTED: Final = (PLAIN, *HASHES)
_NONCE_BYTES: Final = 24
_SECRET_BYTES: Final = 32
SASL_PROTOCOLS: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class NodeSecurity:
    """Makes what secures each listener."""

    def __init__(
        self, metadata: BrokerMetadata, environment: Environment, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._metadata = metadata
        self._environment = environment
        self._loop = loop
        self._secret = environment.secret_bytes(_SECRET_BYTES)

    def of(self, listener: str) -> ListenerSecurity | None:
        """Return what secures a listener's connections, None for PLAINTEXT."""
        protocol = self._metadata.config.security_protocols[listener]
        if protocol not in SASL_PROTOCOLS:
            return None
        return SaslLogins(
            lambda: self._policy(listener), loop=self._loop, clock=self._environment.clock
        )

    def _policy(self, listener: str) -> LoginPolicy:
        settings = ListenerSettings(self._metadata.config, listener)
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
        if name == PLAIN:
            is_valid = users_of(_options(settings, name))
            return lambda: PlainServer(is_valid)
        return lambda: ScramServer(
            name,
            lambda user, is_token: None if is_token else self._scram_credential(name, user),
            nonce=base64.b64encode(self._environment.secret_bytes(_NONCE_BYTES)).decode(),
            secret=self._secret,
        )

    def _scram_credential(self, mechanism: str, user: str) -> ScramCredential | None:
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


def _options(settings: ListenerSettings, mechanism: str) -> Mapping[str, str]:
    text = settings.own(_JAAS, mechanism)
    return {} if text is None else parse_jaas(text.reveal()).options


def login_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield what is wrong with the logins of SASL listeners."""
    for endpoint in config.endpoints:
        if endpoint.security_protocol in SASL_PROTOCOLS:
            yield from _listener_problems(ListenerSettings(config, endpoint.listener))


def login_refusal(_current: BrokerConfig, proposed: BrokerConfig) -> str | None:
    """Say why changed settings leave a listener without a usable login."""
    return next((one.message for one in login_problems(proposed)), None)


def _listener_problems(settings: ListenerSettings) -> Iterator[ConfigProblem]:
    names = settings.value(_MECHANISMS)
    shown = ",".join(names)
    unsupported = [name for name in names if name not in _SUPPORTED]
    if unsupported:
        text = (
            f"{_MECHANISMS}={shown} for listener {settings.listener}: {', '.join(unsupported)} is "
            f"not supported, use some of {', '.join(_SUPPORTED)}"
        )
        yield ConfigProblem(_MECHANISMS, shown, text)
    for name in names:
        key = f"{settings.prefix}{name.lower()}.{_JAAS}"
        try:
            options = _options(settings, name)
        except ValueError as error:
            yield ConfigProblem(key, "[hidden]", f"{key}: {error}")
            continue
        if name == PLAIN and not any(option.startswith("user_") for option in options):
            text = f'{key} must name users, as user_alice="password" of the PlainLoginModule'
            yield ConfigProblem(key, None, text)
