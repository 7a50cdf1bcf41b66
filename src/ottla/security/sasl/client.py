"""SASL logins of clients, and of nodes at other nodes: the messages of each mechanism.

Kafka: org.apache.kafka.common.security.authenticator.SaslClientAuthenticator,
.scram.internals.ScramSaslClient (RFC 4616, 5802).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.security.sasl.gssapi import GSSAPI, gssapi_messages
from ottla.security.sasl.oauthbearer import OAUTHBEARER, first_message
from ottla.security.sasl.scram import BASE64, HASHES, MIN_ITERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ottla.protocol.schema import Request, Response
    from ottla.security.sasl.gssapi import SecurityContext

MAX_ITERATIONS: Final = 1_000_000
"""Kafka's servers have 16,384 at most; more would only keep the client busy."""
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>{BASE64}),i=(?P<iterations>[0-9]{{1,9}})"
    r"(?:,[A-Za-z]+=[^,\x00]+)*"
)
NO_LOGIN = "the listener does not ask for a login: check security_protocol"


def make_mechanism_login(
    mechanism: str, username: str, password: str, nonce: str, *, is_token: bool = False
) -> MechanismLogin | None:
    """Return a new login, None for a mechanism that is not supported.

    With is_token the name is the id of a delegation token, and the password its HMAC in Base64.
    """
    if mechanism == "PLAIN":
        return MechanismLogin(mechanism, _plain_messages(username, password))
    if mechanism in HASHES:
        extensions = ",tokenauth=true" if is_token else ""
        messages = _scram_messages(HASHES[mechanism], username, password, nonce, extensions)
        return MechanismLogin(mechanism, messages)
    return None


def token_login(token: str) -> MechanismLogin:
    """Return a new login with a token of a provider."""
    return MechanismLogin(OAUTHBEARER, _token_messages(token))


def kerberos_login(begin: Callable[[], SecurityContext], authorization_id: str) -> MechanismLogin:
    """Return a new login by GSSAPI; the broker ignores the authorization id, as Kafka's does."""
    return MechanismLogin(GSSAPI, gssapi_messages(begin, authorization_id))


class MechanismLogin:
    """SaslHandshake for a mechanism, then its messages in SaslAuthenticate requests."""

    def __init__(self, mechanism: str, messages: Generator[bytes, bytes, None]) -> None:
        self._mechanism = mechanism
        self._messages = messages
        self._started = False
        self.session_lifetime_ms = 0

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
        self.session_lifetime_ms = getattr(answer, "session_lifetime_ms", 0)
        try:
            if self._started:
                message_bytes = self._messages.send(bytes(answer.auth_bytes))
            else:
                self._started = True
                message_bytes = next(self._messages)
        except StopIteration:
            return None
        return SaslAuthenticateRequest(auth_bytes=message_bytes)


def _plain_messages(username: str, password: str) -> Generator[bytes, bytes, None]:
    yield f"\0{username}\0{password}".encode()


def _token_messages(token: str) -> Generator[bytes, bytes, None]:
    if (yield first_message(token)):
        yield b"\x01"  # the refusal; the broker's error follows


def _scram_messages(
    hash_name: str, username: str, password: str, nonce: str, extensions: str
) -> Generator[bytes, bytes, None]:
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}{extensions}"
    answer = yield f"n,,{first}".encode()
    match = _SERVER_FIRST.fullmatch(answer.decode(errors="replace"))
    if (
        match is None
        or not match["nonce"].startswith(nonce)
        or not MIN_ITERATIONS <= int(match["iterations"]) <= MAX_ITERATIONS
    ):
        raise _refused("the server's first SCRAM message is not acceptable")
    salt, iterations = base64.b64decode(match["salt"]), int(match["iterations"])
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    final = f"c={base64.b64encode(b'n,,').decode()},r={match['nonce']}"
    signed = f"{first},{match[0]},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    expected = base64.b64encode(hmac.digest(server_key, signed, hash_name))
    if not hmac.compare_digest(server_final, b"v=" + expected):
        raise _refused("the server's SCRAM signature is wrong: it does not know the password")


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
