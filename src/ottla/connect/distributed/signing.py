"""Signed requests between workers (KIP-507): the key comes from the config topic.

Kafka: org.apache.kafka.connect.runtime.{SessionKey, rest.InternalRequestSignature}.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SIGNATURE: Final = "X-Connect-Authorization"
ALGORITHM: Final = "X-Connect-Request-Signature-Algorithm"
DIGESTS: Final = {
    "HmacSHA1": "sha1",
    "HmacSHA256": "sha256",
    "HmacSHA384": "sha384",
    "HmacSHA512": "sha512",
}
"""Digests by Java's names of the algorithms."""
KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The key with which workers sign, and when it was made."""

    key: bytes = field(repr=False)
    algorithm: str
    created_ms: int

    def record(self) -> dict[str, Any]:
        """Return the value of its record."""
        text = b64encode(self.key).decode()
        return {"key": text, "algorithm": self.algorithm, "creation-timestamp": self.created_ms}


def parse_session_key(value: Mapping[str, Any] | None) -> SessionKey | None:
    """Return the key of a record; None for a malformed one."""
    match value:
        case {"key": str(text), "algorithm": str(algorithm), "creation-timestamp": int(created)}:
            try:
                key = b64decode(text, validate=True)
            except ValueError:
                return None
            return SessionKey(key, algorithm, created) if key else None
    return None


def sign(key: SessionKey, body: bytes, algorithm: str) -> dict[str, str]:
    """Return the headers of a signed request."""
    digest = hmac.digest(key.key, body, DIGESTS[algorithm])
    return {SIGNATURE: b64encode(digest).decode(), ALGORITHM: algorithm}


def is_signed(key: SessionKey, body: bytes, signature: str, algorithm: str) -> bool:
    """Whether a signature is that of a body, in a time that says nothing about the difference."""
    try:
        claimed = b64decode(signature, validate=True)
    except ValueError:
        return False
    return hmac.compare_digest(hmac.digest(key.key, body, DIGESTS[algorithm]), claimed)
