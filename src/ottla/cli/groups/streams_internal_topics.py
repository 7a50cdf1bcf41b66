"""The internal topics of streams groups, deleted with the group or with a reset.

Kafka: StreamsGroupCommand.StreamsGroupService.{retrieveInternalTopics, maybeDeleteInternalTopics}.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ottla.cli.output.failures import java_text
from ottla.cli.output.tables import print_problem
from ottla.errors import ErrorCode, KafkaError
from ottla.views.groups import input_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.admin.streams_groups import StreamsGroupDescription
    from ottla.clients.blocking import Admin

_INTERNAL = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|.-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-[0-9]+-topic)"
)


def is_internal_name(name: str, group_id: str) -> bool:
    """Whether a topic has the name of an internal topic of an application."""
    return name.startswith(f"{group_id}-") and _INTERNAL.fullmatch(name) is not None


def internal_topics(group: StreamsGroupDescription) -> list[str]:
    """Return the internal topics of a group; those with other names are reported and kept."""
    inputs = input_topics(group)
    internal = []
    for part in group.subtopologies:
        for name in (*part.repartition_source_topics, *part.state_changelog_topics):
            if name in inputs:
                continue
            if is_internal_name(name, group.group_id):
                internal.append(name)
            else:
                print_problem(
                    f"The internal topic '{name}' is not inferred as internal and thus will not be "
                    f"deleted with the group '{group.group_id}'."
                )
    return internal


def delete_with_groups(
    admin: Admin, by_group: Mapping[str, list[str]], deleted: Iterable[str]
) -> None:
    """Delete the internal topics of deleted groups and print the results."""
    if not by_group:
        return
    failures: dict[str, KafkaError] = {}
    done = list(deleted)
    for group_id in done:
        for name, error in admin.delete_topics(by_group.get(group_id, [])).items():
            if error is not None:
                click.echo(f"Failed to delete internal topic: {name}")
                failures.setdefault(group_id, error)
    if not done:
        return
    if not failures:
        named = "', '".join(group_id for group_id in done if group_id in by_group)
        click.echo(
            f"Deletion of associated internal topics of the streams groups ('{named}') "
            "was successful."
        )
        return
    click.echo("Deletion of some associated internal topics failed:")
    for group_id, error in failures.items():
        click.echo(
            f"* Internal topics of the streams group '{group_id}' could not be deleted due to: "
            f"{java_text(error)}"
        )


def delete_after_reset(admin: Admin, group_id: str, names: list[str]) -> None:
    """Delete internal topics of a group whose offsets were reset."""
    failures = [error for error in admin.delete_topics(names).values() if error is not None]
    if not failures:
        return
    if failures[0].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        print_problem(
            f"Deleting internal topics for group '{group_id}' failed because the topics do not "
            "exist."
        )
    else:
        reason = java_text(failures[0])
        print_problem(f"Deleting internal topics for group '{group_id}' failed due to {reason}")
