"""`ottla metadata-quorum`: describe the quorum of controllers, add and remove controllers.

Kafka: bin/kafka-metadata-quorum.sh, org.apache.kafka.tools.MetadataQuorumCommand.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.argparse4j import INTEGER, ToolGroup, need
from ottla.cli.options.connection import open_admin, read_file
from ottla.cli.options.flags import (
    controller_option,
    json_option,
    place_options,
    print_json,
    wants_json,
)
from ottla.cli.options.joptsimple import java_integer
from ottla.cli.output.failures import ToolError, fail, failures_reported
from ottla.cli.output.tables import table
from ottla.clients.admin.quorum import VoterEndpoint
from ottla.config.properties import parse_properties
from ottla.types import Uuid
from ottla.views.quorum import max_follower_lag, quorum_document, quorum_replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clients.admin.quorum import QuorumInfo, ReplicaState
    from ottla.clients.blocking import Admin

COLUMNS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)
UNKNOWN_MS = -1

EXAMPLES = """
\b
Examples:
  ottla metadata-quorum --bootstrap-server localhost:9092 describe --status
  ottla metadata-quorum --bootstrap-server localhost:9092 describe --replication --human-readable
  ottla metadata-quorum --bootstrap-server localhost:9092 --command-config server-4.properties \\
      add-controller
  ottla metadata-quorum --bootstrap-controller localhost:9093 remove-controller \\
      --controller-id 3 --controller-directory-id wYoxuRJbR4GJW0PUQZCq3g
"""


@click.group("metadata-quorum", cls=ToolGroup, epilog=EXAMPLES)
@place_options
@controller_option
def metadata_quorum(**options: Any) -> None:
    """Describe the quorum of controllers, add and remove controllers."""
    if options["bootstrap_server"] and options["bootstrap_controller"]:
        raise click.UsageError(
            "argument --bootstrap-controller: not allowed with argument --bootstrap-server"
        )
    click.get_current_context().obj = options


def _connection() -> dict[str, Any]:
    """Return the flags before the subcommand; raises UsageError where they name no server.

    Checked after the subcommand's own flags, so that its --help needs no server, as in Kafka.
    """
    options: dict[str, Any] = click.get_current_context().obj
    if not (options["bootstrap_server"] or options["bootstrap_controller"]):
        raise click.UsageError(
            "one of the arguments --bootstrap-server --bootstrap-controller is required"
        )
    return options


def _run(action: Callable[[Admin], None], *, warn: bool = True) -> None:
    options = _connection()
    with (
        failures_reported(),
        open_admin(
            options["bootstrap_server"] or "",
            options["command_config"],
            bootstrap_controller=options["bootstrap_controller"],
            warn=warn,
        ) as admin,
    ):
        action(admin)


# ---------------------------------------------------------------- describe


@metadata_quorum.command()
@click.option("--status", is_flag=True, help="A short summary of the quorum.")
@click.option("--replication", is_flag=True, help="The replication state of each replica.")
@click.option("--human-readable", is_flag=True, help="Print times relative to now.")
@json_option
def describe(*, status: bool, replication: bool, human_readable: bool) -> None:
    """Describe the quorum."""
    _connection()
    if status and replication:
        fail("Only one of --status or --replication should be specified with describe sub-command")
    if not status and not replication:
        fail("One of --status or --replication must be specified with describe sub-command")
    if human_readable and status:
        fail("The option --human-readable is only supported along with --replication")
    if status:
        _run(_print_status)
    else:
        _run(lambda admin: _print_replication(admin, human_readable=human_readable))


def _print_status(admin: Admin) -> None:
    cluster_id = admin.describe_cluster().cluster_id
    if wants_json():
        print_json(quorum_document(cluster_id, admin.describe_metadata_quorum()))
        return
    for line in status_lines(cluster_id, admin.describe_metadata_quorum()):
        click.echo(line)


def status_lines(cluster_id: str, quorum: QuorumInfo) -> list[str]:
    """Return the output of --status."""
    lag, lag_ms = max_follower_lag(quorum, _leader(quorum))
    fields = (
        ("ClusterId", cluster_id),
        ("LeaderId", quorum.leader_id),
        ("LeaderEpoch", quorum.leader_epoch),
        ("HighWatermark", quorum.high_watermark),
        ("MaxFollowerLag", lag),
        ("MaxFollowerLagTimeMs", UNKNOWN_MS if lag_ms is None else lag_ms),
        ("CurrentVoters", _replicas_text(quorum.voters, quorum)),
        ("CurrentObservers", _replicas_text(quorum.observers, quorum)),
    )
    return [f"{name + ':':<23} {value}" for name, value in fields]


def _leader(quorum: QuorumInfo) -> ReplicaState:
    """Return the leader's state; raises ToolError while no voter is the leader."""
    for voter in quorum.voters:
        if voter.replica_id == quorum.leader_id:
            return voter
    raise ToolError(f"The leader {quorum.leader_id} is none of the voters: try again")


def _replicas_text(replicas: Iterable[ReplicaState], quorum: QuorumInfo) -> str:
    return "[" + ", ".join(_replica_text(replica, quorum) for replica in replicas) + "]"


def _replica_text(replica: ReplicaState, quorum: QuorumInfo) -> str:
    parts = [f'"id": {replica.replica_id}']
    if replica.directory_id:
        parts.append(f'"directoryId": "{replica.directory_id}"')
    endpoints = quorum.endpoints.get(replica.replica_id, ())
    if endpoints:
        shown = ", ".join(json.dumps(str(endpoint)) for endpoint in endpoints)
        parts.append(f'"endpoints": [{shown}]')
    return "{" + ", ".join(parts) + "}"


def _print_replication(admin: Admin, *, human_readable: bool) -> None:
    if wants_json():
        _print_status(admin)
        return
    rows = replication_rows(
        admin.describe_metadata_quorum(),
        now_ms=int(time.time() * 1000),
        human_readable=human_readable,
    )
    for line in table([COLUMNS, *rows]):
        click.echo(line)


def replication_rows(
    quorum: QuorumInfo, *, now_ms: int, human_readable: bool
) -> list[tuple[str, ...]]:
    """Return the rows of --replication."""
    return [
        (
            str(state.replica_id),
            str(state.directory_id),
            str(state.log_end_offset),
            str(lag),
            _time_text(state.last_fetch_ms, now_ms, human_readable=human_readable),
            _time_text(state.last_caught_up_ms, now_ms, human_readable=human_readable),
            status,
        )
        for status, state, lag in quorum_replicas(quorum, _leader(quorum))
    ]


def _time_text(at_ms: int | None, now_ms: int, *, human_readable: bool) -> str:
    if at_ms is None:
        return str(UNKNOWN_MS)
    return f"{now_ms - at_ms} ms ago" if human_readable else str(at_ms)


# ---------------------------------------------------------------- voters


@metadata_quorum.command("add-controller")
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
def add_controller(*, dry_run: bool) -> None:
    """Add the controller of the properties file in --command-config to the quorum."""
    config_file = _connection()["command_config"]
    if config_file is None:
        fail(
            "You must supply the configuration file of the controller you are adding when using "
            "add-controller."
        )
    if not Path(config_file).is_file():
        fail(f"Properties file {config_file} does not exists!")
    try:
        controller_id, directory_id, endpoints = _new_controller(read_file(config_file))
    except ToolError as error:
        fail(str(error))
    if not dry_run:
        # The file belongs to the controller: most of its settings are not client settings.
        _run(lambda admin: admin.add_raft_voter(controller_id, directory_id, endpoints), warn=False)
    shown = ", ".join(map(str, endpoints))
    click.echo(
        f"{'DRY RUN of adding' if dry_run else 'Added'} controller {controller_id} with directory "
        f"id {directory_id} and endpoints: {shown}"
    )


def _new_controller(properties: dict[str, str]) -> tuple[int, Uuid, list[VoterEndpoint]]:
    if "node.id" not in properties and "broker.id" not in properties:
        raise ToolError("node.id not found in configuration file. Is this a valid controller?")
    try:
        node_id = java_integer(properties.get("node.id", properties.get("broker.id", "")), 32)
    except ValueError as error:
        raise ToolError(f"node.id: {error}") from error
    roles = properties.get("process.roles", "")
    if "controller" not in roles.split(","):
        raise ToolError(
            "process.roles did not contain 'controller' in configuration file. Is this a valid "
            "controller configuration file?"
        )
    return node_id, _directory_id(properties), _controller_endpoints(properties)


def _directory_id(properties: dict[str, str]) -> Uuid:
    directory = properties.get("metadata.log.dir", "").strip()
    if not directory:
        log_dirs = properties.get("log.dirs", properties.get("log.dir", "/tmp/kafka-logs"))  # noqa: S108 - Kafka's default
        directory = log_dirs.split(",")[0].strip()
    try:
        text = (Path(directory) / "meta.properties").read_text(encoding="utf-8")
        return Uuid.parse(parse_properties(text)["directory.id"])
    except (OSError, KeyError, ValueError) as error:
        raise ToolError(f"Unable to read meta.properties from {directory}") from error


def _controller_endpoints(properties: dict[str, str]) -> list[VoterEndpoint]:
    names = [name.strip() for name in properties.get("controller.listener.names", "").split(",")]
    endpoints = {}
    for key in ("listeners", "advertised.listeners"):  # the advertised ones count
        for text in filter(None, map(str.strip, properties.get(key, "").split(","))):
            listener, _, address = text.partition("://")
            host, _, port = address.rpartition(":")
            if not port.isdecimal():
                raise ToolError(f"Unable to parse {text} to an endpoint")
            endpoints[listener.upper()] = VoterEndpoint(
                listener.upper(), host.strip("[]") or "localhost", int(port)
            )
    listeners = [endpoints[name.upper()] for name in names if name.upper() in endpoints]
    if not listeners:
        raise ToolError("No controller listener was found in the configuration file.")
    return listeners


@metadata_quorum.command("remove-controller")
@click.option("--controller-id", "-i", type=INTEGER, metavar="ID", help="REQUIRED. Its id.")
@click.option(
    "--controller-directory-id", "-d", metavar="ID", help="REQUIRED. Its metadata directory's id."
)
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
def remove_controller(
    *, controller_id: int | None, controller_directory_id: str | None, dry_run: bool
) -> None:
    """Remove a controller from the quorum."""
    _connection()
    directory = need(controller_directory_id, "--controller-directory-id/-d")
    number = need(controller_id, "--controller-id/-i")
    if number < 0:
        fail(f"Invalid negative --controller-id: {number}")
    try:
        directory_id = Uuid.parse(directory)
    except ValueError as error:
        fail(f"Failed to parse --controller-directory-id: {error}")
    if not dry_run:
        _run(lambda admin: admin.remove_raft_voter(number, directory_id))
    done = "DRY RUN of removing " if dry_run else "Removed "
    click.echo(f"{done} KRaft controller {number} with directory id {directory_id}")
