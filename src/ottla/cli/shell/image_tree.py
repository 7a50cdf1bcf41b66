"""The nodes of a metadata image: /image, and /local about the shell itself.

Kafka: org.apache.kafka.image.node, org.apache.kafka.shell.node.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla._version import __version__
from ottla.cli.shell.nodes import Leaf, ShellDirectory, directory_of
from ottla.cli.shell.registrations import (
    acl_text,
    broker_text,
    controller_text,
    partition_text,
    scram_text,
    token_text,
)
from ottla.config.definition import double_text
from ottla.metadata.features import METADATA_VERSION, metadata_version_name
from ottla.metadata.resources import CLIENT_ID, IP, USER, ConfigResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.cli.shell.nodes import Node
    from ottla.metadata.image.cluster import FeaturesImage
    from ottla.metadata.image.configs import QuotasImage
    from ottla.metadata.image.image import MetadataImage
    from ottla.metadata.image.security import ScramImage
    from ottla.metadata.partition import TopicImage
    from ottla.metadata.resources import QuotaEntity
    from ottla.types import OffsetAndEpoch

T = TypeVar("T")

_MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_FINALIZED: Final = "finalized_"
_ENTITY_NAMES: Final = ((CLIENT_ID, "clientId"), (IP, "ip"), (USER, "user"))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Provenance(NamedTuple):
    """The last batch that an image contains."""

    offset_and_epoch: OffsetAndEpoch
    timestamp_ms: int


def root_of(image: MetadataImage, provenance: Provenance) -> ShellDirectory:
    """Return the root of the tree."""
    local = {"version": lambda: Leaf(__version__), "commitId": lambda: Leaf("unknown")}
    return directory_of(
        {"image": lambda: image_node(image, provenance), "local": lambda: directory_of(local)}
    )


def image_node(image: MetadataImage, provenance: Provenance) -> ShellDirectory:
    """Return the directory of an image."""
    cluster = image.cluster
    brokers = {str(key): partial(_leaf, broker_text, one) for key, one in cluster.brokers.items()}
    controllers = {
        str(key): partial(_leaf, controller_text, one) for key, one in cluster.controllers.items()
    }
    acls = {str(key): partial(_leaf, acl_text, one) for key, one in image.acls.by_id.items()}
    tokens = {
        key: partial(_leaf, token_text, one) for key, one in image.delegation_tokens.by_id.items()
    }
    by_name = {name: partial(_topic, one) for name, one in image.topics.by_name.items()}
    by_id = {str(one): partial(_topic, topic) for one, topic in image.topics.by_id.items()}
    return directory_of(
        {
            "provenance": lambda: Leaf(_provenance_text(provenance)),
            "features": lambda: _features(image.features),
            "cluster": lambda: _directories(brokers=brokers, controllers=controllers),
            "topics": lambda: _directories(byName=by_name, byId=by_id),
            "configs": lambda: _configs(image),
            "clientQuotas": lambda: _quotas(image.quotas),
            "producerIds": lambda: _values({"nextProducerId": image.producer_ids.next_producer_id}),
            "acls": lambda: _directories(byId=acls),
            "scram": lambda: _scram(image.scram),
            "delegationToken": lambda: directory_of(tokens),
        }
    )


def _leaf(text: Callable[[T], str], value: T) -> Leaf:
    return Leaf(text(value))


def _directories(**children: Mapping[str, Callable[[], Node]]) -> ShellDirectory:
    return directory_of({name: partial(directory_of, one) for name, one in children.items()})


def _values(values: Mapping[str, object]) -> ShellDirectory:
    return directory_of({name: partial(Leaf, str(value)) for name, value in values.items()})


def _provenance_text(provenance: Provenance) -> str:
    offset, epoch = provenance.offset_and_epoch
    when = _EPOCH + timedelta(milliseconds=provenance.timestamp_ms)
    shown = when.strftime("%Y-%m-%dT%H:%M:%S")
    if when.microsecond:
        shown += f".{when.microsecond:06d}".rstrip("0")
    return f"offset {offset}, epoch {epoch}, time {shown}Z[UTC]"


def _features(features: FeaturesImage) -> ShellDirectory:
    level = features.levels.get(METADATA_VERSION)
    version = "Optional.empty" if level is None else f"Optional[{metadata_version_name(level)}]"
    finalized = [f"{_FINALIZED}{name}" for name in features.levels if name != METADATA_VERSION]

    def child(name: str) -> Node | None:
        if name == "metadataVersion":
            return Leaf(version)
        feature = name.removeprefix(_FINALIZED)
        if feature == name:
            return None
        return Leaf(str(0 if feature == METADATA_VERSION else features.level(feature)))

    return ShellDirectory(lambda: ["metadataVersion", *finalized], child)


def _topic(topic: TopicImage) -> ShellDirectory:
    partitions = {
        str(key): partial(_leaf, partition_text, one) for key, one in topic.partitions.items()
    }
    values = {"name": partial(Leaf, topic.name), "id": partial(Leaf, str(topic.topic_id))}
    return directory_of({**partitions, **values})


def _configs(image: MetadataImage) -> ShellDirectory:
    children = {}
    for resource, settings in image.configs.by_resource.items():
        kind = ConfigResourceType(resource.type).name
        name = f"{kind}:{resource.name}" if resource.name else kind
        children[name] = partial(_values, settings)
    return directory_of(children)


def _scram(scram: ScramImage) -> ShellDirectory:
    users: dict[str, dict[str, Callable[[], Node]]] = {name: {} for name in _MECHANISMS}
    for (user, mechanism), credential in scram.by_user.items():
        for name, code in _MECHANISMS.items():
            if code == mechanism:
                users[name][user] = partial(_leaf, scram_text, credential)
    return _directories(**users)


def _quotas(quotas: QuotasImage) -> ShellDirectory:
    """Return the directory of the quotas.

    The name of a default entity has no part for it and leads nowhere, as in Kafka.
    """
    named = {
        _entity_name(entity): limits
        for entity, limits in quotas.by_entity.items()
        if all(name is not None for _, name in entity)
    }

    def child(name: str) -> Node | None:
        limits = named.get(name)
        if limits is None:
            return None
        return _values({key: double_text(value) for key, value in limits.items()})

    return ShellDirectory(
        lambda: [_entity_name(entity) for entity in quotas.by_entity],
        child,
        "org.apache.kafka.image.node.ClientQuotasImageNode",
    )


def _entity_name(entity: QuotaEntity) -> str:
    names = dict(entity)
    return "_".join(
        f"{shown}({_escaped(name)})"
        for kind, shown in _ENTITY_NAMES
        if (name := names.get(kind)) is not None
    )


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
