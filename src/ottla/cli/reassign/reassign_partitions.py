"""`ottla reassign-partitions`: move the replicas of partitions to other brokers.

Kafka: bin/kafka-reassign-partitions.sh, org.apache.kafka.tools.reassign.ReassignPartitionsCommand.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import (
    controller_option,
    json_option,
    refuse_json_unless,
    require,
    server_options,
)
from ottla.cli.options.joptsimple import LONG, ToolCommand
from ottla.cli.output.failures import ToolError, failure_text
from ottla.cli.reassign.actions import (
    Failed,
    Rates,
    cancel,
    execute,
    generate,
    list_active,
    verify,
)
from ottla.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from ottla.clients.blocking import Admin

EXAMPLES = """
\b
Examples:
  ottla reassign-partitions --bootstrap-server localhost:9092 --generate \\
      --topics-to-move-json-file topics.json --broker-list 1,2,3
  ottla reassign-partitions --bootstrap-server localhost:9092 --execute \\
      --reassignment-json-file plan.json --throttle 10000000
  ottla reassign-partitions --bootstrap-server localhost:9092 --verify \\
      --reassignment-json-file plan.json
  ottla reassign-partitions --bootstrap-server localhost:9092 --list
\b
A plan is {"version": 1, "partitions": [{"topic": "foo", "partition": 0, "replicas": [1, 2]}]};
each partition may have "log_dirs", a path or "any" for each replica. The topics to move are
{"version": 1, "topics": [{"topic": "foo"}]}.
"""

# The flags that each action requires, and those that it accepts.
_REQUIRED = {
    "generate": ("topics_to_move_json_file", "broker_list"),
    "execute": ("reassignment_json_file",),
    "verify": ("reassignment_json_file",),
    "cancel": ("reassignment_json_file",),
    "list": (),
}
_ALSO = {
    "generate": ("disable_rack_aware",),
    "execute": (
        "additional",
        "throttle",
        "replica_alter_log_dirs_throttle",
        "timeout",
        "disallow_replication_factor_change",
    ),
    "verify": ("preserve_throttles",),
    "cancel": ("preserve_throttles", "timeout", "bootstrap_controller"),
    "list": ("bootstrap_controller",),
}
_ALWAYS = ("bootstrap_server", "command_config")


@click.command("reassign-partitions", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@controller_option
@json_option
@click.option("--generate", is_flag=True, help="Propose replicas on the brokers given.")
@click.option("--execute", is_flag=True, help="Start the moves of a plan.")
@click.option("--verify", is_flag=True, help="Show the progress of a plan; remove its throttles.")
@click.option("--cancel", is_flag=True, help="Cancel the moves of a plan.")
@click.option("--list", "list_", is_flag=True, help="List all moves under way.")
@click.option("--reassignment-json-file", metavar="FILE", help="The plan.")
@click.option("--topics-to-move-json-file", metavar="FILE", help="Topics, with --generate.")
@click.option("--broker-list", metavar="1,2,3", help="Brokers, with --generate.")
@click.option("--disable-rack-aware", is_flag=True, help="Ignore racks, with --generate.")
@click.option("--throttle", type=LONG, default=-1, help="Bytes per second between brokers.")
@click.option(
    "--replica-alter-log-dirs-throttle",
    type=LONG,
    default=-1,
    help="Bytes per second between the log directories of a broker.",
)
@click.option(
    "--timeout",
    type=LONG,
    default=10_000,
    help="Milliseconds to wait for moves between log directories to begin.",
)
@click.option("--additional", is_flag=True, help="Start although other moves are under way.")
@click.option("--preserve-throttles", is_flag=True, help="Leave the throttles as they are.")
@click.option(
    "--disallow-replication-factor-change", is_flag=True, help="Refuse plans that change it."
)
def reassign_partitions(**options: Any) -> None:
    """Move the replicas of partitions to other brokers."""
    action = _action(options)
    try:
        with open_admin(
            options["bootstrap_server"] or "",
            options["command_config"],
            bootstrap_controller=options["bootstrap_controller"],
        ) as admin:
            _run(admin, action, options)
    except Failed as error:
        _end(str(error))
    except (ToolError, ConfigError) as error:
        _end(f"Error: {error}")
    except KafkaError as error:
        _end(f"Error: {failure_text(error)}")


def _end(text: str) -> None:
    click.echo(text)
    sys.exit(1)


def _run(admin: Admin, action: str, options: dict[str, Any]) -> None:
    plan = options["reassignment_json_file"]
    keeps = options["preserve_throttles"]
    if action == "generate":
        generate(
            admin,
            options["topics_to_move_json_file"],
            options["broker_list"],
            by_rack=not options["disable_rack_aware"],
        )
    elif action == "execute":
        execute(
            admin,
            plan,
            rates=Rates(options["throttle"], options["replica_alter_log_dirs_throttle"]),
            timeout_ms=options["timeout"],
            is_additional=options["additional"],
            keeps_factor=options["disallow_replication_factor_change"],
        )
    elif action == "verify":
        verify(admin, plan, keeps_throttles=keeps)
    elif action == "cancel":
        cancel(admin, plan, timeout_ms=options["timeout"], keeps_throttles=keeps)
    else:
        list_active(admin)


def _action(options: dict[str, Any]) -> str:
    """Return the one action; raises UsageError with Kafka's texts for wrong flags."""
    options["list"] = options.pop("list_")
    actions = [name for name in _REQUIRED if options[name]]
    if len(actions) != 1:
        names = ", ".join(f"--{name}" for name in _REQUIRED)
        raise click.UsageError(f"Command must include exactly one action: {names}")
    action = actions[0]
    servers = [options["bootstrap_server"], options["bootstrap_controller"]]
    if all(server is not None for server in servers):
        raise click.UsageError(
            "Please don't specify both --bootstrap-server and --bootstrap-controller"
        )
    if all(server is None for server in servers):
        raise click.UsageError("Please specify either --bootstrap-server or --bootstrap-controller")
    for name in _REQUIRED[action]:
        require(options[name], name.replace("_", "-"))
    _refuse_others(action)
    refuse_json_unless(action, "list")
    return action


def _refuse_others(action: str) -> None:
    context = click.get_current_context()
    known = (action, *_REQUIRED[action], *_ALSO[action], *_ALWAYS)
    actions = ("list_", *_REQUIRED)
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        is_given = source is click.core.ParameterSource.COMMANDLINE
        if is_given and name not in known and name not in (*actions, "json"):
            flag = name.replace("_", "-")
            raise click.UsageError(f'Option "[{flag}]" can\'t be used with action "[{action}]"')
