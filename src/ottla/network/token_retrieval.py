"""Retrieves tokens for OAUTHBEARER: from a provider, for id and secret or an assertion, or a file.

It blocks: call it in a worker, or before anything is served.

Kafka: org.apache.kafka.common.security.oauthbearer.{ClientCredentialsJwtRetriever,
JwtBearerJwtRetriever, FileJwtRetriever} (KIP-768, KIP-1139);
org.apache.kafka.common.security.oauthbearer.internals.secured.assertion. DefaultAssertionCreator.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ottla.errors import ConfigError
from ottla.network.fetching import FetchFailed, check_allowed, check_file, fetch, read_file

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

_PREFIX: Final = "sasl.oauthbearer."
TOKEN_URL: Final = _PREFIX + "token.endpoint.url"
_FORM: Final = {
    "Content-Type": "application/x-www-form-urlencoded",
    "Accept": "application/json",
    "Cache-Control": "no-cache",
}
RETRIEVER: Final = _PREFIX + "jwt.retriever.class"
VALIDATOR: Final = _PREFIX + "jwt.validator.class"
_KAFKAS: Final = "org.apache.kafka.common.security.oauthbearer."
_BEARER_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_MIN_RETRY_S: Final = 1.0


class TokenSettings(NamedTuple):
    """The settings of a client, or of a node as a client of others."""

    value: Callable[[str], Any]
    """Returns a setting by its dotted name."""
    options: Mapping[str, str]
    """Of the JAAS text."""
    allowed: tuple[Sequence[str], Sequence[str]]
    """URLs and files."""
    context: Callable[[], ssl.SSLContext | None]
    """Returns the TLS context for https, None for the system's."""
    now_s: Callable[[], float]
    new_id: Callable[[], str]
    """Returns a unique id for an assertion."""
    plugin: Callable[[str, str], Any]
    """Returns an object of the class that a setting names, which has a method; ConfigError."""

    def __repr__(self) -> str:
        return "TokenSettings([hidden])"


def token_retriever(settings: TokenSettings) -> Callable[[], str]:
    """Return the function that fetches a token or raises FetchFailed; ConfigError for settings.

    A user's validator class may check each token before it is used.
    """
    retrieve = _retriever(settings)
    if settings.value(VALIDATOR).startswith(_KAFKAS):
        return retrieve
    validate = settings.plugin(VALIDATOR, "validate").validate

    def validated() -> str:
        token = retrieve()
        if not _called(VALIDATOR, validate, token):
            raise FetchFailed(f"the class of {VALIDATOR} refuses the token")
        return token

    return validated


def _retriever(settings: TokenSettings) -> Callable[[], str]:
    name = settings.value(RETRIEVER)
    if not name.startswith(_KAFKAS):
        retrieve = settings.plugin(RETRIEVER, "retrieve").retrieve
        return lambda: _retrieved(settings, _called(RETRIEVER, retrieve))
    url = settings.value(TOKEN_URL)
    if not url:
        raise ConfigError(f"OAUTHBEARER needs {TOKEN_URL}")
    try:
        check_allowed(url, *settings.allowed)
    except ValueError as error:
        raise ConfigError(f"{TOKEN_URL}: {error}") from error
    kind = name.removeprefix(_KAFKAS)
    is_file = urlsplit(url).scheme == "file"
    if kind == "DefaultJwtRetriever":
        kind = "FileJwtRetriever" if is_file else "ClientCredentialsJwtRetriever"
    if is_file != (kind == "FileJwtRetriever"):
        raise ConfigError(f"{TOKEN_URL}: {url} is no URL for {kind}")
    if is_file:
        return lambda: _checked_token(settings, fetch(url, now_s=settings.now_s))
    if kind == "JwtBearerJwtRetriever":
        _check_assertion(settings)
        return lambda: _posted(settings, url, _assertion_form(settings), {})
    if kind != "ClientCredentialsJwtRetriever":
        raise ConfigError(f"{RETRIEVER}: Kafka has no class {kind}")
    client_id, secret, scope = _client_credentials(settings)
    encoded = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    return lambda: _posted(settings, url, form, {"Authorization": f"Basic {encoded}"})


def _called(setting: str, method: Callable[..., Any], *arguments: str) -> Any:
    """Call a method of a user's class; FetchFailed when it raises."""
    try:
        return method(*arguments)
    except Exception as error:
        text = f"the class of {setting} raised {type(error).__name__}"
        raise FetchFailed(text) from error


def _retrieved(settings: TokenSettings, token: Any) -> str:
    if not isinstance(token, str):
        raise FetchFailed(f"the class of {RETRIEVER} returned no text")
    return _checked_token(settings, token.encode())


def _client_credentials(settings: TokenSettings) -> tuple[str, str, str | None]:
    options, prefix = settings.options, _PREFIX + "client.credentials.client."
    client_id = settings.value(prefix + "id") or options.get("clientId")
    given = settings.value(prefix + "secret")
    secret = options.get("clientSecret") if given is None else _revealed(given)
    if not client_id or not secret:
        raise ConfigError(f"OAUTHBEARER needs {prefix}id and .client.secret")
    return client_id, secret, settings.value(_PREFIX + "scope") or options.get("scope")


def _revealed(secret: Any) -> str:
    return str(secret.reveal() if hasattr(secret, "reveal") else secret)


def _check_assertion(settings: TokenSettings) -> None:
    prefix = _PREFIX + "assertion."
    names = ("file", "private.key.file", "template.file")
    path, key_file, template = (settings.value(prefix + name) for name in names)
    if not path and not key_file:
        raise ConfigError(f"an assertion needs {prefix}file or .assertion.private.key.file")
    for location in filter(None, (path, key_file, template)):
        try:
            check_file(location, settings.allowed[1])
        except ValueError as error:
            raise ConfigError(f"sasl.oauthbearer.assertion: {error}") from error


def _assertion_form(settings: TokenSettings) -> dict[str, str]:
    path = settings.value(_PREFIX + "assertion.file")
    if path:
        assertion = read_file(path).decode().strip()
    else:
        value = settings.value
        now_s = settings.now_s()
        template = value(f"{_ASSERTION}template.file")
        given = json.loads(read_file(template)) if template else {}
        algorithm = value(f"{_ASSERTION}algorithm").upper()
        header = {"alg": algorithm, "typ": "JWT", **given.get("header", {})}
        claims: dict[str, Any] = {
            "iat": int(now_s),
            "exp": int(now_s) + value(f"{_ASSERTION}claim.exp.seconds"),
            "nbf": int(now_s) - value(f"{_ASSERTION}claim.nbf.seconds"),
            **given.get("payload", {}),
        }
        for name in ("aud", "iss", "sub"):
            given_claim = value(f"{_ASSERTION}claim.{name}")
            if given_claim is not None:
                claims[name] = given_claim
        if value(f"{_ASSERTION}claim.jti.include"):
            claims["jti"] = settings.new_id()
        signed = f"{_part(json.dumps(header).encode())}.{_part(json.dumps(claims).encode())}"
        assertion = f"{signed}.{_part(_signature(value, algorithm, signed.encode()))}"
    scope = settings.value(_PREFIX + "scope")
    form = {"grant_type": _BEARER_GRANT, "assertion": assertion}
    return form | ({"scope": scope} if scope else {})


def _posted(
    settings: TokenSettings, url: str, form: dict[str, str], headers: dict[str, str]
) -> str:
    read_ms = settings.value("sasl.login.read.timeout.ms") or 10_000
    data = fetch(
        url,
        now_s=settings.now_s,
        body=urlencode(form).encode(),
        headers={**_FORM, **headers},
        timeout_s=read_ms / 1000,
        context=settings.context() if urlsplit(url).scheme == "https" else None,
    )
    try:
        answer = json.loads(data)
        token = answer.get("access_token") or answer.get("id_token")
    except (ValueError, AttributeError, RecursionError) as error:
        raise FetchFailed("the provider's answer is no JSON object") from error
    if not isinstance(token, str):
        raise FetchFailed("the provider's answer has no access_token")
    return _checked_token(settings, token.encode())


def _checked_token(settings: TokenSettings, data: bytes) -> str:
    """Return the token if it is a JWT with an expiry; FetchFailed otherwise."""
    try:
        token = data.decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise FetchFailed("the token is no JWT") from error
    _lifetime(token, settings.now_s())
    return token


def _lifetime(token: str, now_s: float) -> tuple[float, float]:
    """Return when a token was issued and when it expires, from its claims; not verified."""
    try:
        _, claims, _ = token.split(".")
        found = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        expires_s = float(found["exp"])
        return float(found.get("iat", min(now_s, expires_s))), expires_s
    except (ValueError, TypeError, KeyError, binascii.Error, RecursionError) as error:
        raise FetchFailed("the token is no JWT with an expiry") from error


def seconds_to_renewal(settings: TokenSettings, token: str, randomness: float) -> float:
    """Return the time until a token should be renewed, well before it expires.

    randomness lies between 0 and 1.
    """
    value, now_s = settings.value, settings.now_s()
    issued_s, expires_s = _lifetime(token, now_s)
    jitter = randomness * value("sasl.login.refresh.window.jitter")
    factor = min(value("sasl.login.refresh.window.factor") + jitter, 1.0)
    buffer_s = value("sasl.login.refresh.buffer.seconds")
    renewal_s = min(issued_s + (expires_s - issued_s) * factor, expires_s - buffer_s)
    earliest_s = now_s + value("sasl.login.refresh.min.period.seconds")
    if earliest_s < expires_s - buffer_s:
        renewal_s = max(renewal_s, earliest_s)
    return float(max(renewal_s - now_s, _MIN_RETRY_S))


_ASSERTION: Final = "sasl.oauthbearer.assertion."


def _signature(value: Callable[[str], Any], algorithm: str, signed: bytes) -> bytes:
    passphrase = value(f"{_ASSERTION}private.key.passphrase")
    secret = passphrase.reveal() if hasattr(passphrase, "reveal") else passphrase
    data = read_file(value(f"{_ASSERTION}private.key.file"))
    try:
        key = load_pem_private_key(data, None if secret is None else str(secret).encode())
    except (ValueError, TypeError) as error:
        raise ConfigError(f"sasl.oauthbearer.assertion.private.key.file: {error}") from error
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey):
        numbers = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
        return b"".join(number.to_bytes(32, "big") for number in numbers)
    raise ConfigError(f"sasl.oauthbearer.assertion: the key does not fit {algorithm}")


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
