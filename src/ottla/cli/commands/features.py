"""`ottla features`: describe, upgrade, downgrade and disable the features of a cluster.

Kafka: bin/kafka-features.sh, org.apache.kafka.tools.FeatureCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ottla.cli.options.argparse4j import INTEGER, ToolGroup
from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import (
    controller_option,
    json_option,
    place_options,
    print_json,
    wants_json,
)
from ottla.cli.options.releases import (
    KNOWN_METADATA_VERSIONS,
    parse_level,
    parse_release,
    print_release_levels,
    release_levels,
)
from ottla.cli.output.failures import ToolError, fail, failures_reported
from ottla.errors import KafkaError
from ottla.metadata.features import (
    METADATA_VERSION,
    METADATA_VERSIONS_NEEDED,
    SUPPORTED_FEATURES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.clients.admin.cluster import Features

F = TypeVar("F", bound="Callable[..., Any]")

EXAMPLES = """
\b
Examples:
  ottla features --bootstrap-server localhost:9092 describe
  ottla features --bootstrap-server localhost:9092 describe --node-id 2
  ottla features --bootstrap-server localhost:9092 upgrade --release-version 4.3
  ottla features --bootstrap-server localhost:9092 downgrade --feature group.version=0 --dry-run
  ottla features --bootstrap-server localhost:9092 disable --feature group.version --dry-run
  ottla features version-mapping --release-version 4.1
  ottla features feature-dependencies --feature eligible.leader.replicas.version=1
"""


class FeatureOperation(NamedTuple):
    """A kind of level change: its request and its messages."""

    word: str
    done: str
    upgrade_type: int


UPGRADE = FeatureOperation("upgrade", "upgraded", 1)
DOWNGRADE = FeatureOperation("downgrade", "downgraded", 2)
DISABLE = FeatureOperation("disable", "disabled", 2)
UNSAFE_TYPE = 3


@click.group("features", cls=ToolGroup, epilog=EXAMPLES)
@place_options
@controller_option
def features(**options: Any) -> None:
    """Describe and change the features of a cluster."""
    click.get_current_context().obj = options


def _connection() -> dict[str, Any]:
    """Return the flags before the subcommand; ends the tool where they name no server."""
    options: dict[str, Any] = click.get_current_context().obj
    if not options["bootstrap_server"] and not options["bootstrap_controller"]:
        fail(
            "Command line error: You must specify either --bootstrap-controller or "
            "--bootstrap-server.. Type --help for help."
        )
    return options


def _run(action: Callable[[Any], None]) -> None:
    options = _connection()
    with (
        failures_reported(),
        open_admin(
            options["bootstrap_server"] or "",
            options["command_config"],
            bootstrap_controller=options["bootstrap_controller"],
        ) as admin,
    ):
        action(admin)


# ---------------------------------------------------------------- describe


@features.command()
@click.option(
    "--node-id", type=INTEGER, metavar="ID", help="The node to query; by default any node."
)
@json_option
def describe(node_id: int | None) -> None:
    """Show supported and finalized levels."""

    def show(admin: Any) -> None:
        found = admin.describe_features(node_id)
        if wants_json():
            print_json(_document(found))
            return
        for line in feature_lines(found):
            click.echo(line)

    _run(show)


def _document(found: Features) -> dict[str, object]:
    shown = [
        {
            "feature": name,
            "lowest_supported": supported.lowest,
            "highest_supported": supported.highest,
            "finalized": found.finalized[name].highest if name in found.finalized else 0,
        }
        for name, supported in sorted(found.supported.items())
    ]
    return {"epoch": found.epoch, "features": shown}


def feature_lines(found: Features) -> list[str]:
    """Return one line per feature, sorted by name."""
    epoch = "-" if found.epoch is None else str(found.epoch)
    lines = []
    for name, supported in sorted(found.supported.items()):
        level = found.finalized[name].highest if name in found.finalized else 0
        lines.append(
            f"Feature: {name:<42}SupportedMinVersion: {_level(name, supported.lowest):<17}"
            f"SupportedMaxVersion: {_level(name, supported.highest):<17}"
            f"FinalizedVersionLevel: {_level(name, level):<17}Epoch: {epoch}"
        )
    return lines


def _level(name: str, level: int) -> str:
    if name != METADATA_VERSION:
        return str(level)
    return KNOWN_METADATA_VERSIONS.get(level, f"UNKNOWN [{level}]")


# ---------------------------------------------------------------- change


def _feature_option(function: F) -> F:
    return click.option(
        "--feature", multiple=True, metavar="NAME=LEVEL", help="A feature's level."
    )(function)


def _dry_run_option(function: F) -> F:
    return click.option("--dry-run", is_flag=True, help="Only validate the change.")(function)


def _unsafe_option(function: F) -> F:
    return click.option("--unsafe", is_flag=True, help="Downgrade even if metadata is lost.")(
        function
    )


def _release_options(function: F) -> F:
    release = click.option("--release-version", metavar="RELEASE", help="All levels of a release.")
    return release(click.option("--metadata", metavar="RELEASE", hidden=True)(function))


@features.command()
@_release_options
@_feature_option
@_dry_run_option
def upgrade(**options: Any) -> None:
    """Raise the levels of features."""
    _change(UPGRADE, options)


@features.command()
@_release_options
@_feature_option
@_unsafe_option
@_dry_run_option
def downgrade(**options: Any) -> None:
    """Lower the levels of features."""
    _change(DOWNGRADE, options)


@features.command()
@click.option("--feature", multiple=True, metavar="NAME", help="A feature to disable.")
@_unsafe_option
@_dry_run_option
def disable(**options: Any) -> None:
    """Lower features to level 0."""
    _connection()
    if not options["feature"]:
        fail("You must specify at least one feature to disable")
    _send(DISABLE, dict.fromkeys(options["feature"], 0), options)


def _change(operation: FeatureOperation, options: dict[str, Any]) -> None:
    _connection()
    try:
        levels = _requested_levels(operation, options)
    except ToolError as error:
        fail(str(error))
    _send(operation, levels, options)


def _requested_levels(operation: FeatureOperation, options: dict[str, Any]) -> dict[str, int]:
    levels: dict[str, int] = {}
    if options["release_version"] is not None:
        if options["feature"] or options["metadata"] is not None:
            raise ToolError("Can not specify `release-version` with other feature flags.")
        levels = release_levels(parse_release(options["release_version"]))
    if options["metadata"] is not None:
        click.echo(" `metadata` flag is deprecated and may be removed in a future release.")
        levels[METADATA_VERSION] = parse_release(options["metadata"])
    levels.update(parse_level(text) for text in options["feature"])
    if not levels:
        raise ToolError(f"You must specify at least one feature to {operation.word}")
    if options["release_version"] is None and operation is UPGRADE:
        for level in levels.values():
            if level < 0:
                raise ToolError("Cannot specify a negative version level.")
            if level < 1:
                raise ToolError(
                    "The upgradeType flag should be set to SAFE_DOWNGRADE or UNSAFE_DOWNGRADE "
                    f"when the provided maxVersionLevel:{level} is < 1."
                )
    return levels


def _send(operation: FeatureOperation, levels: dict[str, int], options: dict[str, Any]) -> None:
    dry_run = options["dry_run"]
    upgrade_type = UNSAFE_TYPE if options.get("unsafe") else operation.upgrade_type

    def change(admin: Any) -> None:
        failure: KafkaError | None = None
        try:
            admin.update_features(levels, upgrade_type=upgrade_type, validate_only=dry_run)
        except KafkaError as error:
            failure = error
        for name, level in sorted(levels.items()):
            to_level = "" if operation is DISABLE else f" to {level}"
            if failure is not None:
                could = "Can" if dry_run else "Could"
                click.echo(f"{could} not {operation.word} {name}{to_level}. {failure}")
            else:
                was = "can be" if dry_run else "was"
                click.echo(f"{name} {was} {operation.done}{to_level}.")
        if failure is not None:
            raise ToolError(f"{len(levels)} out of {len(levels)} operation(s) failed.")

    _run(change)


# ---------------------------------------------------------------- releases


@features.command("version-mapping")
@click.option("--release-version", metavar="RELEASE", help="The release; the latest by default.")
@json_option
def version_mapping(release_version: str | None) -> None:
    """Show the feature levels of a release."""
    print_release_levels(release_version)


@features.command("feature-dependencies")
@click.option("--feature", multiple=True, metavar="NAME=LEVEL", help="REQUIRED. The level.")
@json_option
def feature_dependencies(feature: Sequence[str]) -> None:
    """Show the levels of other features that a level requires."""
    if not feature:
        fail("Command line error: argument --feature is required. Type --help for help.")
    try:
        if wants_json():
            print_json([_dependencies(*parse_level(text)) for text in feature])
            return
        for text in feature:
            for line in _dependency_lines(*parse_level(text)):
                click.echo(line)
    except ToolError as error:
        fail(str(error))


def _needed(name: str, level: int) -> dict[str, int]:
    lowest = METADATA_VERSIONS_NEEDED.get((name, level))
    return {} if lowest is None else {METADATA_VERSION: lowest}


def _dependencies(name: str, level: int) -> dict[str, object]:
    _check_level(name, level)
    return {"feature": name, "level": level, "requires": _needed(name, level)}


def _dependency_lines(name: str, level: int) -> list[str]:
    _check_level(name, level)
    needed = _needed(name, level)
    if not needed:
        return [f"{_with_name(name, level)} has no dependencies."]
    lines = [f"{_with_name(name, level)} requires:"]
    return lines + [f"    {_with_name(other, least)}" for other, least in needed.items()]


def _check_level(name: str, level: int) -> None:
    if name == METADATA_VERSION:
        if level not in KNOWN_METADATA_VERSIONS:
            raise ToolError(f"Unknown metadata.version {level}")
    elif name not in SUPPORTED_FEATURES:
        raise ToolError(f"Unknown feature: {name}")
    elif level not in SUPPORTED_FEATURES[name]:
        raise ToolError(f"No feature:{name} with feature level {level}")


def _with_name(name: str, level: int) -> str:
    release = f" ({KNOWN_METADATA_VERSIONS[level]})" if name == METADATA_VERSION else ""
    return f"{name}={level}{release}"
