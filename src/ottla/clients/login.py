"""Client-side SASL: PLAIN and SCRAM, as state machines that yield one request at a time.

Kafka: org.apache.kafka.common.security.authenticator.SaslClientAuthenticator,
.scram.internals.ScramSaslClient (RFC 4616, 5802).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Any

from ottla.clients.connection_errors import NO_LOGIN
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ottla.clients.settings import Settings
    from ottla.protocol.schema import Request, Response

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MAX_ITERATIONS = 16_777_216


def login_factory(settings: Settings) -> Callable[[], MechanismLogin] | None:
    """Return a factory of logins, None if the security protocol needs none."""
    if not settings.security_protocol.startswith("SASL"):
        return None
    make_login(settings)  # report an invalid setting now, not on the first connection
    return lambda: make_login(settings)


def make_login(settings: Settings) -> MechanismLogin:
    """Return a new login; ConfigError for incomplete settings."""
    username, password = credentials(settings)
    mechanism = settings.sasl_mechanism
    if mechanism == "PLAIN":
        return MechanismLogin(mechanism, _plain(username, password))
    if mechanism in HASHES:
        nonce = secrets.token_urlsafe(18)
        return MechanismLogin(mechanism, _scram(HASHES[mechanism], username, password, nonce))
    raise ConfigError(
        f"sasl.mechanism: {mechanism} is not supported; use PLAIN or SCRAM-SHA-256/512",
    )


def credentials(settings: Settings) -> tuple[str, str]:
    """Return user name and password, from sasl.username/password or a JAAS line."""
    if settings.sasl_username is not None and settings.sasl_password is not None:
        return settings.sasl_username, settings.sasl_password
    found = dict(
        re.findall(r'(username|password)\s*=\s*"([^"]*)"', settings.sasl_jaas_config or "")
    )
    if {"username", "password"} <= set(found):
        return found["username"], found["password"]
    raise ConfigError(
        "SASL needs sasl_username and sasl_password (or sasl.jaas.config with both in quotes)",
    )


class MechanismLogin:
    """SaslHandshake for a mechanism, then its messages in SaslAuthenticate requests."""

    def __init__(self, mechanism: str, messages: Generator[bytes, bytes, None]) -> None:
        self._mechanism = mechanism
        self._messages = messages
        self._started = False

    def __repr__(self) -> str:
        return f"MechanismLogin({self._mechanism})"

    def next_request(self, response: Response | None) -> Request | None:
        """Return the next request, None once logged in; raise the broker's error."""
        answer: Any = response
        if answer is None:
            return SaslHandshakeRequest(mechanism=self._mechanism)
        if answer.error_code:
            message = getattr(answer, "error_message", None)
            if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                offered = ", ".join(answer.mechanisms)
                message = f"the broker offers {offered} and not {self._mechanism}"
            elif answer.error_code == ErrorCode.ILLEGAL_SASL_STATE and not self._started:
                message = NO_LOGIN
            raise KafkaError(answer.error_code, message)
        try:
            if self._started:
                message_bytes = self._messages.send(bytes(answer.auth_bytes))
            else:
                self._started = True
                message_bytes = next(self._messages)
        except StopIteration:
            return None
        return SaslAuthenticateRequest(auth_bytes=message_bytes)


def _plain(username: str, password: str) -> Generator[bytes, bytes, None]:
    yield f"\0{username}\0{password}".encode()


def _scram(
    hash_name: str, username: str, password: str, nonce: str
) -> Generator[bytes, bytes, None]:
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    server_first = (yield f"n,,{first}".encode()).decode()
    fields = dict(part.split("=", 1) for part in server_first.split(",") if "=" in part)
    iterations = int(fields.get("i", "0"))
    if not fields.get("r", "").startswith(nonce) or not 4096 <= iterations <= MAX_ITERATIONS:
        raise _refused("the server's first SCRAM message is not acceptable")
    salted = hashlib.pbkdf2_hmac(
        hash_name, password.encode(), base64.b64decode(fields["s"]), iterations
    )
    final = f"c={base64.b64encode(b'n,,').decode()},r={fields['r']}"
    signed = f"{first},{server_first},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = (yield f"{final},p={base64.b64encode(proof).decode()}".encode()).decode()
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    expected = base64.b64encode(hmac.digest(server_key, signed, hash_name)).decode()
    if not hmac.compare_digest(server_final, f"v={expected}"):
        raise _refused("the server's SCRAM signature is wrong: it does not know the password")


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
