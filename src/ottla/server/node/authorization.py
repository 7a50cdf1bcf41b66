"""The authorizer of a node: chosen by its settings, fed by the metadata.

Kafka: org.apache.kafka.metadata.publisher.AclPublisher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.problems import ConfigProblem
from ottla.controller.acls import acl_of
from ottla.security.authorizer import StandardAuthorizer
from ottla.security.principal import parse_principal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage

    Listener = Callable[[MetadataDelta, MetadataImage], None]

_SUPER_USERS: Final = "super.users"
_ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"


def authorizer_of(
    config: BrokerConfig, add_listener: Callable[[Listener], None]
) -> StandardAuthorizer | None:
    """Return the authorizer of authorizer.class.name, kept current by the metadata, or None."""
    if not config.authorizer_class_name:
        return None
    allows = str(config.given.get(_ALLOW_EVERYONE, "false")).strip().lower() == "true"
    authorizer = StandardAuthorizer(_super_users(config), allows_without_acl=allows)
    add_listener(AclPublisher(authorizer).metadata_changed)
    return authorizer


def _super_users(config: BrokerConfig) -> list[str]:
    text = str(config.given.get(_SUPER_USERS) or "")
    return [str(parse_principal(one.strip())) for one in text.split(";") if one.strip()]


class AclPublisher:
    """Gives changed entries to the authorizer."""

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
