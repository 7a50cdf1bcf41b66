"""The identity behind a connection.

Kafka: org.apache.kafka.common.security.auth.KafkaPrincipal.
"""

from __future__ import annotations

from typing import Final, NamedTuple

USER_TYPE: Final = "User"


class Principal(NamedTuple):
    """An identity; `str()` is the form of ACLs and of super.users."""

    type: str
    name: str
    token_authenticated: bool = False
    """Whether a delegation token stands for the user's own credentials."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER_TYPE, "ANONYMOUS")
"""The principal of a connection without a login."""


def parse_principal(text: str) -> Principal:
    """Read `Type:name`; ValueError with Kafka's text."""
    kind, separator, name = text.partition(":")
    if not separator or not kind:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(kind, name)
