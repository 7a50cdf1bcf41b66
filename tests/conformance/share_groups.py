"""Settings of share groups, which a node uses later than the controller has taken them."""

from __future__ import annotations

from ottla import Admin, ConfigResource, KafkaError, ResourceType
from tests.waits import wait_for

RESET = "share.auto.offset.reset"
LATER = "share.session.timeout.ms"


def begin_at_the_start(admin: Admin, group: str) -> None:
    """Have a new group read all records there are, and wait until the node acts accordingly.

    Two changes more show that it does, see `tests.conformance.applied`.
    """
    _change(admin, group, RESET, "earliest")
    _change(admin, f"{group}-later", LATER, "46000")
    _change(admin, f"{group}-later", LATER, "47000")


def _change(admin: Admin, group: str, name: str, value: str) -> None:
    """Set a setting, and wait until the node describes it."""
    resource = ConfigResource(ResourceType.GROUP, group)
    assert admin.alter_configs({resource: {name: value}}) == {resource: None}

    def is_described() -> bool:
        entries = admin.describe_configs([resource])[resource]
        return not isinstance(entries, KafkaError) and entries[name].value == value

    wait_for(is_described)
