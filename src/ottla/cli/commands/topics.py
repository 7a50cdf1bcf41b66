"""`ottla topics`: create, list, describe, alter and delete topics.

Kafka: bin/kafka-topics.sh, org.apache.kafka.tools.TopicCommand.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import (
    bootstrap_option,
    json_option,
    print_json,
    refuse_json_unless,
    require,
    version_option,
    wants_json,
)
from ottla.cli.options.joptsimple import INTEGER, ToolCommand, java_integer, refuse_both
from ottla.cli.output.failures import fail, kafka_message
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.types import Uuid
from ottla.views.topics import describe_topics

if TYPE_CHECKING:
    from ottla.clients.blocking import Admin
    from ottla.views.topics import PartitionFacts, TopicFacts

INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
ACTIONS = ("list", "describe", "create", "alter", "delete")

EXAMPLES = """
\b
Examples:
  ottla topics --bootstrap-server localhost:9092 --create --topic orders --partitions 3 \\
      --config retention.ms=86400000
  ottla topics --bootstrap-server localhost:9092 --describe --topic 'orders|payments'
  ottla topics --bootstrap-server localhost:9092 --list --exclude-internal
"""

# Pairs of flags that exclude each other; Kafka's message names both.
_ONLY_WITH = {
    "config": ("create",),
    "partitions": ("create", "alter"),
    "replication_factor": ("create",),
    "replica_assignment": ("create", "alter"),
    "if_not_exists": ("create",),
    "if_exists": ("alter", "delete", "describe"),
    "topics_with_overrides": ("describe",),
    "under_replicated_partitions": ("describe",),
    "under_min_isr_partitions": ("describe",),
    "at_min_isr_partitions": ("describe",),
    "unavailable_partitions": ("describe",),
    "exclude_internal": ("list", "describe"),
}
_EXCLUSIVE = (
    ("replica_assignment", "replication_factor"),
    ("under_replicated_partitions", "topics_with_overrides"),
    ("under_min_isr_partitions", "topics_with_overrides"),
    ("at_min_isr_partitions", "topics_with_overrides"),
    ("unavailable_partitions", "topics_with_overrides"),
)


class TopicFlags(NamedTuple):
    """The flags of one call."""

    bootstrap_server: str | None
    command_config: str | None
    action: str
    topic: str | None
    topic_id: str | None
    partitions: int | None
    replication_factor: int | None
    replica_assignment: str | None
    config: tuple[str, ...]
    if_exists: bool
    if_not_exists: bool
    exclude_internal: bool
    under_replicated_partitions: bool
    under_min_isr_partitions: bool
    at_min_isr_partitions: bool
    unavailable_partitions: bool
    topics_with_overrides: bool


class CommandError(Exception):
    """An error that ends the tool; its text follows Kafka's prefix."""


@click.command("topics", cls=ToolCommand, epilog=EXAMPLES)
@bootstrap_option
@version_option
@json_option
@click.option("--command-config", metavar="FILE", help="Settings of the admin client.")
@click.option("--list", "list_", is_flag=True, help="List all topics.")
@click.option("--describe", is_flag=True, help="Show partitions, replicas and settings.")
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--alter", is_flag=True, help="Add partitions to a topic.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--topic", help="The topic; a regular expression except with --create.")
@click.option("--topic-id", help="The id of the topic to describe.")
@click.option("--partitions", type=INTEGER, help="Number of partitions.")
@click.option("--replication-factor", type=INTEGER, help="Number of replicas of each partition.")
@click.option("--replica-assignment", metavar="0:1,1:2", help="Replicas of each partition.")
@click.option("--config", multiple=True, metavar="NAME=VALUE", help="A setting of the new topic.")
@click.option("--delete-config", multiple=True, hidden=True)
@click.option("--if-exists", is_flag=True, help="Do nothing if the topic does not exist.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@click.option("--exclude-internal", is_flag=True, help="Omit internal topics.")
@click.option(
    "--under-replicated-partitions", is_flag=True, help="Only under-replicated partitions."
)
@click.option(
    "--under-min-isr-partitions", is_flag=True, help="Only partitions below min.insync.replicas."
)
@click.option(
    "--at-min-isr-partitions", is_flag=True, help="Only partitions at min.insync.replicas."
)
@click.option("--unavailable-partitions", is_flag=True, help="Only partitions without a leader.")
@click.option("--topics-with-overrides", is_flag=True, help="Only topics with overridden settings.")
@click.option("--partition-size-limit-per-response", type=INTEGER, hidden=True)
def topics(**options: Any) -> None:
    """Create, list, describe, alter or delete topics."""
    flags = _flags(options)
    try:
        with open_admin(flags.bootstrap_server or "", flags.command_config) as admin:
            _RUN[flags.action](admin, flags)
    except ConfigError as error:
        fail(str(error))
    except (CommandError, KafkaError) as error:
        click.echo(f"Error while executing topic command : {kafka_message(error)}")
        sys.exit(1)


def _flags(options: dict[str, Any]) -> TopicFlags:
    options["list"] = options.pop("list_")
    actions = [name for name in ACTIONS if options.pop(name)]
    if len(actions) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --list, --describe, --create, --alter or "
            "--delete"
        )
    refuse_json_unless(actions[0], "list", "describe")
    if options.pop("delete_config"):
        raise click.UsageError(
            "delete-config option is no longer supported and deprecated since version 4.0. The "
            "config will be fully removed in future releases."
        )
    options.pop("partition_size_limit_per_response")
    flags = TopicFlags(action=actions[0], **options)
    _check(flags)
    return flags


def _check(flags: TopicFlags) -> None:
    if not flags.bootstrap_server:
        raise click.UsageError("--bootstrap-server must be specified")
    if flags.action in ("create", "alter", "delete"):
        require(flags.topic, "topic")
    if flags.action == "alter":
        require(flags.partitions, "partitions")
    for name, actions in _ONLY_WITH.items():
        if getattr(flags, name) and flags.action not in actions:
            refuse_both(name, flags.action)
    if flags.action == "create" and flags.replica_assignment and flags.partitions:
        refuse_both("replica_assignment", "partitions")
    if flags.if_exists and flags.action == "describe" and not (flags.topic or flags.topic_id):
        raise click.UsageError("--topic or --topic-id is required to describe a topic")
    for first, second in _EXCLUSIVE:
        if getattr(flags, first) and getattr(flags, second):
            refuse_both(first, second)


# ---------------------------------------------------------------- names


def _matching(admin: Admin, flags: TopicFlags) -> list[str]:
    """Return the selected topics, sorted; raises CommandError if one is required but missing."""
    names = [
        topic.name
        for topic in admin.list_topics()
        if not (flags.exclude_internal and topic.name in INTERNAL)
    ]
    if flags.topic is None:
        return sorted(names)
    pattern = flags.topic.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise CommandError(f"{pattern} is an invalid regex.") from error
    matching = sorted(name for name in names if compiled.fullmatch(name))
    if not matching and not flags.if_exists and flags.action != "list":
        raise CommandError(f"Topic '{flags.topic}' does not exist as expected")
    return matching


def _broker_id(text: str) -> int:
    try:
        return java_integer(text, 32)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _assignment(text: str) -> list[list[int]]:
    """Parse broker ids: commas separate partitions, colons separate replicas."""
    lists = [[_broker_id(broker) for broker in part.split(":")] for part in text.split(",")]
    for part in lists:
        if len(set(part)) != len(part):
            twice = ",".join(str(id_) for id_ in sorted({b for b in part if part.count(b) > 1}))
            raise CommandError(
                f"Partition replica lists may not contain duplicate entries: {twice}"
            )
        if len(part) != len(lists[0]):
            raise CommandError(
                f"Partition {lists.index(part)} has different replication factor: {part}"
            )
    return lists


# ---------------------------------------------------------------- actions


def _list(admin: Admin, flags: TopicFlags) -> None:
    names = _matching(admin, flags)
    if wants_json():
        print_json(names)
        return
    for name in names:
        click.echo(name)


def _create(admin: Admin, flags: TopicFlags) -> None:
    from ottla.clients.admin.topics import NewTopic

    name = flags.topic or ""
    if "." in name or "_" in name:
        click.echo(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore "
            "('_') could collide. To avoid issues it is best to use either, but not both."
        )
    if flags.replication_factor is not None and not 1 <= flags.replication_factor <= 32_767:
        raise CommandError("The replication factor must be between 1 and 32767 inclusive")
    if flags.partitions is not None and flags.partitions < 1:
        raise CommandError("The partitions must be greater than 0")
    assignment = None
    if flags.replica_assignment is not None:
        assignment = dict(enumerate(_assignment(flags.replica_assignment)))
    new = NewTopic(
        name,
        -1 if flags.partitions is None else flags.partitions,
        -1 if flags.replication_factor is None else flags.replication_factor,
        _own_settings(flags.config),
        assignment,
    )
    outcome = admin.create_topics([new], retry_on_quota_violation=False)[name]
    if isinstance(outcome, KafkaError):
        if outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS and flags.if_not_exists:
            return
        raise outcome
    click.echo(f"Created topic {name}.")


def _own_settings(arguments: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for text in arguments:
        parts = re.split(r"\s*=\s*", text)
        if len(parts) != 2 or not parts[1]:
            raise CommandError(
                "requirement failed: Invalid topic config: all configs to be added must be in the "
                'format "key=val".'
            )
        settings[parts[0].strip()] = parts[1].strip()
    return settings


def _alter(admin: Admin, flags: TopicFlags) -> None:
    names = _matching(admin, flags)
    count = flags.partitions or 0
    new = None
    if flags.replica_assignment is not None:
        lists = _assignment(flags.replica_assignment)
        new = {}
        for name, described in admin.describe_topics(names).items():
            if isinstance(described, KafkaError):
                raise described
            new[str(name)] = lists[len(described.partitions) :]
    outcomes = admin.create_partitions(
        dict.fromkeys(names, count), assignments=new, retry_on_quota_violation=False
    )
    for outcome in outcomes.values():
        if outcome is not None:
            raise outcome


def _delete(admin: Admin, flags: TopicFlags) -> None:
    outcomes = admin.delete_topics(_matching(admin, flags), retry_on_quota_violation=False)
    for outcome in outcomes.values():
        if outcome is not None:
            raise outcome


# ---------------------------------------------------------------- describe


def _describe(admin: Admin, flags: TopicFlags) -> None:
    names = _matching(admin, flags) if flags.topic_id is None else _name_of(admin, flags)
    documents: list[object] = []
    for topic in describe_topics(admin, names) if names else ():
        selected = [it for it in sorted(topic.partitions) if _is_selected(flags, topic, it)]
        if not wants_json():
            filtered = flags.unavailable_partitions or flags.under_replicated_partitions
            filtered = filtered or flags.under_min_isr_partitions or flags.at_min_isr_partitions
            if not filtered and (topic.settings or not flags.topics_with_overrides):
                configs = ",".join(f"{key}={value}" for key, value in topic.settings.items())
                click.echo(
                    f"Topic: {topic.name}\tTopicId: {topic.topic_id}"
                    f"\tPartitionCount: {len(topic.partitions)}"
                    f"\tReplicationFactor: {topic.partitions[0].replication_factor}"
                    f"\tConfigs: {configs}"
                )
            if not flags.topics_with_overrides:
                for partition in selected:
                    click.echo(_partition_line(topic.name, partition))
        elif topic.settings if flags.topics_with_overrides else selected:
            documents.append(topic.document(selected))
    if wants_json():
        print_json(documents)


def _name_of(admin: Admin, flags: TopicFlags) -> list[str]:
    try:
        topic_id = Uuid.parse(flags.topic_id or "")
    except ValueError as error:
        raise CommandError(str(error)) from error
    names = [topic.name for topic in admin.list_topics() if topic.topic_id == topic_id]
    if not names and not flags.if_exists:
        raise CommandError(f"TopicId '{flags.topic_id}' does not exist as expected")
    return names


def _is_selected(flags: TopicFlags, topic: TopicFacts, partition: PartitionFacts) -> bool:
    """Whether a partition is in one of the requested states, or no state is requested."""
    in_sync, minimum = len(partition.isr), topic.min_insync_replicas
    is_led = partition.leader is not None
    states = (
        (flags.unavailable_partitions, not is_led),
        (flags.under_replicated_partitions, in_sync < partition.replication_factor),
        (flags.under_min_isr_partitions, not is_led or in_sync < minimum),
        (flags.at_min_isr_partitions, in_sync == minimum),
    )
    requested = [holds for is_requested, holds in states if is_requested]
    return any(requested) or not requested


def _partition_line(name: str, partition: PartitionFacts) -> str:
    leader = "none" if partition.leader is None else partition.leader
    moves = ""
    if partition.adding or partition.removing:
        moves = (
            f"\tAdding Replicas: {_ids(partition.adding)}"
            f"\tRemoving Replicas: {_ids(partition.removing)}"
        )
    return (
        f"\tTopic: {name}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}{moves}"
        f"\tElr: {_ids(partition.elr)}\tLastKnownElr: {_ids(partition.last_known_elr)}"
    )


def _ids(brokers: tuple[int, ...] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


_RUN = {
    "list": _list,
    "describe": _describe,
    "create": _create,
    "alter": _alter,
    "delete": _delete,
}
