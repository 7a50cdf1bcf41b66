"""`ottla console-share-consumer`: print the records that a member of a share group gets.

Kafka: bin/kafka-console-share-consumer.sh, org.apache.kafka.tools.consumer.ConsoleShareConsumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.commands.console_consumer import (
    message_writer,
    print_all,
    print_record,
    read_batches,
    single_group_id,
    warn_of_old_flags,
)
from ottla.cli.options.connection import consumer_settings, key_values, read_file
from ottla.cli.options.flags import bootstrap_option, require, version_option
from ottla.cli.options.joptsimple import INTEGER, ToolCommand
from ottla.cli.output.failures import fail, failure_text
from ottla.cli.output.formatter import FormatterError
from ottla.errors import KafkaError
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.share.records import ShareRecord

EXAMPLES = """
\b
Examples:
  ottla console-share-consumer --bootstrap-server localhost:9092 --topic orders --group billing
  ottla console-share-consumer --bootstrap-server localhost:9092 --topic orders --group billing \\
      --max-messages 10 --release --formatter-property print.delivery=true
"""


@click.command("console-share-consumer", cls=ToolCommand, epilog=EXAMPLES)
@bootstrap_option
@version_option
@click.option("--topic", help="REQUIRED. The topic to read.")
@click.option("--group", help="The share group.")
@click.option("--max-messages", type=INTEGER, help="Stop after this number of records.")
@click.option("--timeout-ms", type=INTEGER, help="Stop when no record arrives for this time.")
@click.option("--reject", is_flag=True, help="Reject the records: they are not delivered again.")
@click.option("--release", is_flag=True, help="Release the records: they are delivered again.")
@click.option(
    "--reject-message-on-error", is_flag=True, help="Reject records that cannot be printed."
)
@click.option("--key-deserializer", help="Deserializer of keys.")
@click.option("--value-deserializer", help="Deserializer of values.")
@click.option("--formatter", help="The name of one of Kafka's formatter classes.")
@click.option(
    "--formatter-property", multiple=True, metavar="NAME=VALUE", help="A property of the formatter."
)
@click.option("--formatter-config", metavar="FILE", help="The same from a file.")
@click.option("--property", "old_formatter_property", multiple=True, hidden=True)
@click.option(
    "--command-property", multiple=True, metavar="NAME=VALUE", help="A consumer's setting."
)
@click.option("--command-config", metavar="FILE", help="A consumer's settings.")
@click.option("--consumer-property", multiple=True, hidden=True)
@click.option("--consumer-config", hidden=True)
@click.option("--enable-systest-events", is_flag=True, hidden=True)
def console_share_consumer(**options: Any) -> None:
    """Print the records of a topic as a member of a share group."""
    if options["topic"] is None:
        raise click.UsageError("--topic is a required argument")
    require(options["bootstrap_server"], "bootstrap-server")
    if options["reject"] and options["release"]:
        raise click.UsageError("At most one of --reject and --release may be specified.")
    warn_of_old_flags(options, "--consumer-config")
    settings = consumer_settings(_settings(options))
    from ottla.clients.share.blocking import ShareConsumer

    try:
        write = message_writer({**options, "as_json": False})
    except FormatterError as error:
        raise click.UsageError(str(error)) from error
    try:
        consumer = ShareConsumer(options["topic"], config=settings)
    except KafkaError as error:
        fail(failure_text(error))
    print_all(
        consumer,
        lambda: read_batches(lambda wait_s, _left: consumer.poll(wait_s), options),
        lambda record: consumer.acknowledge(record, _print(record, write, options)),
        options,
    )


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = read_file(options["command_config"] or options["consumer_config"])
    flags = key_values(options["command_property"] or options["consumer_property"])
    groups = (options["group"], flags.get("group.id"), given.get("group.id"))
    group_id = single_group_id(groups, "--consumer-config")
    given |= flags
    given["bootstrap.servers"] = options["bootstrap_server"]
    given.setdefault("client.id", "console-share-consumer")
    given["group.id"] = group_id or "console-share-consumer"
    given["share.acknowledgement.mode"] = "explicit"
    return given


def _print(
    record: ShareRecord, write: Callable[[Any], str], options: dict[str, Any]
) -> AcknowledgeType:
    """Print a record; return its acknowledgement."""
    otherwise = "rejecting" if options["reject_message_on_error"] else None
    is_printed = print_record(record, write, otherwise)
    if options["reject"] or not is_printed:
        return AcknowledgeType.REJECT
    return AcknowledgeType.RELEASE if options["release"] else AcknowledgeType.ACCEPT
