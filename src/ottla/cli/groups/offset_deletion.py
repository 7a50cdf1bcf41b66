"""`consumer-groups --delete-offsets`.

Kafka: ConsumerGroupCommand.ConsumerGroupService.deleteOffsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.groups.flags import GroupCommandError, GroupFlags, topic_argument
from ottla.cli.output.java_names import java_text
from ottla.errors import KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.blocking import Admin


def delete_offsets(admin: Admin, flags: GroupFlags, *, checks_group: bool = False) -> None:
    """Delete the offsets of a group's topics and print the result of each partition.

    With checks_group the request is sent without partitions, too, for the error of the group.
    """
    if len(flags.group) > 1:
        raise GroupCommandError(
            "Found multiple arguments for option group, but you asked for only one"
        )
    group = flags.group[0]
    requested, unknown = _named_partitions(admin, flags.topic)
    whole: KafkaError | None = None
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    try:
        if requested or checks_group:
            outcomes = admin.delete_group_offsets(group, requested)
    except KafkaError as error:
        whole = error
        outcomes = dict.fromkeys(requested, error)
    _report(group, whole, outcomes)
    outcomes |= unknown
    width = max([15, *(len(partition.topic) for partition in outcomes)])
    click.echo(f"\n{'TOPIC':<{width}} {'PARTITION':<10} {'STATUS':<15}", nl=False)
    for partition, failure in sorted(outcomes.items(), key=_by_partition):
        status = "Successful" if failure is None else f"Error: {java_text(failure)}"
        number = "-" if partition.partition < 0 else partition.partition
        click.echo(f"\n{partition.topic:<{width}} {number:<10} {status:<15}", nl=False)
    click.echo()


def _named_partitions(
    admin: Admin, topics: tuple[str, ...]
) -> tuple[list[TopicPartition], dict[TopicPartition, KafkaError | None]]:
    """Resolve topic or topic:0,1 arguments; unknown topics are returned apart, as partition -1."""
    requested: list[TopicPartition] = []
    unknown: dict[TopicPartition, KafkaError | None] = {}
    for argument in topics:
        topic, numbers = topic_argument(argument)
        if numbers is None:
            described = admin.describe_topics([topic])[topic]
            if isinstance(described, KafkaError):
                unknown[TopicPartition(topic, -1)] = described
                continue
            numbers = [partition.partition for partition in described.partitions]
        requested += [TopicPartition(topic, number) for number in numbers]
    return requested, unknown


def _report(
    group: str, whole: KafkaError | None, outcomes: Mapping[TopicPartition, KafkaError | None]
) -> None:
    if whole is not None:
        click.echo(f"\nError: {whole}")
    elif any(failure is not None for failure in outcomes.values()):
        click.echo("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        click.echo(f"Request succeeded for deleting offsets from group {group}.")


def _by_partition(item: tuple[TopicPartition, object]) -> TopicPartition:
    return item[0]
