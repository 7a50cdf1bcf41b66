"""`consumer-groups --reset-offsets`.

Kafka: org.apache.kafka.tools.OffsetsUtils, ConsumerGroupCommand.ConsumerGroupService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.groups.flags import GroupCommandError, GroupFlags, topic_argument
from ottla.cli.groups.reset_plans import export_plans, print_plans, read_plan
from ottla.cli.groups.reset_times import moment_before_now, parse_moment
from ottla.cli.groups.timestamp_offsets import offsets_at
from ottla.cli.groups.usage import refuse_without_scenario, refuse_without_scope, scenario_of
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.blocking import Admin

    Plan = dict[TopicPartition, int]

SCENARIOS = (
    "to_offset",
    "to_datetime",
    "by_duration",
    "to_earliest",
    "to_latest",
    "to_current",
    "shift_by",
    "from_file",
)


def reset_offsets(admin: Admin, groups: list[str], flags: GroupFlags) -> None:
    """Plan the reset of each group, execute it with --execute, and print the plan."""
    plans: dict[str, Plan] = {}
    for group, described in admin.describe_groups(groups).items():
        if isinstance(described, KafkaError):
            if described.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise described
            state = "Dead"  # offsets may be committed for a group that does not exist
        else:
            state = described.state
        if state not in ("Empty", "Dead"):
            click.echo(
                f"\nError: Assignments can only be reset if the group '{group}' is inactive, but "
                f"the current state is {state}."
            )
            plans[group] = {}
            continue
        plans[group] = plan_reset(admin, group, flags)
        if flags.execute:
            commit_plan(admin, group, plans[group])
    if flags.export:
        export_plans(plans, many=flags.has_many)
    else:
        print_plans(plans)


def check_scenario(options: Mapping[str, Any]) -> None:
    """Refuse a reset unless it has exactly one target and a selection of topics."""
    if scenario_of(SCENARIOS, options) is None:
        refuse_without_scenario(SCENARIOS)
    if not options["from_file"] and not options["topic"] and not options["all_topics"]:
        refuse_without_scope()


def commit_plan(admin: Admin, group: str, plan: Plan) -> None:
    """Commit the planned offsets; raises the first error."""
    for error in admin.alter_group_offsets(group, plan).values() if plan else ():
        if error is not None:
            raise error


def plan_reset(admin: Admin, group: str, flags: GroupFlags) -> Plan:
    """Return the new offset of each partition that the flags select."""
    if flags.from_file:
        return _within(admin, read_plan(flags.from_file, group, many=flags.has_many))
    partitions = _partitions(admin, group, flags)
    if flags.to_earliest or flags.to_latest:
        end = EARLIEST_TIMESTAMP if flags.to_earliest else LATEST_TIMESTAMP
        return offsets_at(admin, partitions, end)
    if flags.to_offset is not None:
        return _within(admin, dict.fromkeys(partitions, flags.to_offset))
    if flags.shift_by is not None:
        return _shifted(admin, group, partitions, flags.shift_by)
    if flags.to_current:
        return _current(admin, group, partitions)
    return _offsets_by_time(admin, partitions, _moment(flags))


def _partitions(admin: Admin, group: str, flags: GroupFlags) -> list[TopicPartition]:
    if flags.all_topics:
        return sorted(admin.list_group_offsets(group))
    requested: list[TopicPartition] = []
    for argument in flags.topic:
        topic, given = topic_argument(argument)
        described = admin.describe_topics([topic])[topic]
        if isinstance(described, KafkaError):
            raise GroupCommandError(str(described))
        existing = {partition.partition for partition in described.partitions}
        numbers = sorted(existing if given is None else given)
        unknown = [f"{topic}-{number}" for number in numbers if number not in existing]
        if unknown:
            raise GroupCommandError(f'The partitions "{",".join(unknown)}" do not exist')
        requested += [TopicPartition(topic, number) for number in numbers]
    return requested


def _offsets_by_time(admin: Admin, partitions: list[TopicPartition], moment_ms: int) -> Plan:
    plan = offsets_at(admin, partitions, moment_ms)
    late = [partition for partition, offset in plan.items() if offset < 0]
    for partition in late:
        click.echo(
            f"\nWarn: Partition {partition.partition} from topic {partition.topic} is empty. "
            "Falling back to latest known offset."
        )
    return plan | offsets_at(admin, late, LATEST_TIMESTAMP)


def _within(admin: Admin, plan: Plan) -> Plan:
    """Limit the planned offsets to the range of existing offsets."""
    first = offsets_at(admin, plan, EARLIEST_TIMESTAMP)
    last = offsets_at(admin, plan, LATEST_TIMESTAMP)
    bounded = {}
    for partition, offset in plan.items():
        bounded[partition] = offset
        if offset > last[partition]:
            bounded[partition] = last[partition]
            _warn("higher than latest", partition, offset, last[partition])
        elif offset < first[partition]:
            bounded[partition] = first[partition]
            _warn("lower than earliest", partition, offset, first[partition])
    return bounded


def _warn(how: str, partition: TopicPartition, offset: int, bound: int) -> None:
    click.echo(
        f"New offset ({offset}) is {how} offset for topic partition {partition}. "
        f"Value will be set to {bound}",
        err=True,
    )


def _shifted(admin: Admin, group: str, partitions: list[TopicPartition], by: int) -> Plan:
    committed = admin.list_group_offsets(group, partitions)
    plan: Plan = {}
    for partition in partitions:
        place = committed.get(partition)
        if place is None:
            raise click.UsageError(
                f"Cannot shift offset for partition {partition} since there is no current "
                "committed offset"
            )
        plan[partition] = place.offset + by
    return _within(admin, plan)


def _current(admin: Admin, group: str, partitions: list[TopicPartition]) -> Plan:
    committed = admin.list_group_offsets(group, partitions)
    known = {p: place.offset for p, place in committed.items() if place is not None}
    new = [partition for partition in partitions if partition not in known]
    return known | offsets_at(admin, new, LATEST_TIMESTAMP)


def _moment(flags: GroupFlags) -> int:
    if flags.to_datetime is not None:
        return parse_moment(flags.to_datetime)
    return moment_before_now(flags.by_duration or "")
