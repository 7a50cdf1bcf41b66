"""Makes log directories ready for their first start.

Kafka: org.apache.kafka.metadata.storage.Formatter, MetaPropertiesEnsemble;
org.apache.kafka.common.test.KafkaClusterTestKit.formatNode.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.broker import parse_broker_config
from ottla.config.properties import write_properties
from ottla.metadata.bootstrap import feature_records
from ottla.metadata.features import (
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS_NEEDED,
    MINIMUM_METADATA_VERSION,
    SUPPORTED_FEATURES,
    default_levels,
    metadata_version_name,
)
from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.raft.snapshot import SNAPSHOT_MODE, encode_snapshot, snapshot_name
from ottla.raft.voter_set import Voter, VoterAddress, VoterSet
from ottla.storage.directories.log_dir import MetaProperties, decode_meta_properties
from ottla.storage.layout import BOOTSTRAP_CHECKPOINT, META_PROPERTIES, METADATA_LOG
from ottla.types import OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.config.broker import BrokerConfig
    from ottla.protocol.records.metadata import UserScramCredentialRecord
    from ottla.storage.directory import Directory


class FormatError(Exception):
    """Directories cannot be formatted; the text is for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRequest:
    """The arguments of kafka-storage format."""

    cluster_id: str | None
    """None takes that of the directories that are formatted already."""
    metadata_version: int = LATEST_METADATA_VERSION
    is_release_given: bool = False
    """Whether the user chose metadata_version, which feature_levels may then not name."""
    feature_levels: Mapping[str, int] = field(default_factory=dict)
    """Levels that differ from the release's own."""
    standalone: bool = False
    no_initial_controllers: bool = False
    initial_controllers: tuple[Voter, ...] = ()
    ignore_formatted: bool = False
    scram_credentials: tuple[UserScramCredentialRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatTarget:
    """Where formatting writes: directories, ids, the time, and where its lines go."""

    directories: Mapping[str, Directory]
    """By path, the metadata directory among them."""
    new_uuid: Callable[[], Uuid]
    now_ms: int
    date: str
    """As Java writes it: Sat Nov 21 10:34:29 UTC 2026."""
    echo: Callable[[str], None]
    make_directory: Callable[[str], None] | None = None
    """Makes the directory of a path before it is written; None where all are there."""


def format_directories(config: BrokerConfig, request: FormatRequest, target: FormatTarget) -> None:
    """Format every unformatted directory; FormatError with Kafka's text when that is impossible."""
    formatted = _formatted(target)
    cluster_id = request.cluster_id or _cluster_id_of(formatted)
    is_replacement = request.ignore_formatted and config.metadata_directory in formatted
    voters = _initial_voters(config, request, target, is_replacement=is_replacement)
    levels, kraft_version = _levels(request, is_dynamic=not config.voters)
    metadata_version = levels[METADATA_VERSION]
    # return the paths without meta.properties; FormatError when the others disagree
    for path, meta in formatted.items():
        for name, expected, found in (
            ("cluster.id", cluster_id, meta.cluster_id),
            ("node.id", str(config.node_id), str(meta.node_id)),
        ):
            if expected != found:
                raise FormatError(
                    f"Invalid {name} in: {path}/{META_PROPERTIES}. Expected {expected}, but read "
                    f"{found}"
                )
        if not request.ignore_formatted:
            raise FormatError(
                f"Log directory {path} is already formatted. Use --ignore-formatted to ignore "
                "this directory and format the others."
            )
    fresh = [path for path in target.directories if path not in formatted]
    if not fresh:
        target.echo("All of the log directories are already formatted.")
        return
    records = feature_records(levels)
    records += [MessageAndVersion(record, 0) for record in request.scram_credentials]
    target.echo(f"Bootstrap metadata: {_describe(records, metadata_version)}")
    for path in fresh:
        is_metadata = path == config.metadata_directory
        kind = _directory_kind(config.node_id, voters) if is_metadata else "data directory"
        target.echo(
            f"Formatting {kind} {path} with metadata.version "
            f"{metadata_version_name(metadata_version)}."
        )
        if target.make_directory is not None:
            target.make_directory(path)
        _write(
            target.directories[path],
            records,
            target,
            voters=voters if is_metadata else None,
            kraft_version=kraft_version,
            meta=MetaProperties(
                1,
                cluster_id,
                config.node_id,
                _directory_id(config, voters, target, is_metadata=is_metadata),
            ),
        )


def encode_meta_properties(meta: MetaProperties, date: str) -> bytes:
    """Return the file's content as Java's Properties write it."""
    settings = {
        "node.id": str(meta.node_id),
        "directory.id": str(meta.directory_id),
        "version": str(meta.version),
        "cluster.id": meta.cluster_id,
    }
    return write_properties(settings, comments=("", date)).encode("ascii")


def read_meta_properties(directory: Directory) -> MetaProperties | None:
    """Return a directory's meta.properties, None when it is not formatted."""
    if not directory.exists(META_PROPERTIES):
        return None
    return decode_meta_properties(directory.read_file(META_PROPERTIES))


def _is_dynamic(request: FormatRequest) -> bool:
    return bool(request.standalone or request.initial_controllers or request.no_initial_controllers)


def _formatted(target: FormatTarget) -> dict[str, MetaProperties]:
    found = {path: read_meta_properties(one) for path, one in target.directories.items()}
    return {path: meta for path, meta in found.items() if meta is not None}


def _cluster_id_of(formatted: Mapping[str, MetaProperties]) -> str:
    """Return the id of the cluster that the other directories of a replaced disk belong to."""
    found = {meta.cluster_id for meta in formatted.values()}
    if len(found) != 1:
        reason = (
            "the log directories belong to several clusters"
            if found
            else ("no log directory of the node is formatted")
        )
        raise FormatError(f"--cluster-id/-t is needed: {reason}.")
    return found.pop()


def _initial_voters(
    config: BrokerConfig, request: FormatRequest, target: FormatTarget, *, is_replacement: bool
) -> VoterSet | None:
    """Return the voters to write, None for a static quorum or a node that joins later.

    A directory that replaces another one gets none: the metadata log in another directory has them.
    """
    if config.voters and (request.standalone or request.initial_controllers):
        raise FormatError(
            "You cannot specify controller.quorum.voters and format the node with "
            "--initial-controllers or --standalone. If you want to use dynamic quorum, please "
            "remove controller.quorum.voters and specify controller.quorum.bootstrap.servers "
            "instead."
        )
    is_open = config.is_controller and not config.voters and not _is_dynamic(request)
    if is_open and not is_replacement:
        raise FormatError(
            "Because controller.quorum.voters is not set on this controller, you must specify one "
            "of the following: --standalone, --initial-controllers, or --no-initial-controllers."
        )
    if request.standalone:
        directory_id = target.new_uuid()
        if not config.is_controller:
            raise FormatError("You can only use --standalone on a controller.")
        if not config.controller_endpoints:
            raise FormatError("No controller listeners found.")
        reached = config.advertised_controller_endpoint
        endpoint = VoterAddress(reached.listener, reached.host or "localhost", reached.port)
        return VoterSet([(Voter(config.node_id, directory_id, (endpoint,)))])
    if request.initial_controllers:
        return VoterSet(request.initial_controllers)
    return None


def _levels(request: FormatRequest, *, is_dynamic: bool) -> tuple[dict[str, int], int]:
    """Return the feature levels to write and the kraft.version."""
    requested = dict(request.feature_levels)
    if METADATA_VERSION in requested and request.is_release_given:
        raise FormatError(
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."
        )
    for name in requested:
        if name not in SUPPORTED_FEATURES:
            names = ", ".join(sorted(SUPPORTED_FEATURES.keys() - {METADATA_VERSION}))
            raise FormatError(f"Unsupported feature: {name}. Supported features are: {names}")
    metadata_version = requested.pop(METADATA_VERSION, request.metadata_version)
    if metadata_version not in SUPPORTED_FEATURES[METADATA_VERSION]:
        raise FormatError(
            f"No MetadataVersion with feature level {metadata_version}. Valid feature levels are "
            f"from {MINIMUM_METADATA_VERSION} to {LATEST_METADATA_VERSION + 1}."
        )
    levels = default_levels(metadata_version)
    kraft_version = requested.pop(KRAFT_VERSION, 1 if is_dynamic else 0)
    if kraft_version == 0 and is_dynamic:
        raise FormatError(
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the "
            "flags --standalone, --initial-controllers, or --no-initial-controllers is used. For "
            "dynamic controllers support, try removing the --feature flag for kraft.version."
        )
    if kraft_version > 0 and not is_dynamic:
        raise FormatError(
            f"Cannot set kraft.version to {kraft_version} unless controller.quorum.voters is empty "
            "and one of the flags --standalone, --initial-controllers, or "
            "--no-initial-controllers is used. For dynamic controllers support, try using one of "
            "--standalone, --initial-controllers, or --no-initial-controllers and removing "
            "controller.quorum.voters."
        )
    for name, level in {**requested, KRAFT_VERSION: kraft_version}.items():
        if level not in SUPPORTED_FEATURES[name]:
            raise FormatError(f"No feature:{name} with feature level {level}")
        needed = METADATA_VERSIONS_NEEDED.get((name, level), 0)
        if metadata_version < needed:
            raise FormatError(
                f"{name} could not be set to {level} because it depends on metadata.version "
                f"level {needed}"
            )
    levels |= requested
    return levels, kraft_version


def _directory_id(
    config: BrokerConfig,
    voters: VoterSet | None,
    target: FormatTarget,
    *,
    is_metadata: bool,
) -> Uuid:
    """Return the directory's new id: a voter votes with the one in the voter set."""
    voter = voters.get(config.node_id) if voters is not None and is_metadata else None
    return voter.directory_id if voter is not None else target.new_uuid()


def _directory_kind(node_id: int, voters: VoterSet | None) -> str:
    if voters is None:
        return "metadata directory"
    is_voter = voters.get(node_id) is not None
    return "dynamic metadata voter directory" if is_voter else "dynamic metadata directory"


def _write(
    directory: Directory,
    records: Sequence[MessageAndVersion],
    target: FormatTarget,
    *,
    voters: VoterSet | None,
    kraft_version: int,
    meta: MetaProperties,
) -> None:
    """Write everything, meta.properties last: with it the directory counts as formatted."""
    now_ms = target.now_ms
    bootstrap = encode_snapshot(map(encode_record, records), now_ms=now_ms)
    directory.write_file_atomically(BOOTSTRAP_CHECKPOINT, bootstrap)
    if voters is not None:
        directory.make(METADATA_LOG)
        snapshot = encode_snapshot(
            [],
            now_ms=now_ms,
            last_contained_log_timestamp=now_ms,
            kraft_version=kraft_version,
            voters=voters,
        )
        path = f"{METADATA_LOG}/{snapshot_name(OffsetAndEpoch(0, 0))}"
        directory.write_file_atomically(path, snapshot, mode=SNAPSHOT_MODE)
    data = encode_meta_properties(meta, target.date)
    directory.write_file_atomically(META_PROPERTIES, data)  # makes all names above durable too


def _describe(records: Sequence[MessageAndVersion], metadata_version: int) -> str:
    """Show the bootstrap records as Kafka's tool does; credentials stay hidden."""
    shown = []
    for message, version in records:
        kind = type(message).__name__
        if kind == "FeatureLevelRecord":
            name, level = getattr(message, "name", ""), getattr(message, "feature_level", 0)
            text = f"FeatureLevelRecord(name='{name}', featureLevel={level})"
        else:
            text = f"{kind}(name='{getattr(message, 'name', '')}')"
        shown.append(f"ApiMessageAndVersion({text} at version {version})")
    return (
        f"BootstrapMetadata(records=[{', '.join(shown)}], "
        f"metadataVersionLevel={metadata_version}, source=format command)"
    )


CONTROLLER_LISTENER = "CONTROLLER"
_FORMAT_DATE = "Thu Oct 09 08:53:20 UTC 2025"


class QuorumFormat(NamedTuple):
    """What the directories of all nodes of a cluster have in common."""

    cluster_id: str
    voters: tuple[Voter, ...]
    """Empty for a controller that joins a quorum."""
    now_ms: int


def new_quorum(
    endpoints: Mapping[int, tuple[str, int]], new_uuid: Callable[[], Uuid], *, now_ms: int
) -> QuorumFormat:
    """Return the format of a new cluster; endpoints are the controllers' addresses by node id."""
    cluster_id = str(new_uuid())
    voters = tuple(
        Voter(node_id, new_uuid(), (VoterAddress(CONTROLLER_LISTENER, host, port),))
        for node_id, (host, port) in endpoints.items()
    )
    return QuorumFormat(cluster_id, voters, now_ms)


def format_node(
    config: Mapping[str, str],
    quorum: QuorumFormat,
    directories: Mapping[str, Directory],
    new_uuid: Callable[[], Uuid],
    feature_levels: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Format a node's directories, by path; features without a level get their newest."""
    parsed = parse_broker_config(config)
    format_directories(
        parsed,
        FormatRequest(
            cluster_id=quorum.cluster_id,
            initial_controllers=quorum.voters if parsed.is_controller else (),
            no_initial_controllers=parsed.is_controller and not quorum.voters,
            feature_levels=feature_levels,
        ),
        FormatTarget(
            directories=directories,
            new_uuid=new_uuid,
            now_ms=quorum.now_ms,
            date=_FORMAT_DATE,
            echo=lambda _line: None,
        ),
    )
