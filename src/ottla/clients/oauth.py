"""Tokens of a client for OAUTHBEARER: fetched at its start and renewed while it runs.

The provider gives them for the client's id and secret, for a signed assertion, or a file has them.

Kafka: org.apache.kafka.common.security.oauthbearer.{ClientCredentialsJwtRetriever,
JwtBearerJwtRetriever, FileJwtRetriever}, .internals.expiring.ExpiringCredentialRefreshingLogin
(KIP-768, KIP-1139).
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import threading
import time
import weakref
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from ottla.clients.assertions import signed_assertion
from ottla.clients.login import jaas_options
from ottla.clients.tls import client_context
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.network.fetching import FetchFailed, check_allowed, check_file, fetch, read_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.settings import Settings

log = logging.getLogger("ottla.clients.login")
_FORM: Final = {
    "Content-Type": "application/x-www-form-urlencoded",
    "Accept": "application/json",
    "Cache-Control": "no-cache",
}
_BEARER_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_MIN_RETRY_S: Final = 1.0


class TokenSource:
    """The current token of one client; a thread renews it until the client is gone."""

    def __init__(self, settings: Settings) -> None:
        """Fetch the first token; ConfigError for incomplete settings, KafkaError without one."""
        self._settings = settings
        self._fetch = _retriever(settings)
        self.token = self._fetched()
        ended = threading.Event()
        weakref.finalize(self, ended.set)
        renewal = threading.Thread(
            target=_renew, args=(weakref.ref(self), ended), name="ottla-token", daemon=True
        )
        renewal.start()

    def _fetched(self) -> str:
        try:
            return self._fetch()
        except FetchFailed as error:
            text = f"no token for OAUTHBEARER: {error}"
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from error

    def renew(self) -> bool:
        """Fetch another token; the one that there is stays when that fails."""
        try:
            self.token = self._fetched()
        except KafkaError as error:
            log.warning("the token is not renewed: %s", error)
            return False
        return True

    def seconds_to_renewal(self) -> float:
        """Return the time until the token should be renewed, well before it expires."""
        issued_s, expires_s = _lifetime(self.token)
        settings, now_s = self._settings, time.time()
        jitter = SystemRandom().random() * settings.sasl_login_refresh_window_jitter
        factor = min(settings.sasl_login_refresh_window_factor + jitter, 1.0)
        wanted_s = issued_s + (expires_s - issued_s) * factor
        wanted_s = min(wanted_s, expires_s - settings.sasl_login_refresh_buffer_seconds)
        least_s = now_s + settings.sasl_login_refresh_min_period_seconds
        if least_s < expires_s - settings.sasl_login_refresh_buffer_seconds:
            wanted_s = max(wanted_s, least_s)
        return float(max(wanted_s - now_s, _MIN_RETRY_S))


def _renew(source: weakref.ref[TokenSource], ended: threading.Event) -> None:
    is_renewed = True
    while True:
        held = source()
        if held is None:
            return
        wait_s = held.seconds_to_renewal() if is_renewed else _MIN_RETRY_S
        del held
        if ended.wait(min(wait_s, threading.TIMEOUT_MAX)):
            return
        held = source()
        is_renewed = held is None or held.renew()
        del held


def _retriever(settings: Settings) -> Callable[[], str]:
    """Return what fetches a token."""
    url = settings.sasl_oauthbearer_token_endpoint_url
    if not url:
        raise ConfigError("OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url")
    _check_url(settings, url)
    if urlsplit(url).scheme == "file":
        return lambda: _checked_token(fetch(url))
    kind = settings.sasl_oauthbearer_jwt_retriever_class.rpartition(".")[2]
    if kind == "JwtBearerJwtRetriever":
        _check_assertion(settings)
        return lambda: _posted(settings, url, _assertion_form(settings), {})
    client_id, secret, scope = _client_credentials(settings)
    encoded = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    return lambda: _posted(settings, url, form, {"Authorization": f"Basic {encoded}"})


def _check_url(settings: Settings, url: str) -> None:
    try:
        check_allowed(url, *_allowed(settings))
    except ValueError as error:
        raise ConfigError(f"sasl.oauthbearer.token.endpoint.url: {error}") from error


def _allowed(settings: Settings) -> tuple[list[str], list[str]]:
    texts = (
        settings.org_apache_kafka_sasl_oauthbearer_allowed_urls,
        settings.org_apache_kafka_sasl_oauthbearer_allowed_files,
    )
    urls, files = ([one.strip() for one in (text or "").split(",") if one] for text in texts)
    return urls, files


def _client_credentials(settings: Settings) -> tuple[str, str, str | None]:
    options = jaas_options(settings)
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId")
    given = settings.sasl_oauthbearer_client_credentials_client_secret
    secret = options.get("clientSecret") if given is None else _revealed(given)
    if not client_id or not secret:
        raise ConfigError(
            "OAUTHBEARER needs sasl.oauthbearer.client.credentials.client.id and .client.secret"
        )
    return client_id, secret, settings.sasl_oauthbearer_scope or options.get("scope")


def _revealed(secret: Any) -> str:
    return str(secret.reveal() if hasattr(secret, "reveal") else secret)


def _check_assertion(settings: Settings) -> None:
    files = _allowed(settings)[1]
    path = settings.sasl_oauthbearer_assertion_file
    key_file = settings.sasl_oauthbearer_assertion_private_key_file
    if not path and not key_file:
        raise ConfigError(
            "an assertion needs sasl.oauthbearer.assertion.file or .assertion.private.key.file"
        )
    for one in filter(None, (path, key_file, settings.sasl_oauthbearer_assertion_template_file)):
        try:
            check_file(one, files)
        except ValueError as error:
            raise ConfigError(f"sasl.oauthbearer.assertion: {error}") from error


def _assertion_form(settings: Settings) -> dict[str, str]:
    path = settings.sasl_oauthbearer_assertion_file
    if path:
        assertion = read_file(path).decode().strip()
    else:
        assertion = signed_assertion(settings, time.time())
    scope = settings.sasl_oauthbearer_scope
    form = {"grant_type": _BEARER_GRANT, "assertion": assertion}
    return form | ({"scope": scope} if scope else {})


def _posted(settings: Settings, url: str, form: dict[str, str], headers: dict[str, str]) -> str:
    read_ms = settings.sasl_login_read_timeout_ms or 10_000
    data = fetch(
        url,
        body=urlencode(form).encode(),
        headers={**_FORM, **headers},
        timeout_s=read_ms / 1000,
        context=client_context(settings) if urlsplit(url).scheme == "https" else None,
    )
    try:
        answer = json.loads(data)
        token = answer.get("access_token") or answer.get("id_token")
    except (ValueError, AttributeError, RecursionError) as error:
        raise FetchFailed("the provider's answer is no JSON object") from error
    if not isinstance(token, str):
        raise FetchFailed("the provider's answer has no access_token")
    return _checked_token(token.encode())


def _checked_token(data: bytes) -> str:
    """Return a token that has the form of one; FetchFailed otherwise."""
    try:
        token = data.decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise FetchFailed("the token is no JWT") from error
    _lifetime(token)
    return token


def _lifetime(token: str) -> tuple[float, float]:
    """Return when a token was issued and when it expires, as it says itself."""
    try:
        _, claims, _ = token.split(".")
        found = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        expires_s = float(found["exp"])
        return float(found.get("iat", min(time.time(), expires_s))), expires_s
    except (ValueError, TypeError, KeyError, binascii.Error, RecursionError) as error:
        raise FetchFailed("the token is no JWT with an expiry") from error
