"""The token with which a node logs in at other nodes: fetched at the start, renewed by workers.

Kafka: org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerRefreshingLogin.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ottla.config.problems import ConfigErrors, ConfigProblem
from ottla.errors import ConfigError
from ottla.network.fetching import FetchFailed
from ottla.network.tls_context import client_context
from ottla.network.token_retrieval import (
    TOKEN_URL,
    TokenSettings,
    seconds_to_renewal,
    token_retriever,
)
from ottla.security.sasl.oauthbearer import OAUTHBEARER
from ottla.server.node.listener_security import TLS_PROTOCOLS, jaas_options, listener_tls
from ottla.server.node.login_handlers import allowed, token_class
from ottla.server.node.plugins import PluginError, load_class, load_plugin

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import Callable
    from random import Random

    from ottla.config.listener_settings import ListenerSettings
    from ottla.server.system.environment import Environment

    Run = Callable[[Callable[[], str], Callable[..., None]], None]

log = logging.getLogger("ottla.login")
_ID_BYTES: Final = 16
_RETRY_S: Final = 1.0
_MAX_WAIT_S: Final = 86_400.0


class PeerToken:
    """The current token for one listener of other nodes."""

    def __init__(
        self, settings: TokenSettings, *, run: Run, loop: asyncio.AbstractEventLoop, rng: Random
    ) -> None:
        """Fetch the first token; ConfigErrors without one. run(job, done) uses a worker."""
        self._settings = settings
        self._run = run
        self._loop = loop
        self._rng = rng
        try:
            self.token = self._fetch()
        except (ConfigError, FetchFailed) as error:
            text = f"this node has no token to log in with at other nodes: {error}"
            raise ConfigErrors([ConfigProblem(TOKEN_URL, None, text)]) from error
        self._wait(self._renewal_s())

    def _fetch(self) -> str:
        """Fetch a token by the settings in force."""
        return token_retriever(self._settings)()

    def _renewal_s(self) -> float:
        return seconds_to_renewal(self._settings, self.token, self._rng.random())

    def _wait(self, seconds: float) -> None:
        self._loop.call_later(min(seconds, _MAX_WAIT_S), self._renew)

    def _renew(self) -> None:
        self._run(self._fetch, self._fetched)

    def _fetched(self, token: str | None, error: Exception | None) -> None:
        if token is not None:
            self.token = token
            self._wait(self._renewal_s())
        elif isinstance(error, ConfigError | FetchFailed):
            text = "the token of this node is not renewed; the last one stays in use: %s"
            log.warning(text, error, extra={"event": "login.token_not_renewed"})
            self._wait(_RETRY_S)
        elif error is not None:
            raise error


def peer_token_settings(
    settings: Callable[[], ListenerSettings], environment: Environment | None
) -> TokenSettings:
    """Return the settings of a node's own tokens; without an environment none can be fetched."""

    def context() -> ssl.SSLContext | None:
        protocol = settings().config.security_protocols[settings().listener]
        return client_context(listener_tls(settings())) if protocol in TLS_PROTOCOLS else None

    def new_id() -> str:
        assert environment is not None
        return environment.secret_bytes(_ID_BYTES).hex()

    made: dict[tuple[str, str], Any] = {}

    def plugin(setting: str, method: str) -> Any:
        """Return the object of a class of the node's file; the class without an environment."""
        name = token_class(settings(), setting)
        if name is None:
            raise ConfigError(f"{setting}: a class is taken from the node's file only")
        methods = "configure", method
        try:
            if environment is None:
                return load_class(name, methods)
            if (setting, name) not in made:
                made[setting, name] = load_plugin(name, methods, settings().config.given)
        except PluginError as error:
            raise ConfigError(f"{setting}: {error}") from error
        return made[setting, name]

    return TokenSettings(
        lambda name: settings().value(name, OAUTHBEARER),
        jaas_options(settings(), OAUTHBEARER),
        allowed(settings().config),
        context,
        lambda: 0 if environment is None else environment.clock.now_ms() / 1000,
        new_id,
        plugin,
    )
