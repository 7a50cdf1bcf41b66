"""Likely causes of failed connections: wrong address, TLS on one side only, a missing login.

Kafka: org.apache.kafka.clients.NetworkClient.processDisconnection, .common.errors.
SslAuthenticationException.
"""

from __future__ import annotations

import os
import socket
import ssl

from ottla.diagnosis.advice import Situation, situation_text
from ottla.errors import ErrorCode, KafkaError, SslAuthenticationError

TLS_ALERT = b"\x15\x03"
"""The first bytes of a TLS listener's answer to a client that speaks plaintext."""
HTTP_ANSWER = b"HTTP"
FIRST_FRAME_MAX_BYTES = 60_000
"""Larger than any ApiVersions response, smaller than text or TLS read as a size."""


def connect_error(error: Exception, *, uses_tls: bool) -> KafkaError:
    """Return the error of a connection that could not be established.

    It is an SslAuthenticationError if waiting does not help: a certificate, another protocol.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = getattr(error, "verify_message", error)
        text = situation_text(Situation.CERTIFICATE_REFUSED, reason=reason)
        return SslAuthenticationError(text)
    if isinstance(error, ssl.SSLError) and not isinstance(
        error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)
    ):
        reason = getattr(error, "reason", None) or error
        text = situation_text(Situation.TLS_HANDSHAKE_FAILED, reason=reason)
        return SslAuthenticationError(text)
    reason = _reason(error)
    refused = isinstance(error, ConnectionRefusedError)
    if uses_tls and isinstance(error, (ssl.SSLError, ConnectionError)) and not refused:
        reason = situation_text(Situation.TLS_HANDSHAKE_FAILED, reason=reason)
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, reason)


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return situation_text(Situation.UNKNOWN_HOST, reason=error.strerror)
    return reason_of(error)


def reason_of(error: Exception) -> str:
    """Return the text of an error without its number."""
    if isinstance(error, ssl.SSLError):  # its numbers are OpenSSL's, not those of the system
        closed = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
        return "the peer closed the connection" if closed else error.reason or str(error)
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__


def with_hint(cause: str, situation: Situation) -> str:
    """Add the advice on a situation to a cause that has none."""
    return cause if "check " in cause else f"{cause}; {situation_text(situation)}"


def frame_error(start: bytes, size: int) -> KafkaError:
    """Return the error for bytes that are no frame."""
    if start.startswith(TLS_ALERT):
        return SslAuthenticationError(situation_text(Situation.LISTENER_SPEAKS_TLS))
    if start.startswith(HTTP_ANSWER):
        text = situation_text(Situation.PEER_SPEAKS_HTTP)
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, text)
    text = situation_text(Situation.PEER_SPEAKS_SOMETHING_ELSE, size=size)
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, text)
