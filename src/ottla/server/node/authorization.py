"""The authorizer of a node: selected by its settings, its entries from the metadata.

Kafka: org.apache.kafka.metadata.publisher.AclPublisher.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ottla.config.broker.unsupported import STANDARD_AUTHORIZER
from ottla.config.problems import ConfigProblem
from ottla.controller.acls import acl_of
from ottla.security.acl import Operation, ResourceType
from ottla.security.authorizer import Decision, StandardAuthorizer, str_of
from ottla.security.principal import parse_principal
from ottla.server.node.plugins import load_plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.security.principal import Principal

    Listener = Callable[[MetadataDelta, MetadataImage], None]

log = logging.getLogger("ottla.authorizer")
AUTHORIZER_METHODS: Final = ("configure", "authorize")
_SUPER_USERS: Final = "super.users"
_ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"


def authorizer_of(
    config: BrokerConfig, add_listener: Callable[[Listener], None]
) -> StandardAuthorizer | None:
    """Return the authorizer of authorizer.class.name, kept current by the metadata, or None."""
    if not config.authorizer_class_name:
        return None
    if config.authorizer_class_name != STANDARD_AUTHORIZER:
        name = config.authorizer_class_name
        plugin = load_plugin(name, AUTHORIZER_METHODS, config.given)
        own = PluginAuthorizer(plugin, _super_users(config))
        add_listener(AclPublisher(own).metadata_changed)
        return own
    allows = str(config.given.get(_ALLOW_EVERYONE, "false")).strip().lower() == "true"
    authorizer = StandardAuthorizer(_super_users(config), allows_without_acl=allows)
    add_listener(AclPublisher(authorizer).metadata_changed)
    return authorizer


def _super_users(config: BrokerConfig) -> list[str]:
    text = str(config.given.get(_SUPER_USERS) or "")
    return [str(parse_principal(one.strip())) for one in text.split(";") if one.strip()]


class PluginAuthorizer(StandardAuthorizer):
    """Calls a Python class; super users may do everything, and an exception denies.

    `authorize(principal, host, operation, resource_type, name)` gets texts in Kafka's spelling. Its
    results are not cached. Entries are stored and described, but not passed to the class.
    """

    def __init__(self, plugin: Any, super_users: Collection[str]) -> None:
        super().__init__(super_users, allows_without_acl=False)
        self._plugin = plugin
        self._supers = frozenset(super_users)

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: int,
        resource_type: int,
        name: str,
        *,
        request: int | None = None,
        is_audited: bool = True,
        is_logged: bool = True,
    ) -> bool:
        """Call the class for each decision: discard the cached ones."""
        self._changed()
        return super().authorize(
            principal,
            host,
            operation,
            resource_type,
            name,
            request=request,
            is_audited=is_audited,
            is_logged=is_logged,
        )

    def authorize_any(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> bool:
        """Call the class with an empty resource name."""
        return self.decide(str_of(principal), host, operation, resource_type, "").is_allowed

    def decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> Decision:
        """Call the class; deny when it raises."""
        if principal in self._supers:
            return Decision(is_allowed=True, rule="SuperUser")
        words = Operation(operation).name, ResourceType(resource_type).name
        try:
            found = self._plugin.authorize(principal, host, *words, name) is True
        except Exception:
            log.exception(
                "the authorizer failed: denied; correct the class, the traceback says where",
                extra={"event": "acl.failed"},
            )
            found = False
        return Decision(found, type(self._plugin).__name__)


class AclPublisher:
    """Applies committed entries to the authorizer."""

    def __init__(self, authorizer: StandardAuthorizer) -> None:
        self._authorizer = authorizer

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply committed metadata."""
        by_id = image.acls.by_id
        for acl_id in delta.acls_changed:
            record = by_id.get(acl_id)
            if record is None:
                self._authorizer.remove(acl_id)
            else:
                self._authorizer.add(acl_id, acl_of(record))
        self._authorizer.is_loaded = True


def authorizer_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield what is wrong with the authorizer's own settings."""
    try:
        _super_users(config)
    except ValueError as error:
        shown = str(config.given.get(_SUPER_USERS))
        yield ConfigProblem(_SUPER_USERS, shown, f"{_SUPER_USERS}: {error}")
