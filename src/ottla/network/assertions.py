"""Signed assertions with which a client or a node requests tokens (RFC 7523, KIP-1139).

Kafka: org.apache.kafka.common.security.oauthbearer.internals.secured.assertion.
DefaultAssertionCreator.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ottla.errors import ConfigError
from ottla.network.fetching import read_file

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFIX: Final = "sasl.oauthbearer.assertion."


def signed_assertion(value: Callable[[str], Any], now_s: float, new_id: Callable[[], str]) -> str:
    """Return an assertion of the settings' claims, valid for a short time.

    value(name) returns a setting, new_id() a unique id for the claim "jti".
    """
    template = value(f"{_PREFIX}template.file")
    given = json.loads(read_file(template)) if template else {}
    algorithm = value(f"{_PREFIX}algorithm").upper()
    header = {"alg": algorithm, "typ": "JWT", **given.get("header", {})}
    claims: dict[str, Any] = {
        "iat": int(now_s),
        "exp": int(now_s) + value(f"{_PREFIX}claim.exp.seconds"),
        "nbf": int(now_s) - value(f"{_PREFIX}claim.nbf.seconds"),
        **given.get("payload", {}),
    }
    for name in ("aud", "iss", "sub"):
        given_claim = value(f"{_PREFIX}claim.{name}")
        if given_claim is not None:
            claims[name] = given_claim
    if value(f"{_PREFIX}claim.jti.include"):
        claims["jti"] = new_id()
    signed = f"{_part(json.dumps(header).encode())}.{_part(json.dumps(claims).encode())}"
    return f"{signed}.{_part(_signature(value, algorithm, signed.encode()))}"


def _signature(value: Callable[[str], Any], algorithm: str, signed: bytes) -> bytes:
    passphrase = value(f"{_PREFIX}private.key.passphrase")
    secret = passphrase.reveal() if hasattr(passphrase, "reveal") else passphrase
    data = read_file(value(f"{_PREFIX}private.key.file"))
    try:
        key = load_pem_private_key(data, None if secret is None else str(secret).encode())
    except (ValueError, TypeError) as error:
        raise ConfigError(f"sasl.oauthbearer.assertion.private.key.file: {error}") from error
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey):
        numbers = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
        return b"".join(one.to_bytes(32, "big") for one in numbers)
    raise ConfigError(f"sasl.oauthbearer.assertion: the key does not fit {algorithm}")


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
