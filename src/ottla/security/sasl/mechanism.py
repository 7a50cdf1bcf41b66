"""The interface between the SASL server and its mechanisms.

Kafka: javax.security.sasl.SaslServer.
"""

from __future__ import annotations

from typing import Protocol


class AuthenticationFailed(Exception):
    """A login that is refused; its text goes to the client and does not say which part is wrong."""


class InvalidToken(Exception):
    """Bytes that are no message of the mechanism; the client gets a neutral text instead.

    The text is for the log.
    """


class InvalidJwt(Exception):
    """A provider's token or a set of keys that is refused; the text is for the log."""


class Mechanism(Protocol):
    """One login in progress."""

    user: str
    """The name of the principal; valid once complete."""
    is_complete: bool
    is_token: bool
    """Whether a delegation token was used."""
    expires_ms: int | None
    """When the credentials expire (wall clock), None when they do not."""

    def evaluate(self, token: bytes) -> bytes:
        """Return the answer to a client's message. Raises AuthenticationFailed, InvalidToken."""
