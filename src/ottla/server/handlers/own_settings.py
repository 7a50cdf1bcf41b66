"""A broker's check of changes to its own settings, before they go to the active controller.

Only the broker itself can check whether it can run with them; clients send changes of a broker's
settings to that broker. Values are compared at once; files, keys and classes that they name are
tried by a worker. Nothing is checked for a client that may not alter them: the controller, which
decides, refuses such a change.

Kafka: kafka.server.ConfigAdminManager.preprocess, validateResourceNameIsCurrentNodeId.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from ottla.controller.config_operations import (
    check_broker,
    incremental_changes,
    replacing_changes,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.purgatory.pending import Pending
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.protocol.apis.alter_configs import AlterConfigsRequest
    from ottla.server.requests.context import Context

    Incremental = IncrementalAlterConfigsRequest.AlterConfigsResource
    Replacing = AlterConfigsRequest.AlterConfigsResource
    Trial = Callable[[], str | None]

T = TypeVar("T")


def when_checked(
    ctx: Context,
    resources: Iterable[Incremental | Replacing],
    proceed: Callable[[Mapping[int, KafkaError]], T | Pending[T]],
) -> T | Pending[T]:
    """Proceed with the errors of refused changes, by the position of their resource.

    A request that came to a controller's listener is refused by the controller's decision, except
    for what a worker finds out. The controller refuses a resource that is named twice.
    """
    if ctx.is_forwarded:
        return proceed({})  # the broker that forwarded it has checked it
    refused, trials = _check_all(ctx, resources)
    if not trials:
        return proceed(refused)
    answer: Pending[T] = Pending()

    def tried(texts: Mapping[int, str | None] | None, error: Exception | None) -> None:
        if texts is None:
            answer.fail(error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        for place, text in texts.items():
            if text is not None:
                refused[place] = KafkaError(ErrorCode.INVALID_REQUEST, text)
        try:
            result = proceed(refused)
        except KafkaError as failure:
            answer.fail(failure)
        else:
            (result if isinstance(result, Pending) else Pending.of(result)).pass_to(answer)

    ctx.broker.run_trial(lambda: {place: trial() for place, trial in trials.items()}, tried)
    return answer


def _check_all(
    ctx: Context, resources: Iterable[Incremental | Replacing]
) -> tuple[dict[int, KafkaError], dict[int, Trial]]:
    """Return the errors of refused changes, and what a worker must try of the others."""
    if not ctx.is_allowed(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return {}, {}
    listed = [(ConfiguredResource(one.resource_type, one.resource_name), one) for one in resources]
    times = Counter(key for key, _ in listed)
    refused: dict[int, KafkaError] = {}
    trials: dict[int, Trial] = {}
    for place, (key, one) in enumerate(listed):
        if key.type != ConfigResourceType.BROKER or times[key] > 1:
            continue
        try:
            trials[place] = _checked(ctx, key, one)
        except KafkaError as error:
            if ctx.listener != "controller":
                refused[place] = error
    return refused, trials


def _checked(ctx: Context, key: ConfiguredResource, resource: Incremental | Replacing) -> Trial:
    """Check the values of a change; return what a worker must try. Raises KafkaError."""
    metadata = ctx.broker.metadata
    current = metadata.image.configs.of(key.type, key.name)

    def check_own(named: ConfiguredResource) -> None:
        check_this_node(ctx.broker.node_id, named.name, "broker id, expected")

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
    return metadata.trial(key.name, new)


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
