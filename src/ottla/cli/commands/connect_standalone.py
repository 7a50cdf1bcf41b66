"""`ottla connect-standalone`: run a worker of connectors that stands alone.

Kafka: bin/connect-standalone.sh, org.apache.kafka.connect.cli.ConnectStandalone.
"""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.connection import read_file
from ottla.cli.output.failures import failure_text
from ottla.config.problems import ConfigErrors
from ottla.config.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.config.definition import ConfigDefinitions
    from ottla.connect.runtime.rest import ConnectApi
    from ottla.connect.runtime.rest_server import RestServer
    from ottla.connect.runtime.standalone import HerderThread

    ConnectorFile = tuple[str, dict[str, str], Any]

_CLUSTER_TIMEOUT_S = 30.0
_START_TIMEOUT_S = 60.0
EXAMPLES = """
\b
Examples:
  ottla connect-standalone worker.properties
  ottla connect-standalone worker.properties lines.properties sink.json
"""


@click.command("connect-standalone", epilog=EXAMPLES)
@click.argument("worker", type=click.Path(exists=True, dir_okay=False))
@click.argument("connectors", nargs=-1, type=click.Path(exists=True, dir_okay=False))
def connect_standalone(worker: str, connectors: tuple[str, ...]) -> None:
    """Run connectors: WORKER is the worker's properties, CONNECTORS are files of connectors.

    A connector's file is JSON (a map of settings, or name, config and initial_state) or properties.
    The REST API is at `listeners`, by default http://localhost:8083. Ctrl-C commits and stops.
    """
    from ottla.connect.errors import ConnectException
    from ottla.connect.runtime.log_context import log_with_context
    from ottla.connect.runtime.rest import ConnectApi
    from ottla.connect.runtime.standalone import Standalone
    from ottla.connect.settings import STANDALONE

    log_with_context()
    requests = [read_connector(it) for it in connectors]
    settings, server = bind_rest(worker, STANDALONE)
    try:
        cluster_id = find_cluster_id(settings)
        running = Standalone(settings, server.address)
    except (ConfigErrors, ConnectException, OSError) as error:  # also of the file of offsets
        raise click.ClickException(f"{worker}: {error}") from error
    serve(server, ConnectApi(running, cluster_id), running, requests)


def read_worker(path: str) -> dict[str, str]:
    """Return a worker's settings, whose references are resolved."""
    from ottla.connect.runtime.secrets import worker_settings

    try:
        return worker_settings(read_file(path))
    except ConfigErrors as error:
        raise click.ClickException(f"{path}: {error}") from error


def bind_rest(worker: str, definitions: ConfigDefinitions) -> tuple[dict[str, str], RestServer]:
    """Read a worker's file and bind its listeners."""
    from ottla.connect.errors import ConnectException
    from ottla.connect.runtime.rest_server import RestServer

    settings = read_worker(worker)
    try:
        return settings, RestServer(settings, definitions.parse(settings))
    except (ConfigErrors, ConnectException) as error:
        raise click.ClickException(f"{worker}: {error}") from error


def serve(
    server: RestServer,
    api: ConnectApi,
    worker: HerderThread,
    requests: Sequence[ConnectorFile] = (),
) -> None:
    """Serve a worker's API and create connectors, until a signal; then stop the worker."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        server.start(api)
        _create(worker, requests)
        click.echo(f"REST API: {server.url.rstrip('/')}")
        stopped.wait()
    finally:
        server.stop()
        worker.stop()


def find_cluster_id(settings: dict[str, str]) -> str:
    """Ask the brokers of a worker's settings for their cluster's id."""
    from ottla.clients.admin.blocking import Admin
    from ottla.config.client import AdminConfig
    from ottla.config.providers import PROVIDERS
    from ottla.errors import KafkaError

    own = {
        name: value
        for name, value in settings.items()
        if name in AdminConfig.keys and name != PROVIDERS
    }
    try:
        with Admin(config=own) as admin:
            return admin.describe_cluster(timeout=_CLUSTER_TIMEOUT_S).cluster_id
    except (KafkaError, TimeoutError) as error:
        raise click.ClickException(failure_text(error)) from error


def read_connector(path: str) -> ConnectorFile:
    """Return name, settings and initial state of a connector's file.

    Tried in this order: JSON of settings, JSON of a request to create, properties (KIP-980).
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"cannot read {path}: {error}") from error
    try:
        parsed = json.loads(text)
    except ValueError:
        try:
            parsed = parse_properties(text)
        except PropertiesError as error:
            raise click.ClickException(f"{path}: {error}") from error
    initial = None
    if isinstance(parsed, dict) and isinstance(parsed.get("config"), dict):
        initial = parsed.get("initial_state")
        parsed = {"name": parsed.get("name"), **parsed["config"]}
    if not isinstance(parsed, dict) or not all(isinstance(it, str) for it in parsed.values()):
        raise click.ClickException(f"{path}: not the settings of a connector")
    if "name" not in parsed:
        raise click.ClickException(f"{path}: the connector has no name")
    return parsed["name"], parsed, initial


def _create(worker: HerderThread, requests: Sequence[ConnectorFile]) -> None:
    from ottla.connect.errors import ConnectException
    from ottla.connect.runtime.rest import initial_target

    for name, config, initial in requests:
        try:
            target = initial_target(initial)
            created = worker.put(name, config, may_replace=False, initial=target)
            created.result(_START_TIMEOUT_S)
        except ConnectException as error:
            raise click.ClickException(f"{name}: {error}") from error
        except TimeoutError as error:
            raise click.ClickException(f"{name}: no answer of its connector") from error
        click.echo(f"Created connector {name}")
