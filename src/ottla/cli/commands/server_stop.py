"""`ottla server-stop`: stop the nodes that this user runs on this machine.

Kafka: bin/kafka-server-stop.sh (KIP-979), which neither waits nor selects nodes by file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.output.failures import ToolError, failures_reported

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import psutil

EXAMPLES = """
\b
Examples:
  ottla server-stop
  ottla server-stop --node-id 1
  ottla server-stop /etc/ottla/*.properties
  ottla server-stop --ready-file ready.json --timeout 120
"""
COMMAND = "server-start"
_SPELLINGS = frozenset({COMMAND, f"kafka-{COMMAND}", f"kafka-{COMMAND}.sh"})
_DEVELOPMENT = {"node.id": "1", "process.roles": "broker,controller"}
VALUE_FLAGS = (
    "--override",
    "--port",
    "--ready-file",
    "--cluster-id",
    "--log-level",
    "--log-format",
    "--log-file",
)
"""Flags of server-start that a value follows."""


class RunningNode(NamedTuple):
    """A process of `ottla server-start`."""

    process: psutil.Process
    arguments: list[str]
    """Arguments after `server-start`."""


@click.command("server-stop", epilog=EXAMPLES)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@click.option("--node-id", type=int, help="Only nodes with this id, of whichever cluster.")
@click.option("--process-role", help="Only nodes with this role: broker or controller.")
@click.option("--ready-file", type=click.Path(dir_okay=False), help="Only the node that wrote it.")
@click.option(
    "--timeout", type=float, default=60.0, show_default=True, help="Seconds to wait for the end."
)
def server_stop(
    files: tuple[str, ...],
    node_id: int | None,
    process_role: str | None,
    ready_file: str | None,
    timeout: float,
) -> None:
    """Ask nodes to stop, as SIGTERM does, and wait until they have.

    With FILES, the nodes that were started with these properties files; name all those of a cluster
    to stop the cluster. Without FILES and flags, all nodes that this user has started on this
    machine with `ottla server-start`, of all clusters.
    """
    with failures_reported():
        pid = None if ready_file is None else _pid_of(Path(ready_file))
        running = without_wrappers(list(_running_nodes()))
        chosen = [
            node
            for node in (_started_with(files, running) if files else running)
            if pid in (None, node.process.pid) and _is_selected(node, node_id, process_role)
        ]
        if not chosen:
            click.echo("No kafka server to stop")  # the text of Kafka's script
            sys.exit(1)
        _stop([node.process for node in chosen], timeout)


def nodes_with_settings(files: Collection[str]) -> list[psutil.Process]:
    """Return this user's nodes that were started with one of these properties files."""
    running = without_wrappers(list(_running_nodes()))
    return [node.process for node in _started_with(files, running)]


def _started_with(files: Collection[str], running: list[RunningNode]) -> list[RunningNode]:
    """Return the nodes that were started with one of these files, however a path was written."""
    requested = {Path(path).resolve() for path in files}
    return [node for node in running if not requested.isdisjoint(_paths(node))]


def _paths(node: RunningNode) -> Iterator[Path]:
    """Yield the properties files of a node; its working directory resolves relative paths."""
    import psutil

    try:
        directory = Path(node.process.cwd())
    except psutil.Error:
        return  # it has ended
    for path in _files(node.arguments):
        yield (directory / path).resolve()


def _pid_of(path: Path) -> int:
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["pid"])
    except OSError as error:
        raise ToolError(
            f"cannot read {path}: {error.strerror}; a running node writes it, see "
            "ottla server-start --ready-file"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{path} is not a ready file of ottla server-start") from error


def _running_nodes() -> Iterator[RunningNode]:
    """Yield this user's nodes, whichever way the command was started."""
    import psutil

    for process in psutil.process_iter(["cmdline", "uids"]):
        found = process.info
        if not found["cmdline"] or process.pid == os.getpid():
            continue
        if found["uids"] is not None and found["uids"].real != os.getuid():
            continue
        words: list[str] = found["cmdline"]
        for place, word in enumerate(words[:5]):
            is_ottla = place > 0 and Path(words[place - 1]).name in {"ottla", "main.py"}
            if word in _SPELLINGS and is_ottla:
                yield RunningNode(process, words[place + 1 :])


def without_wrappers(nodes: list[RunningNode]) -> list[RunningNode]:
    """Leave out programs that run a node (`timeout`, `tini`) and pass signals on to it.

    The node would get the signal twice, and a second one ends it at once.
    """
    parents = {_parent_of(node.process) for node in nodes}
    return [node for node in nodes if node.process.pid not in parents]


def _parent_of(process: psutil.Process) -> int | None:
    """Return the parent's pid, None when the process has ended."""
    import psutil

    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return None


def _is_selected(node: RunningNode, node_id: int | None, role: str | None) -> bool:
    if node_id is None and role is None:
        return True
    settings = _settings(node)
    if role is not None and role not in settings["process.roles"].replace(" ", "").split(","):
        return False
    return node_id is None or settings["node.id"] == str(node_id)


def _settings(node: RunningNode) -> dict[str, str]:
    """Return id and roles of a node: from its file, its environment and its flags."""
    import psutil

    from ottla.config.properties import PropertiesError, parse_properties

    settings: dict[str, Any] = dict(_DEVELOPMENT)
    try:
        environ = node.process.environ()
        for path in _paths(node):
            settings |= parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PropertiesError, psutil.Error):
        environ = {}  # the settings that were read
    for name in _DEVELOPMENT:
        variable = "KAFKA_" + name.replace(".", "_").upper()
        settings[name] = environ.get(variable, settings[name])
    for word in node.arguments:
        name, equals, value = word.removeprefix("--override=").partition("=")
        if equals and name in _DEVELOPMENT:
            settings[name] = value
    return settings


def _files(arguments: list[str]) -> Iterator[str]:
    """Yield the arguments that are no flags and no values of flags: the properties file."""
    is_value = False
    for word in arguments:
        if not is_value and not word.startswith("-"):
            yield word
        is_value = word in VALUE_FLAGS


def terminate(
    processes: Sequence[psutil.Process], timeout_s: float
) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Send SIGTERM to all; return the processes that ended within the time, and the others."""
    import psutil

    for process in processes:
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied as error:
            raise ToolError(
                f"pid {process.pid} belongs to another user; stop it as that user"
            ) from error
    return psutil.wait_procs(processes, timeout_s)


def _stop(processes: list[psutil.Process], timeout_s: float) -> None:
    gone, alive = terminate(processes, timeout_s)
    for process in gone:
        click.echo(f"stopped pid {process.pid}")
    if alive:
        pids = ", ".join(str(process.pid) for process in alive)
        raise ToolError(
            f"pid {pids} still runs after {timeout_s:g} s: it flushes its logs; wait longer "
            "(--timeout), or see its log"
        )
