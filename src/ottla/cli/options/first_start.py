"""`server-start --format`: formats log directories that are empty, as container images of Kafka do.

Kafka: docker/launch, which runs kafka-storage format --ignore-formatted before every start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig


def format_empty(config: BrokerConfig, cluster_id: str | None) -> None:
    """Format unformatted directories; the default id is that of other directories, or a random one.

    A controller becomes a quorum of its own only where its settings name no other: one of several
    needs the voters (`storage format --initial-controllers`).
    Raises ClickException: a new controller of several, a directory of another cluster or node, or
    a disk that fails.
    """
    from ottla.cli.commands.storage import real_environment
    from ottla.errors import CorruptMessage
    from ottla.server.node.format import FormatError, FormatRequest, format_directories

    is_dynamic = config.is_controller and not config.voters
    try:
        target = real_environment(config, quiet=True)
        if is_dynamic and config.has_other_controllers:
            _check_formatted(config)
        request = FormatRequest(
            cluster_id=cluster_id or _known_id(config) or str(target.new_uuid()),
            standalone=is_dynamic and not config.has_other_controllers,
            no_initial_controllers=is_dynamic and config.has_other_controllers,
            ignore_formatted=True,
        )
        format_directories(config, request, target)
    except OSError as error:
        text = f"cannot format {error.filename or config.metadata_directory}: {error.strerror}"
        raise click.ClickException(f"{text}; give this user a directory to write to") from error
    except (FormatError, CorruptMessage, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _check_formatted(config: BrokerConfig) -> None:
    """Refuse a controller without its metadata directory: alone it would be another quorum."""
    from ottla.server.node.format import read_meta_properties
    from ottla.server.node.identity import format_command
    from ottla.server.system.files import RealDirectory

    if read_meta_properties(RealDirectory(config.metadata_directory)) is None:
        raise click.ClickException(
            f"{config.metadata_directory} is not formatted, and --format makes no quorum of "
            f"several controllers: {format_command(config)}"
        )


def _known_id(config: BrokerConfig) -> str | None:
    from ottla.server.node.format import read_meta_properties
    from ottla.server.system.files import RealDirectory

    for path in (*config.data_directories, config.metadata_directory):
        meta = read_meta_properties(RealDirectory(path))
        if meta is not None:
            return meta.cluster_id
    return None


def obstacles(config: BrokerConfig, *, may_format: bool) -> list[str]:
    """Return the problems with which a valid configuration cannot start on this machine now.

    The node itself may run already: its ports are then taken by it.
    """
    from ottla.errors import CorruptMessage
    from ottla.server.node.format import read_meta_properties
    from ottla.server.node.identity import format_command
    from ottla.server.node.listeners import BoundPorts
    from ottla.server.system.files import RealDirectory
    from ottla.server.system.ports import PortTaken
    from ottla.server.system.real import RealEnvironment

    found = []
    for path in dict.fromkeys((*config.data_directories, config.metadata_directory)):
        try:
            if read_meta_properties(RealDirectory(path)) is None and not may_format:
                found.append(f"{path} is not formatted: {format_command(config)}")
        except (OSError, CorruptMessage) as error:
            found.append(f"{path} cannot be used: {error}")
    try:
        BoundPorts(config, RealEnvironment()).close()
    except PortTaken as error:
        found.append(error.reason)
    return found
