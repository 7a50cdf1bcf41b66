"""A node's identity: the `meta.properties` of its directories.

Kafka: org.apache.kafka.metadata.properties.MetaPropertiesEnsemble, kafka.server.KafkaRaftServer.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import UNBUILT_FEATURES
from ottla.server.node.format import FormatRequest, FormatTarget, format_directories
from ottla.storage.directories.log_dir import META_PROPERTIES, decode_meta_properties

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.server.system.environment import Environment
    from ottla.storage.directories.log_dir import LogDirectory, MetaProperties
    from ottla.types import Uuid


class Identity(NamedTuple):
    """The ids of cluster and directories; whether the directories were formatted just now."""

    cluster_id: str
    directory_ids: list[Uuid]
    metadata_directory_id: Uuid
    is_new: bool


def identify(
    config: BrokerConfig,
    log_dirs: list[LogDirectory],
    environment: Environment,
    *,
    may_format: bool,
) -> Identity:
    """Read the directories' ids; format them first when they are empty and that is allowed.

    Raises KafkaError when a directory is not formatted, belongs to another node or another
    cluster, or when two are one.
    """
    is_new = not any(log_dir.directory.exists(META_PROPERTIES) for log_dir in log_dirs)
    if is_new and may_format:
        _format(config, log_dirs, environment)
    found = [_read(log_dir) for log_dir in log_dirs]
    for log_dir, meta in zip(log_dirs, found, strict=True):
        _check(config, log_dir, meta, found[0].cluster_id)
    ids = [meta.directory_id for meta in found if meta.directory_id is not None]
    if len(set(ids)) != len(ids):
        raise _refused("two log directories have the same directory.id: one is a copy")
    paths = [log_dir.path for log_dir in log_dirs]
    return Identity(found[0].cluster_id, ids, ids[paths.index(config.metadata_directory)], is_new)


def _format(config: BrokerConfig, log_dirs: list[LogDirectory], environment: Environment) -> None:
    """Format the directories of a node that is started without a file: a quorum of itself."""
    now_ms = environment.clock.now_ms()
    format_directories(
        config,
        FormatRequest(
            cluster_id=str(environment.new_uuid()),
            standalone=not config.voters,
            feature_levels=dict.fromkeys(UNBUILT_FEATURES, 0),
        ),
        FormatTarget(
            directories={log_dir.path: log_dir.directory for log_dir in log_dirs},
            new_uuid=environment.new_uuid,
            now_ms=now_ms,
            date=datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y"),
            echo=lambda _line: None,
        ),
    )


def _read(log_dir: LogDirectory) -> MetaProperties:
    if not log_dir.directory.exists(META_PROPERTIES):
        raise _refused(
            f"No readable meta.properties files found in {log_dir.path}. Format it first: "
            'ottla storage format -t "$(ottla storage random-uuid)" -c FILE --standalone'
        )
    return decode_meta_properties(log_dir.directory.read_file(META_PROPERTIES))


def _check(
    config: BrokerConfig, log_dir: LogDirectory, meta: MetaProperties, cluster_id: str
) -> None:
    if meta.node_id != config.node_id:
        raise _refused(
            f"Stored node id {meta.node_id} doesn't match previous node id {config.node_id} in "
            f"{log_dir.path}/{META_PROPERTIES}. If you moved your data, make sure your configured "
            "node id matches."
        )
    if meta.cluster_id != cluster_id:
        raise _refused(
            f"Invalid cluster.id in: {log_dir.path}/{META_PROPERTIES}. Expected {cluster_id}, but "
            f"read {meta.cluster_id}"
        )
    if meta.directory_id is None:
        raise _refused(f"{log_dir.path}/{META_PROPERTIES} has no directory.id")


def _refused(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
