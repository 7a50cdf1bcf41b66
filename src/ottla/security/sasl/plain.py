"""PLAIN on a server: a name and a password in one message (RFC 4616).

Kafka: org.apache.kafka.common.security.plain.internals.PlainSaslServer.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from ottla.security.sasl.mechanism import AuthenticationFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PLAIN: Final = "PLAIN"
_USER_PREFIX: Final = "user_"
_FAILED: Final = "Authentication failed: Invalid username or password"
_PARTS: Final = 3


def users_of(options: Mapping[str, str]) -> Callable[[str, str], bool]:
    """Return the check of a password, from the `user_NAME="password"` options of a JAAS text.

    An unknown user takes the same time as a wrong password.
    """
    known = {
        name.removeprefix(_USER_PREFIX): password.encode()
        for name, password in options.items()
        if name.startswith(_USER_PREFIX)
    }

    def is_valid(user: str, password: str) -> bool:
        expected = known.get(user)
        given = password.encode()
        is_equal = hmac.compare_digest(given if expected is None else expected, given)
        return is_equal and expected is not None

    return is_valid


class PlainServer:
    """One login."""

    def __init__(self, is_valid: Callable[[str, str], bool]) -> None:
        self._is_valid = is_valid
        self.user = ""
        self.is_complete = False
        self.is_token = False
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Check the client's only message."""
        parts = _parts(token)
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        if not self._is_valid(user, password):
            raise AuthenticationFailed(_FAILED)
        if authorization_id and authorization_id != user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.user = user
        self.is_complete = True
        return b""


def _parts(token: bytes) -> list[str]:
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        parts = []
    if len(parts) != _PARTS:
        raise AuthenticationFailed("Invalid SASL/PLAIN response: expected 3 tokens")
    return parts
