"""Signed assertions by which a client asks a provider for tokens (RFC 7523, KIP-1139).

Kafka: org.apache.kafka.common.security.oauthbearer.internals.secured.assertion.
DefaultAssertionCreator.
"""

from __future__ import annotations

import base64
import json
import secrets
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ottla.errors import ConfigError
from ottla.network.fetching import read_file

if TYPE_CHECKING:
    from ottla.clients.settings import Settings


def signed_assertion(settings: Settings, now_s: float) -> str:
    """Return an assertion of the settings' claims, valid for a short time."""
    template = settings.sasl_oauthbearer_assertion_template_file
    given = json.loads(read_file(template)) if template else {}
    algorithm = settings.sasl_oauthbearer_assertion_algorithm.upper()
    header = {"alg": algorithm, "typ": "JWT", **given.get("header", {})}
    claims: dict[str, Any] = {
        "iat": int(now_s),
        "exp": int(now_s) + settings.sasl_oauthbearer_assertion_claim_exp_seconds,
        "nbf": int(now_s) - settings.sasl_oauthbearer_assertion_claim_nbf_seconds,
        **given.get("payload", {}),
    }
    for name in ("aud", "iss", "sub"):
        value = getattr(settings, f"sasl_oauthbearer_assertion_claim_{name}")
        if value is not None:
            claims[name] = value
    if settings.sasl_oauthbearer_assertion_claim_jti_include:
        claims["jti"] = secrets.token_urlsafe(16)
    signed = f"{_part(json.dumps(header).encode())}.{_part(json.dumps(claims).encode())}"
    return f"{signed}.{_part(_signature(settings, algorithm, signed.encode()))}"


def _signature(settings: Settings, algorithm: str, signed: bytes) -> bytes:
    passphrase = settings.sasl_oauthbearer_assertion_private_key_passphrase
    secret = passphrase.reveal() if hasattr(passphrase, "reveal") else passphrase
    data = read_file(settings.sasl_oauthbearer_assertion_private_key_file)
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
