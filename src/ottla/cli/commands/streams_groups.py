"""`ottla streams-groups`: list, describe, reset and delete streams groups.

Kafka: bin/kafka-streams-groups.sh, org.apache.kafka.tools.streams.StreamsGroupCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.groups.offset_reset import SCENARIOS, require_scenario, require_scope
from ottla.cli.groups.streams_internal_topics import delete_after_reset, internal_topics
from ottla.cli.groups.tool import GroupTool, Options
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
)
from ottla.cli.options.flags import json_option, require, server_options
from ottla.cli.options.joptsimple import ToolCommand, refuse_both
from ottla.cli.output.tables import columns, print_problem
from ottla.errors import KafkaError
from ottla.views.groups import input_topics, streams_document, streams_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.cli.groups.usage import GroupFlags
    from ottla.clients.admin.streams_groups import StreamsGroupDescription, StreamsTasks
    from ottla.clients.blocking import Admin

_ONLY_WITH = {
    "members": ("describe",),
    "offsets": ("describe",),
    "verbose": ("describe",),
    "state": ("describe", "list"),
}
_EXCLUSIVE = (
    ("group", "all_groups"),
    ("group", "list"),
    ("input_topic", "list"),
    ("input_topic", "describe"),
    ("input_topic", "delete"),
)

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
@action_options("streams", "lag", "Set the offsets of an inactive group.")
@selection_options("streams", "input-topic", "All input topics of the topology.")
@click.option("--offsets", is_flag=True, help="With --describe: the lag (the default).")
@view_options
@run_options
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
@reset_modes
@click.option("--export", is_flag=True, help="Print the reset as CSV.")
def streams_groups(**options: Any) -> None:
    """List, describe, reset and delete streams groups."""
    options["list"] = options.pop("list_")
    StreamsGroupTool().run(options)


class StreamsGroupTool(GroupTool["StreamsGroupDescription"]):
    """Groups of Kafka Streams applications (KIP-1071)."""

    kind = "streams"
    states = ("Assigning", "Dead", "Empty", "NotReady", "Reconciling", "Stable")
    topics = "input_topic"
    usage = "--list, --describe, --delete, --reset-offsets, or --delete-offsets."
    failure_status = 1
    asks_without_partitions = True
    deletes_by_state = True
    deletion_end = "."
    between_host_and_id = " "

    def check(self, options: Options) -> None:
        """Raise UsageError for options that do not go together."""
        require(options["bootstrap_server"], "bootstrap-server")
        actions = [name for name in self.actions if options[name]]
        check_only_with(_ONLY_WITH, actions, options)
        for action in ("describe", "delete"):
            if options[action]:
                require_groups(action, options)
        if options["describe"]:
            check_describe(options)
        if options["delete"] and (options["input_topic"] or options["all_input_topics"]):
            raise click.UsageError(
                "Kafka Streams does not support topic-specific offset deletion from a streams "
                "group."
            )
        if options["delete_offsets"]:
            _check_delete_offsets(options)
        if options["reset_offsets"]:
            check_reset_mode(options)
            require_groups("reset_offsets", options)
            scenario = scenario_of(SCENARIOS, options)
            require_scope(options, "input_topic")
            require_scenario(scenario)
        _check_internal_topics(options)
        if (options["dry_run"] or options["execute"]) and not options["reset_offsets"]:
            raise click.UsageError("Only Option [reset-offsets] accepts [execute] or [dry-run]")
        for first, second in _EXCLUSIVE:
            if options[first] and options[second]:
                refuse_both(first, second)

    def describe_all(self, admin: Admin, group_ids: list[str]) -> Iterator[StreamsGroupDescription]:
        """Describe each group when the one before is printed."""
        for group_id in group_ids:
            outcome = admin.describe_streams_groups([group_id])[group_id]
            if isinstance(outcome, KafkaError):
                raise outcome
            yield outcome

    def document(
        self, admin: Admin, group: StreamsGroupDescription, *, with_offsets: bool
    ) -> dict[str, object]:
        """Return the JSON of a group."""
        return streams_document(group, streams_offsets(admin, group) if with_offsets else None)

    def print_offsets(self, admin: Admin, group: StreamsGroupDescription, *, verbose: bool) -> None:
        """Print the lag of each partition; with verbose, the offsets too."""
        offsets = streams_offsets(admin, group)
        if not group.members:
            return
        _print_note(group)
        more = "15" if verbose else None
        widths = {
            "GROUP": "15+",
            "TOPIC": "15+",
            "PARTITION": "10",
            "CURRENT-OFFSET": more,
            "LEADER-EPOCH": more,
            "LOG-END-OFFSET": more,
            "OFFSET-LAG": more or "0",
        }
        click.echo(columns(widths, [(group.group_id, *row) for row in offsets]))

    def print_members(self, group: StreamsGroupDescription, *, verbose: bool) -> None:
        """Print the members with their tasks; with verbose, the target and the epochs too."""
        if not group.members:
            return
        _print_note(group)
        # Kafka's text has no space between the topology's epoch and the member
        member_title = f"{'TOPOLOGY-EPOCH':<15}MEMBER" if verbose else "MEMBER"
        widths = {
            "GROUP": "15+",
            "TARGET-ASSIGNMENT-EPOCH": "25" if verbose else None,
            member_title: "30+" if verbose else "15+",
            "MEMBER-PROTOCOL": "15" if verbose else None,
            "MEMBER-EPOCH": "15" if verbose else None,
            "PROCESS": "15+",
            "CLIENT-ID": "15+",
            "ASSIGNMENTS": "0",
        }
        topology_epoch = f"{group.topology_epoch:<15}" if verbose else ""
        rows = [
            (
                group.group_id,
                group.assignment_epoch,
                topology_epoch + member.member_id,
                "classic" if member.is_classic else "streams",
                member.member_epoch,
                member.process_id,
                member.client_id,
                _tasks_text(member.assignment)
                + (_tasks_text(member.target_assignment, "TARGET-") if verbose else ""),
            )
            for member in group.members
        ]
        click.echo(columns(widths, rows))

    def print_state(
        self, group: StreamsGroupDescription, coordinator: str, *, verbose: bool
    ) -> None:
        """Print the coordinator and the state of a group."""
        _print_note(group)
        widths = {
            "GROUP": "15+",
            "COORDINATOR (ID)": "25+",
            "STATE": "25",
            "GROUP-EPOCH": "15" if verbose else None,
            "TARGET-ASSIGNMENT-EPOCH": "25" if verbose else None,
            "#MEMBERS": "0",
        }
        epochs = (group.group_epoch, group.assignment_epoch)
        row = (group.group_id, coordinator, group.state, *epochs, len(group.members))
        click.echo(columns(widths, [row]))

    def undeletable(self, group_id: str, state: str | None) -> str | None:
        """Refuse a group that is not an empty streams group."""
        if state is None:
            return (
                f"java.lang.IllegalArgumentException: Group '{group_id}' does not exist or is not "
                "a streams group."
            )
        if state != "Empty":
            name = "org.apache.kafka.common.errors.GroupNotEmptyException"
            return f"{name}: Streams group '{group_id}' is not EMPTY."
        return None

    def quoted(self, names: Iterable[str]) -> str:
        """Return names in one pair of quotes, also without names."""
        return "'" + "', '".join(names) + "'"

    def topics_of(
        self, admin: Admin, group_ids: list[str], options: Options
    ) -> dict[str, list[str]]:
        """Return the internal topics of groups if they are to be deleted."""
        if not options["delete_all_internal_topics"]:
            return {}
        groups = self.describe_all(admin, group_ids)
        topics = {group.group_id: internal_topics(group) for group in groups}
        return {group_id: names for group_id, names in topics.items() if names}

    def flags(
        self, admin: Admin, group: StreamsGroupDescription | None, options: Options
    ) -> GroupFlags:
        """Return the selection; all input topics are those with committed offsets."""
        flags = super().flags(admin, group, options)
        if flags.all_topics and group is not None:
            return flags._replace(topic=_input_arguments(admin, group), all_topics=False)
        return flags

    def after_reset(
        self, admin: Admin, group_id: str, group: StreamsGroupDescription | None, options: Options
    ) -> None:
        """Delete internal topics if asked to."""
        names = list(options["delete_internal_topic"])
        if options["delete_all_internal_topics"] and group is not None:
            names = internal_topics(group)
        if names:
            delete_after_reset(admin, group_id, names)

    def deletion_topics(self, admin: Admin, options: Options) -> tuple[str, ...]:
        """Return the input topics whose offsets are to be deleted."""
        if options["all_input_topics"]:
            return _input_arguments(admin, next(self.describe_all(admin, options["group"])))
        return super().deletion_topics(admin, options)


def _input_arguments(admin: Admin, group: StreamsGroupDescription) -> tuple[str, ...]:
    """Return the partitions of input topics with committed offsets, as arguments."""
    inputs = input_topics(group)
    committed = sorted(admin.list_group_offsets(group.group_id))
    return tuple(f"{topic}:{number}" for topic, number in committed if topic in inputs)


def _print_note(group: StreamsGroupDescription) -> None:
    """Print the problem of a group without members."""
    if group.state == "Dead":
        print_problem(f"Streams group '{group.group_id}' does not exist.")
    elif group.state == "Empty":
        print_problem(f"Streams group '{group.group_id}' has no active members.")


def _tasks_text(tasks: StreamsTasks, prefix: str = "") -> str:
    text = ""
    for kind, lists in tasks._asdict().items():
        text += f"{prefix}{kind.upper()}: " if lists else ""
        text += "".join(f"{key}:[{','.join(map(str, it))}]; " for key, it in lists.items())
    return text


def _check_delete_offsets(options: Options) -> None:
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


def _check_internal_topics(options: Options) -> None:
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
