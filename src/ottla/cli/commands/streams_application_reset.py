"""`ottla streams-application-reset`: reset a Kafka Streams application.

Kafka: bin/kafka-streams-application-reset.sh, org.apache.kafka.tools.StreamsResetter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.groups.application_offsets import SCENARIOS, ResetError, reset_topics
from ottla.cli.groups.flags import GroupCommandError
from ottla.cli.groups.streams_internal_topics import is_internal_name
from ottla.cli.groups.usage import scenario_of
from ottla.cli.options.connection import SettingsFileError, open_admin
from ottla.cli.options.flags import server_options
from ottla.cli.options.joptsimple import LONG, ToolCommand, refuse_both
from ottla.cli.output.next_steps import failure_text
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.clients.blocking import Admin

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
    _check_pairs(options)
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


def _check_pairs(options: dict[str, Any]) -> None:
    if options["config_file"] and options["command_config"]:
        refuse_both("config_file", "command_config")
    scenario_of(SCENARIOS, options)


def _run(admin: Admin, options: dict[str, Any]) -> int:
    _remove_members(admin, options["application_id"], force=options["force"])
    topics = [topic.name for topic in admin.list_topics() if not topic.is_internal]
    if options["dry_run"]:
        click.echo(
            "----Dry run displays the actions which will be performed when running Streams Reset "
            "Tool----"
        )
    inputs, skipped = words(options["input_topics"]), words(options["intermediate_topics"])
    status = reset_topics(admin, topics, inputs, skipped, options)
    _delete_internal(admin, topics, {*inputs, *skipped}, options)
    return status


def words(text: str | None) -> list[str]:
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
    named = words(options["internal_topics"])
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
        failed = {name: one for name, one in admin.delete_topics(chosen).items() if one is not None}
        for name in failed:
            click.echo(f"ERROR: deleting topic {name}", err=True)
        if failed:
            raise ResetError(
                "java.lang.RuntimeException: Encountered an error deleting one or more topics"
            )
    click.echo("Done.")
