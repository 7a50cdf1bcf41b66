"""Tables of `share-groups --describe`: start offsets and lag, members, states.

Kafka: the print methods of org.apache.kafka.tools.consumer.group.ShareGroupCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.groups.tables import (
    MISSING,
    assignment_text,
    cell,
    member_document,
    print_problem,
)
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clients.admin.groups import GroupDescription
    from ottla.clients.blocking import Admin


def _has_table(group: GroupDescription, rows: int) -> bool:
    """Print the problem of the group, if any; return whether there is a table."""
    if group.state == "Dead":
        print_problem(f"Share group '{group.group_id}' does not exist.")
    elif group.state == "Empty":
        click.echo(f"\nShare group '{group.group_id}' has no active members.", err=True)
    return group.state != "Dead" and rows > 0


def _width(values: Iterable[str], smallest: int = 15) -> int:
    return max([smallest, *map(len, values)])


def print_offsets(admin: Admin, group: GroupDescription, *, verbose: bool) -> None:
    """Print the start offset and the lag of each partition."""
    found = admin.list_share_group_offsets(group.group_id)
    if not found:
        click.echo(f"\nShare group '{group.group_id}' has no offset information.")
        return
    name, topic = _width([group.group_id]), _width(one.topic for one in found)

    def line(cells: list[object]) -> None:
        shown = f"{cells[0]:<{name}} {cells[1]:<{topic}} {cells[2]:<10} "
        epoch = f"{cells[3]:<13} " if verbose else ""
        click.echo(f"\n{shown}{epoch}{cells[4]:<13} {cells[5]}", nl=False)

    line(["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG"])
    for partition in sorted(found):
        place = found[partition]
        cells: list[int | None] = [None, None, None]
        if isinstance(place, KafkaError):
            raise place
        if place is not None:
            cells = [place.leader_epoch, place.start_offset, place.lag]
        known = [cell(one) for one in cells]
        line([group.group_id, partition.topic, partition.partition, *known])
    click.echo()


def print_members(group: GroupDescription, *, verbose: bool) -> None:
    """Print the members of a group with their assignments."""
    if not _has_table(group, len(group.members)):
        return
    members = group.members
    widths = [
        _width([group.group_id]),
        _width(one.member_id for one in members),
        _width(one.host for one in members),
        _width(one.client_id for one in members),
    ]

    def line(cells: list[object]) -> None:
        named = " ".join(f"{one:<{width}}" for one, width in zip(cells, widths, strict=False))
        epoch = f"{cells[5]:<13} " if verbose else ""
        click.echo(f"\n{named} {cells[4]:<12} {epoch}{cells[6]}", nl=False)

    titles: list[object] = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    line([*titles, "MEMBER-EPOCH", "ASSIGNMENT"])
    for one in sorted(members, key=lambda member: -len(member.assignment)):
        named: list[object] = [group.group_id, one.member_id, one.host, one.client_id]
        line(
            [
                *named,
                len(one.assignment),
                one.member_epoch,
                assignment_text(one.assignment) if one.assignment else "",
            ]
        )
    click.echo()


def print_states(admin: Admin, group: GroupDescription, *, verbose: bool) -> None:
    """Print the coordinator and the state of a group."""
    _has_table(group, 1)
    node = next(
        (one for one in admin.describe_cluster().brokers if one.node_id == group.coordinator), None
    )
    where = MISSING if node is None else f"{node.host}:{node.port}"
    coordinator = f"{where}  ({group.coordinator})"
    width, name = max(25, len(coordinator)), _width([group.group_id])

    def line(cells: list[object]) -> None:
        epochs = f"{cells[3]:<12} {cells[4]:<17} " if verbose else ""
        click.echo(
            f"\n{cells[0]:<{name}} {cells[1]:<{width}} {cells[2]:<15} {epochs}{cells[5]}", nl=False
        )

    titles: list[object] = ["GROUP", "COORDINATOR (ID)", "STATE", "GROUP-EPOCH"]
    line([*titles, "ASSIGNMENT-EPOCH", "#MEMBERS"])
    cells: list[object] = [group.group_id, coordinator, group.state, group.group_epoch]
    line([*cells, group.assignment_epoch, len(group.members)])
    click.echo()


def document(admin: Admin, group: GroupDescription, *, with_offsets: bool) -> dict[str, object]:
    """Return the JSON of a group: state and members, and start offsets and lag by partition."""
    if group.state == "Dead":
        raise KafkaError(69, f"Share group '{group.group_id}' does not exist.")
    shown: dict[str, object] = {
        "group": group.group_id,
        "state": group.state,
        "coordinator": group.coordinator,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [member_document(one) for one in group.members],
    }
    if with_offsets:
        found = admin.list_share_group_offsets(group.group_id)
        rows: list[dict[str, object]] = []
        for partition in sorted(found):
            place = found[partition]
            if isinstance(place, KafkaError):
                raise place
            known = {} if place is None else place._asdict()
            unknown = {"start_offset": None, "leader_epoch": None, "lag": None}
            rows.append({**partition._asdict(), **unknown, **known})
        shown["offsets"] = rows
    return shown
