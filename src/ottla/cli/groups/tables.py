"""Tables of `consumer-groups --describe`: offsets and lag, members, states.

Kafka: the print methods of ConsumerGroupCommand.ConsumerGroupService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.clients.arguments import by_topic
from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import LATEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.admin.groups import GroupDescription, MemberDescription
    from ottla.clients.blocking import Admin
    from ottla.types import TopicPartition

MISSING = "-"


class OffsetRow(NamedTuple):
    """One partition of one group; None is printed as a dash."""

    group: str
    topic: str | None
    partition: int | None
    leader_epoch: int | None
    offset: int | None
    end_offset: int | None
    member_id: str | None
    host: str | None
    client_id: str | None

    @property
    def lag(self) -> int | None:
        """Number of records after the committed offset."""
        if self.offset is None or self.end_offset is None or self.offset < 0:
            return None
        return self.end_offset - self.offset


def print_problem(text: str) -> None:
    """Print an error that does not end the tool."""
    click.echo(f"\nError: {text}")


def cell(value: object) -> str:
    """Return the text of a table's cell; a dash for None."""
    return MISSING if value is None else str(value)


def _width(values: Iterable[object], smallest: int = 15) -> int:
    return max([smallest, *(len(cell(value)) for value in values)])


def has_rows(group: str, state: str, rows: int) -> bool:
    """Print the warning about a group's state, if any; return whether there is a table."""
    if state == "Dead":
        raise KafkaError(69, f"Consumer group '{group}' does not exist.")
    if state == "Empty":
        click.echo(f"\nConsumer group '{group}' has no active members.", err=True)
    elif state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        click.echo(f"\nWarning: Consumer group '{group}' is rebalancing.", err=True)
    return rows > 0


def documents(
    admin: Admin, groups: Mapping[str, GroupDescription], *, with_offsets: bool
) -> list[Mapping[str, object]]:
    """Return the JSON of groups: state and members, or offsets and lag by partition."""
    found: list[Mapping[str, object]] = []
    for group_id, group in groups.items():
        if group.state == "Dead":
            raise KafkaError(69, f"Consumer group '{group_id}' does not exist.")
        shown: dict[str, object] = {
            "group": group_id,
            "state": group.state,
            "type": group.type,
            "coordinator": group.coordinator,
            "assignor": group.assignor,
            "members": [member_document(one) for one in group.members],
        }
        if with_offsets:
            rows = _offset_rows(admin, group_id, group)
            shown["offsets"] = [{**one._asdict(), "lag": one.lag} for one in rows if one.topic]
        found.append(shown)
    return found


def member_document(member: MemberDescription) -> dict[str, object]:
    """Return the JSON of a member."""
    assignment = [f"{one.topic}-{one.partition}" for one in member.assignment]
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "assignment": assignment,
    }


# ---------------------------------------------------------------- offsets


def print_offsets(admin: Admin, groups: Mapping[str, GroupDescription], *, verbose: bool) -> None:
    """Print the offsets and lag of each group's partitions."""
    for group_id, group in groups.items():
        rows = _offset_rows(admin, group_id, group)
        if has_rows(group_id, group.state, len(rows)):
            _print_offset_table(rows, verbose=verbose)


def _offset_rows(admin: Admin, group_id: str, group: GroupDescription) -> list[OffsetRow]:
    committed = admin.list_group_offsets(group_id)
    owners: dict[TopicPartition, MemberDescription] = {}
    for member in group.members:
        owners.update(dict.fromkeys(member.assignment, member))
    partitions = sorted({*committed, *owners})
    ends = admin.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP)) if partitions else {}
    rows = []
    for partition in partitions:
        place = committed.get(partition)
        end = ends.get(partition)
        owner = owners.get(partition)
        rows.append(
            OffsetRow(
                group_id,
                partition.topic,
                partition.partition,
                place.leader_epoch if place and place.leader_epoch >= 0 else None,
                place.offset if place and place.offset >= 0 else None,
                None if end is None or isinstance(end, KafkaError) else end.offset,
                owner.member_id if owner else None,
                owner.host if owner else None,
                owner.client_id if owner else None,
            )
        )
    idle = [member for member in group.members if not member.assignment]
    rows += [
        OffsetRow(group_id, None, None, None, None, None, one.member_id, one.host, one.client_id)
        for one in idle
    ]
    return rows


def _print_offset_table(rows: list[OffsetRow], *, verbose: bool) -> None:
    group, topic = _width(row.group for row in rows), _width(row.topic for row in rows)
    member, host = _width(row.member_id for row in rows), _width(row.host for row in rows)
    epoch = f" {'LEADER-EPOCH':<15}" if verbose else ""
    click.echo(
        f"\n{'GROUP':<{group}} {'TOPIC':<{topic}} {'PARTITION':<10}{epoch} {'CURRENT-OFFSET':<15} "
        f"{'LOG-END-OFFSET':<15} {'LAG':<15} {'CONSUMER-ID':<{member}} {'HOST':<{host}} CLIENT-ID",
        nl=False,
    )
    for row in rows:
        epoch = f" {cell(row.leader_epoch):<15}" if verbose else ""
        click.echo(
            f"\n{row.group:<{group}} {cell(row.topic):<{topic}} {cell(row.partition):<10}{epoch} "
            f"{cell(row.offset):<15} {cell(row.end_offset):<15} {cell(row.lag):<15} "
            f"{cell(row.member_id):<{member}} {cell(row.host):<{host}} {cell(row.client_id)}",
            nl=False,
        )
    click.echo()


# ---------------------------------------------------------------- members


def print_members(groups: Mapping[str, GroupDescription], *, verbose: bool) -> None:
    """Print the members of each group; with verbose, their assignments too."""
    for group_id, group in groups.items():
        has_rows(group_id, group.state, len(group.members))
        _print_member_table(group, verbose=verbose)


def _print_member_table(group: GroupDescription, *, verbose: bool) -> None:
    members = group.members
    with_instances = any(member.instance_id is not None for member in members)
    widths = [
        _width([group.group_id]),
        _width(member.member_id for member in members),
        _width(member.instance_id for member in members) + 2,
        _width(member.host for member in members),
        _width(member.client_id for member in members),
    ]
    titles = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID"]
    _print_member_line(titles, "#PARTITIONS", widths, with_instances=with_instances)
    if verbose:
        assigned = max([20, *(len(assignment_text(m.assignment)) for m in members)])
        targets = max([20, *(len(_target_text(m)) for m in members)])
        click.echo(
            f"{'CURRENT-EPOCH':<15} {'CURRENT-ASSIGNMENT':<{assigned}} {'TARGET-EPOCH':<15} "
            f"{'TARGET-ASSIGNMENT':<{targets}}",
            nl=False,
        )
    for member in members:
        cells = [
            group.group_id,
            member.member_id,
            member.instance_id,
            member.host,
            member.client_id,
        ]
        count = str(len(member.assignment))
        _print_member_line(cells, count, widths, with_instances=with_instances)
        if verbose:
            current = assignment_text(member.assignment)
            click.echo(
                f"{cell(member.member_epoch):<15} {current:<{assigned}} "
                f"{cell(group.assignment_epoch):<15} {_target_text(member):<{targets}}",
                nl=False,
            )
    click.echo()


def _print_member_line(
    cells: list[Any], count: str, widths: list[int], *, with_instances: bool
) -> None:
    shown = [
        f"{cell(value):<{width}}"
        for position, (value, width) in enumerate(zip(cells, widths, strict=True))
        if position != 2 or with_instances
    ]
    click.echo("\n" + " ".join([*shown, f"{count:<15} "]), nl=False)


def _target_text(member: MemberDescription) -> str:
    target = member.target_assignment
    return MISSING if target is None else assignment_text(target)


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions by topic; a dash without partitions."""
    topics = by_topic(sorted(partitions))
    return ";".join(f"{name}:{','.join(map(str, ids))}" for name, ids in topics.items()) or MISSING


# ---------------------------------------------------------------- states


def print_states(admin: Admin, groups: Mapping[str, GroupDescription], *, verbose: bool) -> None:
    """Print the coordinator, assignor and state of each group."""
    brokers = {node.node_id: node for node in admin.describe_cluster().brokers}
    for group_id, group in groups.items():
        has_rows(group_id, group.state, 1)
        node = brokers.get(group.coordinator)
        where = f"{node.host}:{node.port}" if node else MISSING
        coordinator = f"{where}  ({group.coordinator})"
        width = max(25, len(coordinator))
        name = max(15, len(group_id))
        strategy = group.assignor or MISSING
        if verbose:
            epochs = f" {cell(group.group_epoch):<15} {cell(group.assignment_epoch):<25}"
            titles = f" {'GROUP-EPOCH':<15} {'TARGET-ASSIGNMENT-EPOCH':<25}"
        else:
            epochs = titles = ""
        click.echo(
            f"\n{'GROUP':<{name}} {'COORDINATOR (ID)':<{width}} {'ASSIGNMENT-STRATEGY':<20} "
            f"{'STATE':<20}{titles} #MEMBERS"
        )
        click.echo(
            f"{group_id:<{name}} {coordinator:<{width}} {strategy:<20} {group.state:<20}{epochs} "
            f"{len(group.members)}"
        )
