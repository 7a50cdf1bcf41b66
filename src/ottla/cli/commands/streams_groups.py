"""`ottla streams-groups`: list, describe, reset and delete streams groups.

Kafka: bin/kafka-streams-groups.sh, org.apache.kafka.tools.streams.StreamsGroupCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.groups.flags import GroupCommandError, GroupFlags
from ottla.cli.groups.offset_deletion import delete_offsets
from ottla.cli.groups.offset_reset import SCENARIOS, commit_plan, plan_reset
from ottla.cli.groups.reset_plans import export_plans, print_plans
from ottla.cli.groups.streams_internal_topics import (
    delete_after_reset,
    delete_with_groups,
    internal_topics,
)
from ottla.cli.groups.streams_tables import (
    document,
    input_topics,
    print_members,
    print_offsets,
    print_states,
)
from ottla.cli.groups.tables import print_problem
from ottla.cli.groups.usage import (
    check_describe,
    check_only_with,
    refuse_without_scenario,
    refuse_without_scope,
    reset_targets,
    scenario_of,
    words_of,
)
from ottla.cli.options.connection import SettingsFileError, open_admin
from ottla.cli.options.flags import server_options
from ottla.cli.options.joptsimple import LONG, ToolCommand, refuse_both
from ottla.cli.options.json_output import json_option, print_json, refuse_json_unless, wants_json
from ottla.cli.output.java_names import java_text
from ottla.cli.output.next_steps import group_failure_text
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.clients.admin.streams_groups import StreamsGroupDescription
    from ottla.clients.blocking import Admin
    from ottla.types import TopicPartition

ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
STATES = ("Assigning", "Dead", "Empty", "NotReady", "Reconciling", "Stable")
_ONLY_WITH = {
    "members": ("describe",),
    "offsets": ("describe",),
    "verbose": ("describe",),
    "state": ("describe", "list"),
}

EXAMPLES = """
\b
Examples:
  ottla streams-groups --bootstrap-server localhost:9092 --list --state
  ottla streams-groups --bootstrap-server localhost:9092 --describe --group counts --members
  ottla streams-groups --bootstrap-server localhost:9092 --reset-offsets --group counts \\
      --all-input-topics --to-earliest --execute --delete-all-internal-topics
"""


@click.command("streams-groups", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@json_option
@click.option("--list", "list_", is_flag=True, help="List all streams groups.")
@click.option("--describe", is_flag=True, help="Show lag, members or state.")
@click.option("--delete", is_flag=True, help="Delete groups.")
@click.option("--reset-offsets", is_flag=True, help="Set the offsets of an inactive group.")
@click.option("--delete-offsets", is_flag=True, help="Delete a group's offsets of topics.")
@click.option("--group", multiple=True, help="The group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="All streams groups.")
@click.option(
    "--input-topic", multiple=True, metavar="TOPIC[:0,1]", help="The topic, or some partitions."
)
@click.option("--all-input-topics", is_flag=True, help="All input topics of the topology.")
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
@reset_targets
@click.option(
    "--delete-internal-topic",
    multiple=True,
    metavar="TOPIC",
    help="With --reset-offsets: delete this internal topic; may be repeated.",
)
@click.option(
    "--delete-all-internal-topics",
    is_flag=True,
    help="With --reset-offsets or --delete: delete the repartition topics and changelogs.",
)
@click.option("--dry-run", is_flag=True, help="Only print the new offsets.")
@click.option("--execute", is_flag=True, help="Execute the reset.")
@click.option("--export", is_flag=True, help="Print the reset as CSV.")
def streams_groups(**options: Any) -> None:
    """List, describe, reset and delete streams groups."""
    options["list"] = options.pop("list_")
    actions = [name for name in ACTIONS if options[name]]
    if not options["bootstrap_server"]:
        raise click.UsageError('Missing required argument "[bootstrap-server]"')
    _check(actions, options)
    if len(actions) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --list, --describe, --delete, "
            "--reset-offsets, or --delete-offsets."
        )
    refuse_json_unless(actions[0], "list", "describe")
    try:
        with open_admin(
            options["bootstrap_server"],
            options["command_config"],
            default_api_timeout_ms=options["timeout"],
        ) as admin:
            _run(admin, actions[0], options)
    except (GroupCommandError, KafkaError, SettingsFileError) as error:
        words = "Executing streams group command failed due to"
        click.echo(f"\nError: {words} {group_failure_text(error)}")
        raise SystemExit(1) from error


def _run(admin: Admin, action: str, options: dict[str, Any]) -> None:
    if action == "list":
        _list(admin, options["state"])
    elif action == "describe":
        _describe(admin, options)
    elif action == "delete":
        _delete(admin, options)
    elif action == "reset_offsets":
        _reset(admin, options)
    else:
        _delete_offsets(admin, options)


# ---------------------------------------------------------------- usage


def _check(actions: list[str], options: dict[str, Any]) -> None:
    check_only_with(_ONLY_WITH, actions, options)
    named = bool(options["group"] or options["all_groups"])
    for action in ("describe", "delete"):
        if options[action] and not named:
            raise click.UsageError(
                f"Option [{action}] takes one of these options: [all-groups], [group]"
            )
    if options["describe"]:
        check_describe(options)
    if options["delete"] and (options["input_topic"] or options["all_input_topics"]):
        raise click.UsageError(
            "Kafka Streams does not support topic-specific offset deletion from a streams group."
        )
    if options["delete_offsets"]:
        _check_delete_offsets(options)
    if options["reset_offsets"]:
        _check_reset(options, named=named)
    _check_internal_topics(options)
    if (options["dry_run"] or options["execute"]) and not options["reset_offsets"]:
        raise click.UsageError("Only Option [reset-offsets] accepts [execute] or [dry-run]")
    _check_pairs(options)


def _check_delete_offsets(options: dict[str, Any]) -> None:
    has_topics = options["input_topic"] or options["all_input_topics"]
    if not has_topics or not options["group"]:
        raise click.UsageError(
            "Option [delete-offsets] takes the [group] and one of these options: "
            "[all-input-topics], [input-topic]"
        )
    if len(options["group"]) > 1:
        listed = ", ".join(options["group"])
        raise click.UsageError(
            f"Option [delete-offsets] supports only one [group] at a time, but found: [{listed}]"
        )


def _check_reset(options: dict[str, Any], *, named: bool) -> None:
    if options["dry_run"] and options["execute"]:
        raise click.UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options["dry_run"] and not options["execute"]:
        raise click.UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not named:
        raise click.UsageError(
            "Option [reset-offsets] takes one of these options: [all-groups], [group]"
        )
    scenario = scenario_of(SCENARIOS, options)
    if not options["from_file"] and not options["input_topic"] and not options["all_input_topics"]:
        refuse_without_scope()
    if scenario is None:
        refuse_without_scenario(SCENARIOS)


def _check_internal_topics(options: dict[str, Any]) -> None:
    if options["delete_all_internal_topics"]:
        if not options["reset_offsets"] and not options["delete"]:
            raise click.UsageError(
                "Option [delete-all-internal-topics] takes one of these options: "
                "[delete], [reset-offsets]"
            )
        if options["reset_offsets"] and not options["execute"]:
            raise click.UsageError(
                "Option [delete-all-internal-topics] takes [execute] when [reset-offsets] is used."
            )
    elif options["delete_internal_topic"] and not (options["reset_offsets"] and options["execute"]):
        raise click.UsageError(
            "Option [delete-internal-topic] takes [reset-offsets] when [execute] is used."
        )


def _check_pairs(options: dict[str, Any]) -> None:
    pairs = [
        ("group", "all_groups"),
        ("group", "list"),
        ("input_topic", "list"),
        ("input_topic", "describe"),
        ("input_topic", "delete"),
    ]
    for first, second in pairs:
        if options[first] and options[second]:
            refuse_both(first, second)


# ---------------------------------------------------------------- actions


def _list(admin: Admin, state: str | None) -> None:
    groups = admin.list_groups(types=("streams",), states=words_of(state, STATES, "state"))
    if wants_json():
        print_json([one._asdict() for one in groups])
        return
    if state is None:
        for group in groups:
            click.echo(group.group_id)
        return
    width = max([15, *(len(group.group_id) for group in groups)])
    click.echo(f"{'GROUP':<{width}} STATE")
    for group in groups:
        click.echo(f"{group.group_id:<{width}} {group.state}")


def _groups(admin: Admin, options: dict[str, Any]) -> list[str]:
    if options["all_groups"]:
        return [group.group_id for group in admin.list_groups(types=("streams",))]
    return list(dict.fromkeys(options["group"]))


def _described(admin: Admin, group_id: str) -> StreamsGroupDescription:
    found = admin.describe_streams_groups([group_id])[group_id]
    if isinstance(found, KafkaError):
        raise found
    return found


def _described_or_none(admin: Admin, group_id: str) -> StreamsGroupDescription | None:
    """Return None for a group that does not exist: its offsets can be set all the same."""
    try:
        return _described(admin, group_id)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None


def _describe(admin: Admin, options: dict[str, Any]) -> None:
    verbose = options["verbose"]
    if wants_json():
        with_offsets = not options["members"] and options["state"] is None
        described = [_described(admin, group_id) for group_id in _groups(admin, options)]
        print_json([document(admin, one, with_offsets=with_offsets) for one in described])
        return
    for group_id in _groups(admin, options):
        group = _described(admin, group_id)
        if options["members"]:
            print_members(group, verbose=verbose)
        elif options["state"] is not None:
            print_states(admin, group, verbose=verbose)
        else:
            print_offsets(admin, group, verbose=verbose)


def _delete(admin: Admin, options: dict[str, Any]) -> None:
    requested = _groups(admin, options)
    failed = _not_deletable(admin, requested)
    groups = [group_id for group_id in requested if group_id not in failed]
    topics: dict[str, list[str]] = {}
    if options["delete_all_internal_topics"]:
        found = {group_id: internal_topics(_described(admin, group_id)) for group_id in groups}
        topics = {group_id: names for group_id, names in found.items() if names}
    outcomes = admin.delete_groups(groups) if groups else {}
    deleted = [group_id for group_id, error in outcomes.items() if error is None]
    failed.update({name: java_text(error) for name, error in outcomes.items() if error is not None})
    listed = "', '".join(deleted)
    if not failed:
        click.echo(f"Deletion of requested streams groups ('{listed}') was successful.")
    else:
        print_problem("Deletion of some streams groups failed:")
        for group_id, text in failed.items():
            click.echo(f"* Group '{group_id}' could not be deleted due to: {text}")
        if deleted:
            click.echo(f"\nThese streams groups were deleted successfully: '{listed}'.")
    delete_with_groups(admin, topics, deleted)


def _not_deletable(admin: Admin, group_ids: list[str]) -> dict[str, str]:
    """Return why groups cannot be deleted, as far as their listing tells."""
    states = {one.group_id: one.state for one in admin.list_groups(types=("streams",))}
    failed = {}
    for group_id in group_ids:
        state = states.get(group_id)
        if state is None:
            failed[group_id] = (
                f"java.lang.IllegalArgumentException: Group '{group_id}' does not exist or is not "
                "a streams group."
            )
        elif state != "Empty":
            failed[group_id] = (
                "org.apache.kafka.common.errors.GroupNotEmptyException: Streams group "
                f"'{group_id}' is not EMPTY."
            )
    return failed


def _flags(options: dict[str, Any]) -> GroupFlags:
    given = {
        **options,
        "topic": options["input_topic"],
        "all_topics": options["all_input_topics"],
    }
    return GroupFlags(**{name: given[name] for name in GroupFlags._fields})


def _input_arguments(admin: Admin, group: StreamsGroupDescription) -> tuple[str, ...]:
    """Return the partitions of input topics with committed offsets, as arguments."""
    inputs = input_topics(group)
    committed = sorted(admin.list_group_offsets(group.group_id))
    return tuple(f"{one.topic}:{one.partition}" for one in committed if one.topic in inputs)


def _reset(admin: Admin, options: dict[str, Any]) -> None:
    plans: dict[str, dict[TopicPartition, int]] = {}
    for group_id in _groups(admin, options):
        group = _described_or_none(admin, group_id)
        if group is not None and group.state not in ("Empty", "Dead"):
            print_problem(
                f"Assignments can only be reset if the group '{group_id}' is inactive, but the "
                f"current state is {group.state}."
            )
            plans[group_id] = {}
            continue
        flags = _flags(options)
        if flags.all_topics and group is not None:
            flags = flags._replace(topic=_input_arguments(admin, group), all_topics=False)
        plans[group_id] = plan_reset(admin, group_id, flags)
        if not options["execute"]:
            continue
        commit_plan(admin, group_id, plans[group_id])
        names = list(options["delete_internal_topic"])
        if options["delete_all_internal_topics"] and group is not None:
            names = internal_topics(group)
        if names:
            delete_after_reset(admin, group_id, names)
    if options["export"]:
        export_plans(plans, many=len(options["group"]) != 1)
    else:
        print_plans(plans)


def _delete_offsets(admin: Admin, options: dict[str, Any]) -> None:
    flags = _flags(options)
    if flags.all_topics:
        group = _described(admin, options["group"][0])
        flags = flags._replace(topic=_input_arguments(admin, group))
    delete_offsets(admin, flags, checks_group=True)
