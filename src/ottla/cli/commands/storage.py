"""`ottla storage`: format and inspect log directories.

Kafka: bin/kafka-storage.sh (kafka.tools.StorageTool), org.apache.kafka.raft.{DynamicVoter,
DynamicVoters}; texts as there.
"""

from __future__ import annotations

import ipaddress
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.options.argparse4j import ToolGroup, exclude_together, need
from ottla.cli.options.flags import json_option, print_json, wants_json
from ottla.cli.options.joptsimple import java_integer
from ottla.cli.options.node_config import load_broker_config
from ottla.cli.options.releases import SHORT_BITS, parse_level, print_release_levels
from ottla.cli.output.failures import ToolError, fail
from ottla.config.checks import MAX_PORT
from ottla.errors import CorruptMessage
from ottla.metadata.features import (
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    METADATA_VERSIONS_NEEDED,
    SUPPORTED_FEATURES,
    metadata_version_name,
    parse_metadata_version,
)
from ottla.metadata.scram_credential import parse_scram_argument
from ottla.raft.voter_set import Voter, VoterAddress
from ottla.server.node.format import (
    FormatError,
    FormatRequest,
    FormatTarget,
    format_directories,
    read_meta_properties,
)
from ottla.server.system.files import RealDirectory, make_directory
from ottla.server.system.process import random_uuid as draw_uuid
from ottla.types import Uuid

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.storage.directories.log_dir import MetaProperties

_CONFIG = click.option(
    "--config", "-c", help="REQUIRED. The node's properties file.", metavar="CONFIG"
)


EXAMPLES = """
\b
Examples:
  ottla storage random-uuid
  ottla storage format --standalone -t "$(ottla storage random-uuid)" -c server.properties
  ottla storage format -t "$CLUSTER_ID" -c server-1.properties --initial-controllers \\
      "1@host1:9093:$DIRECTORY_1,2@host2:9093:$DIRECTORY_2,3@host3:9093:$DIRECTORY_3"
  ottla storage format -t "$CLUSTER_ID" -c server-4.properties --no-initial-controllers
  ottla storage info -c server.properties
  ottla storage version-mapping --release-version 4.1
  ottla storage feature-dependencies --feature eligible.leader.replicas.version=1
"""
INT_BITS = 32


@click.group(
    cls=ToolGroup,
    help="Format and inspect log directories, as bin/kafka-storage.sh does.",
    epilog=EXAMPLES,
)
def storage() -> None:
    """Group the subcommands."""


@storage.command("info", help="Show the state of the node's log directories.")
@_CONFIG
@json_option
def info(config: str) -> None:
    """Show directories, their metadata and their problems."""
    need(config, "--config/-c")
    broker_config = _load(config)
    paths = _paths(broker_config)
    problems: list[str] = []
    found: list[str] = []
    metas: list[MetaProperties] = []
    for path in sorted(paths):
        if not Path(path).exists():
            problems.append(f"{path} does not exist")
        elif not Path(path).is_dir():
            problems.append(f"{path} is not a directory")
        else:
            found.append(path)
            _read_identity(path, metas, problems)
    if len({meta.cluster_id for meta in metas}) > 1:
        problems.append("Mismatched cluster IDs between storage directories.")
    if len({meta.node_id for meta in metas}) > 1:
        problems.append("Mismatched node IDs between storage directories.")
    if wants_json():
        metadata = [meta._asdict() for meta in metas]
        print_json({"directories": found, "metadata": metadata, "problems": problems})
    else:
        _section("Found log director", found, "y:", "ies:")
        if metas:
            click.echo(f"Found metadata: {_describe(metas[0])}\n")
        _section("Found problem", problems, ":", "s:")
    if problems:
        sys.exit(1)


@storage.command("format", help="Format the node's log directories before the first start.")
@_CONFIG
@click.option(
    "--cluster-id",
    "-t",
    help="REQUIRED, but with --ignore-formatted where another directory has it. The cluster id.",
)
@click.option(
    "--add-scram",
    "-S",
    multiple=True,
    help="A first user, e.g. 'SCRAM-SHA-256=[name=alice,password=alice-secret]'.",
)
@click.option("--ignore-formatted", "-g", is_flag=True, help="Skip directories that are formatted.")
@click.option(
    "--release-version",
    "-r",
    help="The release whose feature levels the cluster starts with; at least "
    f"{METADATA_VERSION_NAMES[min(METADATA_VERSION_NAMES)]}, by default "
    f"{METADATA_VERSION_NAMES[LATEST_METADATA_VERSION]}.",
)
@click.option("--feature", "-f", multiple=True, help="A feature's level, as feature=level.")
@click.option("--standalone", "-s", is_flag=True, help="Create a dynamic quorum of this node only.")
@click.option(
    "--no-initial-controllers", "-N", is_flag=True, help="Join an existing dynamic quorum."
)
@click.option(
    "--initial-controllers",
    "-I",
    help="Create a dynamic quorum of these nodes: id@host:port:directory-id, comma-separated.",
)
def format_command(  # noqa: PLR0917 - click passes options by name
    config: str,
    cluster_id: str | None,
    add_scram: tuple[str, ...],
    ignore_formatted: bool,
    release_version: str | None,
    feature: tuple[str, ...],
    standalone: bool,
    no_initial_controllers: bool,
    initial_controllers: str | None,
) -> None:
    """Format the node's log directories."""
    if not ignore_formatted:
        need(cluster_id, "--cluster-id/-t")
    need(config, "--config/-c")
    exclude_together("standalone", "no_initial_controllers", "initial_controllers")
    broker_config = _load(config)
    try:
        request = FormatRequest(
            cluster_id=cluster_id,
            metadata_version=_metadata_version(release_version),
            is_release_given=release_version is not None,
            feature_levels=dict(parse_level(text) for text in feature),
            standalone=standalone,
            no_initial_controllers=no_initial_controllers,
            initial_controllers=_parse_controllers(initial_controllers, broker_config),
            ignore_formatted=ignore_formatted,
            scram_credentials=tuple(
                parse_scram_argument(argument, os.urandom) for argument in add_scram
            ),
        )
        format_directories(broker_config, request, real_environment(broker_config))
    except (FormatError, ToolError, ValueError, CorruptMessage, OSError) as error:
        fail(str(error))


@storage.command("version-mapping", help="Show the feature levels of a release.")
@click.option("--release-version", "-r", help="The release; the latest by default.")
@json_option
def version_mapping(release_version: str | None) -> None:
    """Show the feature levels of a release."""
    print_release_levels(release_version)


@storage.command("feature-dependencies", help="Show the dependencies of feature levels.")
@click.option("--feature", "-f", multiple=True, help="REQUIRED. A level, as feature=level.")
def feature_dependencies(feature: tuple[str, ...]) -> None:
    """Show the dependencies of feature levels."""
    need(feature or None, "--feature/-f")
    for text in feature:
        name, equals, version = text.partition("=")
        if not equals:
            fail(
                f"Invalid feature format: {text}. Expected format: 'feature=version' (e.g. "
                "'group.version=1')"
            )
        try:
            level = java_integer(version, SHORT_BITS)
        except ValueError:
            fail(f"Invalid version format: {version} for feature {name}")
        supported = SUPPORTED_FEATURES.get(name)
        if supported is None:
            fail(f"Unknown feature: {name}")
        if level not in supported:
            if name == METADATA_VERSION:
                fail(f"Unknown metadata.version {level}")
            fail(f"Feature level {level} is not supported for feature {name}")
        shown = f"{name}={level}"
        if name == METADATA_VERSION:
            shown += f" ({metadata_version_name(level)})"
        needed = METADATA_VERSIONS_NEEDED.get((name, level))
        if needed is None:
            click.echo(f"{shown} has no dependencies.")
        else:
            click.echo(f"{shown} requires:")
            click.echo(f"    metadata.version={needed} ({metadata_version_name(needed)})")


@storage.command("random-uuid", help="Print a random id for a cluster or a directory.")
def random_uuid() -> None:
    """Print a random id."""
    click.echo(str(draw_uuid()))


def real_environment(config: BrokerConfig, *, quiet: bool = False) -> FormatTarget:
    """Return the real directories, clock and random ids for formatting; quiet prints nothing."""
    return FormatTarget(
        directories={path: RealDirectory(path) for path in _paths(config)},
        new_uuid=draw_uuid,
        now_ms=time.time_ns() // 1_000_000,
        date=time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime()),
        echo=(lambda _line: None) if quiet else click.echo,
        make_directory=make_directory,
    )


def _paths(config: BrokerConfig) -> list[str]:
    return list(dict.fromkeys([*config.data_directories, config.metadata_directory]))


def _load(path: str) -> BrokerConfig:
    """Load the configuration that the node would start with, including the environment."""
    try:
        return load_broker_config(path)
    except OSError as error:
        fail(f"Error loading {path}: {error.strerror}")
    except ValueError as error:
        fail(f"Error loading {path}: {error}")


def _metadata_version(text: str | None) -> int:
    try:
        return LATEST_METADATA_VERSION if text is None else parse_metadata_version(text)
    except ValueError:
        names = ", ".join(METADATA_VERSION_NAMES.values())
        raise ValueError(
            f"Unknown metadata.version '{text}'. Supported metadata.version are: {names}"
        ) from None


def _parse_controllers(text: str | None, config: BrokerConfig) -> tuple[Voter, ...]:
    if text is None:
        return ()
    return parse_dynamic_voters(text, config.controller_listener_names[0].upper())


def _read_identity(path: str, metas: list[MetaProperties], problems: list[str]) -> None:
    try:
        meta = read_meta_properties(RealDirectory(path))
    except CorruptMessage as error:
        problems.append(f"{path}: {error}")
        return
    if meta is None:
        problems.append(f"{path} is not formatted.")
    else:
        metas.append(meta)


def _describe(meta: MetaProperties) -> str:
    is_named = meta.directory_id is not None
    directory = f"directory.id={meta.directory_id}, " if is_named else ""
    return (
        f"{{cluster.id={meta.cluster_id}, {directory}node.id={meta.node_id}, "
        f"version={meta.version}}}"
    )


def _section(title: str, lines: list[str], one: str, many: str) -> None:
    if lines:
        click.echo(title + (one if len(lines) == 1 else many))
        for line in lines:
            click.echo(f"  {line}")
        click.echo()


def parse_dynamic_voters(text: str, listener: str) -> tuple[Voter, ...]:
    """Parse a list of voters on one listener; ValueError with Kafka's text."""
    voters: dict[int, Voter] = {}
    for part in text.strip().split(","):
        if not part:
            continue
        voter = _parse(part.strip(), listener)
        if voter.voter_id in voters:
            raise ValueError(f"Node id {voter.voter_id} was specified more than once.")
        voters[voter.voter_id] = voter
    if not voters:
        raise ValueError("No voters given.")
    return tuple(voters[node_id] for node_id in sorted(voters))


def _parse(text: str, listener: str) -> Voter:
    node, at, address = text.partition("@")
    if not at:
        raise ValueError("No @ found in dynamic voter string.")
    if not node:
        raise ValueError("Invalid @ at beginning of dynamic voter string.")
    node_id = _integer(node, "node id")
    if node_id < 0:
        raise ValueError(f"Invalid negative node id {node_id} in dynamic voter string.")
    if not address:
        raise ValueError("No hostname found after node id.")
    host, rest = _split_host(address)
    if not rest.startswith(":"):
        raise ValueError("Port section must start with a colon.")
    port_text, colon, directory = rest[1:].partition(":")
    if not colon:
        raise ValueError("No colon following port could be found.")
    port = _integer(port_text, "port")
    if not 0 <= port <= MAX_PORT:
        raise ValueError(f"Invalid port {port} in dynamic voter string.")
    try:
        directory_id = Uuid.parse(directory)
    except ValueError as error:
        raise ValueError("Failed to parse directory ID in dynamic voter string.") from error
    return Voter(node_id, directory_id, (VoterAddress(listener, _java_host(host), port),))


def _split_host(address: str) -> tuple[str, str]:
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket:
            text = "Hostname began with left bracket, but no right bracket was found."
            raise ValueError(text)
        return host, rest
    host, colon, rest = address.partition(":")
    if not colon:
        raise ValueError("No colon following hostname could be found.")
    return host, colon + rest


def _integer(text: str, name: str) -> int:
    try:
        return java_integer(text, INT_BITS)
    except ValueError as error:
        raise ValueError(f"Failed to parse {name} in dynamic voter string.") from error


def _java_host(host: str) -> str:
    """Return a host as Java's InetSocketAddress names it."""
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host or "localhost"
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))
