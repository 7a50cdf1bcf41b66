"""SCRAM-SHA-256 and SCRAM-SHA-512 on a server (RFC 5802, RFC 7677; KIP-84).

A password is never stored: a client proves that it knows it by a signature over both nonces.
Unlike Kafka's, an exchange with an unknown user goes on and fails at the proof, as one with a wrong
password does: users cannot be guessed. Its salt is derived from a secret that all nodes share, and
has length and iterations of a credential that exists, so it is the same on each node and after each
start, as the salt of a user is.

Kafka: org.apache.kafka.common.security.scram.internals.{ScramSaslServer, ScramMessages}.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.security.sasl.mechanism import AuthenticationFailed, InvalidToken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISM_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
MIN_ITERATIONS: Final = 4096
_SASL_NAME: Final = r"(?:[^=,\x00]|=2C|=3D)+"
_VALUE: Final = r"[^,\x00]+"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_SASL_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<user>{_SASL_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*))"
)
BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unsigned>c=(?P<binding>{BASE64}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rf"(?:,[A-Za-z]+={_VALUE})*),p=(?P<proof>{BASE64})"
)
_NO_BINDING: Final = b"n,,"
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_JAVA_SALT: Final = re.compile(rb"[0-9a-z]{20,26}")
_JAVA_SALT_BITS: Final = 130
_MAX_SHAPES: Final = 16
"""Compared at each login; clusters have one or two."""


def scram_keys(hash_name: str, salted_password: bytes) -> tuple[bytes, bytes]:
    """Return the stored key and the server key, which verify a password (RFC 5802)."""
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return stored_key, hmac.digest(salted_password, b"Server Key", hash_name)


class ScramCredential(NamedTuple):
    """The stored form of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    user: str | None = None
    """The principal's name where it is not the login's: the owner of a delegation token."""
    expires_ms: int | None = None

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"


class ScramShape(NamedTuple):
    """What the first answer of a login shows of a credential, apart from its random bytes."""

    iterations: int
    salt_bytes: int
    """0 for the salts of Kafka's own tools: a number of 130 bits in base 36."""


TOKEN_SHAPE: Final = ScramShape(MIN_ITERATIONS, 24)


def shape_of(salt: bytes, iterations: int) -> ScramShape:
    """Return the shape of a credential."""
    return ScramShape(iterations, 0 if _JAVA_SALT.fullmatch(salt) else len(salt))


def invented_credential(
    secret: bytes, mechanism: str, user: str, shapes: Iterable[ScramShape]
) -> ScramCredential:
    """Return a credential that no proof matches, the same for each login of a user.

    A new shape, or one that is gone, changes only what is derived for the users that get it.
    """

    def derived(purpose: str, count: int) -> bytes:
        key = hmac.digest(secret, f"{purpose}\0{mechanism}\0{user}".encode(), "sha512")
        return hashlib.shake_256(key).digest(count)

    candidates = sorted(shapes)[:_MAX_SHAPES] or [TOKEN_SHAPE]
    shape = max(
        candidates,
        key=lambda candidate: derived(f"{candidate.iterations},{candidate.salt_bytes}", 8),
    )
    salt = derived("salt", shape.salt_bytes or 17)
    if not shape.salt_bytes:
        value = int.from_bytes(salt, "big") % (1 << _JAVA_SALT_BITS)
        digits = ""
        while value:
            value, digit = divmod(value, len(_DIGITS))
            digits = _DIGITS[digit] + digits
        salt = digits.encode()
    key = derived("key", hashlib.new(HASHES[mechanism]).digest_size)
    return ScramCredential(salt, key, key, shape.iterations)


class ScramServer:
    """One login."""

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str, bool], ScramCredential | None],
        *,
        nonce: str,
        secret: bytes,
        shapes: Callable[[bool], Iterable[ScramShape]] = lambda _is_token: (),
    ) -> None:
        """find(user, is_token) returns a credential; nonce is random, secret is the cluster's.

        shapes(is_token) returns those of the credentials that exist.
        """
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._find = find
        self._nonce = nonce
        self._secret = secret
        self._shapes = shapes
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._gs2 = b""
        self._begun = ""
        self.user = ""
        self.is_complete = False
        self.is_token = False
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Answer the client's first or final message."""
        try:
            text = token.decode()
        except UnicodeDecodeError as error:
            raise InvalidToken from error
        return self._final(text) if self._begun else self._first(text)

    def _first(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise InvalidToken
        user = _decoded(match["user"])
        authorization_id = match["authzid"]
        if authorization_id and _decoded(authorization_id) != user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        extensions = dict(part.split("=", 1) for part in match["extensions"].split(",") if part)
        self.is_token = extensions.get("tokenauth", "").lower() == "true"
        found = self._find(user, self.is_token)
        self._is_known = found is not None
        # derived for known users as well, so that both take the same time
        invented = invented_credential(
            self._secret, self._mechanism, user, self._shapes(self.is_token)
        )
        credential = self._credential = found or invented
        self.user = credential.user or user
        self.expires_ms = credential.expires_ms
        self._gs2 = match["gs2"].encode()
        self._nonce = match["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._begun = f"{match['bare']},{answer}"
        return answer.encode()

    def _final(self, text: str) -> bytes:
        match, credential = _CLIENT_FINAL.fullmatch(text), self._credential
        if match is None or credential is None or self.is_complete:
            raise InvalidToken
        if not hmac.compare_digest(match["nonce"], self._nonce):
            raise InvalidToken
        if base64.b64decode(match["binding"]) not in {self._gs2, _NO_BINDING}:
            raise InvalidToken
        signed = f"{self._begun},{match['unsigned']}".encode()
        proof = base64.b64decode(match["proof"])
        if not self._is_proved(credential, proof, signed) or not self._is_known:
            raise InvalidToken
        signature = hmac.digest(credential.server_key, signed, self._hash)
        self.is_complete = True
        return b"v=" + base64.b64encode(signature)

    def _is_proved(self, credential: ScramCredential, proof: bytes, signed: bytes) -> bool:
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._hash, client_key).digest()
        return hmac.compare_digest(stored_key, credential.stored_key)


def _decoded(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
