"""How listeners check logins: settings, plug-in classes, tokens and their keys.

Those of `sasl.oauthbearer.jwt.validator.class` check tokens in the same way.

PLAIN calls `authenticate(user, password)`, SCRAM `credential(user, mechanism)`, OAUTHBEARER
`validate(token)`. An exception, or a result of another type, refuses the login.

Kafka: org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler, which accepts
unsigned tokens where no keys are configured; here the node does not start;
org.apache.kafka.common.network.ChannelBuilders, .security.JaasContext;
org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerRefreshingLogin.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ottla.config.broker.endpoints import SecurityProtocol
from ottla.config.problems import ConfigErrors, ConfigProblem
from ottla.config.security import ALLOWED_FILES, ALLOWED_URLS
from ottla.errors import ConfigError
from ottla.network.fetching import FetchFailed, check_allowed
from ottla.network.kerberos import SERVICE_NAME, Renewal
from ottla.network.tls_context import client_context, tls_settings
from ottla.network.token_retrieval import (
    TOKEN_URL,
    VALIDATOR,
    TokenSettings,
    seconds_to_renewal,
    token_retriever,
)
from ottla.security.jaas import parse_jaas
from ottla.security.sasl.gssapi import GSSAPI, RULES
from ottla.security.sasl.jwt import JwtClaims, JwtRules
from ottla.security.sasl.mechanism import InvalidJwt
from ottla.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerServer
from ottla.security.sasl.plain import PLAIN
from ottla.security.sasl.scram import HASHES, MIN_ITERATIONS, ScramCredential
from ottla.server.node.plugins import (
    PluginError,
    handler_methods,
    is_kafkas,
    load_class,
    load_plugin,
)
from ottla.server.system.kerberos import KerberosSettings
from ottla.server.system.provider_keys import ProviderKeys, load_keys

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from random import Random

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.config.listener_settings import ListenerSettings
    from ottla.network.tls_context import TlsSettings
    from ottla.security.sasl.jwt import Jwk
    from ottla.security.sasl.mechanism import Mechanism
    from ottla.server.system.environment import Environment
    from ottla.server.system.provider_keys import CallLater
    from ottla.server.system.provider_keys import Run as FetchKeys

    Log = Callable[[str], None]
    _Source = tuple[str, int]
    """URL, and milliseconds between fetches."""
    Run = Callable[[Callable[[], str], Callable[..., None]], None]

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


JAAS: Final = "sasl.jaas.config"
MECHANISMS: Final = "sasl.enabled.mechanisms"
MAPPING_RULES: Final = "ssl.principal.mapping.rules"
SUPPORTED: Final = (PLAIN, *HASHES, OAUTHBEARER, GSSAPI)
SASL_PROTOCOLS: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
TLS_PROTOCOLS: Final = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
_CLIENT_AUTH: Final = "ssl.client.auth"


def listener_tls(settings: ListenerSettings) -> TlsSettings:
    """Return the TLS settings of a listener.

    Clients of SASL_SSL are named by SASL: as in Kafka, ssl.client.auth then applies only as a
    setting of the listener itself.
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


def jaas_options(settings: ListenerSettings, mechanism: str) -> Mapping[str, str]:
    """Return the options of a mechanism's JAAS text; ValueError for an invalid one."""
    text = settings.own(JAAS, mechanism)
    return {} if text is None else parse_jaas(text.reveal()).options


def kerberos_settings(settings: ListenerSettings) -> KerberosSettings:
    """Return a listener's Kerberos settings; ValueError for an invalid JAAS text."""
    renewal = Renewal(
        settings.value("sasl.kerberos.ticket.renew.window.factor"),
        settings.value("sasl.kerberos.ticket.renew.jitter"),
        settings.value("sasl.kerberos.min.time.before.relogin") / 1000,
    )
    return KerberosSettings(
        jaas_options(settings, GSSAPI),
        settings.value(SERVICE_NAME),
        settings.value(RULES),
        renewal,
    )


log = logging.getLogger("ottla.login")
HANDLER: Final = "sasl.server.callback.handler.class"


def handler_name(settings: ListenerSettings, mechanism: str) -> str | None:
    """Return the class for a mechanism from the node's file; None for one of Kafka's own.

    A class that AlterConfigs stores is not loaded. Without a prefix the setting is for PLAIN.
    """
    keys = [f"{settings.prefix}{mechanism.lower()}.{HANDLER}"]
    if mechanism == PLAIN:
        keys.append(HANDLER)
    found = _named_first(settings, keys)
    if found is None and mechanism == OAUTHBEARER:
        found = token_class(settings, VALIDATOR)
    return found


def token_class(settings: ListenerSettings, setting: str) -> str | None:
    """Return the class of a setting about tokens, of the node's file; None for Kafka's own."""
    prefixes = f"{settings.prefix}{OAUTHBEARER.lower()}.", settings.prefix, ""
    return _named_first(settings, [prefix + setting for prefix in prefixes])


def _named_first(settings: ListenerSettings, keys: list[str]) -> str | None:
    given = settings.config.given
    found = next((str(given[key]) for key in keys if given.get(key)), None)
    return None if found is None or is_kafkas(found) else found


class LoginHandlers:
    """The plug-in objects; each is created once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Any] = {}

    def passwords(self, settings: ListenerSettings) -> Callable[[str, str], bool] | None:
        """Return the check of PLAIN's passwords, None without a class."""
        plugin = self._of(settings, PLAIN)
        if plugin is None:
            return None
        return lambda user, password: _result_of(plugin, "authenticate", user, password) is True

    def credentials(
        self, settings: ListenerSettings, mechanism: str
    ) -> Callable[[str], ScramCredential | None] | None:
        """Return the search for SCRAM's credentials, None without a class."""
        assert mechanism in HASHES, mechanism
        plugin = self._of(settings, mechanism)
        if plugin is None:
            return None
        return lambda user: _credential(_result_of(plugin, "credential", user, mechanism))

    def tokens(self, settings: ListenerSettings) -> Callable[[str], JwtClaims] | None:
        """Return the check of OAUTHBEARER's tokens, None without a class."""
        plugin = self._of(settings, OAUTHBEARER)
        if plugin is None:
            return None
        return lambda token: _claims(_result_of(plugin, "validate", token))

    def _of(self, settings: ListenerSettings, mechanism: str) -> Any:
        name = handler_name(settings, mechanism)
        if name is None:
            return None
        key = name, mechanism
        if key not in self._made:
            methods = handler_methods(mechanism)
            self._made[key] = load_plugin(name, methods, settings.config.given)
        return self._made[key]


def _result_of(plugin: Any, method: str, *arguments: str) -> Any:
    """Return the result of a plug-in's method, None when it raises."""
    try:
        return getattr(plugin, method)(*arguments)
    except Exception:
        log.exception(
            "%s failed: the login is refused; correct the class, the traceback says where",
            type(plugin).__qualname__,
            extra={"event": "login.plugin"},
        )
        return None


def _credential(answer: Any) -> ScramCredential | None:
    """Return salt, stored key, server key and iterations; None for a result of another type."""
    if not isinstance(answer, tuple) or [type(value) for value in answer] != [
        bytes,
        bytes,
        bytes,
        int,
    ]:
        return None
    salt, stored_key, server_key, iterations = answer
    if iterations < MIN_ITERATIONS:
        return None
    return ScramCredential(salt, stored_key, server_key, iterations)


def _claims(answer: Any) -> JwtClaims:
    """Return the claims of a token: its user, and its expiry in milliseconds since 1970."""
    if isinstance(answer, tuple) and [type(value) for value in answer] == [str, int] and answer[0]:
        return JwtClaims(answer[0], (), answer[1])
    raise InvalidJwt("the class that checks tokens refuses this one")


_PREFIX: Final = "sasl.oauthbearer."
_KEYS: Final = _PREFIX + "jwks.endpoint.url"


class TokenLogins:
    """The keys of each provider that the listeners name."""

    def __init__(self, run: FetchKeys, call_later: CallLater, clock: Clock) -> None:
        self._run = run
        self._call_later = call_later
        self._clock = clock
        self._known: dict[_Source, ProviderKeys] = {}
        self._sources: dict[str, _Source] = {}
        """By listener."""

    def mechanism(self, settings: ListenerSettings) -> Callable[[], Mechanism]:
        """Return the factory of logins; ConfigErrors when the keys of a start cannot be loaded."""
        keys = self._keys_of(settings)
        rules = JwtRules(
            tuple(settings.value(_PREFIX + "expected.audience", OAUTHBEARER)),
            settings.value(_PREFIX + "expected.issuer", OAUTHBEARER),
            settings.value(_PREFIX + "clock.skew.seconds", OAUTHBEARER),
            settings.value(_PREFIX + "scope.claim.name", OAUTHBEARER),
            settings.value(_PREFIX + "sub.claim.name", OAUTHBEARER),
        )
        return lambda: OAuthBearerServer(lambda token: keys.verify(token, rules))

    def _keys_of(self, settings: ListenerSettings) -> ProviderKeys:
        """Return the keys of a listener, which refuse all tokens until they are fetched.

        A start waits for the keys; later, when a setting has changed, nothing waits for a network.
        """
        url = settings.value(_KEYS, OAUTHBEARER)
        refresh_ms = settings.value(_PREFIX + "jwks.endpoint.refresh.ms", OAUTHBEARER)
        source = url, refresh_ms
        is_start = settings.listener not in self._sources
        keys = self._known.get(source)
        if keys is None:
            keys = self._known[source] = ProviderKeys(
                url,
                self._load(url, settings) if is_start else (),
                run=self._run,
                call_later=self._call_later,
                clock=self._clock,
                refresh_ms=refresh_ms,
            )
        self._sources[settings.listener] = source
        for unused in self._known.keys() - set(self._sources.values()):
            self._known.pop(unused).close()
        return keys

    @staticmethod
    def _load(url: str, settings: ListenerSettings) -> Sequence[Jwk]:
        try:
            return load_keys(url)
        except (FetchFailed, InvalidJwt) as error:
            text = f"listener {settings.listener} has no key to verify tokens with: {error}"
            raise ConfigErrors([ConfigProblem(_KEYS, url, text)]) from error


def token_problems(settings: ListenerSettings) -> Iterator[ConfigProblem]:
    """Yield why tokens cannot be verified on a listener."""
    url = settings.value(_KEYS, OAUTHBEARER)
    if not url:
        text = f"{_KEYS} must say where the keys are that verify the tokens of {OAUTHBEARER}"
        yield ConfigProblem(_KEYS, None, text)
        return
    try:
        check_allowed(url, *allowed(settings.config))
    except ValueError as error:
        yield ConfigProblem(_KEYS, url, f"{_KEYS}: {error}")


def allowed(config: BrokerConfig) -> tuple[list[str], list[str]]:
    """Return the URLs and files that the node may read keys from."""
    lists = (str(config.given.get(name) or "") for name in (ALLOWED_URLS, ALLOWED_FILES))
    urls, files = ([item.strip() for item in text.split(",") if item.strip()] for text in lists)
    return urls, files
