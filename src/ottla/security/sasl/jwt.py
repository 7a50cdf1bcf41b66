"""Signed JSON Web Tokens: the keys of a provider, and the claims of verified tokens.

Only asymmetric signatures are accepted: anyone could make an unsigned token, or one with an HMAC of
the public key. `cryptography` verifies signatures; the compact form and the claims are read here.

Kafka: org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator (RFC 7515, 7517, 7519).
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from ottla.security.sasl.mechanism import InvalidJwt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey

MAX_TOKEN_BYTES: Final = 16_384
MAX_KEYS: Final = 100
_MIN_RSA_BITS: Final = 2048
_PARTS: Final = 3
_HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}
_CURVES: Final[Mapping[str, tuple[ec.EllipticCurve, str]]] = {
    "P-256": (ec.SECP256R1(), "ES256"),
    "P-384": (ec.SECP384R1(), "ES384"),
    "P-521": (ec.SECP521R1(), "ES512"),
}


class Jwk(NamedTuple):
    """One public key of a provider."""

    key_id: str | None
    key: PublicKey
    algorithm: str | None
    """The only algorithm that it may be used with, None for any of its kind."""


class JwtRules(NamedTuple):
    """The required claims of a token."""

    audiences: Sequence[str] = ()
    """The token must name one of them; any audience if empty."""
    issuer: str | None = None
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    subject_claim: str = "sub"


class JwtClaims(NamedTuple):
    """The claims of a verified token."""

    subject: str
    scopes: tuple[str, ...]
    expires_ms: int


def parse_jwks(data: bytes) -> list[Jwk]:
    """Return the keys of a set that can verify signatures; InvalidJwt when it has none."""
    try:
        listed = json.loads(data)["keys"]
        found = [_jwk(key) for key in listed[:MAX_KEYS]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidJwt(f"no set of keys (JWKS): {error}") from error
    keys = [key for key in found if key is not None]
    if not keys:
        raise InvalidJwt("the set of keys (JWKS) has no RSA or EC key for signatures")
    return keys


def _jwk(one: Mapping[str, Any]) -> Jwk | None:
    if one.get("use", "sig") != "sig":
        return None
    kind, algorithm = one.get("kty"), one.get("alg")
    if kind == "RSA":
        key: PublicKey = rsa.RSAPublicNumbers(_number(one["e"]), _number(one["n"])).public_key()
        if key.key_size < _MIN_RSA_BITS:
            return None
    elif kind == "EC" and one.get("crv") in _CURVES:
        curve, algorithm = _CURVES[one["crv"]]
        numbers = ec.EllipticCurvePublicNumbers(_number(one["x"]), _number(one["y"]), curve)
        key = numbers.public_key()
    else:
        return None
    return Jwk(one.get("kid"), key, algorithm)


def verified(token: str, keys: Sequence[Jwk], rules: JwtRules, now_s: float) -> JwtClaims:
    """Return the claims of a token; InvalidJwt says why it is refused."""
    if len(token) > MAX_TOKEN_BYTES:
        raise InvalidJwt("the token is too long")
    parts = token.split(".")
    if len(parts) != _PARTS:
        raise InvalidJwt("the token is not a signed JWT of three parts")
    header, claims = _json(parts[0]), _json(parts[1])
    if "crit" in header:
        raise InvalidJwt("the token has a critical header that is not known")
    _check_signature(f"{parts[0]}.{parts[1]}".encode(), _bytes(parts[2]), header, keys)
    return _checked(claims, rules, now_s)


def _check_signature(
    signed: bytes, signature: bytes, header: Mapping[str, Any], keys: Sequence[Jwk]
) -> None:
    algorithm, key_id = header.get("alg"), header.get("kid")
    for key in keys:
        if key_id is not None and key.key_id != key_id:
            continue
        if key.algorithm is not None and key.algorithm != algorithm:
            continue
        if _is_signed_by(key.key, str(algorithm), signed, signature):
            return
    raise InvalidJwt(f"no key verifies the token (alg {algorithm!r}, kid {key_id!r})"[:200])


def knows(token: str, keys: Sequence[Jwk]) -> bool:
    """Whether the keys have the one that a token names, or the token names none."""
    try:
        key_id = _json(token.partition(".")[0]).get("kid")
    except InvalidJwt:
        return True
    return key_id is None or any(key.key_id == key_id for key in keys)


def _is_signed_by(key: PublicKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    family, digest = algorithm[:2], _HASHES.get(algorithm[2:])
    if digest is None:
        return False
    try:
        if isinstance(key, rsa.RSAPublicKey) and family in {"RS", "PS"}:
            key.verify(signature, signed, _padding(family, digest), digest)
        elif isinstance(key, ec.EllipticCurvePublicKey) and family == "ES":
            key.verify(_der(signature), signed, ec.ECDSA(digest))
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _padding(family: str, digest: hashes.HashAlgorithm) -> padding.AsymmetricPadding:
    if family == "RS":
        return padding.PKCS1v15()
    return padding.PSS(padding.MGF1(digest), digest.digest_size)


def _der(signature: bytes) -> bytes:
    half = len(signature) // 2
    numbers = (signature[:half], signature[half:])
    return encode_dss_signature(*(int.from_bytes(number, "big") for number in numbers))


def _checked(claims: Mapping[str, Any], rules: JwtRules, now_s: float) -> JwtClaims:
    expires_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
    if now_s - rules.clock_skew_s >= expires_s:
        raise InvalidJwt("the token has expired")
    if issued_s - rules.clock_skew_s > now_s:
        raise InvalidJwt("the token was issued in the future")
    if "nbf" in claims and _time(claims, "nbf") - rules.clock_skew_s > now_s:
        raise InvalidJwt("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidJwt("the token has another issuer")
    if rules.audiences and not set(_texts(claims.get("aud"))) & set(rules.audiences):
        raise InvalidJwt("the token is for another audience")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidJwt(f"the token has no {rules.subject_claim}")
    scopes = tuple(word for text in _texts(claims.get(rules.scope_claim)) for word in text.split())
    return JwtClaims(subject.strip(), scopes, int(expires_s * 1000))


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise InvalidJwt(f"the token has no {name}")
    return value


def _texts(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [audience for audience in listed if isinstance(audience, str)]


def _json(part: str) -> Mapping[str, Any]:
    try:
        found = json.loads(_bytes(part))
    except (ValueError, RecursionError) as error:
        raise InvalidJwt("a part of the token is no JSON") from error
    if not isinstance(found, dict):
        raise InvalidJwt("a part of the token is no JSON object")
    return found


def _bytes(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidJwt("a part of the token is not in Base64") from error


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text), "big")
