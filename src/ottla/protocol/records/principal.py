"""principal records.

Kafka: TODO.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct


class DefaultPrincipalData(Struct, versions="0", flexible="0+"):
    """DefaultPrincipalData."""

    type: str
    name: str
    token_authenticated: bool
