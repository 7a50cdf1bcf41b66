"""Likely causes of failed connections: wrong address, TLS on one side only, a missing login.

Kafka: org.apache.kafka.clients.NetworkClient.processDisconnection, .common.errors.
SslAuthenticationException.
"""

from __future__ import annotations

import os
import socket
import ssl

from ottla.errors import ErrorCode, KafkaError, SslAuthenticationError

TLS_ALERT = b"\x15\x03"
"""The first bytes of a TLS listener's answer to a client that speaks plaintext."""
HTTP_ANSWER = b"HTTP"
FIRST_FRAME_MAX_BYTES = 60_000
"""Larger than any ApiVersions response, smaller than text or TLS read as a size."""
START_A_BROKER = (
    "is a broker running there? Start one with `ottla server-start`, or correct bootstrap_servers"
)
CHECK_ADVERTISED = "the broker advertises this address (advertised.listeners)"
NOT_TLS = (
    "the TLS handshake failed ({reason}): the listener may be a PLAINTEXT one, check"
    " security_protocol"
)
IS_TLS = "the listener speaks TLS, this client does not: set security_protocol to SSL or SASL_SSL"
MAY_BE_TLS = (
    "the connection was closed before the first response: the listener may require TLS, check"
    " security_protocol"
)
MAY_BE_SASL = (
    "the connection was closed after the first request: the listener may require a SASL login,"
    " check security_protocol"
)


def connect_error(error: Exception, *, uses_tls: bool) -> KafkaError:
    """Return the error of a connection that could not be established.

    It is an SslAuthenticationError if waiting does not help: a certificate, another protocol.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = getattr(error, "verify_message", error)
        return SslAuthenticationError(
            f"the broker's certificate was not accepted ({reason}): check ssl.truststore.location"
            " and the host name"
        )
    if isinstance(error, ssl.SSLError) and not isinstance(
        error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)
    ):
        return SslAuthenticationError(
            NOT_TLS.format(reason=getattr(error, "reason", None) or error)
        )
    reason = _reason(error)
    refused = isinstance(error, ConnectionRefusedError)
    if uses_tls and isinstance(error, (ssl.SSLError, ConnectionError)) and not refused:
        reason = NOT_TLS.format(reason=reason)
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, reason)


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return f"{error.strerror}: check the host name"
    return reason_of(error)


def reason_of(error: Exception) -> str:
    """Return the text of an error without its number."""
    if isinstance(error, ssl.SSLError):  # its numbers are OpenSSL's, not those of the system
        closed = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
        return "the peer closed the connection" if closed else error.reason or str(error)
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__


def with_hint(cause: str, hint: str) -> str:
    """Add a hint to a cause that has none."""
    return cause if "check " in cause else f"{cause}; {hint}"


def frame_error(start: bytes, size: int) -> KafkaError:
    """Return the error for bytes that are no frame."""
    if start.startswith(TLS_ALERT):
        return SslAuthenticationError(IS_TLS)
    if start.startswith(HTTP_ANSWER):
        text = "the peer speaks HTTP, not Kafka's protocol: check the port"
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, text)
    text = f"the peer announced a frame of {size} bytes: is it a broker's port?"
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, text)
