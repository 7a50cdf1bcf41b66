"""Admin calls for configs of topics, brokers, groups and client metrics.

Kafka: org.apache.kafka.clients.admin.{ConfigEntry, AlterConfigOp}, common.config.ConfigResource.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.clients.admin.calls import AdminCalls, error_of
from ottla.clients.admin.topics import config_text
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.describe_configs import DescribeConfigsRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.apis.list_config_resources import ListConfigResourcesRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from ottla.protocol.schema import Request

    Outcomes = dict["ConfigResource", Any]


class ResourceType(IntEnum):
    """The type of the resource that a config belongs to."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a config value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class AlterOperation(IntEnum):
    """The operation of a config change."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """A resource with configs; the name of cluster-wide broker defaults is ''."""

    type: ResourceType
    name: str


class ConfigSynonym(NamedTuple):
    """One source that sets the value, in order of precedence."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One described config; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: int
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: int
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source == ConfigSource.DEFAULT_CONFIG


class ConfigChange(NamedTuple):
    """One change of `alter_configs`."""

    name: str
    value: Any = None
    operation: AlterOperation = AlterOperation.SET


class ConfigsAdmin(AdminCalls):
    """The part of the admin for configs."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource] | Mapping[ConfigResource, Sequence[str] | None],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """Describe resources; returns an outcome for each: entries by name, or the error.

        Parameters:
            resources: resources, or a mapping of them to the names to return (None: all).
            include_synonyms: whether entries have the values of lower precedence, too.
            include_documentation: whether entries have Kafka's description (KIP-569).
        """
        keys: dict[ConfigResource, Sequence[str] | None]
        keys = dict(resources) if isinstance(resources, Mapping) else dict.fromkeys(resources)
        _check_resources(keys)

        def build(resources: list[ConfigResource]) -> Request:
            return DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None if names is None else list(names),
                    )
                    for resource, names in ((key, keys[key]) for key in resources)
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )

        def read(answer: Any) -> Outcomes:
            return {
                _resource(result): error_of(result)
                or {entry.name: _entry(entry) for entry in result.configs}
                for result in answer.results
            }

        return await self._call_owners(keys, build, read, timeout)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange] | Mapping[str, Any]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change single values (KIP-339); returns an outcome for each resource.

        Parameters:
            changes: by resource, ConfigChange entries, or values by name (None deletes).
            validate_only: whether the changes are only checked.
        """
        _check_resources(changes)
        resource_type = IncrementalAlterConfigsRequest.AlterConfigsResource

        def build(resources: list[ConfigResource]) -> Request:
            return IncrementalAlterConfigsRequest(
                resources=[
                    resource_type(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            resource_type.AlterableConfig(
                                name=change.name,
                                config_operation=change.operation,
                                value=config_text(change.value),
                            )
                            for change in _as_changes(changes[resource])
                        ],
                    )
                    for resource in resources
                ],
                validate_only=validate_only,
            )

        def read(answer: Any) -> Outcomes:
            return {_resource(response): error_of(response) for response in answer.responses}

        return await self._call_owners(changes, build, read, timeout)

    async def _call_owners(
        self,
        resources: Iterable[ConfigResource],
        build: Callable[[list[ConfigResource]], Request],
        read: Callable[[Any], Outcomes],
        timeout: float | None,
    ) -> Outcomes:
        """Call every node with its resources; a failed node is the outcome of its resources only.

        If all resources belong to one node, its failure is raised.
        """
        deadline_ms = self._deadline_ms(timeout)
        split = self._by_node(resources)
        result: Outcomes = {}
        for node_id, part in split.items():
            try:
                answer = await self._call(
                    build(part), timeout=self._remaining_seconds(deadline_ms), node_id=node_id
                )
                result.update(read(answer))
            except KafkaError as error:
                if len(split) == 1:
                    raise
                result.update(dict.fromkeys(part, error))
        return result

    async def list_config_resources(
        self,
        types: Iterable[ResourceType] = (),
        *,
        timeout: float | None = None,
    ) -> list[ConfigResource]:
        """Return the resources that have configs, of some types or of all."""
        request = ListConfigResourcesRequest(resource_types=[int(type_) for type_ in types])
        answer = await self._call(request, timeout=timeout)
        return list(map(_resource, answer.config_resources))

    @staticmethod
    def _by_node(
        resources: Iterable[ConfigResource],
    ) -> dict[int | None, list[ConfigResource]]:
        """Group by target: that broker for a broker's own configs, any node (None) otherwise."""
        split: dict[int | None, list[ConfigResource]] = {}
        for resource in resources:
            own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
            node_id = _broker_id(resource.name) if own and resource.name else None
            split.setdefault(node_id, []).append(resource)
        return split


def _check_resources(resources: Iterable[object]) -> None:
    for resource in resources:
        if not isinstance(resource, ConfigResource):
            raise TypeError(f"a resource must be ConfigResource(type, name), not {resource!r}")


def _broker_id(name: str) -> int:
    try:
        return int(name)
    except ValueError as error:
        text = f"a broker's configs are named by its id, not by {name!r}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text) from error


def _as_changes(changes: Iterable[ConfigChange] | Mapping[str, Any]) -> list[ConfigChange]:
    if not isinstance(changes, Mapping):
        return [ConfigChange(*change) for change in changes]
    return [
        ConfigChange(name, None, AlterOperation.DELETE)
        if value is None
        else ConfigChange(name, value)
        for name, value in changes.items()
    ]


def _resource(entry: Any) -> ConfigResource:
    return ConfigResource(ResourceType(entry.resource_type), entry.resource_name)


def _entry(entry: Any) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        entry.config_source,
        entry.is_sensitive,
        entry.read_only,
        tuple(
            ConfigSynonym(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms
        ),
        entry.config_type,
        entry.documentation,
    )
