"""A provider of signed tokens: its key, its set of public keys, tokens with any claims."""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

KEY_ID = "one"
JWKS_PATH, TOKEN_PATH = "/keys", "/token"


@cache
def private_key() -> rsa.RSAPrivateKey:
    """Return the provider's key."""
    return rsa.generate_private_key(65537, 2048)


def part(data: Any) -> str:
    """Return JSON or bytes as a part of a token."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def keys(key_id: str = KEY_ID) -> bytes:
    """Return the set of public keys."""
    numbers = private_key().public_key().public_numbers()
    n, e = (part(one.to_bytes(256, "big").lstrip(b"\0")) for one in (numbers.n, numbers.e))
    one = {"kty": "RSA", "use": "sig", "kid": key_id, "alg": "RS256", "n": n, "e": e}
    return json.dumps({"keys": [one]}).encode()


def claims(**changes: Any) -> dict[str, Any]:
    """Return what a good token of alice claims."""
    now_s = int(time.time())
    usual = {"sub": "alice", "iss": "https://issuer", "aud": ["kafka"], "scope": "read write"}
    made = {**usual, "iat": now_s, "exp": now_s + 3600, **changes}
    return {name: value for name, value in made.items() if value is not None}


def signed(header: dict[str, Any] | None = None, **changes: Any) -> str:
    """Return a token; changes replace claims, None removes one."""
    begun = f"{part(header or {'alg': 'RS256', 'kid': KEY_ID})}.{part(claims(**changes))}"
    signature = private_key().sign(begun.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{begun}.{part(signature)}"
