"""Plans of `--reset-offsets`: made from flags or CSV, committed, printed as a table or as CSV.

Kafka: org.apache.kafka.tools.OffsetsUtils, org.apache.kafka.tools.consumer.group.CsvUtils,
org.apache.kafka.common.utils.Utils.getDateTime, java.time.Duration.parse.
"""

from __future__ import annotations

import csv
import re
import time
from calendar import timegm
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.groups.usage import GroupCommandError, GroupFlags, topic_argument
from ottla.cli.output.tables import columns
from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.types import TopicPartition
from ottla.views.groups import offsets_at

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
_LONGEST_PLAIN_CELL = 24
"""Characters; Jackson, which writes Kafka's CSV, quotes longer cells."""
# As java.time.Duration: an optional sign before the whole and before each number.
_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?"
    r"(?:(?P<seconds>[-+]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
# As java.text.SimpleDateFormat with yyyy-MM-dd'T'HH:mm:ss.SSSX: trailing text is ignored.
_MOMENT = re.compile(
    r"([0-9]{1,4})-([0-9]{1,2})-([0-9]{1,2})T([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})\.([0-9]{1,3})"
    r"(?![0-9])(?:Z|([+-])([01][0-9]|2[0-3])(?::([0-5][0-9]))?)"
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def require_scenario(scenario: str | None) -> None:
    """Refuse a reset without a target."""
    if scenario is None:
        names = ", ".join(f"[{name.replace('_', '-')}]" for name in sorted(SCENARIOS))
        raise click.UsageError(
            f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]"
        )


def require_scope(options: Mapping[str, Any], topics: str) -> None:
    """Refuse a reset without a selection of topics."""
    if not options["from_file"] and not options[topics] and not options[f"all_{topics}s"]:
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")


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
    moment = flags.to_datetime
    moment_ms = (
        moment_before_now(flags.by_duration or "") if moment is None else parse_moment(moment)
    )
    return _offsets_by_time(admin, partitions, moment_ms)


def _partitions(admin: Admin, group: str, flags: GroupFlags) -> list[TopicPartition]:
    if flags.all_topics:
        return sorted(admin.list_group_offsets(group))
    requested: list[TopicPartition] = []
    for argument in flags.topic:
        topic, ids = topic_argument(argument)
        described = admin.describe_topics([topic])[topic]
        if isinstance(described, KafkaError):
            raise GroupCommandError(str(described))
        existing = {partition.partition for partition in described.partitions}
        numbers = sorted(existing if ids is None else ids)
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
        commit = committed.get(partition)
        if commit is None:
            raise click.UsageError(
                f"Cannot shift offset for partition {partition} since there is no current "
                "committed offset"
            )
        plan[partition] = commit.offset + by
    return _within(admin, plan)


def _current(admin: Admin, group: str, partitions: list[TopicPartition]) -> Plan:
    committed = admin.list_group_offsets(group, partitions)
    known = {key: commit.offset for key, commit in committed.items() if commit is not None}
    new = [partition for partition in partitions if partition not in known]
    return known | offsets_at(admin, new, LATEST_TIMESTAMP)


def read_plan(path: str, group: str, *, many: bool) -> Plan:
    """Read lines of topic,partition,offset, with the group first if there are several groups."""
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
        raise GroupCommandError(
            f"{path} is not a list of topic,partition,offset: {error}"
        ) from error
    if not plan:
        click.echo(f"\nError: No reset plan for group {group} found")
    return plan


def export_plans(plans: Mapping[str, Plan], *, many: bool) -> None:
    """Print plans as CSV, with the group first if there are several groups."""
    for group, plan in plans.items():
        for partition, offset in sorted(plan.items()):
            cells = [partition.topic, str(partition.partition), str(offset)]
            click.echo(",".join(map(_csv_cell, [group, *cells] if many else cells)))
    click.echo()


def _csv_cell(text: str) -> str:
    """Quote as Jackson does: long texts, and those with a character below the hyphen."""
    if len(text) <= _LONGEST_PLAIN_CELL and all(sign >= "-" for sign in text):
        return text
    return '"' + text.replace('"', '""') + '"'


def print_plans(plans: Mapping[str, Plan]) -> None:
    """Print plans as a table."""
    rows = [
        (group, *partition, offset)
        for group, plan in plans.items()
        for partition, offset in sorted(plan.items())
    ]
    # a group without a plan has no row, but its name widens the column in Kafka's table
    group_width = max([15, *map(len, plans)])
    widths = {"GROUP": str(group_width), "TOPIC": "15+", "PARTITION": "10", "NEW-OFFSET": "0"}
    click.echo("\n" + columns(widths, rows))


def parse_moment(text: str) -> int:
    """Parse YYYY-MM-DDThh:mm:ss.sss with Z, +hh, +hh:mm or no zone (UTC) to ms since the epoch.

    Raises GroupCommandError with Java's text; digits after the point are milliseconds, as in Java.
    """
    _, separator, clock = text.partition("T")
    if not separator or not clock:
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
    """Parse PnDTnHnMn.nS to nanoseconds; raises GroupCommandError with Java's text."""
    match = _DURATION.fullmatch(text)
    if match is None or all(match[name] is None for name in _SECONDS):
        raise GroupCommandError("Text cannot be parsed to a Duration")
    seconds = sum(int(match[name] or 0) * size for name, size in _SECONDS.items())
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    if (match["seconds"] or "").startswith("-"):
        fraction = -fraction
    duration = seconds * 1_000_000_000 + fraction
    return -duration if match["sign"] == "-" else duration


def moment_before_now(duration: str) -> int:
    """Return the time of a duration ago in ms; raises GroupCommandError beyond 64 bits."""
    moment_ms = (time.time_ns() - parse_duration(duration)) // 1_000_000
    if not -(1 << 63) <= moment_ms < 1 << 63:
        raise GroupCommandError("Text cannot be parsed to a Duration: overflow")
    return moment_ms
