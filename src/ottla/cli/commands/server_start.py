"""`ottla server-start`: run a node in the foreground.

Kafka: bin/kafka-server-start.sh, docker/launch, which runs kafka-storage format --ignore-formatted
before every start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.node_config import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from ottla.config.broker import BrokerConfig
    from ottla.server.node.node import Node
    from ottla.server.node.settings import StartSettings
    from ottla.server.node.startup import Banner
    from ottla.server.system.ports import PortTaken

log = logging.getLogger("ottla.node")
_CLUSTER_ID_VARIABLES = ("CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID")
"""Variables of the images of Apache, Confluent and Bitnami."""
EXAMPLES = """
\b
Examples:
  ottla server-start
  ottla server-start --port 0 --ready-file ready.json
  ottla server-start server.properties --override log.retention.hours=1
"""


@click.command("server-start", epilog=EXAMPLES)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a property.")
@click.option("--port", type=int, help="Port of a node without a file; 0 chooses a free port.")
@click.option(
    "--ready-file", type=click.Path(dir_okay=False), help="Write the node's address to this file."
)
@click.option(
    "--format", "formats", is_flag=True, help="Format log directories that are empty first."
)
@click.option(
    "--cluster-id",
    default=lambda: next(filter(None, map(os.environ.get, _CLUSTER_ID_VARIABLES)), None),
    help="Id of the cluster that --format formats for; CLUSTER_ID by default, else a random one.",
)
@click.option("--check", is_flag=True, help="Only check the configuration.")
@click.option(
    "--log-level",
    "log_levels",
    multiple=True,
    metavar="[COMPONENT=]LEVEL",
    help="Level of all log lines (default INFO), or of a component: groups=DEBUG.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Format of log lines.")
@click.option(
    "--log-file",
    type=click.Path(dir_okay=False),
    help="Write log lines to this file, which is rotated; see log.file.max.bytes.",
)
def server_start(  # noqa: PLR0917 - click passes options by name
    file: str | None,
    overrides: tuple[str, ...],
    port: int | None,
    ready_file: str | None,
    formats: bool,
    cluster_id: str | None,
    check: bool,
    log_levels: tuple[str, ...],
    log_format: str | None,
    log_file: str | None,
) -> None:
    """Start a node: a development node on 9092, or the one that FILE (server.properties) describes.

    Without FILE, data are stored in ./ottla-data, which is formatted at the first start. With FILE,
    format the directory first: ottla storage format -t ID -c FILE. KAFKA_… variables override the
    file, and --override overrides both: see ottla config show --origin.
    """
    flags = (("level", ",".join(log_levels)), ("format", log_format), ("file", log_file))
    logged = (f"log.{name}={value}" for name, value in flags if value)
    settings = load_settings(file, (*overrides, *logged), port=port)
    if check:
        for warning in settings.warnings:
            click.echo(f"warning: {warning}", err=True)
        may_format = formats or settings.is_development
        for obstacle in _obstacles(settings.config, may_format=may_format):
            click.echo(f"warning: {obstacle}", err=True)
        click.echo("The configuration is valid.")
        return
    _open_log(settings)
    if formats:
        format_empty(settings.config, cluster_id)
    from ottla.server.system.ports import PortTaken

    try:
        _run(_serve(settings, ready_file, lambda banner: banner.lines()))
    except PortTaken as error:
        levels = ",".join(log_levels)
        advice = _port_advice(error, file, overrides, (ready_file, levels, log_format, log_file))
        raise click.ClickException(advice) from error


def run_node(
    settings: StartSettings, ready_file: str | None, lines: Callable[[Banner], Iterable[str]]
) -> None:
    """Run a node until a signal; print the lines once it serves."""
    from ottla.server.system.ports import PortTaken

    _open_log(settings)
    try:
        _run(_serve(settings, ready_file, lines))
    except PortTaken as error:
        raise click.ClickException(f"{error.reason}; choose another --port") from error


def _port_advice(
    error: PortTaken,
    file: str | None,
    overrides: Sequence[str],
    values: tuple[str | None, str, str | None, str | None],
) -> str:
    """Return the error with the command that starts this node on a free port."""
    if not error.overrides:
        return str(error)
    is_own_port = error.overrides[0].startswith("listeners=")
    if file is None and error.port and is_own_port and not overrides:
        words = ["ottla", "server-start", "--port", str(error.port)]
        return _advice(error.reason, [*words, *_logging_flags(values)])
    changed = {override.partition("=")[0] for override in error.overrides}
    kept = [override for override in overrides if override.partition("=")[0] not in changed]
    words = ["ottla", "server-start", *([] if file is None else [file])]
    words += _logging_flags(values)
    words += [word for one in (*kept, *error.overrides) for word in ("--override", one)]
    return _advice(error.reason, words)


def _logging_flags(values: tuple[str | None, str, str | None, str | None]) -> list[str]:
    flags = ("--ready-file", "--log-level", "--log-format", "--log-file")
    given = zip(flags, values, strict=True)
    return [word for flag, value in given if value for word in (flag, value)]


def _advice(reason: str, words: Sequence[str]) -> str:
    command = " ".join(map(quote, words))
    return f"{reason}; stop it, or start this node on another port:\n  {command}"


def _open_log(settings: StartSettings) -> None:
    from ottla.server.logging.lines import configure_logging
    from ottla.server.system.process import hide_files_from_others

    hide_files_from_others()
    try:
        configure_logging(settings.config.own)
    except OSError as error:
        path = settings.config.own.log_file
        raise click.ClickException(
            f"cannot write the log file {path}: {error.strerror}; choose another --log-file or "
            "make its directory writable"
        ) from error
    for warning in settings.warnings:
        log.warning("%s; correct the configuration", warning, extra={"event": "config.warning"})


def _run(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:  # not on Windows
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _serve(
    settings: StartSettings, ready_file: str | None, lines: Callable[[Banner], Iterable[str]]
) -> None:
    from ottla.errors import OttlaError
    from ottla.server.node.node import Node
    from ottla.server.system.process import keep_freed_memory, notify, raise_descriptor_limit
    from ottla.server.system.real import RealEnvironment

    raise_descriptor_limit()
    keep_freed_memory()
    stopped = _signals()
    try:
        node = Node(settings.config, RealEnvironment(), may_format=settings.is_development)
        if not await _started(node, stopped):
            return
    except OttlaError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(_file_advice(error)) from error
    for line in lines(node.banner):
        click.echo(line)
    sys.stdout.flush()
    if ready_file is not None:
        path = Path(ready_file)
        # atomically: other programs wait for the file
        ready = {"bootstrap": node.bootstrap, "pid": os.getpid(), "cluster_id": node.cluster_id}
        if node.http.url is not None:
            ready["metrics"] = node.http.url
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(json.dumps(ready) + "\n", encoding="utf-8")
        temporary.replace(path)
    notify("READY=1", f"STATUS=serves {node.bootstrap}")
    node.collections.start()
    try:
        await _first_of(stopped, node.halted)
        if node.failure is not None:
            raise click.ClickException(f"halted: {node.failure}")
    finally:
        node.collections.stop()
        notify("STOPPING=1", "STATUS=flushes and closes its logs")
        if ready_file is not None:
            _remove(Path(ready_file))
        await node.stop()


async def _started(node: Node, stopped: asyncio.Event) -> bool:
    """Start the node; return False when a signal ended the start."""
    starting, signalled = asyncio.ensure_future(node.start()), asyncio.ensure_future(stopped.wait())
    await asyncio.wait({starting, signalled}, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    with suppress(asyncio.CancelledError):
        await starting
    return False


def _file_advice(error: OSError) -> str:
    """Return in one line the file that cannot be used, and the next step."""
    if error.filename is None:
        return str(error)
    advice = "give this user the right to read and write it, or choose other log.dirs"
    return f"cannot open {error.filename}: {error.strerror}; {advice}"


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def _signals() -> asyncio.Event:
    """Return the event that the first SIGTERM or SIGINT sets; a second one ends the process."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(name: str) -> None:
        if stopped.is_set():
            os._exit(1)
        log.info("%s received: the node stops", name, extra={"event": "node.signal"})
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    return stopped


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


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
            # a controller without its metadata directory would be another quorum alone
            from ottla.server.node.format import read_meta_properties
            from ottla.server.node.identity import format_command
            from ottla.server.system.files import RealDirectory

            if read_meta_properties(RealDirectory(config.metadata_directory)) is None:
                raise click.ClickException(
                    f"{config.metadata_directory} is not formatted, and --format makes no quorum "
                    f"of several controllers: {format_command(config)}"
                )
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


def _known_id(config: BrokerConfig) -> str | None:
    from ottla.server.node.format import read_meta_properties
    from ottla.server.system.files import RealDirectory

    for path in (*config.data_directories, config.metadata_directory):
        meta = read_meta_properties(RealDirectory(path))
        if meta is not None:
            return meta.cluster_id
    return None


def _obstacles(config: BrokerConfig, *, may_format: bool) -> list[str]:
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
