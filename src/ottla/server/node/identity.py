"""A node's identity: the `meta.properties` of its directories.

Kafka: org.apache.kafka.metadata.properties.MetaPropertiesEnsemble, kafka.server.KafkaRaftServer.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.server.node.format import (
    FormatRequest,
    FormatTarget,
    encode_meta_properties,
    format_directories,
)
from ottla.storage.directories.log_dir import decode_meta_properties
from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.layout import META_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.config.broker import BrokerConfig
    from ottla.server.system.environment import Environment
    from ottla.storage.directories.log_dir import LogDirectory, MetaProperties
    from ottla.types import Uuid

log = logging.getLogger("ottla.storage")


class NodeIdentity(NamedTuple):
    """The ids of cluster and metadata log directory, and whether this start formatted all."""

    cluster_id: str
    metadata_directory_id: Uuid
    is_new: bool


def identify(
    config: BrokerConfig,
    log_dirs: list[LogDirectory],
    environment: Environment,
    *,
    may_format: bool,
) -> NodeIdentity:
    """Read the directories' ids; format them first when they are empty and that is allowed.

    Raises KafkaError when a directory is not formatted, belongs to another node or another
    cluster, or is a copy of another one; OSError for that of the metadata log. Other directories
    that cannot be read are offline.
    """
    found = _read_all(config, log_dirs)
    is_new = not found and all(log_dir.is_online for log_dir in log_dirs)
    if is_new and may_format:
        _format(config, log_dirs, environment)
        found = _read_all(config, log_dirs)
    for log_dir in log_dirs:
        if log_dir.is_online:
            log_dir.meta = _checked(config, log_dir, found)
            if log_dir.meta.directory_id is None:
                with tolerated(config, log_dir):
                    own_id, now_ms = environment.new_uuid(), environment.clock.now_ms()
                    log_dir.meta = write_directory_id(log_dir, own_id, now_ms)
                    found[log_dir.path] = log_dir.meta
    own = found[config.metadata_directory]
    ids = [meta.directory_id for meta in found.values() if meta.directory_id is not None]
    if len(set(ids)) != len(ids):
        raise _refused("two log directories have the same directory.id: one is a copy")
    assert own.directory_id is not None
    return NodeIdentity(own.cluster_id, own.directory_id, is_new)


def _format(config: BrokerConfig, log_dirs: list[LogDirectory], environment: Environment) -> None:
    """Format the directories of a node that is started without a file: a quorum of itself."""
    now_ms = environment.clock.now_ms()
    format_directories(
        config,
        FormatRequest(
            cluster_id=str(environment.new_uuid()),
            standalone=not config.voters,
        ),
        FormatTarget(
            directories={log_dir.path: log_dir.directory for log_dir in log_dirs},
            new_uuid=environment.new_uuid,
            now_ms=now_ms,
            date=_java_date(now_ms),
            echo=lambda _line: None,
        ),
    )


def write_directory_id(log_dir: LogDirectory, directory_id: Uuid, now_ms: int) -> MetaProperties:
    """Give a directory an id: those that were formatted before Kafka 3.7 have none (KIP-858)."""
    assert log_dir.meta is not None
    meta = log_dir.meta._replace(directory_id=directory_id)
    data = encode_meta_properties(meta, _java_date(now_ms))
    log_dir.directory.write_file_atomically(META_PROPERTIES, data)
    text = "%s/%s gets the directory.id %s: it was written before Kafka 3.7"
    event = {"event": "directory.identified"}
    log.info(text, log_dir.path, META_PROPERTIES, meta.directory_id, extra=event)
    return meta


def _java_date(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


@contextmanager
def tolerated(config: BrokerConfig, log_dir: LogDirectory) -> Iterator[None]:
    """Set a directory offline when its disk fails, unless the metadata log is in it."""
    try:
        yield
    except OSError as error:
        if log_dir.path == config.metadata_directory or is_exhaustion(error):
            raise
        log_dir.failed(error)


def _read_all(config: BrokerConfig, log_dirs: list[LogDirectory]) -> dict[str, MetaProperties]:
    """Return the meta.properties of formatted directories, by path."""
    found = {}
    for log_dir in log_dirs:
        if log_dir.is_online and log_dir.directory.exists(META_PROPERTIES):
            with tolerated(config, log_dir):
                data = log_dir.directory.read_file(META_PROPERTIES)
                found[log_dir.path] = decode_meta_properties(data)
    return found


def format_command(config: BrokerConfig) -> str:
    """Return the command that formats a node's directories; names in CAPITALS are to be set."""
    is_alone = config.is_controller and not config.has_other_controllers
    cluster_id = '"$(ottla storage random-uuid)"' if is_alone else "CLUSTER_ID"
    command = f"ottla storage format -t {cluster_id} -c FILE"
    if config.voters or not config.is_controller:
        return command
    if is_alone:
        return f"{command} --standalone"
    return f"{command} --initial-controllers VOTERS (to join a quorum: --no-initial-controllers)"


def _checked(
    config: BrokerConfig, log_dir: LogDirectory, found: dict[str, MetaProperties]
) -> MetaProperties:
    if log_dir.path not in found:
        raise _refused(
            f"No readable meta.properties files found in {log_dir.path}. Format it first: "
            f"{format_command(config)}"
        )
    meta = found[log_dir.path]
    if meta.node_id != config.node_id:
        raise _refused(
            f"Stored node id {meta.node_id} doesn't match previous node id {config.node_id} in "
            f"{log_dir.path}/{META_PROPERTIES}. If you moved your data, make sure your configured "
            "node id matches."
        )
    cluster_id = next(iter(found.values())).cluster_id
    if meta.cluster_id != cluster_id:
        raise _refused(
            f"Invalid cluster.id in: {log_dir.path}/{META_PROPERTIES}. Expected {cluster_id}, but "
            f"read {meta.cluster_id}"
        )
    return meta


def _refused(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
