"""The principal that an Envelope carries from broker to controller.

Kafka: DefaultPrincipalData.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct


class DefaultPrincipalData(Struct, versions="0", flexible="0+"):
    """A principal inside an Envelope."""

    type: str
    name: str
    token_authenticated: bool
