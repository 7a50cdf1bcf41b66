"""OAUTHBEARER on a server: a signed token in one message (RFC 7628, KIP-255, KIP-768).

Kafka: org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla.security.sasl.mechanism import AuthenticationFailed, InvalidJwt, InvalidToken

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.security.sasl.jwt import JwtClaims

OAUTHBEARER: Final = "OAUTHBEARER"
_SEPARATOR: Final = "\x01"
_REFUSED: Final = '{"status":"invalid_token"}'
_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,\x00]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x00\x01]*\x01)+)\x01"
)
_BEARER: Final = re.compile(r"(?i:bearer) +(?P<token>[-_.A-Za-z0-9]+)")


class OAuthBearerServer:
    """One login; a refused token is answered first, and the login ends with the next message."""

    def __init__(self, verify: Callable[[str], JwtClaims]) -> None:
        """verify(token) raises InvalidJwt."""
        self._verify = verify
        self._is_refused = False
        self.user = ""
        self.is_complete = False
        self.is_token = False
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Check the client's token, or end a login whose token was refused."""
        if self._is_refused:
            if token == _SEPARATOR.encode():
                raise AuthenticationFailed(_REFUSED)
            raise InvalidToken
        authorization_id, bearer = _parts(token)
        try:
            claims = self._verify(bearer)
        except InvalidJwt:
            self._is_refused = True
            return _REFUSED.encode()
        if authorization_id and authorization_id != claims.subject:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        self.user = claims.subject
        self.expires_ms = claims.expires_ms
        self.is_complete = True
        return b""


def first_message(token: str, extensions: dict[str, str] | None = None) -> bytes:
    """Return what a client sends first."""
    pairs = {"auth": f"Bearer {token}", **(extensions or {})}
    listed = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs.items())
    return f"n,,{_SEPARATOR}{listed}{_SEPARATOR}".encode()


def _parts(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token."""
    try:
        match = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError as error:
        raise InvalidToken from error
    if match is None:
        raise InvalidToken
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split(_SEPARATOR) if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise InvalidToken
    name = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return name, bearer["token"]
