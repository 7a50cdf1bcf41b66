"""OAUTHBEARER on a node's listeners: keys, claims and the checks of their settings.

Kafka: org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler, which
accepts unsigned tokens where no keys are configured; here the node does not start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.problems import ConfigErrors, ConfigProblem
from ottla.config.security import ALLOWED_FILES, ALLOWED_URLS
from ottla.network.fetching import FetchFailed, check_allowed
from ottla.security.sasl.jwt import JwtRules
from ottla.security.sasl.mechanism import InvalidJwt
from ottla.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerServer
from ottla.server.system.provider_keys import ProviderKeys, load_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.config.listener_settings import ListenerSettings
    from ottla.security.sasl.jwt import Jwk
    from ottla.security.sasl.mechanism import Mechanism
    from ottla.server.system.provider_keys import CallLater, Run

    _Source = tuple[str, int]
    """URL, and milliseconds between fetches."""

_PREFIX: Final = "sasl.oauthbearer."
_KEYS: Final = _PREFIX + "jwks.endpoint.url"


class TokenLogins:
    """The keys of each provider that the listeners name."""

    def __init__(self, run: Run, call_later: CallLater, clock: Clock) -> None:
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
    urls, files = ([one.strip() for one in text.split(",") if one.strip()] for text in lists)
    return urls, files
