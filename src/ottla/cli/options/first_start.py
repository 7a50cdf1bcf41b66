"""`server-start --format`: formats log directories that are empty, as container images of Kafka do.

Kafka: docker/launch, which runs kafka-storage format --ignore-formatted before every start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig


def format_empty(config: BrokerConfig, cluster_id: str | None) -> None:
    """Format what is not; without an id, that of the other directories or a random one.

    Raises ClickException: a directory of another cluster or node, or a disk that fails.
    """
    from ottla.cli.commands.storage import real_environment
    from ottla.errors import CorruptMessage
    from ottla.metadata.features import UNBUILT_FEATURES
    from ottla.server.node.format import FormatError, FormatRequest, format_directories

    try:
        target = real_environment(config, quiet=True)
        request = FormatRequest(
            cluster_id=cluster_id or _known_id(config) or str(target.new_uuid()),
            standalone=not config.voters,
            feature_levels=dict.fromkeys(UNBUILT_FEATURES, 0),
            ignore_formatted=True,
        )
        format_directories(config, request, target)
    except OSError as error:
        text = f"cannot format {error.filename or config.metadata_directory}: {error.strerror}"
        raise click.ClickException(f"{text}; give this user a directory to write to") from error
    except (FormatError, CorruptMessage, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _known_id(config: BrokerConfig) -> str | None:
    from ottla.server.node.format import read_meta_properties
    from ottla.server.system.files import RealDirectory

    for path in (*config.data_directories, config.metadata_directory):
        meta = read_meta_properties(RealDirectory(path))
        if meta is not None:
            return meta.cluster_id
    return None
