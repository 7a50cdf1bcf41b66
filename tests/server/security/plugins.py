"""Python classes that settings name in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.server.node.principals import ConnectionContext


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
