"""`ottla configs`: describe and change the settings of topics, brokers, groups, users and others.

Kafka: bin/kafka-configs.sh, kafka.admin.ConfigCommand.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from ottla.cli.entities import (
    alter_quotas,
    alter_resource,
    describe_quotas,
    describe_resources,
)
from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import (
    controller_option,
    json_option,
    refuse_json_unless,
    server_options,
)
from ottla.cli.options.joptsimple import ToolCommand, given_arguments, java_integer, refuse_both
from ottla.cli.output.failures import ToolError, fail, failure_text
from ottla.config.properties import PropertiesError, parse_properties
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.clients.blocking import Admin

TYPES = (
    "topics",
    "clients",
    "users",
    "brokers",
    "ips",
    "client-metrics",
    "groups",
    "broker-loggers",
)
QUOTA_TYPES = ("users", "clients", "ips")
MAY_BE_DEFAULT = ("users", "clients", "brokers", "ips")

# Flags that select a type directly, in the order in which Kafka reads them.
_NAMED = (
    ("topic", "topics"),
    ("client", "clients"),
    ("user", "users"),
    ("broker", "brokers"),
    ("broker_logger", "broker-loggers"),
    ("ip", "ips"),
    ("client_metrics", "client-metrics"),
    ("group", "groups"),
)
_DEFAULTS = (
    ("client_defaults", "clients"),
    ("user_defaults", "users"),
    ("broker_defaults", "brokers"),
    ("ip_defaults", "ips"),
)
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_KEY = re.compile(r"[a-zA-Z0-9._-]*")

EXAMPLES = """
\b
Examples:
  ottla configs --bootstrap-server localhost:9092 --describe --topic orders
  ottla configs --bootstrap-server localhost:9092 --alter --topic orders \\
      --add-config retention.ms=86400000,cleanup.policy=[compact,delete]
  ottla configs --bootstrap-server localhost:9092 --alter --topic orders \\
      --delete-config retention.ms
  ottla configs --bootstrap-server localhost:9092 --describe --broker 1 --all
  ottla configs --bootstrap-server localhost:9092 --alter --user alice --client-defaults \\
      --add-config producer_byte_rate=1048576
"""


class Entities(NamedTuple):
    """The selected entities: types and given names; the empty name is the default entity."""

    types: list[str]
    names: list[str]


@click.command("configs", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@controller_option
@json_option
@click.option("--describe", is_flag=True, help="List the settings of an entity.")
@click.option("--alter", is_flag=True, help="Change the settings of an entity.")
@click.option("--entity-type", multiple=True, metavar="TYPE", help="|".join(TYPES))
@click.option("--entity-name", multiple=True, metavar="NAME", help="Name of the entity.")
@click.option("--entity-default", is_flag=True, help="The default of clients, users, brokers, ips.")
@click.option("--topic", multiple=True, help="A topic.")
@click.option("--client", multiple=True, help="A client id.")
@click.option("--client-defaults", is_flag=True, help="The default of all clients.")
@click.option("--user", multiple=True, help="A user's principal name.")
@click.option("--user-defaults", is_flag=True, help="The default of all users.")
@click.option("--broker", multiple=True, metavar="ID", help="A broker.")
@click.option("--broker-defaults", is_flag=True, help="The default of all brokers.")
@click.option("--broker-logger", multiple=True, metavar="ID", help="The loggers of a broker.")
@click.option("--ip", multiple=True, metavar="ADDRESS", help="An address.")
@click.option("--ip-defaults", is_flag=True, help="The default of all addresses.")
@click.option("--client-metrics", multiple=True, metavar="NAME", help="A metrics subscription.")
@click.option("--group", multiple=True, help="A group.")
@click.option("--add-config", metavar="K=V,K=[V,V]", help="Settings to set; brackets keep commas.")
@click.option("--add-config-file", metavar="FILE", help="A properties file of settings to set.")
@click.option("--delete-config", multiple=True, metavar="K,K", help="Settings to remove.")
@click.option(
    "--all", "all_", is_flag=True, help="With --describe: also defaults and static settings."
)
def configs(**options: Any) -> None:
    """Describe and change the settings of topics, brokers, groups, users, clients and addresses."""
    if options["alter"] == options["describe"]:
        raise click.UsageError("Command must include exactly one action: --describe, --alter")
    if options["describe"]:
        for name in ("add_config", "delete_config"):
            if options[name]:
                refuse_both("describe", name)
    refuse_json_unless("describe" if options["describe"] else "alter", "describe")
    try:
        entities = _entities(options)
        _check(entities, options)
        added, deleted = _changes(options) if options["alter"] else ({}, [])
        with open_admin(
            options["bootstrap_server"] or "",
            options["command_config"],
            bootstrap_controller=options["bootstrap_controller"],
        ) as admin:
            if options["describe"]:
                _describe(admin, entities, describe_all=options["all_"])
            else:
                _alter(admin, entities, added, deleted)
    except ToolError as error:
        fail(str(error))
    except KafkaError as error:
        _fail_with_arguments(failure_text(error))
    except FileNotFoundError as error:
        _fail_with_arguments(f"java.nio.file.NoSuchFileException: {error.filename}")
    except OSError as error:
        _fail_with_arguments(f"java.io.IOException: {error.strerror}")


def _fail_with_arguments(text: str) -> NoReturn:
    arguments = " ".join(given_arguments())
    fail(f"Error while executing config command with args '{arguments}'", text)


# ---------------------------------------------------------------- flags


def _entities(options: dict[str, Any]) -> Entities:
    types = list(options["entity_type"])
    names = _ordered_names(given_arguments())
    for flag, kind in _NAMED:
        types += [kind] if options[flag] else []
    for flag, kind in _DEFAULTS:
        types += [kind] if options[flag] else []
    names += [name for flag, _ in _NAMED for name in options[flag]]
    names += ["" for flag, _ in _DEFAULTS if options[flag]]
    return Entities(types, names)


def _ordered_names(arguments: list[str]) -> list[str]:
    """Return --entity-name and --entity-default in order: the first belongs to the first type."""
    names = []
    for position, argument in enumerate(arguments):
        if argument == "--entity-default":
            names.append("")
        elif argument == "--entity-name":
            names.append(arguments[position + 1])
        elif argument.startswith("--entity-name="):
            names.append(argument.partition("=")[2])
    return names


def _check(entities: Entities, options: dict[str, Any]) -> None:
    types = entities.types
    servers = (options["bootstrap_server"], options["bootstrap_controller"])
    twice = [kind for position, kind in enumerate(types) if kind in types[:position]]
    _refuse_if(bool(twice), f"Duplicate entity type(s) specified: {','.join(twice)}")
    _refuse_if(
        not any(servers), "Either --bootstrap-server or --bootstrap-controller must be specified."
    )
    for kind in types:
        _refuse_if(
            kind not in TYPES,
            f"Invalid entity type {kind}, the entity type must be one of {', '.join(TYPES)} with a "
            "--bootstrap-server or --bootstrap-controller argument",
        )
    _refuse_if(not types, "At least one entity type must be specified")
    _refuse_if(
        len(types) > 1 and set(types) != {"users", "clients"},
        "Only 'users' and 'clients' entity types may be specified together",
    )
    general = options["entity_name"] or options["entity_type"] or options["entity_default"]
    _refuse_if(
        bool(general) and any(options[flag] for flag, _ in (*_NAMED, *_DEFAULTS)),
        "--entity-{type,name,default} should not be used in conjunction with specific entity flags",
    )
    _refuse_if(
        all(servers), "Only one of --bootstrap-server or --bootstrap-controller can be specified"
    )
    _check_names(entities)
    if options["describe"]:
        _check_describe(entities)
    else:
        _check_alter(entities, options)


def _check_names(entities: Entities) -> None:
    kind = entities.types[0]
    for name in filter(None, entities.names):
        if kind in ("brokers", "broker-loggers") and not _is_broker_id(name):
            raise ToolError(
                f"The entity name for {kind} must be a valid integer broker id, but it is: {name}"
            )
        if kind == "ips" and not _is_address(name):
            raise ToolError(
                f"The entity name for ips must be a valid IP or resolvable host, but it is: {name}"
            )


def _is_broker_id(name: str) -> bool:
    try:
        java_integer(name, 32)
    except ValueError:
        return False
    return True


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        try:
            socket.getaddrinfo(name, None)
        except (OSError, UnicodeError):
            return False
    return True


def _check_describe(entities: Entities) -> None:
    kind = entities.types[0]
    if kind not in MAY_BE_DEFAULT and "" in entities.names:
        raise ToolError(f"--entity-default must not be specified with --describe of {kind}")
    if kind == "broker-loggers" and not any(entities.names):
        raise ToolError("An entity name must be specified with --describe of broker-loggers")


def _check_alter(entities: Entities, options: dict[str, Any]) -> None:
    if entities.types[0] in MAY_BE_DEFAULT:
        _refuse_if(
            not entities.names,
            "An entity-name or default entity must be specified with --alter of users, clients, "
            "brokers or ips",
        )
    else:
        _refuse_if(
            not any(entities.names),
            f"An entity name must be specified with --alter of {','.join(entities.types)}",
        )
    _refuse_if(
        bool(options["add_config"] is not None and options["add_config_file"]),
        "Only one of --add-config or --add-config-file must be specified",
    )
    _refuse_if(
        options["add_config"] is None
        and not options["add_config_file"]
        and not options["delete_config"],
        "At least one of --add-config, --add-config-file, or --delete-config must be specified "
        "with --alter",
    )


def _refuse_if(wrong: bool, text: str) -> None:
    if wrong:
        raise ToolError(text)


# ---------------------------------------------------------------- settings


def _changes(options: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    added: dict[str, str] = {}
    if options["add_config_file"]:
        path = options["add_config_file"]
        try:
            added = parse_properties(Path(path).read_text(encoding="utf-8"))
        except PropertiesError as error:
            raise ToolError(str(error)) from error
        except UnicodeDecodeError as error:
            raise ToolError(f"cannot read {path}: {error}") from error
    elif options["add_config"] is not None:
        added = parse_added(options["add_config"])
    deleted = [key.strip() for given in options["delete_config"] for key in given.split(",")]
    for key in (*added, *deleted):
        if not _KEY.fullmatch(key):
            raise ToolError(f"Invalid character found for config key: {key}")
    return added, deleted


def parse_added(text: str) -> dict[str, str]:
    """Parse k1=v1,k2=[v1,v2]; raises ToolError with Kafka's text."""
    added = {}
    for pair in re.split("," + _OUTSIDE_BRACKETS, text):
        parts = re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, pair)
        if len(parts) != 2:
            raise ToolError(
                "requirement failed: Invalid entity config: all configs to be added must be in the "
                'format "key=val" or  "key=[val1,val2]" to group values which contain commas.'
            )
        added[parts[0].strip()] = re.sub(r"[\[\]]", "", parts[1]).strip()
    return added


# ---------------------------------------------------------------- actions


def _describe(admin: Admin, entities: Entities, *, describe_all: bool) -> None:
    if entities.types[0] in QUOTA_TYPES:
        describe_quotas(admin, entities.types, entities.names)
        return
    name = entities.names[0] if entities.names else None
    describe_resources(admin, entities.types[0], name, describe_all=describe_all)


def _alter(admin: Admin, entities: Entities, added: dict[str, str], deleted: list[str]) -> None:
    kind = entities.types[0]
    name = entities.names[0] if entities.names else ""
    if kind in QUOTA_TYPES:
        alter_quotas(admin, entities.types, entities.names, added, deleted)
    else:
        alter_resource(admin, kind, name, added, deleted)
    if name:
        click.echo(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        click.echo(f"Completed updating default config for {kind} in the cluster.")
