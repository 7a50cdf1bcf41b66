"""`ottla client-metrics`: manage subscriptions to client metrics (KIP-714).

Kafka: bin/kafka-client-metrics.sh, org.apache.kafka.tools.ClientMetricsCommand.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import (
    json_option,
    print_json,
    refuse_json_unless,
    require,
    server_options,
    wants_json,
)
from ottla.cli.options.joptsimple import ToolCommand, refuse_both
from ottla.cli.output.failures import fail, with_next_step
from ottla.clients.admin.configs import AlterOperation, ConfigChange, ConfigResource, ResourceType
from ottla.errors import KafkaError
from ottla.types import Uuid

if TYPE_CHECKING:
    from ottla.clients.admin.configs import ConfigEntry
    from ottla.clients.blocking import Admin

ACTIONS = ("alter", "delete", "describe", "list")
_NOT_WITH = {
    "list": ("name", "generate_name", "interval", "match", "metrics"),
    "describe": ("generate_name", "interval", "match", "metrics"),
    "delete": ("generate_name", "interval", "match", "metrics"),
    "alter": (),
}
SELECTORS = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

EXAMPLES = """
\b
Examples:
  ottla client-metrics --bootstrap-server localhost:9092 --list
  ottla client-metrics --bootstrap-server localhost:9092 --alter --generate-name \\
      --metrics org.apache.kafka.producer. --interval 60000 --match client_software_name=ottla
  ottla client-metrics --bootstrap-server localhost:9092 --describe --name my-subscription
"""


@click.command("client-metrics", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@json_option
@click.option("--list", "list_", is_flag=True, help="List the subscriptions.")
@click.option("--describe", is_flag=True, help="Show the settings of subscriptions.")
@click.option("--alter", is_flag=True, help="Create or change a subscription.")
@click.option("--delete", is_flag=True, help="Delete a subscription.")
@click.option("--name", metavar="NAME", help="Name of the subscription.")
@click.option("--generate-name", is_flag=True, help="Use a new UUID as the name.")
@click.option("--metrics", metavar="M1,M2", help="Prefixes of the metrics' names.")
@click.option("--interval", metavar="MS", help="Push interval; empty to reset it.")
@click.option("--match", metavar="K=V,K=V", help=f"Selects clients by {', '.join(SELECTORS)}.")
def client_metrics(**options: Any) -> None:
    """List, describe, change and delete subscriptions to client metrics."""
    options["list"] = options.pop("list_")
    action = _checked_action(options)
    refuse_json_unless(action, "list", "describe")
    try:
        with open_admin(options["bootstrap_server"], options["command_config"]) as admin:
            _RUN[action](admin, options)
    except KafkaError as error:
        text = with_next_step(str(error), error)
        click.echo(f"Error while executing client metrics command : {text}")
        sys.exit(1)


def _checked_action(options: dict[str, Any]) -> str:
    require(options["bootstrap_server"], "bootstrap-server")
    actions = [action for action in ACTIONS if options[action]]
    if len(actions) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --alter, --delete, --describe or --list."
        )
    action = actions[0]
    for other in _NOT_WITH[action]:
        if options[other] not in (None, False):
            refuse_both(action, other)
    if action == "alter" and (options["name"] is not None) == options["generate_name"]:
        fail("One of --name or --generate-name must be specified with --alter.")
    if action == "delete" and options["name"] is None:
        fail("A client metrics resource name must be specified with --delete.")
    return action


def _names(admin: Admin) -> list[str]:
    listed = admin.list_config_resources([ResourceType.CLIENT_METRICS])
    return [resource.name for resource in listed]


def _list(admin: Admin, _options: dict[str, Any]) -> None:
    names = _names(admin)
    if wants_json():
        print_json(names)
        return
    for name in names:
        click.echo(name)


def _describe(admin: Admin, options: dict[str, Any]) -> None:
    known = _names(admin)
    name = options["name"]
    if name is not None and name not in known:
        click.echo(
            f"The client metric resource {name} doesn't exist and doesn't have dynamic config."
        )
        return
    names = known if name is None else [name]
    if wants_json():
        print_json(
            {
                name: {entry.name: entry.value for entry in sorted(_entries(admin, name).values())}
                for name in names
            }
        )
        return
    for one in names:
        click.echo(f"Client metrics configs for {one} are:")
        for entry in sorted(_entries(admin, one).values()):
            click.echo(f"  {entry.name}={entry.value}")


def _entries(admin: Admin, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.CLIENT_METRICS, name)
    found: dict[str, ConfigEntry] | KafkaError = admin.describe_configs([resource])[resource]
    if isinstance(found, KafkaError):
        raise found
    return found


def _alter(admin: Admin, options: dict[str, Any]) -> None:
    name = options["name"]
    if options["generate_name"]:
        name = str(Uuid.drawn(lambda: uuid4().bytes))
    given = {
        "interval.ms": options["interval"],
        "metrics": options["metrics"],
        "match": options["match"],
    }
    _change(admin, name, {key: value for key, value in given.items() if value is not None})
    click.echo(f"Altered client metrics config for {name}.")


def _delete(admin: Admin, options: dict[str, Any]) -> None:
    _change(admin, options["name"], dict.fromkeys(_entries(admin, options["name"]), ""))
    click.echo(f"Deleted client metrics config for {options['name']}.")


def _change(admin: Admin, name: str, values: dict[str, str]) -> None:
    """Set values; an empty value resets a setting to its default."""
    resource = ConfigResource(ResourceType.CLIENT_METRICS, name)
    changes = [
        ConfigChange(key, value) if value else ConfigChange(key, None, AlterOperation.DELETE)
        for key, value in values.items()
    ]
    error = admin.alter_configs({resource: changes})[resource]
    if error is not None:
        raise error


_RUN = {"list": _list, "describe": _describe, "alter": _alter, "delete": _delete}
