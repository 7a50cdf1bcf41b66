"""Tables of `streams-groups --describe`: lag of input topics, members with tasks, states.

Kafka: the print methods of org.apache.kafka.tools.streams.StreamsGroupCommand.StreamsGroupService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.groups.tables import MISSING, cell, print_problem
from ottla.cli.groups.timestamp_offsets import offsets_at
from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.admin.streams_groups import StreamsGroupDescription, StreamsTasks
    from ottla.clients.blocking import Admin


def source_topics(group: StreamsGroupDescription) -> set[str]:
    """Return the topics that a group reads, repartition topics included."""
    return {
        name
        for one in group.subtopologies
        for name in (*one.source_topics, *one.repartition_source_topics)
    }


def input_topics(group: StreamsGroupDescription) -> set[str]:
    """Return the topics that a group reads and does not write."""
    return {name for one in group.subtopologies for name in one.source_topics}


def _has_table(group: StreamsGroupDescription) -> bool:
    """Print the problem of a group without members, if any; return whether there is a table."""
    if not group.members:
        return False
    _print_empty(group)
    return True


def _print_empty(group: StreamsGroupDescription) -> None:
    if group.state == "Dead":
        print_problem(f"Streams group '{group.group_id}' does not exist.")
    elif group.state == "Empty":
        print_problem(f"Streams group '{group.group_id}' has no active members.")


class _Offset(NamedTuple):
    """The committed offset of a partition, and the end of its log."""

    offset: int | None
    leader_epoch: int | None
    end_offset: int
    lag: int


def _offsets(admin: Admin, group: StreamsGroupDescription) -> dict[TopicPartition, _Offset]:
    """Return the offsets of the partitions of all active tasks."""
    sources = {
        one.subtopology_id: (*one.source_topics, *one.repartition_source_topics)
        for one in group.subtopologies
    }
    partitions = sorted(
        {
            TopicPartition(topic, number)
            for member in group.members
            for key, numbers in member.assignment.active.items()
            for topic in sources[key]
            for number in numbers
        }
    )
    first = offsets_at(admin, partitions, EARLIEST_TIMESTAMP)
    last = offsets_at(admin, partitions, LATEST_TIMESTAMP)
    committed = admin.list_group_offsets(group.group_id) if partitions else {}
    found = {}
    for partition in partitions:
        place = committed.get(partition)
        start = first[partition] if place is None else place.offset
        found[partition] = _Offset(
            None if place is None else place.offset,
            None if place is None or place.leader_epoch < 0 else place.leader_epoch,
            last[partition],
            last[partition] - start,
        )
    return found


def print_offsets(admin: Admin, group: StreamsGroupDescription, *, verbose: bool) -> None:
    """Print the lag of each partition; with verbose, the offsets too."""
    rows = _offsets(admin, group)
    if not _has_table(group):
        return
    name = max(15, len(group.group_id))
    topic = max([15, *(len(partition.topic) for partition in rows)])
    titles = f"{'GROUP':<{name}} {'TOPIC':<{topic}} {'PARTITION':<10} "
    if verbose:
        titles += f"{'CURRENT-OFFSET':<15} {'LEADER-EPOCH':<15} {'LOG-END-OFFSET':<15} "
    click.echo(titles + (f"{'OFFSET-LAG':<15}" if verbose else "OFFSET-LAG"))
    for partition, row in rows.items():
        start = f"{group.group_id:<{name}} {partition.topic:<{topic}} {partition.partition:<10} "
        if verbose:
            start += f"{cell(row.offset):<15} {cell(row.leader_epoch):<15} {row.end_offset:<15} "
        click.echo(start + (f"{row.lag:<15}" if verbose else f"{row.lag}"))


def print_members(group: StreamsGroupDescription, *, verbose: bool) -> None:
    """Print the members with their tasks; with verbose, the target and the epochs too."""
    if not _has_table(group):
        return
    name = max(15, len(group.group_id))
    member = max([15, *(len(one.member_id) for one in group.members)])
    process = max([15, *(len(one.process_id) for one in group.members)])
    client = max([15, *(len(one.client_id) for one in group.members)])
    epochs = f"{'TARGET-ASSIGNMENT-EPOCH':<25} {'TOPOLOGY-EPOCH':<15}" if verbose else ""
    more = f"{'MEMBER-PROTOCOL':<15} {'MEMBER-EPOCH':<15} " if verbose else ""
    click.echo(
        f"{'GROUP':<{name}} {epochs}{'MEMBER':<{member}} {more}{'PROCESS':<{process}} "
        f"{'CLIENT-ID':<{client}} ASSIGNMENTS"
    )
    for one in group.members:
        tasks = _tasks_text(one.assignment)
        if verbose:
            protocol = "classic" if one.is_classic else "streams"
            epochs = f"{group.assignment_epoch:<25} {group.topology_epoch:<15}"
            more = f"{protocol:<15} {one.member_epoch:<15} "
            tasks += _tasks_text(one.target_assignment, "TARGET-")
        click.echo(
            f"{group.group_id:<{name}} {epochs}{one.member_id:<{member}} {more}"
            f"{one.process_id:<{process}} {one.client_id:<{client}} {tasks}"
        )


def _tasks_text(tasks: StreamsTasks, prefix: str = "") -> str:
    kinds = {"ACTIVE": tasks.active, "STANDBY": tasks.standby, "WARMUP": tasks.warmup}
    return "".join(f"{prefix}{kind}: {_listed(found)}" for kind, found in kinds.items() if found)


def _listed(tasks: Mapping[str, tuple[int, ...]]) -> str:
    return "".join(f"{key}:[{','.join(map(str, numbers))}]; " for key, numbers in tasks.items())


def print_states(admin: Admin, group: StreamsGroupDescription, *, verbose: bool) -> None:
    """Print the coordinator and the state of a group."""
    _print_empty(group)
    nodes = {node.node_id: node for node in admin.describe_cluster().brokers}
    node = nodes.get(group.coordinator)
    where = f"{node.host}:{node.port}" if node else MISSING
    coordinator = f"{where} ({group.coordinator})"
    name, width = max(15, len(group.group_id)), max(25, len(coordinator))
    titles = f"{'GROUP-EPOCH':<15} {'TARGET-ASSIGNMENT-EPOCH':<25} " if verbose else ""
    epochs = f"{group.group_epoch:<15} {group.assignment_epoch:<25} " if verbose else ""
    click.echo(f"{'GROUP':<{name}} {'COORDINATOR (ID)':<{width}} {'STATE':<25} {titles}#MEMBERS")
    click.echo(
        f"{group.group_id:<{name}} {coordinator:<{width}} {group.state:<25} {epochs}"
        f"{len(group.members)}"
    )


def document(
    admin: Admin, group: StreamsGroupDescription, *, with_offsets: bool
) -> dict[str, object]:
    """Return the JSON of a group: state and members, and offsets and lag by partition."""
    if group.state == "Dead":
        raise KafkaError(69, f"Streams group '{group.group_id}' does not exist.")
    members = [
        {
            **one._asdict(),
            "assignment": one.assignment._asdict(),
            "target_assignment": one.target_assignment._asdict(),
        }
        for one in group.members
    ]
    shown: dict[str, object] = {
        "group": group.group_id,
        "state": group.state,
        "coordinator": group.coordinator,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "topology_epoch": group.topology_epoch,
        "members": members,
    }
    if with_offsets:
        rows = _offsets(admin, group).items()
        shown["offsets"] = [{**partition._asdict(), **row._asdict()} for partition, row in rows]
    return shown
