"""`ottla migrate`: plan the rolling migration of a running Kafka cluster to Ottla, and back.

Kafka: none.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.options.connection import SettingsFileError, open_admin
from ottla.cli.options.flags import json_option, place_options, print_json, wants_json
from ottla.cli.options.node_config import read_properties_text, read_text
from ottla.cli.output.failures import failure_text
from ottla.errors import ConfigError, CorruptMessage, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ottla.config.environment import EnvironmentSettings
    from ottla.config.problems import ConfigProblem
    from ottla.views.migration import ClusterFacts, DirectoryFacts, DynamicFacts, NodeFacts
    from ottla.views.migration_plan import MigrationPlan

EXAMPLES = """
\b
Examples:
  ottla migrate plan --bootstrap-server localhost:9092 --properties server-1.properties \\
      --properties server-2.properties
  ottla migrate plan --properties /etc/kafka/server.properties
\b
Exit codes: 0 ready, 1 obstacles were found, 2 no plan could be made.
"""
_NO_PLAN: Final = 2
"""The exit code where no plan could be made."""


class _NoPlan(click.ClickException):
    exit_code = _NO_PLAN


class _PlanCommand(click.Command):
    """A command whose errors of usage end with status 2: 1 says that obstacles were found."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the arguments."""
        try:
            return super().make_context(*args, **extra)
        except click.UsageError as error:
            error.show()
            sys.exit(_NO_PLAN)


@click.group("migrate", epilog=EXAMPLES)
def migrate() -> None:
    """Plan the migration of a running Kafka cluster to Ottla, and back."""


@migrate.command("plan", cls=_PlanCommand, epilog=EXAMPLES)
@place_options
@click.option(
    "--properties",
    "files",
    metavar="FILE",
    multiple=True,
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="REQUIRED. A node's server.properties; may be repeated.",
)
@json_option
def plan(
    bootstrap_server: str | None, command_config: str | None, *, files: tuple[str, ...]
) -> None:
    """Print what will be done, what prevents it, and the way back; change nothing.

    Reads a running cluster and the properties file of each node, and the log directories that are
    on this machine. Without --bootstrap-server, files and directories alone.
    """
    from ottla.server.node.settings import node_environment
    from ottla.views.migration import read_cluster
    from ottla.views.migration_plan import make_plan, plan_document

    environment = node_environment(os.environ, read_text)
    cluster = None
    try:
        if bootstrap_server is not None:
            with open_admin(bootstrap_server, command_config) as admin:
                cluster = read_cluster(admin, int(time.time() * 1000))
        dynamic = {} if cluster is None else cluster.dynamic
        nodes = [_node(file, environment, dynamic) for file in files]
    except (ConfigError, KafkaError) as error:
        raise _NoPlan(failure_text(error)) from error
    except (OSError, ValueError, SettingsFileError) as error:
        raise _NoPlan(str(error)) from error
    made = make_plan(cluster, nodes, command_config)
    if wants_json():
        print_json(plan_document(made, cluster, nodes))
    else:
        click.echo("\n".join(plan_lines(made, cluster)))
    sys.exit(0 if made.is_ready else 1)


def _node(
    file: str,
    environment: EnvironmentSettings,
    dynamic: Mapping[int, Mapping[str, str | None]],
) -> NodeFacts:
    """Read a node's file as `ottla server-start` does; raises OSError, PropertiesError."""
    from ottla.config.broker.unsupported import removed_setting
    from ottla.config.own import OwnSettings
    from ottla.config.problems import ConfigErrors
    from ottla.server.node.plugins import kafka_unloadable
    from ottla.server.node.settings import ConfigFile, gather, node_settings, texts
    from ottla.views.migration import NodeFacts

    source = ConfigFile(file, read_properties_text(file))
    given = texts(gather(source, {}, environment=environment)[0])
    problems: tuple[ConfigProblem, ...] = ()
    warnings: tuple[str, ...] = ()
    python_classes: tuple[str, ...] = ()
    try:
        settings = node_settings(source, {}, environment=environment)
        warnings, python_classes = settings.warnings, tuple(kafka_unloadable(settings.config))
    except ConfigErrors as error:
        problems = error.problems
        warnings = tuple(filter(None, map(removed_setting, given)))
    number = given.get("node.id", given.get("broker.id", ""))
    node_id = int(number) if number.isdecimal() else -1
    paths = list(dict.fromkeys(_directories(given)))
    return NodeFacts(
        file,
        node_id,
        tuple(_words(given.get("process.roles", ""))),
        problems,
        warnings,
        tuple(sorted(OwnSettings.keys.keys() & given.keys())),
        python_classes,
        tuple(_directory(path) for path in paths if Path(path).is_dir()),
        tuple(path for path in paths if not Path(path).is_dir()),
        _dynamic(given, dynamic.get(node_id, {})),
    )


def _dynamic(
    given: Mapping[str, str], stored: Mapping[str, str | None]
) -> tuple[DynamicFacts, ...]:
    """Return the node's settings in the metadata, each with its problem over the file's values."""
    from ottla.config.broker import parse_broker_config
    from ottla.config.broker.unsupported import unsupported_settings
    from ottla.config.problems import ConfigErrors
    from ottla.server.node.plugins import plugin_problems
    from ottla.views.migration import DynamicFacts

    # a secret's name is checked all the same
    texts = {name: "hidden" if value is None else value for name, value in stored.items()}
    merged = {**given, **texts}
    found: Iterable[ConfigProblem]
    try:
        config = parse_broker_config(merged)
        found = [*config.unknown_settings, *unsupported_settings(config), *plugin_problems(config)]
    except ConfigErrors as error:
        found = error.problems
    problems = {problem.name: problem.message for problem in found}
    return tuple(
        DynamicFacts(name, value, given.get(name), problems.get(name))
        for name, value in sorted(stored.items())
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _directories(given: Mapping[str, str]) -> Sequence[str]:
    """Return the log directories of settings that may be invalid otherwise."""
    from ottla.config.broker import BrokerConfig

    default = ",".join(BrokerConfig.keys["log.dir"].default)
    logs = given.get("log.dirs") or given.get("log.dir") or default
    return [*_words(logs), *_words(given.get("metadata.log.dir", ""))]


def _directory(path: str) -> DirectoryFacts:
    """Read a directory's meta.properties and the space of its file system."""
    from ottla.server.node.format import read_meta_properties
    from ottla.server.system.files import RealDirectory
    from ottla.views.migration import DirectoryFacts

    try:
        found = read_meta_properties(RealDirectory(path))
        space = shutil.disk_usage(path)
    except (OSError, CorruptMessage) as error:
        return DirectoryFacts(path, problem=str(error))
    if found is None:
        return DirectoryFacts(path, problem="it has no meta.properties: it is not formatted")
    return DirectoryFacts(path, found.cluster_id, found.node_id, None, space.total, space.free)


def plan_lines(made: MigrationPlan, cluster: ClusterFacts | None) -> Iterator[str]:
    """Yield the screen: facts, findings, the steps, the way back, the result."""
    from ottla.views.migration_plan import Impact

    if cluster is not None:
        yield from _fact_lines(cluster)
        yield ""
    yield f"Findings ({len(made.findings)}):"
    yield from (f"  {finding}" for finding in made.findings)
    yield from ("", "Before each step, this must print `Healthy: yes`:", f"  {made.before}")
    for title, steps in (
        ("Steps, one node at a time, each on the node's machine:", made.steps),
        ("The way back, at any point, for the nodes that run Ottla:", made.way_back),
    ):
        yield from ("", title)
        for number, step in enumerate(steps, 1):
            active = ", active controller" if step.is_active_controller else ""
            yield f"{number}. node {step.node} ({','.join(step.roles)}{active})"
            yield from (f"  {command}" for command in (step.stop, step.start, step.in_sync))
    obstacles = sum(finding.impact is Impact.OBSTACLE for finding in made.findings)
    yield ""
    yield "Ready: no obstacle was found." if made.is_ready else f"Not ready: {obstacles} obstacles."


def _fact_lines(cluster: ClusterFacts) -> Iterator[str]:
    from ottla.metadata.features import METADATA_VERSION
    from ottla.views.migration_plan import level_name, release_of

    health, brokers = cluster.health, cluster.brokers
    releases = sorted({release_of(one.metadata_version) for one in brokers.values()})
    finalized = cluster.finalized.get(METADATA_VERSION)
    level = "unknown" if finalized is None else level_name(finalized.highest)
    groups = ", ".join(f"{count} {kind}" for kind, count in sorted(cluster.groups.items()))
    rows = (
        ("Cluster id", health.cluster_id),
        ("Brokers", ", ".join(map(str, sorted(brokers)))),
        ("Software", f"APIs of Kafka {', '.join(releases)}"),
        ("Controllers", ", ".join(map(str, health.controllers))),
        ("Active controller", str(health.active_controller)),
        ("metadata.version", level),
        ("Topics, partitions", f"{health.topics}, {health.partitions}"),
        ("Groups", groups or "none"),
        ("Open transactions", str(cluster.open_transactions)),
        ("Reassignments", str(len(cluster.reassignments))),
        ("ACLs, quotas, SCRAM users", f"{cluster.acls}, {cluster.quotas}, {cluster.scram_users}"),
    )
    yield from (f"{title + ':':<27}{value}" for title, value in rows)
