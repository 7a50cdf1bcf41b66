"""GSSAPI: Kerberos' tokens, then the choice of a security layer, which is always "none".

Kafka: com.sun.security.sasl.gsskerb.{GssKrb5Server, GssKrb5Client}, of Java (RFC 4752).
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.security.kerberos_names import kerberos_short_name, parse_name
from ottla.security.sasl.mechanism import InvalidToken

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from ottla.security.kerberos_names import KerberosRule

log = logging.getLogger("ottla.login")
GSSAPI: Final = "GSSAPI"
_NO_LAYER: Final = 1
_SERVER_BUFFER_BYTES: Final = 65_536
"""The size that Java's server announces; it has no effect without a security layer."""
_OFFER: Final = bytes([_NO_LAYER]) + _SERVER_BUFFER_BYTES.to_bytes(3, "big")
_OFFER_BYTES: Final = 4


class ContextFailed(Exception):
    """A Kerberos token that is refused or cannot be made; the text contains no secret."""


class SecurityContext(Protocol):
    """The part of a Kerberos context that the mechanism uses; all methods raise ContextFailed."""

    def step(self, token: bytes | None) -> bytes:
        """Take the other side's token, None to begin; return the next one, or no bytes."""

    @property
    def is_complete(self) -> bool:
        """Whether both sides are authenticated."""

    @property
    def initiator(self) -> str:
        """The name of the client's principal, once complete."""

    def wrap(self, message: bytes) -> bytes:
        """Sign a message."""

    def unwrap(self, message: bytes) -> bytes:
        """Check a signed message and return it."""


class _Step(Enum):
    """The message that the server expects next."""

    CONTEXT = "context"
    EMPTY = "empty"
    """The client's empty answer to the last token."""
    LAYER = "layer"


class GssapiServer:
    """One login on a node."""

    def __init__(self, context: SecurityContext, rules: Sequence[KerberosRule]) -> None:
        self._context = context
        self._rules = rules
        self._step = _Step.CONTEXT
        self.user = ""
        self.is_complete = False
        self.is_token = False
        self.expires_ms: int | None = None
        """None, as in Kafka: a session does not end with the ticket."""

    def evaluate(self, token: bytes) -> bytes:
        """Process a Kerberos token, offer the security layer, or process the client's choice."""
        try:
            if self._step is _Step.CONTEXT:
                return self._token(token)
            if self._step is _Step.EMPTY:
                if token:
                    raise InvalidToken("an empty message was expected")
                return self._offer()
            return self._choice(self._context.unwrap(token))
        except ContextFailed as error:
            raise InvalidToken(str(error)) from error

    def _token(self, token: bytes) -> bytes:
        answer = self._context.step(token)
        if not self._context.is_complete:
            return answer
        self._step = _Step.EMPTY
        return answer or self._offer()

    def _offer(self) -> bytes:
        self._step = _Step.LAYER
        return self._context.wrap(_OFFER)

    def _choice(self, message: bytes) -> bytes:
        """Take the chosen layer; the authorization id that may follow is ignored, as in Kafka."""
        if len(message) < _OFFER_BYTES or not message[0] & _NO_LAYER:
            raise InvalidToken("the client chose a security layer that was not offered")
        name = self._context.initiator
        try:
            self.user = kerberos_short_name(parse_name(name), self._rules)
        except ValueError as error:
            text = f"Failed to set name for {name!r} based on Kerberos authentication rules"
            raise InvalidToken(f"{text}: {error}") from error
        if not self.user:
            raise InvalidToken(f"the Kerberos authentication rules leave nothing of {name!r}")
        self.is_complete = True
        return b""


def gssapi_messages(
    begin: Callable[[], SecurityContext], authorization_id: str
) -> Generator[bytes, bytes, None]:
    """Yield a client's messages; KafkaError when Kerberos refuses."""
    try:
        context = begin()
        token = context.step(None)
        while not context.is_complete or token:
            answer = yield token
            if context.is_complete:
                break
            token = context.step(answer)
        else:
            answer = yield b""
        yield context.wrap(_chosen(context.unwrap(answer)) + authorization_id.encode())
    except ContextFailed as error:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"GSSAPI: {error}") from error


def _chosen(offer: bytes) -> bytes:
    if len(offer) != _OFFER_BYTES or not offer[0] & _NO_LAYER:
        raise ContextFailed("No common protection layer between client and server")
    return bytes([_NO_LAYER, 0, 0, 0])
