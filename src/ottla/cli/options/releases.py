"""Releases and the feature levels that belong to them.

Kafka: org.apache.kafka.server.common.{MetadataVersion, Feature}.
"""

from __future__ import annotations

import click

from ottla.cli.options.flags import print_json, wants_json
from ottla.cli.options.joptsimple import java_integer
from ottla.cli.output.failures import ToolError, fail
from ottla.metadata.features import (
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    SUPPORTED_FEATURES,
    default_levels,
)

# Kafka 4.3's tool also lists the next metadata.version, which no 4.3 node supports.
KNOWN_METADATA_VERSIONS = {**METADATA_VERSION_NAMES, LATEST_METADATA_VERSION + 1: "4.4-IV0"}
SHORT_BITS = 16
KRAFT_VERSION_1_SINCE = 21
# The order in which Kafka's tool lists a release's features.
_MAPPED = (
    KRAFT_VERSION,
    "transaction.version",
    "group.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
)


def parse_release(text: str) -> int:
    """Parse `4.3-IV0`, `4.3` or `4.3.0` to a metadata.version; raises ToolError."""
    release = ".".join(text.split(".")[:2])
    found = [level for level, name in KNOWN_METADATA_VERSIONS.items() if name == text]
    found = found or [
        level for level, name in METADATA_VERSION_NAMES.items() if name.startswith(f"{release}-IV")
    ]
    if not found:
        names = ", ".join(KNOWN_METADATA_VERSIONS.values())
        raise ToolError(
            f"Unknown metadata.version '{text}'. Supported metadata.version are: {names}"
        )
    return found[-1]


def release_levels(metadata_version: int) -> dict[str, int]:
    """Return the level of each feature in a new cluster of a metadata.version."""
    levels = dict.fromkeys(SUPPORTED_FEATURES, 0) | default_levels(metadata_version)
    levels[KRAFT_VERSION] = int(metadata_version >= KRAFT_VERSION_1_SINCE)
    return levels


def print_release_levels(release: str | None) -> None:
    """Print the feature levels of a release, by default the latest; ends the tool if unknown."""
    text = release or METADATA_VERSION_NAMES[LATEST_METADATA_VERSION]
    try:
        metadata_version = parse_release(text)
    except ToolError as error:
        fail(str(error))
    levels = release_levels(metadata_version)
    mapped = {name: levels[name] for name in _MAPPED}
    if wants_json():
        print_json({"release": text, METADATA_VERSION: metadata_version, **mapped})
        return
    click.echo(f"{METADATA_VERSION}={metadata_version} ({text})")
    for name, level in mapped.items():
        click.echo(f"{name}={level}")


def parse_level(text: str) -> tuple[str, int]:
    """Parse name=level; raises ToolError with Kafka's text."""
    name, separator, level = text.partition("=")
    if not separator:
        raise ToolError(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        return name.strip(), java_integer(level.strip(), SHORT_BITS)
    except ValueError as error:
        raise ToolError(
            f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short."
        ) from error
