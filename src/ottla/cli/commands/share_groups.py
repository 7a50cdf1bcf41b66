"""`ottla share-groups`: list, describe, reset and delete share groups.

Kafka: bin/kafka-share-groups.sh, org.apache.kafka.tools.consumer.group.ShareGroupCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.groups.offset_reset import plan_reset, print_plans
from ottla.cli.groups.tool import GroupTool, Options, partitions_text
from ottla.cli.groups.usage import (
    action_options,
    check_describe,
    check_reset_mode,
    require_groups,
    reset_modes,
    run_options,
    scenario_of,
    selection_options,
    view_options,
)
from ottla.cli.options.flags import json_option, require, server_options
from ottla.cli.options.joptsimple import ToolCommand, refuse_both
from ottla.cli.output.failures import java_text
from ottla.cli.output.tables import columns, print_problem
from ottla.errors import ErrorCode, KafkaError
from ottla.views.groups import share_document, share_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.admin.groups import GroupDescription
    from ottla.clients.blocking import Admin

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
@action_options("share", "lag", "Set the start offsets of an inactive group.")
@selection_options("share", "topic", "With --reset-offsets: all topics of the group.")
@click.option("--offsets", is_flag=True, help="With --describe: the lag (the default).")
@view_options
@run_options
@click.option("--to-earliest", is_flag=True, help="Reset to the first record.")
@click.option("--to-latest", is_flag=True, help="Reset to the end.")
@click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="Reset to a time.")
@reset_modes
def share_groups(**options: Any) -> None:
    """List, describe, reset and delete share groups."""
    options["list"] = options.pop("list_")
    ShareGroupTool().run(options)


class ShareGroupTool(GroupTool["GroupDescription"]):
    """Groups whose members share partitions (KIP-932)."""

    kind = "share"
    states = ("Stable", "Dead", "Empty")
    deletes_by_state = True

    def check(self, options: Options) -> None:
        """Raise UsageError for options that do not go together."""
        require(options["bootstrap_server"], "bootstrap-server")
        if options["describe"]:
            require_groups("describe", options)
            check_describe(options)
        if options["delete"]:
            if not options["group"] and not options["all_groups"]:
                raise click.UsageError("Option [delete] takes the options [group] or [all-groups]")
            if options["group"] and options["all_groups"]:
                raise click.UsageError(
                    "Option [delete] takes either [group] or [all-groups], not both."
                )
            if options["topic"]:
                raise click.UsageError("Option [delete] does not take the option: [topic]")
        if options["delete_offsets"] and not (options["group"] and options["topic"]):
            raise click.UsageError(
                "Option [delete-offsets] takes the following options: [topic], [group]"
            )
        if options["reset_offsets"]:
            _check_reset(options)
        for other in ("all_groups", "list"):
            if options["group"] and options[other]:
                refuse_both("group", other)

    def describe_all(self, admin: Admin, group_ids: list[str]) -> Iterator[GroupDescription]:
        """Describe groups in order, all before the first is printed."""
        groups = []
        for group_id in sorted(set(group_ids)):
            outcome = admin.describe_share_groups([group_id])[group_id]
            if isinstance(outcome, KafkaError):
                raise outcome
            groups.append(outcome)
        yield from groups

    def document(
        self, admin: Admin, group: GroupDescription, *, with_offsets: bool
    ) -> dict[str, object]:
        """Return the JSON of a group."""
        return share_document(group, share_offsets(admin, group) if with_offsets else None)

    def print_offsets(self, admin: Admin, group: GroupDescription, *, verbose: bool) -> None:
        """Print the start offset and the lag of each partition."""
        offsets = share_offsets(admin, group)
        if not offsets:
            click.echo(f"\nShare group '{group.group_id}' has no offset information.")
            return
        widths = {
            "GROUP": "15+",
            "TOPIC": "15+",
            "PARTITION": "10",
            "LEADER-EPOCH": "13" if verbose else None,
            "START-OFFSET": "13",
            "LAG": "0",
        }
        rows = [
            (group.group_id, it.topic, it.partition, it.leader_epoch, it.start_offset, it.lag)
            for it in offsets
        ]
        click.echo("\n" + columns(widths, rows))

    def print_members(self, group: GroupDescription, *, verbose: bool) -> None:
        """Print the members of a group, those with most partitions first."""
        _print_note(group)
        if group.state == "Dead" or not group.members:
            return
        widths = {
            "GROUP": "15+",
            "CONSUMER-ID": "15+",
            "HOST": "15+",
            "CLIENT-ID": "15+",
            "#PARTITIONS": "12",
            "MEMBER-EPOCH": "13" if verbose else None,
            "ASSIGNMENT": "0",
        }
        rows = [
            (
                group.group_id,
                member.member_id,
                member.host,
                member.client_id,
                len(member.assignment),
                member.member_epoch,
                partitions_text(member.assignment) if member.assignment else "",
            )
            for member in sorted(group.members, key=lambda member: -len(member.assignment))
        ]
        click.echo("\n" + columns(widths, rows))

    def print_state(self, group: GroupDescription, coordinator: str, *, verbose: bool) -> None:
        """Print the coordinator and the state of a group."""
        _print_note(group)
        widths = {
            "GROUP": "15+",
            "COORDINATOR (ID)": "25+",
            "STATE": "15",
            "GROUP-EPOCH": "12" if verbose else None,
            "ASSIGNMENT-EPOCH": "17" if verbose else None,
            "#MEMBERS": "0",
        }
        epochs = (group.group_epoch, group.assignment_epoch)
        row = (group.group_id, coordinator, group.state, *epochs, len(group.members))
        click.echo("\n" + columns(widths, [row]))

    def undeletable(self, group_id: str, state: str | None) -> str | None:
        """Refuse a group that is not an empty share group."""
        if state is None:
            return f"java.lang.IllegalArgumentException: Group '{group_id}' is not a share group."
        if state == "Dead":
            return f"java.lang.IllegalStateException: Share group '{group_id}' group state is DEAD."
        if state != "Empty":
            name = "org.apache.kafka.common.errors.GroupNotEmptyException"
            return f"{name}: Share group '{group_id}' is not EMPTY."
        return None

    def reset_offsets(self, admin: Admin, options: Options) -> None:
        """Reset the start offsets of one group; a share group has no committed ones."""
        if not any(options[name] for name in SCENARIOS):
            names = ", ".join(f"[{name.replace('_', '-')}]" for name in SCENARIOS)
            raise click.UsageError(f"Option [reset-offsets] takes one of these options: {names}")
        group_id = options["group"][0]
        for _, group in self.existing(admin, [group_id]):
            if group is not None and group.state not in ("Empty", "Dead"):
                click.echo(f"Share group '{group_id}' is not empty.", err=True)
                raise SystemExit(1)
        topics = options["topic"]
        if options["all_topics"]:
            partitions = sorted(admin.list_share_group_offsets(group_id))
            topics = tuple(f"{topic}:{number}" for topic, number in partitions)
        flags = self.flags(admin, None, {**options, "topic": topics, "all_topics": False})
        plan = plan_reset(admin, group_id, flags)
        if options["execute"] and plan:
            for error in admin.alter_share_group_offsets(group_id, plan).values():
                if error is not None:
                    raise error
        print_plans({group_id: plan})

    def delete_offsets(self, admin: Admin, options: Options) -> None:
        """Delete the offsets of topics, all partitions of each, and print the results."""
        topics = list(dict.fromkeys(options["topic"]))
        outcomes: dict[str, KafkaError | None]
        try:
            outcomes = admin.delete_share_group_offsets(options["group"][0], topics)
        except KafkaError as error:
            expected = (
                ErrorCode.INVALID_GROUP_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.GROUP_AUTHORIZATION_FAILED,
                ErrorCode.NON_EMPTY_GROUP,
            )
            known = error.code in expected
            print_problem(
                error.message if known else f"Encounter some unknown error: {java_text(error)}"
            )
            outcomes = dict.fromkeys(topics, error)
        rows = [
            (topic, f"Error: {error.message}" if error else "Successful")
            for topic, error in sorted(outcomes.items())
        ]
        click.echo("\n" + columns({"TOPIC": "15+", "STATUS": "0"}, rows))


def _check_reset(options: Options) -> None:
    check_reset_mode(options)
    if not options["group"]:
        raise click.UsageError("Option [reset-offsets] takes the option: [group]")
    if not options["topic"] and not options["all_topics"]:
        raise click.UsageError(
            "Option [reset-offsets] takes one of these options: [topic], [all-topics]"
        )
    scenario_of(SCENARIOS, options)


def _print_note(group: GroupDescription) -> None:
    """Print a note about a group without members."""
    if group.state == "Dead":
        print_problem(f"Share group '{group.group_id}' does not exist.")
    elif group.state == "Empty":
        click.echo(f"\nShare group '{group.group_id}' has no active members.", err=True)
