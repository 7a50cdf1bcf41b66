"""A broker's check of changes to its own settings, before they go to the active controller.

Only the broker itself can check whether it can run with them; clients send changes of a broker's
settings to that broker.

Kafka: kafka.server.ConfigAdminManager.preprocess, validateResourceNameIsCurrentNodeId.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.controller.config_operations import (
    check_broker,
    incremental_changes,
    replacing_changes,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.protocol.apis.alter_configs import AlterConfigsRequest
    from ottla.server.requests.context import Context

    Incremental = IncrementalAlterConfigsRequest.AlterConfigsResource
    Replacing = AlterConfigsRequest.AlterConfigsResource


def refused(ctx: Context, resources: Iterable[Incremental | Replacing]) -> dict[int, KafkaError]:
    """Return the errors of refused changes, by the position of their resource.

    The controller refuses a resource that is named twice.
    """
    listed = [(ConfiguredResource(one.resource_type, one.resource_name), one) for one in resources]
    times = Counter(key for key, _ in listed)
    errors = (
        _refusal(ctx, key, one)
        if key.type == ConfigResourceType.BROKER and times[key] == 1
        else None
        for key, one in listed
    )
    return {place: error for place, error in enumerate(errors) if error is not None}


def _refusal(
    ctx: Context, key: ConfiguredResource, resource: Incremental | Replacing
) -> KafkaError | None:
    metadata = ctx.broker.metadata
    current = metadata.image.configs.of(key.type, key.name)

    def check_own(named: ConfiguredResource) -> None:
        check_this_node(ctx.broker.node_id, named.name, "broker id, expected")

    try:
        if isinstance(resource, IncrementalAlterConfigsRequest.AlterConfigsResource):
            changes = incremental_changes(key, resource.configs, current, check_own)
        else:
            changes, _ = replacing_changes(key, resource.configs, current)
        new = {name: value for name, value in {**current, **changes}.items() if value is not None}
        check_broker(
            key,
            new,
            changes,
            config=metadata.config,
            check_exists=check_own,
            refusal=metadata.refusal,
        )
    except KafkaError as error:
        return error
    return None


def check_this_node(node_id: int, name: str, what: str) -> None:
    """Raise KafkaError for the name of another node; `what` names the id in the text."""
    try:
        named = int(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
        ) from None
    if named != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected {what} {node_id}, but received {named}"
        )
