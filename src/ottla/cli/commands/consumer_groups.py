"""`ottla consumer-groups`: list, describe, reset and delete consumer groups.

Kafka: bin/kafka-consumer-groups.sh, org.apache.kafka.tools.consumer.group.ConsumerGroupCommand.

Like Kafka's tool, it reports failures of the cluster on standard output and exits with 0; only
usage errors exit with 1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.groups.offset_reset import SCENARIOS, require_scenario, require_scope
from ottla.cli.groups.tool import GroupTool, Options, partitions_text
from ottla.cli.groups.usage import (
    action_options,
    check_describe,
    check_only_with,
    check_reset_mode,
    require_groups,
    reset_modes,
    reset_targets,
    run_options,
    scenario_of,
    selection_options,
    view_options,
    words_of,
)
from ottla.cli.options.flags import json_option, print_json, require, server_options, wants_json
from ottla.cli.options.joptsimple import ToolCommand, refuse_both
from ottla.cli.output.tables import cell, columns
from ottla.errors import ErrorCode, KafkaError
from ottla.views.groups import consumer_document, consumer_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.admin.groups import GroupDescription, GroupListing
    from ottla.clients.blocking import Admin

TYPES = ("Classic", "Consumer")
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
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
# Error texts of Python's engine and of RE2.
_COMPLAINTS = (
    ("missing ), unterminated", "missing closing )"),
    ("unterminated character set", "missing closing ]"),
    ("unbalanced parenthesis", "regexp/syntax: internal error"),
    ("nothing to repeat", "missing argument to repetition operator"),
    ("multiple repeat", "invalid nested repetition operator"),
    ("min repeat greater", "invalid repeat count"),
    ("the repetition number is too large", "invalid repeat count"),
    ("bad character range", "invalid character class range"),
    ("bad escape (end of pattern)", "trailing backslash at end of expression"),
    ("bad escape", "invalid escape sequence"),
    ("unknown extension", "invalid or unsupported Perl syntax"),
)
_UNKNOWN_TO_RE2 = (
    (re.compile(r"(?<!\\)(\\\\)*\(\?<[=!]"), "invalid named capture"),
    (re.compile(r"(?<!\\)(\\\\)*\(\?([=!]|>|\()"), "invalid or unsupported Perl syntax"),
    (re.compile(r"(?<!\\)(\\\\)*\\[1-9]"), "invalid escape sequence"),
)


@click.command("consumer-groups", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@action_options("consumer", "offsets and lag", "Set the offsets of an inactive group.")
@click.option("--validate-regex", metavar="REGEX", help="Check a regular expression.")
@selection_options("consumer", "topic", "All topics that the group has offsets for.")
@click.option("--offsets", is_flag=True, help="With --describe: offsets and lag (the default).")
@json_option
@view_options
@click.option(
    "--type",
    "type_",
    is_flag=False,
    flag_value="",
    metavar="[TYPES]",
    help="With --list: show or filter by types.",
)
@run_options
@reset_targets
@reset_modes
@click.option("--export", is_flag=True, help="Print the reset as CSV.")
def consumer_groups(**options: Any) -> None:
    """List, describe, reset and delete consumer groups."""
    options["list"] = options.pop("list_")
    options["type"] = options.pop("type_")
    tool = ConsumerGroupTool()
    if tool.action(options) != "validate_regex":
        tool.run(options)
        return
    pattern = options["validate_regex"]
    problem = re2_problem(pattern)
    outcome = "valid." if problem is None else f"invalid: {problem}."
    click.echo(f"The regular expression `{pattern}` is {outcome}")


class ConsumerGroupTool(GroupTool["GroupDescription"]):
    """Groups of the classic and the consumer protocol."""

    kind = "consumer"
    states = (
        "Assigning",
        "CompletingRebalance",
        "Dead",
        "Empty",
        "PreparingRebalance",
        "Reconciling",
        "Stable",
    )
    actions = (*GroupTool.actions, "validate_regex")
    usage = "--list, --describe, --delete, --reset-offsets, --delete-offsets, --validate-regex"

    def check(self, options: Options) -> None:
        """Raise UsageError for options that do not go together."""
        action = self.action(options)
        check_only_with(_ONLY_WITH, (action,), options)
        require(options["bootstrap_server"], "bootstrap-server")
        if action in ("describe", "delete", "reset_offsets"):
            require_groups(action, options)
        if action == "delete_offsets" and not (options["group"] and options["topic"]):
            raise click.UsageError(
                "Option [delete-offsets] takes the following options: [group], [topic]"
            )
        if action == "delete" and options["topic"]:
            raise click.UsageError(
                "The consumer does not support topic-specific offset deletion from a consumer "
                "group."
            )
        if action == "describe":
            check_describe(options)
        check_reset_mode(options, is_required=False)
        if action == "reset_offsets":
            require_scenario(scenario_of(SCENARIOS, options))
            require_scope(options, "topic")
        if options["group"] and options["all_groups"]:
            refuse_both("group", "all-groups")
        if options["group"] and action == "list":
            refuse_both("group", "list")
        if options["topic"] and action in ("list", "describe"):
            refuse_both("topic", action)

    def listing(
        self, admin: Admin, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
    ) -> list[GroupListing]:
        """Return the groups of consumers, and those that only commit offsets."""
        groups = admin.list_groups(states=states, types=types or TYPES)
        return [group for group in groups if group.protocol_type in ("", "consumer")]

    def print_listing(self, admin: Admin, options: Options) -> None:
        """Print the ids of groups, with their types and states on request."""
        states = words_of(options["state"], self.states, "state")
        types = words_of(options["type"], TYPES, "types")
        groups = self.listing(admin, states=states, types=types)
        if wants_json():
            print_json([{**it._asdict(), "type": it.type.capitalize()} for it in groups])
        elif options["state"] is None and options["type"] is None:
            click.echo("".join(f"{group.group_id}\n" for group in groups), nl=False)
        else:
            widths = {
                "GROUP": "25+",
                "TYPE": None if options["type"] is None else "20",
                "STATE": None if options["state"] is None else "20",
            }
            # Kafka's column of groups is ten wider than the longest id
            gap = " " * 10
            rows = [(it.group_id + gap, it.type.capitalize(), it.state) for it in groups]
            click.echo(columns(widths, rows))

    def describe_all(self, admin: Admin, group_ids: list[str]) -> Iterator[GroupDescription]:
        """Describe groups, all before the first is printed."""
        groups = []
        for outcome in admin.describe_groups(group_ids).values():
            if isinstance(outcome, KafkaError):
                raise outcome
            groups.append(outcome)
        yield from groups

    def document(
        self, admin: Admin, group: GroupDescription, *, with_offsets: bool
    ) -> dict[str, object]:
        """Return the JSON of a group."""
        return consumer_document(group, consumer_offsets(admin, group) if with_offsets else None)

    def print_offsets(self, admin: Admin, group: GroupDescription, *, verbose: bool) -> None:
        """Print committed and assigned partitions with their owners."""
        rows = consumer_offsets(admin, group)
        _print_note(group)
        widths = {
            "GROUP": "15+",
            "TOPIC": "15+",
            "PARTITION": "10",
            "LEADER-EPOCH": "15" if verbose else None,
            "CURRENT-OFFSET": "15",
            "LOG-END-OFFSET": "15",
            "LAG": "15",
            "CONSUMER-ID": "15+",
            "HOST": "15+",
            "CLIENT-ID": "0",
        }
        if rows:
            click.echo("\n" + columns(widths, [(*row[:6], row.lag, *row[6:]) for row in rows]))

    def print_members(self, group: GroupDescription, *, verbose: bool) -> None:
        """Print members; with verbose, their current and target assignments."""
        _print_note(group)
        with_instances = any(member.instance_id is not None for member in group.members)
        widths = {
            "GROUP": "15+",
            "CONSUMER-ID": "15+",
            "GROUP-INSTANCE-ID": "17+" if with_instances else None,
            "HOST": "15+",
            "CLIENT-ID": "15+",
            "#PARTITIONS": "15",
            "": None if verbose else "0",
            "CURRENT-EPOCH": "15" if verbose else None,
            "CURRENT-ASSIGNMENT": "20+" if verbose else None,
            "TARGET-EPOCH": "15" if verbose else None,
            "TARGET-ASSIGNMENT": "20+" if verbose else None,
        }
        rows = [
            (
                group.group_id,
                member.member_id,
                f"{cell(member.instance_id)}  ",
                member.host,
                member.client_id,
                len(member.assignment),
                "",
                member.member_epoch,
                partitions_text(member.assignment),
                group.assignment_epoch,
                partitions_text(member.target_assignment),
            )
            for member in group.members
        ]
        click.echo("\n" + columns(widths, rows))

    def print_state(self, group: GroupDescription, coordinator: str, *, verbose: bool) -> None:
        """Print the coordinator, assignor and state of a group."""
        _print_note(group)
        widths = {
            "GROUP": "15+",
            "COORDINATOR (ID)": "25+",
            "ASSIGNMENT-STRATEGY": "20",
            "STATE": "20",
            "GROUP-EPOCH": "15" if verbose else None,
            "TARGET-ASSIGNMENT-EPOCH": "25" if verbose else None,
            "#MEMBERS": "0",
        }
        epochs = (group.group_epoch, group.assignment_epoch)
        count = len(group.members)
        row = (group.group_id, coordinator, group.assignor or "-", group.state, *epochs, count)
        click.echo("\n" + columns(widths, [row]))

    def reset_offsets(self, admin: Admin, options: Options) -> None:
        """Warn where Kafka 5 will refuse, then reset."""
        if not options["execute"] and not options["dry_run"]:
            click.echo(NO_EXECUTE, err=True)
        super().reset_offsets(admin, options)


def _print_note(group: GroupDescription) -> None:
    """Print a note about a group's state, if it needs one; raises KafkaError for no group."""
    if group.state == "Dead":
        text = f"Consumer group '{group.group_id}' does not exist."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
    if group.state == "Empty":
        click.echo(f"\nConsumer group '{group.group_id}' has no active members.", err=True)
    elif group.state in _REBALANCING:
        click.echo(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", err=True)


def re2_problem(pattern: str) -> str | None:
    """Return the error of a pattern in RE2's words, as a broker checks it; None for a valid one."""
    for syntax, problem in _UNKNOWN_TO_RE2:
        if syntax.search(pattern):
            return problem
    try:
        re.compile(pattern)
    except re.error as error:
        known = (words for text, words in _COMPLAINTS if text in error.msg)
        return next(known, error.msg)
    return None
