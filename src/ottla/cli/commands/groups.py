"""`ottla groups`: list the groups of all types.

Kafka: bin/kafka-groups.sh, org.apache.kafka.tools.GroupsCommand.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import json_option, print_json, require, server_options, wants_json
from ottla.cli.options.joptsimple import ToolCommand, refuse_both
from ottla.cli.output.failures import fail
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.clients.admin.groups import GroupListing

TYPES = ("Classic", "Consumer", "Share", "Streams")
_FILTERS = (
    ("consumer", ("protocol", "group_type", "share", "streams")),
    ("share", ("consumer", "group_type", "protocol", "streams")),
    ("streams", ("consumer", "group_type", "protocol", "share")),
    ("group_type", ("consumer", "share", "streams")),
    ("protocol", ("consumer", "share", "streams")),
)

EXAMPLES = """
\b
Examples:
  ottla groups --bootstrap-server localhost:9092 --list
  ottla groups --bootstrap-server localhost:9092 --list --consumer
  ottla groups --bootstrap-server localhost:9092 --list --group-type classic --protocol connect
"""


@click.command("groups", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@json_option
@click.option("--list", "list_", is_flag=True, help="List the groups.")
@click.option("--group-type", metavar="TYPE", help="Only of a type: classic, consumer, share, …")
@click.option("--protocol", metavar="NAME", help="Only of a protocol type.")
@click.option("--consumer", is_flag=True, help="Only consumer groups, classic and simple ones too.")
@click.option("--share", is_flag=True, help="Only share groups.")
@click.option("--streams", is_flag=True, help="Only streams groups.")
def groups(**options: Any) -> None:
    """List the groups of all types."""
    require(options["bootstrap_server"], "bootstrap-server")
    if not options["list_"]:
        raise click.UsageError("Command must include exactly one action: --list.")
    for chosen, others in _FILTERS:
        for other in others:
            if options[chosen] and options[other]:
                refuse_both(chosen, other)
    requested = options["group_type"]
    if requested is not None and requested.capitalize() not in TYPES:
        fail("--group-type must be a valid group type.")
    try:
        with open_admin(options["bootstrap_server"], options["command_config"]) as admin:
            found = admin.list_groups()
    except KafkaError as error:
        click.echo(f"Error while executing groups command : {error}")
        sys.exit(1)
    selected = [group for group in found if _is_selected(group, options)]
    if wants_json():
        print_json([{**group._asdict(), "type": group.type.capitalize()} for group in selected])
    else:
        _print(selected)


def _is_selected(group: GroupListing, options: dict[str, Any]) -> bool:
    kind = group.type.capitalize()
    if options["consumer"]:
        classic = kind == "Classic" and group.protocol_type in ("consumer", "")
        return kind == "Consumer" or classic
    if options["share"]:
        return kind == "Share"
    if options["streams"]:
        return kind == "Streams"
    of_type = options["group_type"] is None or kind == options["group_type"].capitalize()
    return of_type and options["protocol"] in (None, group.protocol_type)


def _print(found: list[GroupListing]) -> None:
    width = max([20, *(len(group.group_id) for group in found)])
    click.echo(f"{'GROUP':<{width}} {'TYPE':<20} {'PROTOCOL':<20}")
    for group in found:
        click.echo(
            f"{group.group_id:<{width}} {group.type.capitalize():<20} {group.protocol_type:<20} "
        )
