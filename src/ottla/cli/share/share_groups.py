"""`ottla share-groups`: list, describe, reset and delete share groups.

Kafka: bin/kafka-share-groups.sh, org.apache.kafka.tools.consumer.group.ShareGroupCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.groups.flags import GroupCommandError, GroupFlags
from ottla.cli.groups.offset_reset import plan_reset
from ottla.cli.groups.reset_plans import print_plans
from ottla.cli.groups.tables import print_problem
from ottla.cli.groups.usage import check_describe, scenario_of, words_of
from ottla.cli.options.connection import SettingsFileError, open_admin
from ottla.cli.options.flags import require, server_options
from ottla.cli.options.joptsimple import LONG, ToolCommand, refuse_both
from ottla.cli.options.json_output import json_option, print_json, refuse_json_unless, wants_json
from ottla.cli.output.java_names import java_text
from ottla.cli.output.next_steps import group_failure_text
from ottla.cli.share.tables import document, print_members, print_offsets, print_states
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.clients.admin.groups import GroupDescription
    from ottla.clients.blocking import Admin

ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
STATES = ("Stable", "Dead", "Empty")
SCENARIOS = ("to_datetime", "to_earliest", "to_latest")

EXAMPLES = """
\b
Examples:
  ottla share-groups --bootstrap-server localhost:9092 --list --state
  ottla share-groups --bootstrap-server localhost:9092 --describe --group billing --members
  ottla share-groups --bootstrap-server localhost:9092 --reset-offsets --group billing \\
      --topic orders --to-earliest --execute
"""


@click.command("share-groups", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@json_option
@click.option("--list", "list_", is_flag=True, help="List all share groups.")
@click.option("--describe", is_flag=True, help="Show lag, members or state.")
@click.option("--delete", is_flag=True, help="Delete groups.")
@click.option("--reset-offsets", is_flag=True, help="Set the start offsets of an inactive group.")
@click.option("--delete-offsets", is_flag=True, help="Delete a group's offsets of topics.")
@click.option("--group", multiple=True, help="The group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="All share groups.")
@click.option(
    "--topic", multiple=True, metavar="TOPIC[:0,1]", help="The topic, or some partitions."
)
@click.option("--all-topics", is_flag=True, help="With --reset-offsets: all topics of the group.")
@click.option("--offsets", is_flag=True, help="With --describe: the lag (the default).")
@click.option("--members", is_flag=True, help="With --describe: the members.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATES]",
    help="With --describe: the state; with --list: show or filter by states.",
)
@click.option("--verbose", is_flag=True, help="With --describe: more columns.")
@click.option("--timeout", type=LONG, default=30_000, help="Time limit in ms.")
@click.option("--to-earliest", is_flag=True, help="Reset to the first record.")
@click.option("--to-latest", is_flag=True, help="Reset to the end.")
@click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="Reset to a time.")
@click.option("--dry-run", is_flag=True, help="Only print the new offsets.")
@click.option("--execute", is_flag=True, help="Execute the reset.")
def share_groups(**options: Any) -> None:
    """List, describe, reset and delete share groups."""
    options["list"] = options.pop("list_")
    require(options["bootstrap_server"], "bootstrap-server")
    _check(options)
    actions = [name for name in ACTIONS if options[name]]
    if len(actions) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --list, --describe, --delete, "
            "--reset-offsets, --delete-offsets."
        )
    refuse_json_unless(actions[0], "list", "describe")
    try:
        with open_admin(
            options["bootstrap_server"],
            options["command_config"],
            default_api_timeout_ms=options["timeout"],
        ) as admin:
            _RUN[actions[0]](admin, options)
    except (GroupCommandError, KafkaError, SettingsFileError) as error:
        reason = group_failure_text(error)
        print_problem(f"Executing share group command failed due to {reason}")  # status 0, as Kafka


# ---------------------------------------------------------------- usage


def _check(options: dict[str, Any]) -> None:
    if options["describe"]:
        _check_describe(options)
    if options["delete"]:
        _check_delete(options)
    if options["delete_offsets"] and not (options["group"] and options["topic"]):
        raise click.UsageError(
            "Option [delete-offsets] takes the following options: [topic], [group]"
        )
    if options["reset_offsets"]:
        _check_reset(options)
    for other in ("all_groups", "list"):
        if options["group"] and options[other]:
            refuse_both("group", other)


def _check_describe(options: dict[str, Any]) -> None:
    if not options["group"] and not options["all_groups"]:
        raise click.UsageError(
            "Option [describe] takes one of these options: [all-groups], [group]"
        )
    check_describe(options)


def _check_delete(options: dict[str, Any]) -> None:
    if not options["group"] and not options["all_groups"]:
        raise click.UsageError("Option [delete] takes the options [group] or [all-groups]")
    if options["group"] and options["all_groups"]:
        raise click.UsageError("Option [delete] takes either [group] or [all-groups], not both.")
    if options["topic"]:
        raise click.UsageError("Option [delete] does not take the option: [topic]")


def _check_reset(options: dict[str, Any]) -> None:
    if options["dry_run"] and options["execute"]:
        raise click.UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options["dry_run"] and not options["execute"]:
        raise click.UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not options["group"]:
        raise click.UsageError("Option [reset-offsets] takes the option: [group]")
    if not options["topic"] and not options["all_topics"]:
        raise click.UsageError(
            "Option [reset-offsets] takes one of these options: [topic], [all-topics]"
        )
    scenario_of(SCENARIOS, options)


# ---------------------------------------------------------------- actions


def _list(admin: Admin, options: dict[str, Any]) -> None:
    state = options["state"]
    groups = admin.list_groups(types=("share",), states=words_of(state, STATES, "state"))
    if wants_json():
        print_json([one._asdict() for one in groups])
        return
    if state is None:
        for group in groups:
            click.echo(group.group_id)
        return
    width = max([15, *(len(group.group_id) for group in groups)])
    for name, shown in [("GROUP", "STATE"), *((one.group_id, one.state) for one in groups)]:
        click.echo(f"{name:<{width}} {shown}")


def _described(admin: Admin, group_id: str) -> GroupDescription:
    found = admin.describe_share_groups([group_id])[group_id]
    if isinstance(found, KafkaError):
        raise found
    return found


def _describe(admin: Admin, options: dict[str, Any]) -> None:
    names = options["group"]
    if options["all_groups"]:
        names = [one.group_id for one in admin.list_groups(types=("share",))]
    verbose = options["verbose"]
    described = [_described(admin, name) for name in sorted(set(names))]
    if wants_json():
        with_offsets = not options["members"] and options["state"] is None
        print_json([document(admin, one, with_offsets=with_offsets) for one in described])
        return
    for group in described:
        if options["members"]:
            print_members(group, verbose=verbose)
        elif options["state"] is not None:
            print_states(admin, group, verbose=verbose)
        else:
            print_offsets(admin, group, verbose=verbose)


def _delete(admin: Admin, options: dict[str, Any]) -> None:
    states = {one.group_id: one.state for one in admin.list_groups(types=("share",))}
    requested = sorted(states) if options["all_groups"] else list(dict.fromkeys(options["group"]))
    failed = {name: text for name in requested if (text := _not_deletable(name, states))}
    names = [name for name in requested if name not in failed]
    outcomes = admin.delete_groups(names) if names else {}
    deleted = [name for name, error in outcomes.items() if error is None]
    failed |= {name: java_text(error) for name, error in outcomes.items() if error is not None}
    listed = ", ".join(f"'{name}'" for name in deleted)
    if not failed:
        click.echo(f"Deletion of requested share groups ({listed}) was successful.")
        return
    print_problem("Deletion of some share groups failed:")
    for name, text in failed.items():
        click.echo(f"* Group '{name}' could not be deleted due to: {text}")
    if deleted:
        click.echo(f"\nThese share groups were deleted successfully: {listed}")


def _not_deletable(group_id: str, states: dict[str, str]) -> str | None:
    """Return why a group cannot be deleted, as far as its listing tells."""
    state = states.get(group_id)
    if state is None:
        return f"java.lang.IllegalArgumentException: Group '{group_id}' is not a share group."
    if state == "Dead":
        return f"java.lang.IllegalStateException: Share group '{group_id}' group state is DEAD."
    if state != "Empty":
        name = "org.apache.kafka.common.errors.GroupNotEmptyException"
        return f"{name}: Share group '{group_id}' is not EMPTY."
    return None


def _reset(admin: Admin, options: dict[str, Any]) -> None:
    if not any(options[name] for name in SCENARIOS):
        names = ", ".join(f"[{name.replace('_', '-')}]" for name in SCENARIOS)
        raise click.UsageError(f"Option [reset-offsets] takes one of these options: {names}")
    group_id = options["group"][0]
    found = admin.describe_share_groups([group_id])[group_id]
    if isinstance(found, KafkaError):
        if found.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise found
    elif found.state not in ("Empty", "Dead"):
        click.echo(f"Share group '{group_id}' is not empty.", err=True)
        raise SystemExit(1)
    topics = options["topic"]
    if options["all_topics"]:
        known = sorted(admin.list_share_group_offsets(group_id))
        topics = tuple(f"{one.topic}:{one.partition}" for one in known)
    empty = dict.fromkeys(GroupFlags._fields)
    given = {name: options.get(name) for name in GroupFlags._fields}
    flags = GroupFlags(**{**empty, **given, "topic": topics, "all_topics": False})
    plan = plan_reset(admin, group_id, flags)
    if options["execute"] and plan:
        for error in admin.alter_share_group_offsets(group_id, plan).values():
            if error is not None:
                raise error
    print_plans({group_id: plan})


def _delete_offsets(admin: Admin, options: dict[str, Any]) -> None:
    topics = list(dict.fromkeys(options["topic"]))
    outcomes: dict[str, KafkaError | None]
    try:
        outcomes = admin.delete_share_group_offsets(options["group"][0], topics)
    except KafkaError as error:
        _report_deletion(error)
        outcomes = dict.fromkeys(topics, error)
    width = max([15, *map(len, outcomes)])
    click.echo(f"\n{'TOPIC':<{width}} STATUS", nl=False)
    for topic, failure in sorted(outcomes.items()):
        status = "Successful" if failure is None else f"Error: {failure.message}"
        click.echo(f"\n{topic:<{width}} {status}", nl=False)
    click.echo()


def _report_deletion(error: KafkaError) -> None:
    expected = (
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.NON_EMPTY_GROUP,
    )
    known = error.code in expected
    print_problem(error.message if known else f"Encounter some unknown error: {java_text(error)}")


_RUN = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset_offsets": _reset,
    "delete_offsets": _delete_offsets,
}
