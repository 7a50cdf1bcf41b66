"""The principal of a connection: `principal.builder.class` and the context that it gets.

The class is a Python class, named by its dotted path in the node's own file: a setting stored by
AlterConfigs must not load code. Its `build` gets a `ConnectionContext` and returns a `Principal`,
or its text "Type:name"; an exception refuses the connection.

Kafka: org.apache.kafka.common.security.auth.{KafkaPrincipalBuilder, AuthenticationContext}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.security.principal import Principal, parse_principal
from ottla.server.node.plugins import load_plugin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.broker import BrokerConfig

PRINCIPAL_BUILDER: Final = "principal.builder.class"
DEFAULT_BUILDER: Final = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)
BUILDER_METHODS: Final = ("configure", "build")


class ConnectionContext(NamedTuple):
    """The properties of a connection after its handshake or login."""

    security_protocol: str
    listener_name: str
    client_address: str
    principal: Principal
    """The principal of the default builder, from the certificate or the login."""
    mechanism: str | None = None
    """The mechanism of the SASL login."""
    certificate: Mapping[str, Any] | None = None
    """The client's certificate, as `ssl.SSLSocket.getpeercert` returns it."""


class PrincipalBuilder:
    """Makes the principals of a node's connections."""

    def __init__(self, config: BrokerConfig) -> None:
        """Load the class that the node's own settings name. Raises PluginError."""
        name = str(config.given.get(PRINCIPAL_BUILDER) or DEFAULT_BUILDER)
        self._plugin: Any = None
        if name != DEFAULT_BUILDER:
            self._plugin = load_plugin(name, BUILDER_METHODS, config.given)

    @property
    def is_default(self) -> bool:
        """Whether principals are Kafka's."""
        return self._plugin is None

    def build(self, context: ConnectionContext) -> Principal:
        """Return the principal; ValueError refuses the connection."""
        if self._plugin is None:
            return context.principal
        try:
            built = self._plugin.build(context)
            return built if isinstance(built, Principal) else parse_principal(str(built))
        except Exception as error:
            raise ValueError(f"{PRINCIPAL_BUILDER} refuses the connection: {error}") from error
