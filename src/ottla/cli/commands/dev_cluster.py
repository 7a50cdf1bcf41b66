"""`ottla dev-cluster`: several nodes on loopback, to see how a cluster behaves.

Kafka: none; its quickstart starts one node.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.config.properties import parse_properties, write_properties

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    import psutil

READY_S = 60.0
STOP_S = 30.0
_KILL_S = 5.0
_POLL_S = 0.05
_HOST = "127.0.0.1"
EXAMPLES = """
\b
Examples:
  ottla dev-cluster
  ottla dev-cluster --nodes 5 --base-port 19092
  ottla dev-cluster --data-dir ./cluster
  ottla dev-cluster --json
"""


class DevNode(NamedTuple):
    """Ports and files of one node."""

    node_id: int
    port: int
    controller_port: int
    root: Path

    @property
    def directory(self) -> Path:
        """The directory of data, settings and log."""
        return self.root / f"node-{self.node_id}"

    @property
    def settings(self) -> Path:
        """The server.properties."""
        return self.directory / "server.properties"

    @property
    def log(self) -> Path:
        """The file of log lines."""
        return self.directory / "server.log"

    @property
    def ready(self) -> Path:
        """The ready file; it exists while the node serves."""
        return self.directory / "ready.json"

    @property
    def address(self) -> str:
        """The address for `--bootstrap-server`."""
        return f"{_HOST}:{self.port}"

    @property
    def command(self) -> list[str]:
        """The command line that starts the node."""
        return [sys.executable, "-m", "ottla", "server-start", str(self.settings)]


@click.command("dev-cluster", epilog=EXAMPLES)
@click.option("--nodes", type=click.IntRange(1, 100), default=3, help="How many nodes (default 3).")
@click.option(
    "--base-port",
    type=click.IntRange(1, 65_000),
    default=9092,
    help="Port of the first broker (default 9092); brokers and controllers use the ports after it.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    help="Keep the data in this directory; by default they are temporary.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document once all serve.")
def dev_cluster(nodes: int, base_port: int, data_dir: str | None, as_json: bool) -> None:
    """Run several nodes on this machine, a process each; Ctrl-C stops all of them.

    Each node is broker and controller and listens on loopback. For development, not production.
    """
    root = Path(data_dir or tempfile.mkdtemp(prefix="ottla-dev-cluster-")).absolute()
    members = [
        DevNode(number, base_port + number - 1, base_port + nodes + number - 1, root)
        for number in range(1, nodes + 1)
    ]
    stopped = threading.Event()
    previous = _stop_on_signals(stopped)
    processes: dict[DevNode, psutil.Popen] = {}
    try:
        _prepare(members)
        for member in members:
            processes[member] = _spawn(member)
        _wait_until_ready(processes, stopped)
        if not stopped.is_set():
            _show(processes, root, as_json=as_json, is_kept=data_dir is not None)
        _watch(processes, stopped)
    finally:
        _stop(processes)
        if data_dir is None:
            shutil.rmtree(root, ignore_errors=True)
        for number, handler in previous:
            signal.signal(number, handler)


def _stop_on_signals(stopped: threading.Event) -> list[tuple[int, Any]]:
    """Set the event on Ctrl-C and SIGTERM; return the previous handlers."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    return [(number, signal.signal(number, handle)) for number in (signal.SIGINT, signal.SIGTERM)]


def _prepare(members: list[DevNode]) -> None:
    """Write the settings, and format unformatted directories."""
    from ottla.cli.commands.storage import real_environment
    from ottla.config.broker import parse_broker_config
    from ottla.server.node.format import format_node, new_quorum
    from ottla.server.system.files import make_directory
    from ottla.storage.layout import META_PROPERTIES

    formatted = sorted(members[0].root.glob(f"node-*/data/{META_PROPERTIES}"))
    configs = {member: _settings(member, members) for member in members}
    if formatted:
        _check_same_voters(members, configs[members[0]], len(formatted))
    _check_ports(members)
    for one, config in configs.items():
        make_directory(str(one.directory / "data"))
        one.settings.write_text(write_properties(config), encoding="utf-8")
        one.ready.unlink(missing_ok=True)
    if formatted:
        return
    quorum = None
    for config in configs.values():
        target = real_environment(parse_broker_config(config), quiet=True)
        if quorum is None:
            endpoints = {member.node_id: (_HOST, member.controller_port) for member in members}
            quorum = new_quorum(endpoints, target.new_uuid, now_ms=target.now_ms)
        format_node(config, quorum, target.directories, target.new_uuid)


def _check_same_voters(members: list[DevNode], config: dict[str, str], count: int) -> None:
    """Refuse other numbers and ports than the directory was formatted with.

    The metadata log has the voters' addresses: at other addresses they find no majority.
    """
    first = members[0]
    if count != len(members):
        raise click.ClickException(f"{first.root} has {count} nodes: give --nodes {count}")
    if not first.settings.exists():
        return
    old = parse_properties(first.settings.read_text(encoding="utf-8"))
    voters = "controller.quorum.bootstrap.servers"
    if old.get(voters) != config[voters]:
        port = old["listeners"].partition(",")[0].rpartition(":")[2]
        raise click.ClickException(
            f"{first.root} has nodes on the ports from {port} on: give --base-port {port}"
        )


def _check_ports(members: list[DevNode]) -> None:
    """Refuse ports that are in use, before a node is started."""
    from ottla.server.system.process import holder_of_port

    for port in (port for member in members for port in (member.port, member.controller_port)):
        try:
            socket.create_server((_HOST, port)).close()
        except OSError as error:
            holder = holder_of_port(port)
            reason = f"is taken by {holder}" if holder else f"cannot be used: {error.strerror}"
            raise click.ClickException(
                f"port {port} on {_HOST} {reason}; choose other ports with --base-port"
            ) from error


def _settings(node: DevNode, members: list[DevNode]) -> dict[str, str]:
    return {
        "node.id": str(node.node_id),
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{_HOST}:{node.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(
            f"{_HOST}:{member.controller_port}" for member in members
        ),
        "log.dirs": str(node.directory / "data"),
        "offsets.topic.replication.factor": str(min(3, len(members))),
        "transaction.state.log.replication.factor": str(min(3, len(members))),
        "transaction.state.log.min.isr": str(min(2, len(members))),
        "share.coordinator.state.topic.replication.factor": str(min(3, len(members))),
        "share.coordinator.state.topic.min.isr": str(min(2, len(members))),
        "default.replication.factor": str(min(3, len(members))),
        "min.insync.replicas": str(min(2, len(members))),
        "group.initial.rebalance.delay.ms": "0",
        "transaction.two.phase.commit.enable": "true",
        "unstable.api.versions.enable": "true",
    }


def _spawn(node: DevNode) -> psutil.Popen:
    """Start a node in its own session: Ctrl-C reaches this process only; it stops the node."""
    import psutil

    with node.log.open("ab") as log:
        return psutil.Popen(
            [*node.command, "--ready-file", str(node.ready)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _wait_until_ready(processes: dict[DevNode, psutil.Popen], stopped: threading.Event) -> None:
    deadline_s = time.monotonic() + READY_S
    for node, process in processes.items():
        while not node.ready.exists() and not stopped.wait(_POLL_S):
            if process.poll() is not None or time.monotonic() > deadline_s:
                ended = process.poll() is not None
                text = "has ended" if ended else f"does not serve after {READY_S:.0f} s"
                raise click.ClickException(f"node {node.node_id} {text}:\n{_last_lines(node)}")


def _last_lines(node: DevNode, count: int = 5) -> str:
    lines = node.log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-count:])


def _show(
    processes: dict[DevNode, psutil.Popen], root: Path, *, as_json: bool, is_kept: bool
) -> None:
    bootstrap = ",".join(node.address for node in processes)
    if as_json:
        found = [
            {
                "node_id": one.node_id,
                "pid": process.pid,
                "bootstrap": one.address,
                "settings": str(one.settings),
                "log": str(one.log),
            }
            for one, process in processes.items()
        ]
        click.echo(json.dumps({"bootstrap": bootstrap, "data_dir": str(root), "nodes": found}))
    else:
        for line in _introduction(processes, bootstrap, root, is_kept=is_kept):
            click.echo(line)
    sys.stdout.flush()


def _introduction(
    processes: dict[DevNode, psutil.Popen], bootstrap: str, root: Path, *, is_kept: bool
) -> Iterator[str]:
    """Yield the addresses of the nodes and commands to try."""
    for node, process in processes.items():
        yield f"node {node.node_id}    {node.address}, pid {process.pid}, log {node.log}"
    yield f"bootstrap {bootstrap}"
    yield f"data      {root} ({'kept' if is_kept else 'removed at the end'})"
    *_, last = processes
    replicas = min(3, len(processes))
    tools = f"--bootstrap-server {bootstrap}"
    create = f"--create --topic events --partitions 6 --replication-factor {replicas}"
    yield ""
    yield "Try in another terminal:"
    yield f"  ottla topics {tools} {create}"
    yield f"  ottla topics {tools} --describe --topic events"
    yield f"  ottla metadata-quorum {tools} describe --status"
    yield f"  kill {processes[last].pid}  # stops node {last.node_id}: its leaders move"
    yield f"  ottla server-start {last.settings}  # starts it again"
    yield ""
    yield "Ctrl-C stops all nodes."


def _watch(processes: dict[DevNode, psutil.Popen], stopped: threading.Event) -> None:
    """Report nodes that end, until all have or this process is stopped."""
    running = dict(processes)
    while running and not stopped.wait(_POLL_S):
        for node, process in list(running.items()):
            if process.poll() is not None:
                del running[node]
                text = f"node {node.node_id} has ended (status {process.returncode})"
                click.echo(f"{text}; start it again: ottla server-start {node.settings}", err=True)


def _stop(processes: dict[DevNode, psutil.Popen]) -> None:
    """Stop all nodes, also those started again in another terminal; kill nodes that do not end."""
    import psutil

    from ottla.cli.commands.server_stop import nodes_with_settings, terminate

    settings = {str(node.settings) for node in processes}
    own = {process.pid: process for process in processes.values()}
    others = {it.pid: it for it in nodes_with_settings(settings) if it.pid not in own}
    _, alive = terminate([*own.values(), *others.values()], STOP_S)
    for one in alive:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(alive, _KILL_S)
