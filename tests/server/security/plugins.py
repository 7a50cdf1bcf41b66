"""Python classes that settings name in tests."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import TYPE_CHECKING, Any

from tests.security.tokens import signed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.server.node.security import ConnectionContext


class Configured:
    """Keeps the node's settings."""

    def __init__(self) -> None:
        self.settings: Mapping[str, Any] = {}

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        self.settings = settings


class ByAddress(Configured):
    """Names clients by where they come from, and refuses a user."""

    def build(self, context: ConnectionContext) -> str:
        """Return the principal."""
        if context.principal.name == "mallory":
            raise LookupError("mallory is not welcome")
        suffix = context.mechanism or context.security_protocol
        return f"User:{context.principal.name}@{context.client_address}/{suffix}"


class Backwards(Configured):
    """Takes a user's name backwards for the password, and fails at one user."""

    def authenticate(self, user: str, password: str) -> bool:
        """Check a password."""
        if user == "broken":
            raise RuntimeError("the directory does not answer")
        return user[::-1] == password


class Vault(Configured):
    """Has the SCRAM credential of one user, and fails at another."""

    def credential(self, user: str, mechanism: str) -> tuple[bytes, bytes, bytes, int] | None:
        """Return salt, stored key, server key and iterations."""
        if user == "broken":
            raise RuntimeError("the vault does not answer")
        if user == "short":
            return b"salt", b"key", b"key", 1
        if user != "alice":
            return None
        digest = {"SCRAM-SHA-256": "sha256"}[mechanism]
        salted = hashlib.pbkdf2_hmac(digest, b"of the vault", b"salt", 4096)
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        return b"salt", stored_key, hmac.digest(salted, b"Server Key", digest), 4096


class Guest(Configured):
    """Believes a token that is a user's name in the middle, for a minute."""

    def validate(self, token: str) -> tuple[str, int] | None:
        """Return the user, and when the token expires."""
        user = token.split(".")[1]
        if user == "broken":
            raise RuntimeError("no decision")
        return None if user == "mallory" else (user, int(time.time() * 1000) + 60_000)


class Cabinet(Configured):
    """Has a token for the client that asks for the scope "read", and fails at others."""

    def retrieve(self) -> str:
        """Return a token."""
        name = "sasl.oauthbearer.scope"
        scope = self.settings.get(name, self.settings.get(name.replace(".", "_")))
        if scope == "none":
            return None  # type: ignore[return-value] # what a wrong class does
        if scope != "read":
            raise RuntimeError("no such drawer")
        return signed()


class Refusal(Configured):
    """Believes no token."""

    def validate(self, _token: str) -> None:
        """Refuse a token."""


class OnlyTopics(Configured):
    """Allows what begins with the user's name, and fails at one resource."""

    def authorize(
        self, principal: str, host: str, operation: str, resource_type: str, name: str
    ) -> bool:
        """Decide."""
        if name == "broken":
            raise RuntimeError("no decision")
        assert operation.isupper()
        assert host
        user = principal.removeprefix("User:").partition("@")[0]
        return resource_type == "TOPIC" and name.startswith(user)
