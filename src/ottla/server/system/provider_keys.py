"""The public keys of an OAuth provider, which workers fetch every jwks.endpoint.refresh.ms.

They are renewed whether or not clients log in: a key that the provider has withdrawn must not
verify the first token that comes after hours.

Kafka: org.apache.kafka.common.security.oauthbearer.internals.secured.RefreshingHttpsJwks.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.network.fetching import FetchFailed, fetch
from ottla.security.sasl.jwt import knows, parse_jwks, verified
from ottla.security.sasl.mechanism import InvalidJwt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.clock import Clock
    from ottla.security.sasl.jwt import Jwk, JwtClaims, JwtRules

    CallLater = Callable[[float, Callable[[], None]], object]
    Run = Callable[[Callable[[], Sequence[Jwk]], Callable[..., None]], None]

log = logging.getLogger("ottla.login")
_UNKNOWN_KEY_MS: Final = 10_000
"""Minimum time between fetches for tokens with an unknown key."""


def load_keys(url: str) -> Sequence[Jwk]:
    """Return the keys at a URL; FetchFailed or InvalidJwt without any."""
    return parse_jwks(fetch(url, now_s=time.monotonic))


class ProviderKeys:
    """The keys at one URL; the last ones stay in use while it is unreachable."""

    def __init__(
        self,
        url: str,
        keys: Sequence[Jwk],
        *,
        run: Run,
        call_later: CallLater,
        clock: Clock,
        refresh_ms: int,
    ) -> None:
        """Take the keys of the start, empty to fetch them now; run(job, done) uses a worker."""
        self._url = url
        self.keys = keys
        self._run = run
        self._clock = clock
        self._call_later = call_later
        self._refresh_ms = refresh_ms
        self._fetched_ms = clock.monotonic_ms()
        self._is_fetching = self._is_closed = False
        if not keys:
            self._fetch()
        self._await_next()

    def _await_next(self) -> None:
        self._call_later(self._refresh_ms / 1000, self._refresh)

    def close(self) -> None:
        """Fetch no more."""
        self._is_closed = True

    def verify(self, token: str, rules: JwtRules) -> JwtClaims:
        """Return the claims of a token; InvalidJwt when it is not valid."""
        age_ms = self._clock.monotonic_ms() - self._fetched_ms
        if age_ms >= _UNKNOWN_KEY_MS and not knows(token, self.keys):
            self._fetch()
        try:
            return verified(token, self.keys, rules, self._clock.now_ms() / 1000)
        except InvalidJwt as error:
            log.info("a token is refused: %s", error, extra={"event": "login.token_refused"})
            raise

    def _refresh(self) -> None:
        """Fetch the keys at the scheduled time."""
        if not self._is_closed:
            self._fetch()
            self._await_next()

    def _fetch(self) -> None:
        if not self._is_fetching:
            self._is_fetching = True
            self._run(partial(load_keys, self._url), self._fetched)

    def _fetched(self, keys: Sequence[Jwk] | None, error: Exception | None) -> None:
        self._is_fetching = False
        self._fetched_ms = self._clock.monotonic_ms()
        if keys is not None:
            self.keys = keys
        elif isinstance(error, FetchFailed | InvalidJwt):
            text = "the keys for tokens were not renewed; the last ones stay in use: %s"
            log.warning(text, error, extra={"event": "login.keys_not_renewed"})
        elif error is not None:
            raise error
