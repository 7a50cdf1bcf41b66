"""`ottla cluster`: print the cluster's id and endpoints; unregister brokers.

Kafka: bin/kafka-cluster.sh, org.apache.kafka.tools.ClusterTool.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ottla.cli.options.argparse4j import INTEGER, ToolGroup, need
from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import command_config_file, json_option, print_json, wants_json
from ottla.cli.output.failures import fail, failures_reported
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.clients.admin.cluster import ClusterDescription
    from ottla.clients.admin.quorum import QuorumInfo
    from ottla.clients.admin.topics import PartitionDescription, TopicDescription
    from ottla.clients.blocking import Admin

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
_CAUGHT_UP_MS = 5_000
"""A controller whose log was behind the leader's for longer counts as behind."""
_MAX_NAMES = 8
_MIN_ISR = "min.insync.replicas"
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
            click.echo("\n".join(found.lines()))
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


class ClusterHealth(NamedTuple):
    """The state of a cluster; the lists name problems."""

    cluster_id: str
    active_controller: int
    controller_epoch: int
    controllers: list[int]
    controllers_behind: list[int]
    brokers: list[int]
    brokers_down: list[int]
    offline_log_directories: list[str]
    full_log_directories: list[str]
    topics: int
    partitions: int
    leaderless_partitions: list[str]
    under_min_isr_partitions: list[str]
    under_replicated_partitions: list[str]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong."""
        return self.active_controller >= 0 and not any(
            (
                self.controllers_behind,
                self.brokers_down,
                self.offline_log_directories,
                self.full_log_directories,
                self.leaderless_partitions,
                self.under_min_isr_partitions,
                self.under_replicated_partitions,
            )
        )

    def document(self) -> dict[str, object]:
        """Return the document of --json."""
        return {"healthy": self.is_healthy, **self._asdict()}

    def lines(self) -> list[str]:
        """Return the screen; long lists are shortened."""
        controller = "none"
        if self.active_controller >= 0:
            controller = f"{self.active_controller} (epoch {self.controller_epoch})"
        rows: list[tuple[str, object]] = [
            ("Healthy", "yes" if self.is_healthy else "no"),
            ("Cluster id", self.cluster_id),
            ("Active controller", controller),
            ("Controllers", _names(self.controllers)),
            ("Controllers behind the active one", _names(self.controllers_behind)),
            ("Brokers", _names(self.brokers)),
            ("Brokers down (fenced)", _names(self.brokers_down)),
            ("Offline log directories", _names(self.offline_log_directories)),
            ("Log directories without space", _names(self.full_log_directories)),
            ("Topics, partitions", f"{self.topics}, {self.partitions}"),
        ]
        for title, names in (
            ("Leaderless partitions", self.leaderless_partitions),
            ("Below min.insync.replicas", self.under_min_isr_partitions),
            ("Under-replicated partitions", self.under_replicated_partitions),
        ):
            rows.append((f"{title} ({len(names)})", _names(names)))
        return [f"{title + ':':<{_WIDTH}}{value}" for title, value in rows]


def _names(names: Iterable[object]) -> str:
    shown = [str(name) for name in names]
    rest = len(shown) - _MAX_NAMES
    more = [f"and {rest} more"] if rest > 0 else []
    return ", ".join([*shown[:_MAX_NAMES], *more]) or "-"


def examine(admin: Admin) -> ClusterHealth:
    """Query the cluster; raises KafkaError."""
    cluster = admin.describe_cluster(include_fenced_brokers=True)
    quorum = admin.describe_metadata_quorum()
    alive = [node.node_id for node in cluster.brokers if node.node_id not in cluster.fenced]
    topics = [
        topic for topic in admin.describe_topics().values() if not isinstance(topic, KafkaError)
    ]
    behind = _incomplete(topics)
    directories = [
        (f"{one.path} of broker {broker}", one)
        for broker, found in admin.describe_log_dirs(alive).items()
        for one in found
    ]
    return ClusterHealth(
        cluster_id=cluster.cluster_id,
        active_controller=quorum.leader_id,
        controller_epoch=quorum.leader_epoch,
        controllers=[voter.replica_id for voter in quorum.voters],
        controllers_behind=controllers_behind(quorum),
        brokers=alive,
        brokers_down=sorted(cluster.fenced),
        offline_log_directories=[name for name, one in directories if one.error is not None],
        full_log_directories=[
            name for name, one in directories if one.error is None and one.usable_bytes == 0
        ],
        topics=len(topics),
        partitions=sum(len(topic.partitions) for topic in topics),
        leaderless_partitions=[str(name) for name, one in behind if one.leader is None],
        under_min_isr_partitions=_under_min_isr(admin, behind),
        under_replicated_partitions=[str(name) for name, _ in behind],
    )


def _incomplete(
    topics: Iterable[TopicDescription],
) -> list[tuple[TopicPartition, PartitionDescription]]:
    found = [
        (TopicPartition(topic.name, partition.partition), partition)
        for topic in topics
        for partition in topic.partitions
        if partition.leader is None or len(partition.isr) < len(partition.replicas)
    ]
    return sorted(found, key=lambda pair: pair[0])


def controllers_behind(quorum: QuorumInfo) -> list[int]:
    """Return the voters whose log has not reached the leader's for CAUGHT_UP_MS."""
    caught_up = {voter.replica_id: voter.last_caught_up_ms or 0 for voter in quorum.voters}
    newest = max(caught_up.values(), default=0)
    return [
        voter
        for voter, when in caught_up.items()
        if voter != quorum.leader_id and newest - when > _CAUGHT_UP_MS
    ]


def _under_min_isr(
    admin: Admin, behind: list[tuple[TopicPartition, PartitionDescription]]
) -> list[str]:
    """Return partitions below min.insync.replicas; only incomplete topics are queried."""
    from ottla.clients.admin.configs import ConfigResource, ResourceType

    names = dict.fromkeys(name.topic for name, _ in behind)
    if not names:
        return []
    minimum = {}
    resources = {ConfigResource(ResourceType.TOPIC, name): [_MIN_ISR] for name in names}
    for resource, entries in admin.describe_configs(resources).items():
        if not isinstance(entries, KafkaError):
            minimum[resource.name] = int(entries[_MIN_ISR].value or 1)
    return [str(name) for name, one in behind if len(one.isr) < minimum.get(name.topic, 1)]
