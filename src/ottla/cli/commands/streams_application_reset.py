"""`ottla streams-application-reset`: reset a Kafka Streams application.

Kafka: bin/kafka-streams-application-reset.sh, org.apache.kafka.tools.StreamsResetter.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.groups.offset_reset import moment_before_now, parse_moment
from ottla.cli.groups.streams_internal_topics import is_internal_name
from ottla.cli.groups.usage import GroupCommandError, scenario_of
from ottla.cli.options.connection import SettingsFileError, open_admin
from ottla.cli.options.flags import server_options
from ottla.cli.options.joptsimple import LONG, ToolCommand, refuse_both
from ottla.cli.output.failures import failure_text
from ottla.errors import ErrorCode, KafkaError
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
    "from_file",
    "shift_by",
)
DEFAULT_SERVER = "localhost:9092"
CONFIG_FILE_WARNING = (
    "Option --config-file has been deprecated and will be removed in a future version. "
    "Use --command-config instead."
)

EXAMPLES = """
\b
Examples:
  ottla streams-application-reset --application-id counts --input-topics lines --dry-run
  ottla streams-application-reset --application-id counts --input-topics lines --shift-by -5
"""


class ResetError(Exception):
    """An error that ends the tool, with Kafka's text."""


@click.command("streams-application-reset", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@click.option("--application-id", metavar="ID", help="REQUIRED. The application.id.")
@click.option("--input-topics", metavar="LIST", help="Topics whose offsets are reset.")
@click.option("--intermediate-topics", metavar="LIST", help="Deprecated: topics to skip.")
@click.option("--internal-topics", metavar="LIST", help="Internal topics to delete; default all.")
@click.option("--to-offset", type=LONG, help="Reset to this offset.")
@click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="Reset to a time.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="Reset to a time before now.")
@click.option("--to-earliest", is_flag=True, help="Reset to the first record (the default).")
@click.option("--to-latest", is_flag=True, help="Reset to the end.")
@click.option("--from-file", metavar="CSV", help="Reset to the offsets in a file.")
@click.option("--shift-by", type=LONG, help="Shift offsets by this number, also negative.")
@click.option("--config-file", metavar="FILE", help="Deprecated: see --command-config.")
@click.option("--force", is_flag=True, help="Remove the group's members first.")
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
def streams_application_reset(**options: Any) -> None:
    """Reset an application's offsets and delete its internal topics."""
    if not options["application_id"]:
        raise click.UsageError("Missing required option(s) [application-id]")
    if options["config_file"] and options["command_config"]:
        refuse_both("config_file", "command_config")
    scenario_of(SCENARIOS, options)
    if options["config_file"]:
        click.echo(CONFIG_FILE_WARNING)
    if options["intermediate_topics"]:
        click.echo(
            "WARN: `--intermediate-topics` is deprecated and will be removed in a future release"
        )
    server = options["bootstrap_server"] or DEFAULT_SERVER
    try:
        with open_admin(server, options["command_config"] or options["config_file"]) as admin:
            status = _run(admin, options)
    except (ResetError, GroupCommandError, KafkaError, SettingsFileError) as error:
        click.echo(f"ERROR: {failure_text(error)}", err=True)
        raise SystemExit(1) from error
    if status:
        raise SystemExit(status)


def _run(admin: Admin, options: dict[str, Any]) -> int:
    _remove_members(admin, options["application_id"], force=options["force"])
    topics = [topic.name for topic in admin.list_topics() if not topic.is_internal]
    if options["dry_run"]:
        click.echo(
            "----Dry run displays the actions which will be performed when running Streams Reset "
            "Tool----"
        )
    inputs, skipped = _words(options["input_topics"]), _words(options["intermediate_topics"])
    status = _reset_topics(admin, topics, inputs, skipped, options)
    _delete_internal(admin, topics, {*inputs, *skipped}, options)
    return status


def _words(text: str | None) -> list[str]:
    """Return the names of a comma-separated list."""
    return [word for word in (text or "").split(",") if word]


def _remove_members(admin: Admin, group_id: str, *, force: bool) -> None:
    """Refuse a group with members, or remove them with --force."""
    described = admin.describe_groups([group_id])[group_id]
    if isinstance(described, KafkaError):
        if described.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise described
    if not described.members:
        return
    if force:
        click.echo(f"Force deleting all active members in the group: {group_id}")
        for error in admin.remove_group_members(group_id).values():
            if error is not None:
                raise error
        return
    members = ", ".join(member.member_id for member in described.members)
    raise ResetError(
        f"java.lang.IllegalStateException: Consumer group '{group_id}' is still active and has "
        f"following members: [{members}]. Make sure to stop all running application instances "
        "before running the reset tool. You can use option '--force' to remove active members "
        "from the group."
    )


def _delete_internal(
    admin: Admin, topics: list[str], others: set[str], options: dict[str, Any]
) -> None:
    """Delete the application's internal topics, or those of --internal-topics."""
    group_id = options["application_id"]
    inferred = [name for name in topics if name not in others and is_internal_name(name, group_id)]
    named = _words(options["internal_topics"])
    if not set(named) <= set(inferred):
        raise ResetError(
            "java.lang.IllegalArgumentException: Invalid topic specified in the "
            "--internal-topics option. Ensure that the topics specified are all internal topics. "
            "Do a dry run without the --internal-topics option to see the list of all internal "
            "topics that can be deleted."
        )
    chosen, kind = (named, "specified") if named else (inferred, "inferred")
    click.echo(f"Deleting {kind} internal topics [{', '.join(chosen)}]")
    if not options["dry_run"] and chosen:
        failed = [name for name, error in admin.delete_topics(chosen).items() if error is not None]
        for name in failed:
            click.echo(f"ERROR: deleting topic {name}", err=True)
        if failed:
            raise ResetError(
                "java.lang.RuntimeException: Encountered an error deleting one or more topics"
            )
    click.echo("Done.")


# ---------------------------------------------------------------- offsets


def _reset_topics(
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
    partitions = []
    for described in admin.describe_topics(names).values() if names else ():
        if isinstance(described, KafkaError):
            raise described
        partitions += [TopicPartition(described.name, it.partition) for it in described.partitions]
    return partitions


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
        positions |= {key: commit.offset for key, commit in committed.items() if commit}
        return _bounded(admin, {key: positions[key] + options["shift_by"] for key in partitions})
    moment, duration = options["to_datetime"], options["by_duration"]
    if moment is not None or duration is not None:
        moment_ms = moment_before_now(duration) if moment is None else parse_moment(moment)
        return _at_time(admin, partitions, moment_ms)
    if options["from_file"] is not None:
        offsets = _read(options["from_file"])
        missing = [partition for partition in partitions if partition not in offsets]
        if missing:
            raise ResetError(f"the file has no offset for partition {missing[0]}")
        return _bounded(admin, {key: offsets[key] for key in partitions})
    return offsets_at(admin, partitions, EARLIEST_TIMESTAMP)


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
