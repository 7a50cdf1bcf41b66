"""`ottla log-dirs`: list the replicas in each log directory with their sizes.

Kafka: bin/kafka-log-dirs.sh, org.apache.kafka.tools.LogDirsCommand.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import json_option, require, server_options, wants_json
from ottla.cli.options.joptsimple import ToolCommand, java_integer
from ottla.cli.output.failures import ToolError, failures_reported, java_class
from ottla.views.log_dirs import log_dirs_document

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """
\b
Examples:
  ottla log-dirs --bootstrap-server localhost:9092 --describe
  ottla log-dirs --bootstrap-server localhost:9092 --describe --topic-list orders --broker-list 1,2
"""


@click.command("log-dirs", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@json_option
@click.option("--describe", is_flag=True, help="Describe log directories.")
@click.option("--broker-list", default="", metavar="1,2", help="Only these brokers.")
@click.option("--topic-list", default="", metavar="T,T", help="Only these topics.")
def log_dirs(**options: Any) -> None:
    """Print the replicas in each log directory as JSON."""
    require(options["bootstrap_server"], "bootstrap-server")
    require(options["describe"] or None, "describe")
    with (
        failures_reported(),
        open_admin(options["bootstrap_server"], options["command_config"]) as admin,
    ):
        broker_list = options["broker_list"]
        topics = _words(options["topic_list"])
        existing = [node.node_id for node in admin.describe_cluster().brokers]
        requested = _broker_ids(broker_list) or existing
        missing = [broker for broker in requested if broker not in existing]
        if missing:
            raise ToolError(
                f"ERROR: The given brokers do not exist from --broker-list: {_joined(missing)}. "
                f"Current existent brokers: {_joined(existing)}"
            )
        if not wants_json():
            click.echo("Querying brokers for log directories information")
        directories = admin.describe_log_dirs(requested)
        if not wants_json():
            click.echo(f"Received log directory information from brokers {_joined(requested)}")
        document = log_dirs_document(directories, topics, java_class)
        click.echo(json.dumps(document, separators=(",", ":")))


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _broker_ids(text: str) -> list[int]:
    ids = []
    for word in _words(text):
        try:
            ids.append(java_integer(word, 32))
        except ValueError as error:
            raise ToolError(str(error)) from error
    return list(dict.fromkeys(ids))


def _joined(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))
