"""`ottla cluster`: print the cluster's id and endpoints; unregister brokers.

Kafka: bin/kafka-cluster.sh, org.apache.kafka.tools.ClusterTool.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.cli.options.argparse4j import INTEGER, ToolGroup, need
from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import command_config_file, json_option, print_json, wants_json
from ottla.cli.output.failures import fail, failures_reported
from ottla.errors import ErrorCode, KafkaError
from ottla.views.health import examine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.clients.admin.cluster import ClusterDescription
    from ottla.clients.blocking import Admin
    from ottla.views.health import ClusterHealth

F = TypeVar("F", bound="Callable[..., Any]")

EXAMPLES = """
\b
Examples:
  ottla cluster cluster-id --bootstrap-server localhost:9092
  ottla cluster health --bootstrap-server localhost:9092
  ottla cluster list-endpoints --bootstrap-server localhost:9092 --include-fenced-brokers
  ottla cluster list-endpoints --bootstrap-controller localhost:9093
  ottla cluster unregister --bootstrap-server localhost:9092 --id 3
"""
_MAX_NAMES = 8
_WIDTH = 36


def _places(function: F) -> F:
    """Add the connection options of each subcommand."""
    for option in (
        click.option("--command-config", "-c", metavar="FILE", help="Settings of the client."),
        click.option("--config", metavar="FILE", hidden=True),
        click.option("--bootstrap-controller", "-C", metavar="HOST:PORT,…", help="Controllers."),
        click.option("--bootstrap-server", "-b", metavar="HOST:PORT,…", help="Brokers."),
    ):
        function = option(function)
    return function


@click.group("cluster", cls=ToolGroup, epilog=EXAMPLES)
def cluster() -> None:
    """Show the cluster's health, id and endpoints, and unregister brokers."""


def _run(options: dict[str, Any], action: Callable[[Admin], None]) -> None:
    servers = [options["bootstrap_server"], options["bootstrap_controller"]]
    if not any(servers):
        raise click.UsageError(
            "one of the arguments --bootstrap-server/-b --bootstrap-controller/-C is required"
        )
    if all(servers):
        raise click.UsageError(
            "argument --bootstrap-controller/-C: not allowed with argument --bootstrap-server/-b"
        )
    with (
        failures_reported(),
        open_admin(
            options["bootstrap_server"] or "",
            command_config_file(options, "config"),
            bootstrap_controller=options["bootstrap_controller"],
        ) as admin,
    ):
        action(admin)


@cluster.command("cluster-id")
@_places
@json_option
def cluster_id(**options: Any) -> None:
    """Print the id of the cluster."""

    def show(admin: Admin) -> None:
        found = admin.describe_cluster().cluster_id
        if wants_json():
            print_json({"cluster_id": found})
        elif found:
            click.echo(f"Cluster ID: {found}")
        else:
            click.echo("No cluster ID found. The Kafka version is probably too old.")

    _run(options, show)


@cluster.command("health")
@_places
@json_option
def health(**options: Any) -> None:
    """Show what is wrong with the cluster; exit status 1 when anything is."""

    def show(admin: Admin) -> None:
        found = examine(admin)
        if wants_json():
            print_json(found.document())
        else:
            click.echo("\n".join(health_lines(found)))
        if not found.is_healthy:
            sys.exit(1)

    _run(options, show)


@cluster.command("unregister")
@_places
@click.option("--id", "-i", "broker_id", type=INTEGER, metavar="ID", help="REQUIRED. The broker.")
def unregister(broker_id: int | None, **options: Any) -> None:
    """Unregister a broker that was removed permanently."""
    removed = need(broker_id, "--id/-i")

    def remove(admin: Admin) -> None:
        try:
            admin.unregister_broker(removed)
            click.echo(f"Broker {removed} is no longer registered.")
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            click.echo("The target cluster does not support the broker unregistration API.")

    _run(options, remove)


@cluster.command("list-endpoints")
@_places
@json_option
@click.option("--include-fenced-brokers", is_flag=True, help="Also brokers that are fenced.")
def list_endpoints(*, include_fenced_brokers: bool, **options: Any) -> None:
    """List brokers, or with --bootstrap-controller the controllers."""
    of_controllers = options["bootstrap_controller"] is not None
    if of_controllers and include_fenced_brokers:
        fail("The option --include-fenced-brokers is only supported with --bootstrap-server option")

    def show(admin: Admin) -> None:
        found = admin.describe_cluster(include_fenced_brokers=include_fenced_brokers)
        if wants_json():
            print_json(_endpoints(found, of_controllers=of_controllers))
            return
        for line in endpoint_lines(found, of_controllers=of_controllers):
            click.echo(line)

    _run(options, show)


def _endpoints(found: ClusterDescription, *, of_controllers: bool) -> list[dict[str, object]]:
    kind = "controller" if of_controllers else "broker"
    nodes = []
    for node in found.brokers:
        shown = {"id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
        state = {} if of_controllers else {"fenced": node.node_id in found.fenced}
        nodes.append({**shown, **state, "endpoint_type": kind})
    return nodes


def endpoint_lines(found: ClusterDescription, *, of_controllers: bool) -> Sequence[str]:
    """Return the table of nodes; only brokers have a state."""
    width = max([9, *(len(node.host) for node in found.brokers)])
    kind = "controller" if of_controllers else "broker"
    state = "" if of_controllers else f"{'STATE':<10} "
    lines = [f"{'ID':<10} {'HOST':<{width}} {'PORT':<10} {'RACK':<10} {state}{'ENDPOINT_TYPE':<15}"]
    for node in found.brokers:
        fenced = "fenced" if node.node_id in found.fenced else "unfenced"
        state = "" if of_controllers else f"{fenced:<10} "
        lines.append(
            f"{node.node_id:<10} {node.host:<{width}} {node.port:<10} "
            f"{'null' if node.rack is None else node.rack:<10} {state}{kind:<15}"
        )
    return lines


def health_lines(health: ClusterHealth) -> list[str]:
    """Return the screen; long lists are shortened."""
    controller = "none"
    if health.active_controller >= 0:
        controller = f"{health.active_controller} (epoch {health.controller_epoch})"
    rows: list[tuple[str, object]] = [
        ("Healthy", "yes" if health.is_healthy else "no"),
        ("Cluster id", health.cluster_id),
        ("Active controller", controller),
        ("Controllers", _names(health.controllers)),
        ("Controllers behind the active one", _names(health.controllers_behind)),
        ("Brokers", _names(health.brokers)),
        ("Brokers down (fenced)", _names(health.brokers_down)),
        ("Offline log directories", _names(health.offline_log_directories)),
        ("Log directories without space", _names(health.full_log_directories)),
        ("Topics, partitions", f"{health.topics}, {health.partitions}"),
    ]
    for title, names in (
        ("Leaderless partitions", health.leaderless_partitions),
        ("Below min.insync.replicas", health.under_min_isr_partitions),
        ("Under-replicated partitions", health.under_replicated_partitions),
    ):
        rows.append((f"{title} ({len(names)})", _names(names)))
    return [f"{title + ':':<{_WIDTH}}{value}" for title, value in rows]


def _names(names: Iterable[object]) -> str:
    shown = [str(name) for name in names]
    rest = len(shown) - _MAX_NAMES
    more = [f"and {rest} more"] if rest > 0 else []
    return ", ".join([*shown[:_MAX_NAMES], *more]) or "-"
