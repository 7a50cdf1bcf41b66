"""`consumer-groups --reset-offsets` and `--delete-offsets`.

Kafka: org.apache.kafka.tools.OffsetsUtils, ConsumerGroupCommand.ConsumerGroupService.
"""

from __future__ import annotations

import csv
import re
import time
from calendar import timegm
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.output.java_names import java_text
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.blocking import Admin

    Plan = dict[TopicPartition, int]

EARLIEST, LATEST = -2, -1
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
# As java.time.Duration reads: a sign before all and before each number.
_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?"
    r"(?:(?P<seconds>[-+]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
# As java.text.SimpleDateFormat reads yyyy-MM-dd'T'HH:mm:ss.SSSX: what follows is not looked at.
_MOMENT = re.compile(
    r"([0-9]{1,4})-([0-9]{1,2})-([0-9]{1,2})T([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})\.([0-9]{1,3})"
    r"(?![0-9])(?:Z|([+-])([01][0-9]|2[0-3])(?::([0-5][0-9]))?)"
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_LONGEST_PLAIN_CELL = 24


class GroupCommandError(Exception):
    """What stops the tool; the text is Kafka's."""


class GroupFlags(NamedTuple):
    """The flags that say which offsets, and where to."""

    group: tuple[str, ...]
    topic: tuple[str, ...]
    all_topics: bool
    to_offset: int | None
    to_datetime: str | None
    by_duration: str | None
    to_earliest: bool
    to_latest: bool
    shift_by: int | None
    from_file: str | None
    to_current: bool
    dry_run: bool
    execute: bool
    export: bool

    @property
    def has_many(self) -> bool:
        """Whether files name the group of each line: unless one --group is given."""
        return len(self.group) != 1


# ---------------------------------------------------------------- reset


def reset_offsets(admin: Admin, groups: list[str], flags: GroupFlags) -> None:
    """Plan and perhaps do a reset of each group, and print the plan."""
    plans: dict[str, Plan] = {}
    for group, described in admin.describe_groups(groups).items():
        if isinstance(described, KafkaError):
            if described.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise described
            state = "Dead"  # a group that was never there may be given offsets
        else:
            state = described.state
        if state not in ("Empty", "Dead"):
            click.echo(
                f"\nError: Assignments can only be reset if the group '{group}' is inactive, but "
                f"the current state is {state}."
            )
            plans[group] = {}
            continue
        plans[group] = _plan(admin, group, flags)
        if flags.execute:
            _commit(admin, group, plans[group])
    if flags.export:
        _export(plans, many=flags.has_many)
    else:
        _print_plans(plans)


def check_scenario(options: Mapping[str, Any]) -> None:
    """Refuse a reset without a place to reset to, with two of them, or without topics."""
    # 0 is a place to reset to, and equals False
    given = [name for name in SCENARIOS if options[name] is not None and options[name] is not False]
    chosen = [name.replace("_", "-") for name in given]
    if not chosen:
        names = ", ".join(f"[{name.replace('_', '-')}]" for name in sorted(SCENARIOS))
        raise click.UsageError(
            f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]"
        )
    if len(chosen) > 1:
        raise click.UsageError(f'Option "[{chosen[0]}]" can\'t be used with option "[{chosen[1]}]"')
    if not options["from_file"] and not options["topic"] and not options["all_topics"]:
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")


def _commit(admin: Admin, group: str, plan: Plan) -> None:
    for error in admin.alter_group_offsets(group, plan).values() if plan else ():
        if error is not None:
            raise error


def _plan(admin: Admin, group: str, flags: GroupFlags) -> Plan:
    if flags.from_file:
        return _within(admin, _read_plan(flags.from_file, group, many=flags.has_many))
    partitions = _partitions(admin, group, flags)
    if flags.to_earliest or flags.to_latest:
        end = EARLIEST if flags.to_earliest else LATEST
        return _offsets_at(admin, dict.fromkeys(partitions, end))
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
    wanted: list[TopicPartition] = []
    for argument in flags.topic:
        topic, given = _topic_argument(argument)
        described = admin.describe_topics([topic])[topic]
        if isinstance(described, KafkaError):
            raise GroupCommandError(str(described))
        there = {partition.partition for partition in described.partitions}
        numbers = sorted(there if given is None else given)
        unknown = [f"{topic}-{number}" for number in numbers if number not in there]
        if unknown:
            raise GroupCommandError(f'The partitions "{",".join(unknown)}" do not exist')
        wanted += [TopicPartition(topic, number) for number in numbers]
    return wanted


def _topic_argument(argument: str) -> tuple[str, list[int] | None]:
    """Read topic or topic:0,1; None stands for all partitions."""
    topic, found, ids = argument.partition(":")
    if not found:
        return topic, None
    if not topic or not ids or ":" in ids:
        raise click.UsageError(
            f"Invalid topic arg '{argument}', expected topic name and partitions"
        )
    if not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", ids):
        raise click.UsageError(f"Invalid partition '{ids}' specified in topic arg '{argument}''")
    return topic, [int(one) for one in ids.split(",")]


def _offsets_at(admin: Admin, timestamps: Mapping[TopicPartition, int]) -> Plan:
    plan: Plan = {}
    for partition, found in (admin.list_offsets(timestamps) if timestamps else {}).items():
        if isinstance(found, KafkaError):
            raise found
        plan[partition] = found.offset
    return plan


def _offsets_by_time(admin: Admin, partitions: list[TopicPartition], moment_ms: int) -> Plan:
    plan = _offsets_at(admin, dict.fromkeys(partitions, moment_ms))
    late = [partition for partition, offset in plan.items() if offset < 0]
    for partition in late:
        click.echo(
            f"\nWarn: Partition {partition.partition} from topic {partition.topic} is empty. "
            "Falling back to latest known offset."
        )
    return plan | _offsets_at(admin, dict.fromkeys(late, LATEST))


def _within(admin: Admin, plan: Plan) -> Plan:
    """Keep wanted offsets between the first and the last there are."""
    first = _offsets_at(admin, dict.fromkeys(plan, EARLIEST))
    last = _offsets_at(admin, dict.fromkeys(plan, LATEST))
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
    return known | _offsets_at(admin, dict.fromkeys(new, LATEST))


def _moment(flags: GroupFlags) -> int:
    if flags.to_datetime is not None:
        return parse_moment(flags.to_datetime)
    moment_ms = (time.time_ns() - parse_duration(flags.by_duration or "")) // 1_000_000
    if not -(1 << 63) <= moment_ms < 1 << 63:
        raise GroupCommandError("Text cannot be parsed to a Duration: overflow")
    return moment_ms


def parse_moment(text: str) -> int:
    """Read YYYY-MM-DDThh:mm:ss.sss with Z, +hh, +hh:mm or nothing (UTC) as ms since 1970.

    GroupCommandError in Java's words; the digits behind the point are milliseconds, as in Java.
    """
    _, found, clock = text.partition("T")
    if not found or not clock:
        raise GroupCommandError(
            "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' "
            "according to ISO8601 format"
        )
    zoned = text if set("+-Z") & set(clock) else f"{text}Z"
    match = _MOMENT.match(zoned)
    try:
        if match is None:
            raise ValueError(zoned)
        numbers = [int(part or 0) for part in match.groups()[:7]]
        year, month, day, hour, minute, second, milliseconds = numbers
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise GroupCommandError(f'java.text.ParseException: Unparseable date: "{zoned}"') from error
    ahead_s = int(match[9] or 0) * 3600 + int(match[10] or 0) * 60
    if match[8] == "-":
        ahead_s = -ahead_s
    return (timegm(moment.timetuple()) - ahead_s) * 1000 + milliseconds


def parse_duration(text: str) -> int:
    """Read PnDTnHnMn.nS as nanoseconds; GroupCommandError in Java's words."""
    match = _DURATION.fullmatch(text)
    if match is None or all(match[name] is None for name in _SECONDS):
        raise GroupCommandError("Text cannot be parsed to a Duration")
    seconds = sum(int(match[name] or 0) * size for name, size in _SECONDS.items())
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    if (match["seconds"] or "").startswith("-"):
        fraction = -fraction
    duration = seconds * 1_000_000_000 + fraction
    return -duration if match["sign"] == "-" else duration


# ---------------------------------------------------------------- files and tables


def _read_plan(path: str, group: str, *, many: bool) -> Plan:
    """Read topic,partition,offset lines, with the group first when there are several."""
    plan: Plan = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                if not row:
                    continue
                cells = row
                if many or len(row) == 4:
                    if row[0] != group:
                        continue
                    cells = row[1:]
                topic, partition, offset = cells
                plan[TopicPartition(topic, int(partition))] = int(offset)
    except OSError as error:
        raise GroupCommandError(f"java.io.IOException: Unable to read file {path}") from error
    except ValueError as error:
        raise GroupCommandError(f"{path} is no list of topic,partition,offset: {error}") from error
    if not plan:
        click.echo(f"\nError: No reset plan for group {group} found")
    return plan


def _export(plans: Mapping[str, Plan], *, many: bool) -> None:
    for group, plan in plans.items():
        for partition, offset in sorted(plan.items()):
            cells = [partition.topic, str(partition.partition), str(offset)]
            click.echo(",".join(map(_csv_cell, [group, *cells] if many else cells)))
    click.echo()


def _csv_cell(text: str) -> str:
    """Quote what Jackson quotes: long texts, and those with a sign below the hyphen."""
    if len(text) <= _LONGEST_PLAIN_CELL and all(sign >= "-" for sign in text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _print_plans(plans: Mapping[str, Plan]) -> None:
    group_width = max([15, *(len(group) for group in plans)])
    topics = [partition.topic for plan in plans.values() for partition in plan]
    width = max([15, *(len(topic) for topic in topics)])
    click.echo(f"\n{'GROUP':<{group_width}} {'TOPIC':<{width}} {'PARTITION':<10} NEW-OFFSET")
    for group, plan in plans.items():
        for partition, offset in sorted(plan.items()):
            click.echo(
                f"{group:<{group_width}} {partition.topic:<{width}} {partition.partition:<10} "
                f"{offset}"
            )


# ---------------------------------------------------------------- delete


def delete_offsets(admin: Admin, flags: GroupFlags) -> None:
    """Forget the offsets of a group's topics and print what became of each partition."""
    if len(flags.group) > 1:
        raise GroupCommandError(
            "Found multiple arguments for option group, but you asked for only one"
        )
    group = flags.group[0]
    wanted, unknown = _named_partitions(admin, flags.topic)
    whole: KafkaError | None = None
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    try:
        if wanted:
            outcomes = admin.delete_group_offsets(group, wanted)
    except KafkaError as error:
        whole = error
        outcomes = dict.fromkeys(wanted, error)
    _tell(group, whole, outcomes)
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
    """Read topic or topic:0,1 arguments; topics that are not there stand apart, as partition -1."""
    wanted: list[TopicPartition] = []
    unknown: dict[TopicPartition, KafkaError | None] = {}
    for argument in topics:
        topic, numbers = _topic_argument(argument)
        if numbers is None:
            described = admin.describe_topics([topic])[topic]
            if isinstance(described, KafkaError):
                unknown[TopicPartition(topic, -1)] = described
                continue
            numbers = [partition.partition for partition in described.partitions]
        wanted += [TopicPartition(topic, number) for number in numbers]
    return wanted, unknown


def _tell(
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
