"""The APIs of settings: DescribeConfigs, ListConfigResources, AlterConfigs and its successor.

Kafka: kafka.server.ConfigHelper, KafkaApis.handleDescribeConfigsRequest;
KafkaApis.handleListConfigResources (KIP-1000, KIP-1142); kafka.server.ConfigAdminManager,
KafkaApis.handleIncrementalAlterConfigsRequest; kafka.server.ConfigAdminManager.preprocess,
validateResourceNameIsCurrentNodeId.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ottla.config.describe import (
    DescribedSetting,
    Source,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from ottla.controller.config_operations import check_broker, incremental_changes, replacing_changes
from ottla.controller.result import specific_message
from ottla.controller.topics import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource
from ottla.protocol.apis.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.apis.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.purgatory.pending import Pending
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.logging.lines import DELETE, change_levels, logger_levels
from ottla.server.requests.api import handles
from ottla.server.requests.refusals import refused
from ottla.server.requests.rights import REFUSALS, Denied, Reduced, Right, cut, refusal, refusing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Decision

    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    Incremental = IncrementalAlterConfigsRequest.AlterConfigsResource
    Replacing = AlterConfigsRequest.AlterConfigsResource
    Trial = Callable[[], str | None]


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
    listed = [
        (ConfiguredResource(resource.resource_type, resource.resource_name), resource)
        for resource in resources
    ]
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


Result = DescribeConfigsResponse.DescribeConfigsResult
ResourceResult = Result.DescribeConfigsResourceResult
_DESCRIBABLE = frozenset(int(kind) for kind in ConfigResourceType if kind)
_OF_BROKERS = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


_RESOURCES = {
    int(ConfigResourceType.TOPIC): ResourceType.TOPIC,
    int(ConfigResourceType.GROUP): ResourceType.GROUP,
}
"""Those with rights of their own; others are parts of the cluster."""


def may_use(ctx: Context, operation: Operation, resource: Any) -> bool:
    """Whether the client may do this with the settings of a resource."""
    kind = _RESOURCES.get(resource.resource_type, ResourceType.CLUSTER)
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
    return ctx.authorize(operation, kind, name)


def refuse_resource(ctx: Context, request: Any, resource: Any) -> Any:
    """Return the result of a resource for which the client has no right."""
    kind = _RESOURCES.get(resource.resource_type, ResourceType.CLUSTER)
    return refusal(ctx, request, "resources", REFUSALS[kind])(resource)


def _may_describe(ctx: Context, request: DescribeConfigsRequest) -> Decision | None:
    """DESCRIBE_CONFIGS on each topic or group; for other resources on the cluster."""
    return cut(
        ctx,
        request,
        "resources",
        partial(may_use, ctx, Operation.DESCRIBE_CONFIGS),
        partial(refuse_resource, ctx, request),
    )


@handles(
    DescribeConfigsRequest,
    right=_may_describe,
    notes={3: "types and documentation (KIP-569)"},
)
def describe_configs(ctx: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource's settings: value, source, synonyms.

    Results are shared between resources with the same settings: most topics have only defaults,
    and one request may name a resource several times.
    """
    if any(resource.resource_type not in _DESCRIBABLE for resource in request.resources):
        error = KafkaError(ErrorCode.INVALID_REQUEST)  # one of them has an unknown type
        response: DescribeConfigsResponse = refused(request, error, ctx.api_version)
        return response
    shared: dict[Hashable, list[ResourceResult]] = {}
    return DescribeConfigsResponse(
        results=[_describe(ctx, request, resource, shared) for resource in request.resources]
    )


def _describe(
    ctx: Context,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
    shared: dict[Hashable, list[ResourceResult]],
) -> Result:
    kind, name = resource.resource_type, resource.resource_name
    result = Result(error_message="", resource_type=kind, resource_name=name, configs=[])
    try:
        _check(ctx, kind, name)
    except KafkaError as error:
        result.error_code = int(error.code)
        result.error_message = error.message
        return result
    own = tuple(ctx.broker.image.configs.of(kind, name).items())
    # topics, groups and subscriptions differ only by their own settings
    key = (kind, name if kind in _OF_BROKERS else own, *(resource.configuration_keys or ()))
    configs = shared.get(key)
    if configs is None:
        entries = _entries(ctx, kind, name, resource.configuration_keys or None)
        configs = shared[key] = [_result(entry, request) for entry in entries]
    result.configs = configs
    return result


def _check(ctx: Context, kind: int, name: str) -> None:
    """Raise KafkaError if the resource does not exist."""
    if kind == ConfigResourceType.TOPIC:
        check_topic_name(name)
        if ctx.broker.image.topics.by_name.get(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    elif kind == ConfigResourceType.BROKER:
        if name:
            own = ctx.broker.node_id
            _must_be_this_broker(ctx, name, f"expected {own} or empty string, but received {name}")
    elif kind == ConfigResourceType.BROKER_LOGGER:
        _must_be_named(name, "Broker id")
        _must_be_this_broker(ctx, name, f"expected {ctx.broker.node_id} but received {name}")
    elif kind == ConfigResourceType.GROUP:
        _must_be_named(name, "Group name")
    elif kind == ConfigResourceType.CLIENT_METRICS:
        _must_be_named(name, "Client metrics subscription name")


def _entries(
    ctx: Context, kind: int, name: str, names: Sequence[str] | None
) -> Iterator[DescribedSetting]:
    """Describe an existing resource."""
    metadata = ctx.broker.metadata
    if kind == ConfigResourceType.BROKER_LOGGER:
        return _logger_entries(names)
    if kind == ConfigResourceType.CLIENT_METRICS:
        return describe_client_metrics(metadata.image.configs.of(kind, name), names)
    sources = metadata.config_sources()
    if kind == ConfigResourceType.GROUP:
        return describe_group(metadata.image.configs.of(kind, name), sources, names)
    if kind == ConfigResourceType.TOPIC:
        return describe_topic(metadata.topic_config(name), sources, names)
    return describe_broker(sources, names) if name else describe_cluster_default(sources, names)


def _must_be_named(name: str, what: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} must not be empty")


def _must_be_this_broker(ctx: Context, name: str, difference: str) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        ) from None
    if node_id != ctx.broker.node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, {difference}")


def _logger_entries(names: Sequence[str] | None) -> Iterator[DescribedSetting]:
    for name, level in logger_levels().items():
        if names is None or name in names:
            yield DescribedSetting(
                name=name,
                value=level,
                read_only=False,
                source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
                sensitive=False,
                type=0,
                synonyms=(),
                documentation="",
            )


def _result(entry: DescribedSetting, request: DescribeConfigsRequest) -> ResourceResult:
    result = ResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.sensitive,
        config_type=entry.type,
        synonyms=[],
        documentation=entry.documentation,
    )
    is_logger = entry.source is Source.DYNAMIC_BROKER_LOGGER_CONFIG
    if not request.include_documentation and not is_logger:
        result.documentation = None
    if request.include_synonyms:
        result.synonyms = [
            ResourceResult.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=int(synonym.source)
            )
            for synonym in entry.synonyms
        ]
    return result


_SINCE_0 = frozenset({int(ConfigResourceType.CLIENT_METRICS)})
_SINCE_1 = frozenset(int(kind) for kind in ConfigResourceType if kind)
_STORED = (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS)
"""Resource types that are listed only if they have settings."""


@handles(
    ListConfigResourcesRequest,
    right=Right(Operation.DESCRIBE_CONFIGS),
    notes={1: "all types, before that client metrics alone"},
)
def list_config_resources(
    ctx: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List topics, brokers and their loggers, and the groups and subscriptions with settings."""
    supported = _SINCE_1 if ctx.api_version else _SINCE_0
    requested = set(request.resource_types) or supported
    for kind in request.resource_types:
        if kind not in supported:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported resource type {kind}")
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind, name in _resources(ctx)
            if kind in requested
        ]
    )


def _resources(ctx: Context) -> Iterator[tuple[int, str]]:
    broker = ctx.broker
    for resource in broker.image.configs.by_resource:
        if resource.type in _STORED:
            yield resource.type, resource.name
    for node_id, one in broker.image.cluster.brokers.items():  # fenced ones, too
        if one.node(ctx.listener_name) is not None:
            yield ConfigResourceType.BROKER_LOGGER, str(node_id)
            yield ConfigResourceType.BROKER, str(node_id)
    for name in broker.image.topics.by_name:
        yield ConfigResourceType.TOPIC, name


T = TypeVar("T")
Outcome = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
Replaced = AlterConfigsResponse.AlterConfigsResourceResponse


def _may_alter(ctx: Context, request: Any) -> Decision | None:
    """ALTER_CONFIGS on each topic or group; for other resources on the cluster.

    A controller's own loggers need CLUSTER_ACTION. The responses keep the order of the request, as
    Kafka's brokers do.
    """
    is_controller = ctx.listener == "controller" and not ctx.is_forwarded

    def is_allowed(resource: Any) -> bool:
        is_logger = resource.resource_type == ConfigResourceType.BROKER_LOGGER
        action = is_controller and is_logger
        return may_use(
            ctx, Operation.CLUSTER_ACTION if action else Operation.ALTER_CONFIGS, resource
        )

    refuse = partial(refuse_resource, ctx, request)
    decision = cut(ctx, request, "resources", is_allowed, refuse)
    if decision is None:
        return None
    places: dict[tuple[int, str], int] = {}
    for place, resource in enumerate(request.resources):
        places.setdefault((resource.resource_type, resource.resource_name), place)

    def in_order(answer: Any) -> Any:
        answer.responses.sort(
            key=lambda result: places.get((result.resource_type, result.resource_name), len(places))
        )
        return answer

    if isinstance(decision, Denied):
        return Denied(in_order(decision.response))
    finish = decision.finish
    return Reduced(decision.request, lambda answer: in_order(finish(answer)))


@handles(AlterConfigsRequest, right=_may_alter, forwarded=True)
def alter_configs(
    ctx: Context, request: AlterConfigsRequest
) -> AlterConfigsResponse | Pending[AlterConfigsResponse]:
    """Replace all settings of a resource (the old API)."""
    return when_checked(ctx, request.resources, partial(_replace, ctx, request))


def _replace(
    ctx: Context, request: AlterConfigsRequest, refused: Mapping[int, KafkaError]
) -> AlterConfigsResponse | Pending[AlterConfigsResponse]:
    own = {
        place: Replaced(**_error(error), **_named(request.resources[place]))
        for place, error in refused.items()
    }
    if not own:
        return ctx.controller.send(request, ctx.requester())
    others = [one for place, one in enumerate(request.resources) if place not in own]
    if not others:
        return AlterConfigsResponse(responses=list(own.values()))
    forwarded = AlterConfigsRequest(resources=others, validate_only=request.validate_only)
    return _forward(ctx, forwarded).then(
        lambda got: AlterConfigsResponse(responses=_merged(request.resources, own, got.responses))
    )


@handles(IncrementalAlterConfigsRequest, right=_may_alter, forwarded=True)
def incremental_alter_configs(
    ctx: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Pending[IncrementalAlterConfigsResponse]:
    """Set, delete, append to or subtract from settings (KIP-339), also of loggers (KIP-412)."""
    return when_checked(ctx, request.resources, partial(_change, ctx, request))


def _change(
    ctx: Context, request: IncrementalAlterConfigsRequest, refused: Mapping[int, KafkaError]
) -> IncrementalAlterConfigsResponse | Pending[IncrementalAlterConfigsResponse]:
    own = {
        place: Outcome(**_error(error), **_named(request.resources[place]))
        for place, error in refused.items()
    } | _loggers(ctx, request)
    if not own:
        return ctx.controller.send(request, ctx.requester())
    others = [one for place, one in enumerate(request.resources) if place not in own]
    if not others:
        return IncrementalAlterConfigsResponse(responses=[own[place] for place in sorted(own)])
    forwarded = IncrementalAlterConfigsRequest(
        resources=others, validate_only=request.validate_only
    )

    def merged(got: IncrementalAlterConfigsResponse) -> IncrementalAlterConfigsResponse:
        responses = _merged(request.resources, own, got.responses)
        return IncrementalAlterConfigsResponse(responses=responses)

    if ctx.listener == "controller":  # as in Kafka, a standby's refusal covers its loggers
        return ctx.controller.send(forwarded, ctx.requester()).then(merged)
    return _forward(ctx, forwarded).then(merged)


def _loggers(ctx: Context, request: IncrementalAlterConfigsRequest) -> dict[int, Outcome]:
    """Change the levels of this node's loggers; return the outcomes by place."""
    times = Counter(
        (resource.resource_type, resource.resource_name) for resource in request.resources
    )
    return {
        place: _change_loggers(
            ctx,
            one,
            only_check=request.validate_only,
            is_repeated=times[one.resource_type, one.resource_name] > 1,
        )
        for place, one in enumerate(request.resources)
        if one.resource_type == ConfigResourceType.BROKER_LOGGER
    }


def _merged(resources: Sequence[Any], own: Mapping[int, T], answered: Iterable[T]) -> list[T]:
    """Return the outcomes in the order of the request."""
    others: dict[tuple[int, str], Any] = {
        (result.resource_type, result.resource_name): result
        for result in cast("Iterable[Any]", answered)
    }
    return [
        own[place] if place in own else others[one.resource_type, one.resource_name]
        for place, one in enumerate(resources)
    ]


def _forward(ctx: Context, request: Any) -> Pending[Any]:
    """Send a part of the request: its refusal must be merged with the rest."""
    answer: Pending[Any] = refusing(
        ctx, request, lambda part: ctx.controller.send(part, ctx.requester())
    )
    return answer


def _error(error: KafkaError) -> dict[str, Any]:
    return {"error_code": int(error.code), "error_message": specific_message(error)}


def _named(resource: Resource | AlterConfigsRequest.AlterConfigsResource) -> dict[str, Any]:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


def _change_loggers(
    ctx: Context, resource: Resource, *, only_check: bool, is_repeated: bool
) -> Outcome:
    outcome = Outcome(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        if ctx.listener != "controller" and not ctx.authorize(
            Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME
        ):  # at a controller the guard has checked
            outcome.error_code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return outcome
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        _check_settings(resource)
        check_this_node(ctx.broker.node_id, resource.resource_name, "node id. Expected")
        changes = [
            (config.name, config.config_operation, config.value) for config in resource.configs
        ]
        change_levels(changes, only_check=only_check)
    except KafkaError as error:
        outcome.error_code = int(error.code)
        outcome.error_message = error.message or None
    return outcome


def _check_settings(resource: Resource) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [
        config.name
        for config in resource.configs
        if config.value is None and config.config_operation != DELETE
    ]
    if empty:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}"
        )
