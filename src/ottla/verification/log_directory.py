"""Check of a log directory: identity, checkpoints, names, and a list of the partitions to check.

Kafka: LogManager and MetaPropertiesEnsemble, at a start.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.storage.directories.checkpoints import read_offsets
from ottla.storage.directories.log_dir import decode_meta_properties
from ottla.storage.directories.partition_dir_names import (
    future_partition_of,
    is_deleted_log,
    is_log,
    partition_of,
)
from ottla.storage.layout import (
    CLEAN_MARKER,
    CLEANER_CHECKPOINT,
    FILES,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_CACHE,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    METADATA_LOG,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    STRAY_SUFFIX,
    Folder,
    file_names,
)
from ottla.verification.findings import damage, notice, repairable
from ottla.verification.metadata import check_bootstrap, check_metadata
from ottla.verification.partition import StoredPartition

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.storage.directory import Directory
    from ottla.types import TopicPartition
    from ottla.verification.findings import Finding

_NAMES: Final = file_names(Folder.LOG_DIRECTORY)
_IF_LOST: Final = {kind.name: kind.if_lost for kind in FILES if kind.folder is Folder.LOG_DIRECTORY}
_ASIDE: Final = "move it out of the log directory, or remove it"


class DirectoryCheck(NamedTuple):
    """What is known of a log directory before its partitions are read."""

    findings: list[Finding]
    partitions: list[StoredPartition]
    image: MetadataImage | None
    """The cluster's metadata, None where the directory has no metadata log that can be read."""
    cluster_id: str


def check_log_directory(
    directory: Directory, path: str, image: MetadataImage | None = None
) -> DirectoryCheck:
    """Check all but the partitions; of several directories of a node one has the metadata log.

    image is what that one gave. path names the directory in texts.
    """
    findings = check_bootstrap(directory)
    cluster_id = _check_identity(directory, findings)
    if directory.is_directory(METADATA_LOG):
        stored, more = check_metadata(directory, path)
        findings += more
        image = stored.image if stored is not None else None
    checkpoints = {name: _read_offsets(directory, name, findings) for name in OFFSET_CHECKPOINTS}
    is_clean = _is_clean(directory, findings)
    partitions = [
        StoredPartition(
            name,
            is_clean,
            checkpoints[RECOVERY_POINT_CHECKPOINT].get(partition, 0),
            checkpoints[HIGH_WATERMARK_CHECKPOINT].get(partition, -1),
            checkpoints[LOG_START_CHECKPOINT].get(partition, -1),
            checkpoints[CLEANER_CHECKPOINT].get(partition, -1),
            partition in checkpoints[CLEANER_CHECKPOINT] or _is_compacted(image, partition),
            _topic_id(image, partition),
        )
        for name, partition in _find_logs(directory, findings)
    ]
    _check_missing(checkpoints, partitions, findings)
    return DirectoryCheck(findings, partitions, image, cluster_id)


def _check_identity(directory: Directory, findings: list[Finding]) -> str:
    step = f"write version, cluster.id, node.id and directory.id into {META_PROPERTIES}"
    meaning = _IF_LOST[META_PROPERTIES]
    if not directory.exists(META_PROPERTIES):
        findings.append(damage(META_PROPERTIES, "is missing", meaning, step))
        return ""
    try:
        return decode_meta_properties(directory.read_file(META_PROPERTIES)).cluster_id
    except CorruptMessage as error:
        findings.append(damage(META_PROPERTIES, str(error.message), meaning, step))
        return ""


def _read_offsets(
    directory: Directory, name: str, findings: list[Finding]
) -> dict[TopicPartition, int]:
    try:
        return read_offsets(directory, name)
    except CorruptMessage as error:
        text, problem = _IF_LOST[name], str(error.message)
        if name == LOG_START_CHECKPOINT:
            step = "restore it from a backup, or repeat the DeleteRecords"
            findings.append(damage(name, problem, text, step))
        else:
            step = "nothing to do, the next start ignores and replaces it"
            findings.append(repairable(name, problem, text, step))
        return {}


def _is_clean(directory: Directory, findings: list[Finding]) -> bool:
    if not directory.exists(CLEAN_MARKER):
        return False
    try:
        int(json.loads(directory.read_file(CLEAN_MARKER))["brokerEpoch"])
    except (ValueError, KeyError, TypeError) as error:
        text = "the controller may count the stop as unclean"
        step = "nothing to do, the next start removes it"
        findings.append(repairable(CLEAN_MARKER, f"cannot be read: {error}", text, step))
    return True


def _topic_id(image: MetadataImage | None, partition: TopicPartition) -> str:
    found = image.topics.topic_id(partition.topic) if image is not None else None
    return "" if found is None else str(found)


def _is_compacted(image: MetadataImage | None, partition: TopicPartition) -> bool:
    if image is None:
        return True  # unknown, and gaps are no damage then
    return "compact" in image.configs.topic(partition.topic).get("cleanup.policy", "")


def _find_logs(directory: Directory, findings: list[Finding]) -> list[tuple[str, TopicPartition]]:
    """Return the directories of logs, and name all that is not a node's."""
    logs = []
    for name in directory.list():
        if not directory.is_directory(name):
            if not _NAMES.fullmatch(name) and name != LOCK_FILE:
                text = "a node never opens it"
                findings.append(notice(name, "is no file of a node", text, _ASIDE))
            continue
        partition = partition_of(name) or future_partition_of(name)
        if name in {METADATA_LOG, INDEX_CACHE}:
            continue
        if is_deleted_log(name):
            text = "the next start removes it"
            findings.append(notice(name, "is a deleted partition", text, "nothing to do"))
        elif name.endswith(STRAY_SUFFIX):
            text = "its partition was not the node's at a start"
            findings.append(notice(name, "is a stray log", text, _ASIDE))
        elif partition is None or not is_log(directory, name):
            findings.append(notice(name, "holds no log", "a node leaves it alone", _ASIDE))
        else:
            logs.append((name, partition))
    return logs


def _check_missing(
    checkpoints: dict[str, dict[TopicPartition, int]],
    partitions: list[StoredPartition],
    findings: list[Finding],
) -> None:
    """Report partitions with flushed records whose directories are gone."""
    present = {partition.name for partition in partitions}
    for partition, offset in checkpoints[RECOVERY_POINT_CHECKPOINT].items():
        if offset > 0 and str(partition) not in present and str(partition) != METADATA_LOG:
            problem = f"is missing, though {offset} offsets were flushed"
            text = "the next start makes it empty"
            step = "restore it from a replica or a backup"
            findings.append(damage(str(partition), problem, text, step))
