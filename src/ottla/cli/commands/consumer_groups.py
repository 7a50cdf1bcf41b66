"""`ottla consumer-groups`: list, describe, reset and delete consumer groups.

Kafka: bin/kafka-consumer-groups.sh, org.apache.kafka.tools.consumer.group.ConsumerGroupCommand.

Like Kafka's tool, it reports failures of the cluster on standard output and exits with 0; only
usage errors exit with 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.groups.flags import GroupCommandError, GroupFlags
from ottla.cli.groups.offset_deletion import delete_offsets
from ottla.cli.groups.offset_reset import check_scenario, reset_offsets
from ottla.cli.groups.tables import documents, print_members, print_offsets, print_states
from ottla.cli.groups.usage import (
    check_describe,
    check_only_with,
    reset_targets,
    words_of,
)
from ottla.cli.options.connection import SettingsFileError, open_admin
from ottla.cli.options.flags import server_options
from ottla.cli.options.joptsimple import LONG, ToolCommand, refuse_both
from ottla.cli.options.json_output import json_option, print_json, refuse_json_unless, wants_json
from ottla.cli.options.regex_check import re2_problem
from ottla.cli.output.java_names import java_text
from ottla.cli.output.next_steps import group_failure_text
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.clients.blocking import Admin

ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets", "validate_regex")
STATES = (
    "Assigning",
    "CompletingRebalance",
    "Dead",
    "Empty",
    "PreparingRebalance",
    "Reconciling",
    "Stable",
)
TYPES = ("Classic", "Consumer")
_ONLY_WITH = {
    "members": ("describe",),
    "offsets": ("describe",),
    "verbose": ("describe",),
    "state": ("describe", "list"),
    "type": ("list",),
}
NO_EXECUTE = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this "
    "command will require either --dry-run or --execute to be specified. You should add the "
    "--dry-run option explicitly if you are scripting this command and want to keep the current "
    "default behavior without prompting."
)

EXAMPLES = """
\b
Examples:
  ottla consumer-groups --bootstrap-server localhost:9092 --list --state
  ottla consumer-groups --bootstrap-server localhost:9092 --describe --group billing
  ottla consumer-groups --bootstrap-server localhost:9092 --describe --group billing --members
  ottla consumer-groups --bootstrap-server localhost:9092 --reset-offsets --group billing \\
      --topic orders --to-earliest --execute
"""


@click.command("consumer-groups", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@click.option("--list", "list_", is_flag=True, help="List all consumer groups.")
@click.option("--describe", is_flag=True, help="Show offsets and lag, members or state.")
@click.option("--delete", is_flag=True, help="Delete groups.")
@click.option("--reset-offsets", is_flag=True, help="Set the offsets of an inactive group.")
@click.option("--delete-offsets", is_flag=True, help="Delete a group's offsets of topics.")
@click.option("--validate-regex", metavar="REGEX", help="Check a regular expression.")
@click.option("--group", multiple=True, help="The group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="All consumer groups.")
@click.option(
    "--topic", multiple=True, metavar="TOPIC[:0,1]", help="The topic, or some partitions."
)
@click.option("--all-topics", is_flag=True, help="All topics that the group has offsets for.")
@click.option("--offsets", is_flag=True, help="With --describe: offsets and lag (the default).")
@json_option
@click.option("--members", is_flag=True, help="With --describe: the members.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATES]",
    help="With --describe: the state; with --list: show or filter by states.",
)
@click.option(
    "--type",
    "type_",
    is_flag=False,
    flag_value="",
    metavar="[TYPES]",
    help="With --list: show or filter by types.",
)
@click.option("--verbose", is_flag=True, help="With --describe: more columns.")
@click.option("--timeout", type=LONG, default=30_000, help="Time limit in ms.")
@reset_targets
@click.option("--dry-run", is_flag=True, help="Only print the new offsets.")
@click.option("--execute", is_flag=True, help="Execute the reset.")
@click.option("--export", is_flag=True, help="Print the reset as CSV.")
def consumer_groups(**options: Any) -> None:
    """List, describe, reset and delete consumer groups."""
    options["list"] = options.pop("list_")
    options["type"] = options.pop("type_")
    actions = [name for name in ACTIONS if options[name]]
    if len(actions) != 1:
        shown = ", ".join(
            f"--{name.replace('_', '-')}" for name in ("list", "describe", "delete", *ACTIONS[3:])
        )
        raise click.UsageError(f"Command must include exactly one action: {shown}")
    if actions[0] == "validate_regex":
        _validate_regex(options["validate_regex"])
        return
    _check(actions[0], options)
    refuse_json_unless(actions[0], "list", "describe")
    flags = GroupFlags(**{name: options[name] for name in GroupFlags._fields})
    try:
        with open_admin(
            options["bootstrap_server"],
            options["command_config"],
            default_api_timeout_ms=options["timeout"],
        ) as admin:
            _run(admin, actions[0], flags, options)
    except (GroupCommandError, KafkaError, SettingsFileError) as error:
        words = "Executing consumer group command failed due to"
        click.echo(f"\nError: {words} {group_failure_text(error)}")


def _run(admin: Admin, action: str, flags: GroupFlags, options: dict[str, Any]) -> None:
    if action == "list":
        _list(admin, options["state"], options["type"])
    elif action == "describe":
        _describe(admin, options)
    elif action == "delete":
        _delete(admin, _groups(admin, options))
    elif action == "reset_offsets":
        groups = _groups(admin, options)
        if not options["execute"] and not options["dry_run"]:
            click.echo(NO_EXECUTE, err=True)
        reset_offsets(admin, groups, flags)
    else:
        delete_offsets(admin, flags)


def _check(action: str, options: dict[str, Any]) -> None:
    check_only_with(_ONLY_WITH, (action,), options)
    if not options["bootstrap_server"]:
        raise click.UsageError('Missing required argument "[bootstrap-server]"')
    _check_scopes(action, options)
    if action == "describe":
        check_describe(options)
    if options["dry_run"] and options["execute"]:
        raise click.UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if action == "reset_offsets":
        check_scenario(options)
    if options["group"] and options["all_groups"]:
        refuse_both("group", "all-groups")
    if options["group"] and action == "list":
        refuse_both("group", "list")
    if options["topic"] and action in ("list", "describe"):
        refuse_both("topic", action)


def _check_scopes(action: str, options: dict[str, Any]) -> None:
    named = bool(options["group"] or options["all_groups"])
    if action in ("describe", "delete", "reset_offsets") and not named:
        option = action.replace("_", "-")
        raise click.UsageError(
            f"Option [{option}] takes one of these options: [all-groups], [group]"
        )
    if action == "delete_offsets" and not (options["group"] and options["topic"]):
        raise click.UsageError(
            "Option [delete-offsets] takes the following options: [group], [topic]"
        )
    if action == "delete" and options["topic"]:
        raise click.UsageError(
            "The consumer does not support topic-specific offset deletion from a consumer group."
        )


def _groups(admin: Admin, options: dict[str, Any]) -> list[str]:
    if options["all_groups"]:
        return [group.group_id for group in _listed(admin, (), ())]
    return list(dict.fromkeys(options["group"]))


def _listed(admin: Admin, states: tuple[str, ...], types: tuple[str, ...]) -> list[Any]:
    found = admin.list_groups(states=states, types=types or TYPES)
    return [group for group in found if group.protocol_type in ("", "consumer")]


def _list(admin: Admin, state: str | None, type_: str | None) -> None:
    states = words_of(state, STATES, "state")
    types = words_of(type_, TYPES, "types")
    groups = _listed(admin, states, types)
    if wants_json():
        print_json([{**one._asdict(), "type": one.type.capitalize()} for one in groups])
        return
    if state is None and type_ is None:
        for group in groups:
            click.echo(group.group_id)
        return
    width = max([15, *(len(group.group_id) for group in groups)]) + 10
    columns = [("TYPE", "type")] if type_ is not None else []
    columns += [("STATE", "state")] if state is not None else []
    click.echo(f"{'GROUP':<{width}}" + "".join(f" {title:<20}" for title, _ in columns))
    for group in groups:
        cells = (getattr(group, name).capitalize() if name == "type" else group.state
                 for _, name in columns)  # fmt: skip
        click.echo(f"{group.group_id:<{width}}" + "".join(f" {cell:<20}" for cell in cells))


def _describe(admin: Admin, options: dict[str, Any]) -> None:
    groups = _groups(admin, options)
    descriptions = {}
    for group_id, described in admin.describe_groups(groups).items():
        if isinstance(described, KafkaError):
            raise described
        descriptions[group_id] = described
    if wants_json():
        print_json(documents(admin, descriptions, with_offsets=_shows_offsets(options)))
        return
    verbose = options["verbose"]
    if options["members"]:
        print_members(descriptions, verbose=verbose)
    elif options["state"] is not None:
        print_states(admin, descriptions, verbose=verbose)
    else:
        print_offsets(admin, descriptions, verbose=verbose)


def _shows_offsets(options: dict[str, Any]) -> bool:
    return not options["members"] and options["state"] is None


def _delete(admin: Admin, groups: list[str]) -> None:
    outcomes = admin.delete_groups(groups)
    deleted = [f"'{group}'" for group, error in outcomes.items() if error is None]
    failed = {group: error for group, error in outcomes.items() if error is not None}
    if not failed:
        click.echo(f"Deletion of requested consumer groups ({', '.join(deleted)}) was successful.")
        return
    click.echo("\nError: Deletion of some consumer groups failed:")
    for group, error in failed.items():
        click.echo(f"* Group '{group}' could not be deleted due to: {java_text(error)}")
    if deleted:
        click.echo(f"\nThese consumer groups were deleted successfully: {', '.join(deleted)}")


def _validate_regex(pattern: str) -> None:
    problem = re2_problem(pattern)
    if problem is None:
        click.echo(f"The regular expression `{pattern}` is valid.")
    else:
        click.echo(f"The regular expression `{pattern}` is invalid: {problem}.")
