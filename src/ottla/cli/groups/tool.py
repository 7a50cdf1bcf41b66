"""The tool of one kind of groups: list, describe, delete, reset offsets, delete offsets.

Kafka: ConsumerGroupCommand and ShareGroupCommand of org.apache.kafka.tools.consumer.group,
org.apache.kafka.tools.streams.StreamsGroupCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import click

from ottla.cli.groups.offset_reset import commit_plan, export_plans, plan_reset, print_plans
from ottla.cli.groups.streams_internal_topics import delete_with_groups
from ottla.cli.groups.usage import GroupCommandError, GroupFlags, topic_argument, words_of
from ottla.cli.options.connection import SettingsFileError, open_admin
from ottla.cli.options.flags import print_json, refuse_json_unless, wants_json
from ottla.cli.output.failures import group_failure_text, java_text
from ottla.cli.output.tables import columns, print_problem
from ottla.clients.arguments import by_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.clients.admin.groups import GroupDescription, GroupListing
    from ottla.clients.admin.streams_groups import StreamsGroupDescription
    from ottla.clients.blocking import Admin

Options = dict[str, Any]
Description = TypeVar("Description", bound="GroupDescription | StreamsGroupDescription")


class GroupTool(Generic[Description]):
    """Runs the actions; a subclass says what differs for its kind of groups.

    Texts, their order and exit statuses are those of Kafka's three tools.
    """

    kind: ClassVar[str]
    states: ClassVar[tuple[str, ...]]
    """States to filter by, as Kafka lists them."""
    topics: ClassVar[str] = "topic"
    """The option that selects topics; with `all_` before and an s after, all of them."""
    actions: ClassVar[tuple[str, ...]] = (
        "list",
        "describe",
        "delete",
        "reset_offsets",
        "delete_offsets",
    )
    usage: ClassVar[str] = "--list, --describe, --delete, --reset-offsets, --delete-offsets."
    failure_status: ClassVar[int] = 0
    """Exit status after a failure of the cluster; only usage errors end all tools with 1."""
    asks_without_partitions: ClassVar[bool] = False
    """Whether a deletion of no offsets is sent, for the error of the group."""
    deletes_by_state: ClassVar[bool] = False
    """Whether the state of a group in the listing decides if its deletion is sent."""
    deletion_end: ClassVar[str] = ""
    between_host_and_id: ClassVar[str] = "  "

    # ------------------------------------------------------------ differs by kind

    def check(self, options: Options) -> None:
        """Raise UsageError for options that do not go together."""
        raise NotImplementedError

    def describe_all(self, admin: Admin, group_ids: list[str]) -> Iterator[Description]:
        """Describe groups in the order of the output; raises the first KafkaError."""
        raise NotImplementedError

    def document(
        self, admin: Admin, group: Description, *, with_offsets: bool
    ) -> dict[str, object]:
        """Return the JSON of a group."""
        raise NotImplementedError

    def print_offsets(self, admin: Admin, group: Description, *, verbose: bool) -> None:
        """Print the offsets and lag of a group's partitions."""
        raise NotImplementedError

    def print_members(self, group: Description, *, verbose: bool) -> None:
        """Print the members of a group."""
        raise NotImplementedError

    def print_state(self, group: Description, coordinator: str, *, verbose: bool) -> None:
        """Print the state of a group; its coordinator is host:port and node id."""
        raise NotImplementedError

    def undeletable(self, _group_id: str, _state: str | None) -> str | None:
        """Return why a group in this state, None if it is not listed, cannot be deleted."""
        return None

    # ------------------------------------------------------------ the command

    def run(self, options: Options) -> None:
        """Check the options and run the action."""
        self.check(options)
        action = self.action(options)
        refuse_json_unless(action, "list", "describe")
        runners = {
            "list": self.print_listing,
            "describe": self.describe,
            "delete": self.delete,
            "reset_offsets": self.reset_offsets,
            "delete_offsets": self.delete_offsets,
        }
        try:
            with open_admin(
                options["bootstrap_server"],
                options["command_config"],
                default_api_timeout_ms=options["timeout"],
            ) as admin:
                runners[action](admin, options)
        except (GroupCommandError, KafkaError, SettingsFileError) as error:
            reason = group_failure_text(error)
            print_problem(f"Executing {self.kind} group command failed due to {reason}")
            if self.failure_status:
                raise SystemExit(self.failure_status) from error

    def action(self, options: Options) -> str:
        """Return the action; raises UsageError unless there is exactly one."""
        actions = [name for name in self.actions if options[name]]
        if len(actions) != 1:
            raise click.UsageError(f"Command must include exactly one action: {self.usage}")
        return actions[0]

    def listing(
        self, admin: Admin, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
    ) -> list[GroupListing]:
        """Return the groups of this kind, of some states and types only."""
        return admin.list_groups(states=states, types=types or (self.kind,))

    def selected(self, admin: Admin, options: Options) -> list[str]:
        """Return the ids of the selected groups."""
        if options["all_groups"]:
            return [group.group_id for group in self.listing(admin)]
        return list(dict.fromkeys(options["group"]))

    def print_listing(self, admin: Admin, options: Options) -> None:
        """Print the ids of groups, with their states on request."""
        states = words_of(options["state"], self.states, "state")
        groups = self.listing(admin, states=states)
        if wants_json():
            print_json([group._asdict() for group in groups])
        elif options["state"] is None:
            click.echo("".join(f"{group.group_id}\n" for group in groups), nl=False)
        else:
            rows = [(group.group_id, group.state) for group in groups]
            click.echo(columns({"GROUP": "15+", "STATE": "0"}, rows))

    def describe(self, admin: Admin, options: Options) -> None:
        """Print offsets, members or states of groups, or the JSON document of all."""
        verbose, with_state = options["verbose"], options["state"] is not None
        groups = self.describe_all(admin, self.selected(admin, options))
        if wants_json():
            with_offsets = not options["members"] and not with_state
            print_json([self.document(admin, it, with_offsets=with_offsets) for it in groups])
            return
        brokers = admin.describe_cluster().brokers if with_state and not options["members"] else ()
        hosts = {node.node_id: f"{node.host}:{node.port}" for node in brokers}
        for group in groups:
            if options["members"]:
                self.print_members(group, verbose=verbose)
            elif with_state:
                host = hosts.get(group.coordinator, "-")
                coordinator = f"{host}{self.between_host_and_id}({group.coordinator})"
                self.print_state(group, coordinator, verbose=verbose)
            else:
                self.print_offsets(admin, group, verbose=verbose)

    def delete(self, admin: Admin, options: Options) -> None:
        """Delete groups and the internal topics that go with them; print the outcomes."""
        is_all = options["all_groups"]
        groups = self.listing(admin) if is_all or self.deletes_by_state else []
        states = {group.group_id: group.state for group in groups}
        requested = list(states if is_all else dict.fromkeys(options["group"]))
        failures = {
            name: reason
            for name in requested
            if (reason := self.undeletable(name, states.get(name))) is not None
        }
        names = [name for name in requested if name not in failures]
        topics = self.topics_of(admin, names, options)
        outcomes = admin.delete_groups(names) if names else {}
        deleted = [name for name, error in outcomes.items() if error is None]
        failures |= {name: java_text(error) for name, error in outcomes.items() if error}
        quoted = self.quoted(deleted)
        if not failures:
            click.echo(f"Deletion of requested {self.kind} groups ({quoted}) was successful.")
        else:
            print_problem(f"Deletion of some {self.kind} groups failed:")
            for name, text in failures.items():
                click.echo(f"* Group '{name}' could not be deleted due to: {text}")
            if deleted:
                end = f"deleted successfully: {quoted}{self.deletion_end}"
                click.echo(f"\nThese {self.kind} groups were {end}")
        delete_with_groups(admin, topics, deleted)

    def topics_of(
        self, _admin: Admin, _group_ids: list[str], _options: Options
    ) -> dict[str, list[str]]:
        """Return the internal topics to delete with groups."""
        return {}

    def quoted(self, names: Iterable[str]) -> str:
        """Return names as the outcome of a deletion shows them."""
        return ", ".join(f"'{name}'" for name in names)

    # ------------------------------------------------------------ offsets

    def reset_offsets(self, admin: Admin, options: Options) -> None:
        """Plan the reset of each group, execute it with --execute, and print the plans."""
        plans: dict[str, dict[TopicPartition, int]] = {}
        for group_id, group in self.existing(admin, self.selected(admin, options)):
            # offsets may be committed for a group that does not exist
            if group is not None and group.state not in ("Empty", "Dead"):
                print_problem(
                    f"Assignments can only be reset if the group '{group_id}' is inactive, but "
                    f"the current state is {group.state}."
                )
                plans[group_id] = {}
                continue
            flags = self.flags(admin, group, options)
            plans[group_id] = plan_reset(admin, group_id, flags)
            if options["execute"]:
                commit_plan(admin, group_id, plans[group_id])
                self.after_reset(admin, group_id, group, options)
        if options["export"]:
            export_plans(plans, many=len(options["group"]) != 1)
        else:
            print_plans(plans)

    def existing(
        self, admin: Admin, group_ids: list[str]
    ) -> Iterator[tuple[str, Description | None]]:
        """Describe groups; None for those that do not exist."""
        for group_id in group_ids:
            try:
                yield group_id, next(self.describe_all(admin, [group_id]))
            except KafkaError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                yield group_id, None

    def flags(self, _admin: Admin, _group: Description | None, options: Options) -> GroupFlags:
        """Return the selection of offsets."""
        topics = {"topic": options[self.topics], "all_topics": options[f"all_{self.topics}s"]}
        known: dict[str, Any] = {**dict.fromkeys(GroupFlags._fields), **options, **topics}
        return GroupFlags(**{name: known[name] for name in GroupFlags._fields})

    def after_reset(
        self, _admin: Admin, _group_id: str, _group: Description | None, _options: Options
    ) -> None:
        """Do the rest of a reset once its offsets are committed."""

    def delete_offsets(self, admin: Admin, options: Options) -> None:
        """Delete the offsets of a group's topics and print the result of each partition."""
        if len(options["group"]) > 1:
            raise GroupCommandError(
                "Found multiple arguments for option group, but you asked for only one"
            )
        group_id = options["group"][0]
        requested, unknown = _named_partitions(admin, self.deletion_topics(admin, options))
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        try:
            if requested or self.asks_without_partitions:
                outcomes = admin.delete_group_offsets(group_id, requested)
        except KafkaError as error:
            print_problem(str(error))
            outcomes = dict.fromkeys(requested, error)
        else:
            if any(outcomes.values()):
                print_problem("Encountered some partition-level error, see the follow-up details.")
            else:
                click.echo(f"Request succeeded for deleting offsets from group {group_id}.")
        outcomes |= unknown
        rows = []
        for partition, failure in sorted(outcomes.items(), key=lambda item: item[0]):
            status = f"Error: {java_text(failure)}" if failure else "Successful"
            number = "-" if partition.partition < 0 else partition.partition
            rows.append((partition.topic, number, status))
        click.echo("\n" + columns({"TOPIC": "15+", "PARTITION": "10", "STATUS": "15"}, rows))

    def deletion_topics(self, _admin: Admin, options: Options) -> tuple[str, ...]:
        """Return the topics, or topic:0,1, whose offsets are to be deleted."""
        topics: tuple[str, ...] = options[self.topics]
        return topics


def _named_partitions(
    admin: Admin, topics: Iterable[str]
) -> tuple[list[TopicPartition], dict[TopicPartition, KafkaError | None]]:
    """Resolve topic or topic:0,1 arguments; unknown topics are returned apart, as partition -1."""
    requested: list[TopicPartition] = []
    unknown: dict[TopicPartition, KafkaError | None] = {}
    for argument in topics:
        topic, numbers = topic_argument(argument)
        if numbers is None:
            description = admin.describe_topics([topic])[topic]
            if isinstance(description, KafkaError):
                unknown[TopicPartition(topic, -1)] = description
                continue
            numbers = [partition.partition for partition in description.partitions]
        requested += [TopicPartition(topic, number) for number in numbers]
    return requested, unknown


def partitions_text(partitions: Iterable[TopicPartition] | None) -> str:
    """Return partitions by topic; a dash without partitions."""
    topics = by_topic(sorted(partitions or ()))
    return ";".join(f"{name}:{','.join(map(str, ids))}" for name, ids in topics.items()) or "-"
