"""New offsets of an application's topics in `streams-application-reset`.

Kafka: StreamsResetter.{maybeResetInputAndSeekToEndIntermediateTopicOffsets, maybeReset}.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.groups.reset_times import moment_before_now, parse_moment
from ottla.cli.groups.timestamp_offsets import offsets_at
from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.blocking import Admin

    Plan = dict[TopicPartition, int]

SCENARIOS: Final = (
    "to_offset",
    "to_datetime",
    "by_duration",
    "to_earliest",
    "to_latest",
    "from_file",
    "shift_by",
)


class ResetError(Exception):
    """An error that ends the tool, with Kafka's text."""


def reset_topics(
    admin: Admin, topics: list[str], inputs: list[str], skipped: list[str], options: dict[str, Any]
) -> int:
    """Set the offsets of input topics, and skip to the end of others; 1 for unknown topics."""
    if not inputs and not skipped:
        click.echo("No input or intermediate topics specified. Skipping seek.")
        return 0
    if inputs:
        click.echo(f"Reset-offsets for input topics [{', '.join(inputs)}]")
    if skipped:
        click.echo(f"Seek-to-end for intermediate topics [{', '.join(skipped)}]")
    unknown = [name for name in inputs if name not in topics]
    _report_unknown("input", unknown, "Topic: ")
    unknown_skipped = [name for name in skipped if name not in topics]
    _report_unknown("intermediate", unknown_skipped, "Topic:")
    status = int(bool(unknown or unknown_skipped))
    known = [name for name in dict.fromkeys((*inputs, *skipped)) if name in topics]
    if not known:
        return status
    plan = _plan(admin, [name for name in known if name in inputs], options)
    plan |= _skip(admin, [name for name in known if name not in inputs], options)
    if not options["dry_run"]:
        for error in admin.alter_group_offsets(options["application_id"], plan).values():
            if error is not None:
                raise error
    click.echo("Done.")
    return status


def _report_unknown(kind: str, names: list[str], prefix: str) -> None:
    if names:
        click.echo(f"Following {kind} topics are not found, skipping them")
        for name in names:
            click.echo(f"{prefix}{name}")


def _partitions(admin: Admin, names: list[str]) -> list[TopicPartition]:
    found = []
    for described in admin.describe_topics(names).values() if names else ():
        if isinstance(described, KafkaError):
            raise described
        found += [TopicPartition(described.name, one.partition) for one in described.partitions]
    return found


def _plan(admin: Admin, names: list[str], options: dict[str, Any]) -> Plan:
    group_id, partitions = options["application_id"], _partitions(admin, names)
    if not partitions:
        return {}
    click.echo(f"Following input topics offsets will be reset to (for consumer group {group_id})")
    plan = _target(admin, partitions, options)
    for partition, offset in plan.items():
        click.echo(f"Topic: {partition.topic} Partition: {partition.partition} Offset: {offset}")
    return plan


def _target(admin: Admin, partitions: list[TopicPartition], options: dict[str, Any]) -> Plan:
    if options["to_offset"] is not None:
        return _bounded(admin, dict.fromkeys(partitions, options["to_offset"]))
    if options["to_latest"]:
        return offsets_at(admin, partitions, LATEST_TIMESTAMP)
    if options["shift_by"] is not None:
        committed = admin.list_group_offsets(options["application_id"], partitions)
        # as a consumer without a committed offset
        positions = offsets_at(admin, partitions, LATEST_TIMESTAMP)
        positions |= {key: one.offset for key, one in committed.items() if one is not None}
        return _bounded(admin, {key: positions[key] + options["shift_by"] for key in partitions})
    moment_ms = _moment_ms(options)
    if moment_ms is not None:
        return _at_time(admin, partitions, moment_ms)
    if options["from_file"] is not None:
        given = _read(options["from_file"])
        missing = [one for one in partitions if one not in given]
        if missing:
            raise ResetError(f"the file has no offset for partition {missing[0]}")
        return _bounded(admin, {key: given[key] for key in partitions})
    return offsets_at(admin, partitions, EARLIEST_TIMESTAMP)


def _moment_ms(options: dict[str, Any]) -> int | None:
    if options["to_datetime"] is not None:
        return parse_moment(options["to_datetime"])
    if options["by_duration"] is not None:
        return moment_before_now(options["by_duration"])
    return None


def _at_time(admin: Admin, partitions: list[TopicPartition], moment_ms: int) -> Plan:
    plan = offsets_at(admin, partitions, moment_ms)
    late = [partition for partition, offset in plan.items() if offset < 0]
    for partition in late:
        click.echo(
            f"Partition {partition.partition} from topic {partition.topic} is empty, without a "
            "committed record. Falling back to latest known offset."
        )
    return plan | offsets_at(admin, late, LATEST_TIMESTAMP)


def _bounded(admin: Admin, plan: Mapping[TopicPartition, int]) -> Plan:
    """Limit offsets to those that exist; like Kafka's tool, report offsets at the bounds too."""
    first = offsets_at(admin, list(plan), EARLIEST_TIMESTAMP)
    last = offsets_at(admin, list(plan), LATEST_TIMESTAMP)
    bounded = {}
    for partition, offset in plan.items():
        bound = offset
        if offset >= last[partition]:
            bound, how = last[partition], "higher than latest"
        elif offset <= first[partition]:
            bound, how = first[partition], "lower than earliest"
        else:
            how = ""
        if how:
            click.echo(f"New offset ({offset}) is {how} offset. Value will be set to {bound}")
        bounded[partition] = bound
    return bounded


def _read(path: str) -> Plan:
    """Read lines of topic,partition,offset."""
    plan: Plan = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        for line in lines:
            topic, partition, offset = line.split(",")
            plan[TopicPartition(topic, int(partition))] = int(offset)
    except OSError as error:
        raise ResetError(f"java.nio.file.NoSuchFileException: {path}") from error
    except ValueError as error:
        click.echo("ERROR: Resetting offsets failed.", err=True)
        raise ResetError(
            "java.text.ParseException: Reset plan CSV file is not following the format "
            "`TOPIC,PARTITION,OFFSET`."
        ) from error
    if not plan:
        click.echo("ERROR: Resetting offsets failed.", err=True)
        raise ResetError(
            "java.text.ParseException: Error parsing reset plan CSV file. It is empty,"
        )
    return plan


def _skip(admin: Admin, names: list[str], options: dict[str, Any]) -> Plan:
    if not names:
        return {}
    group_id = options["application_id"]
    click.echo(
        "Following intermediate topics offsets will be reset to end "
        f"(for consumer group {group_id})"
    )
    partitions = _partitions(admin, names)
    for partition in partitions:
        click.echo(f"Topic: {partition.topic}")
    return offsets_at(admin, partitions, LATEST_TIMESTAMP)
