"""`ottla console-consumer`: print the records of topics.

Kafka: bin/kafka-console-consumer.sh, org.apache.kafka.tools.consumer.ConsoleConsumer.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ottla.cli.options.connection import consumer_settings, key_values, key_values_raw, read_file
from ottla.cli.options.flags import bootstrap_option, require, version_option
from ottla.cli.options.joptsimple import INTEGER, LONG, ToolCommand, java_integer
from ottla.cli.output.coordinator_records import coordinator_formatter
from ottla.cli.output.failures import fail, failure_text
from ottla.cli.output.formatter import Formatter, FormatterError, reader
from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ottla.clients.blocking import Consumer
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.share.blocking import ShareConsumer

R = TypeVar("R")

EXAMPLES = """
\b
Examples:
  ottla console-consumer --bootstrap-server localhost:9092 --topic orders --from-beginning
  ottla console-consumer --bootstrap-server localhost:9092 --topic orders --max-messages 10 \\
      --formatter-property print.key=true --formatter-property print.offset=true
  ottla console-consumer --bootstrap-server localhost:9092 --topic orders --partition 0 --offset 5
  ottla console-consumer --bootstrap-server localhost:9092 --topic orders --from-beginning --json
"""


@click.command("console-consumer", cls=ToolCommand, epilog=EXAMPLES)
@bootstrap_option
@version_option
@click.option("--topic", help="The topic to read.")
@click.option("--include", help="A regular expression of topics to read.")
@click.option("--partition", type=INTEGER, help="Read only this partition.")
@click.option("--offset", help="Start offset: a number, earliest or latest (the default).")
@click.option("--from-beginning", is_flag=True, help="Start at the first record.")
@click.option("--max-messages", type=INTEGER, help="Stop after this number of records.")
@click.option("--timeout-ms", type=LONG, help="Stop when no record arrives for this time.")
@click.option("--group", help="The group to read as.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    help="Whether records of open and aborted transactions are read.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print a line of JSON for each record, with all of it."
)
@click.option("--skip-message-on-error", is_flag=True, help="Skip records that cannot be printed.")
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
@click.option("--consumer.config", "consumer_config", hidden=True)
@click.option("--enable-systest-events", is_flag=True, hidden=True)
def console_consumer(**options: Any) -> None:
    """Print the records of topics."""
    _check(options)
    settings = consumer_settings(_settings(options))
    where = None if options["partition"] is None else _offset(options)
    from ottla.clients.blocking import Consumer

    try:
        write = message_writer(options)
    except FormatterError as error:
        raise click.UsageError(str(error)) from error
    try:
        consumer = Consumer(config=settings)
    except KafkaError as error:
        fail(failure_text(error))

    def batches() -> Iterator[Sequence[ConsumerRecord]]:
        _choose(consumer, options, where)
        return read_batches(consumer.poll, options)

    print_all(consumer, batches, lambda record: _print(record, write, options), options)


def read_batches(
    poll: Callable[[float, int | None], Sequence[R]], options: dict[str, Any]
) -> Iterator[Sequence[R]]:
    """Yield polled records until --max-messages or --timeout-ms is reached; negative: no limit.

    `poll` gets the seconds to wait and the number of records that are left to print.
    """
    limit, timeout_ms = options["max_messages"], options["timeout_ms"]
    if limit == -1:
        limit = None
    if timeout_ms is not None and timeout_ms < 0:
        timeout_ms = None
    count, last_s = 0, time.monotonic()
    while limit is None or count < limit:
        wait_s = 1.0 if timeout_ms is None else last_s + timeout_ms / 1000 - time.monotonic()
        if wait_s <= 0:
            return
        left = None if limit is None else limit - count
        records = poll(min(wait_s, 1.0), left)
        if records:
            yield records[:left]
            count += len(records)
            last_s = time.monotonic()


def print_all(
    consumer: Consumer | ShareConsumer,
    batches: Callable[[], Iterator[Sequence[R]]],
    print_one: Callable[[R], object],
    options: dict[str, Any],
) -> NoReturn:
    """Print and count records; end the process as Kafka's consoles do.

    A record that cannot be printed is counted, as in Kafka.
    """
    count = 0
    status = 0
    try:
        with consumer:
            for records in batches():
                for record in records:
                    count += 1
                    print_one(record)
                sys.stdout.flush()
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        status = 1
        click.echo("Unable to write to standard out, closing consumer.", err=True)
    except (KafkaError, FormatterError) as error:
        status = 1
        click.echo(failure_text(error), err=True)
    click.echo(f"Processed a total of {count} messages", err=True)
    if options["enable_systest_events"]:
        click.echo("shutdown_complete")
    sys.exit(status)


def _check(options: dict[str, Any]) -> None:
    require(options["bootstrap_server"], "bootstrap-server")
    if (options["topic"] is None) == (options["include"] is None):
        raise click.UsageError(
            "Exactly one of the following arguments is required: [topic], [include]"
        )
    if options["as_json"] and any(options[name] for name in _FORMATS):
        raise click.UsageError("--json excludes the options of formatters")
    if options["partition"] is not None:
        require(options["topic"], "topic")
        if options["from_beginning"] and options["offset"] is not None:
            raise click.UsageError(
                "Options from-beginning and offset cannot be specified together."
            )
        if options["group"] is not None:
            raise click.UsageError("Options group and partition cannot be specified together.")
    elif options["offset"] is not None:
        raise click.UsageError("The partition is required when offset is specified.")
    warn_of_old_flags(options, "--consumer.config")


def warn_of_old_flags(options: dict[str, Any], old_config: str) -> None:
    """Refuse a flag together with its old name, and warn of the old name alone."""
    for new, old, flag in (
        ("command_property", "consumer_property", "--consumer-property"),
        ("command_config", "consumer_config", old_config),
        ("formatter_property", "old_formatter_property", "--property"),
    ):
        now = f"--{new.replace('_', '-')}"
        if options[new] and options[old]:
            raise click.UsageError(f"Options {flag} and {now} cannot be specified together.")
        if options[old]:
            click.echo(
                f"Option {flag} is deprecated and will be removed in a future version. "
                f"Use {now} instead."
            )


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = read_file(options["command_config"] or options["consumer_config"])
    flags = key_values(options["command_property"] or options["consumer_property"])
    groups = (options["group"], flags.get("group.id"), given.get("group.id"))
    given |= flags
    reset = given.get("auto.offset.reset", "earliest")
    if options["from_beginning"] and reset != "earliest":
        fail(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', "
            "please remove one option"
        )
    single_group_id(groups, "--consumer.config")
    given["bootstrap.servers"] = options["bootstrap_server"]
    given["isolation.level"] = options["isolation_level"]
    given.setdefault("client.id", "console-consumer")
    if options["from_beginning"]:
        given["auto.offset.reset"] = "earliest"
    if options["group"] is not None:
        given["group.id"] = options["group"]
    elif options["partition"] is None and "group.id" not in given:
        # A new group, which commits no offsets.
        number = random.randrange(100_000)  # noqa: S311 - a name, not a secret
        given["group.id"] = f"console-consumer-{number}"
        given.setdefault("enable.auto.commit", "false")
    return given


def single_group_id(given: Iterable[str | None], old_config: str) -> str | None:
    """Return the group id, None without one; different ids are refused with Kafka's text."""
    ids = sorted({group for group in given if group is not None})
    if len(ids) > 1:
        fail(
            "The group ids provided in different places (directly using '--group', via "
            f"'--consumer-property', or via '{old_config}') do not match. Detected group ids: "
            + ", ".join(f"'{group_id}'" for group_id in ids)
        )
    return ids[0] if ids else None


_FORMATS = ("formatter", "formatter_property", "formatter_config", "old_formatter_property")


def message_writer(options: dict[str, Any]) -> Callable[[Any], str]:
    """Return the function that makes a record's text; raises FormatterError."""
    if options["as_json"]:
        return RecordJson(
            options["key_deserializer"] or "", options["value_deserializer"] or ""
        ).format
    properties = read_file(options["formatter_config"])
    for side in ("key", "value"):
        if options[f"{side}_deserializer"]:
            properties[f"{side}.deserializer"] = options[f"{side}_deserializer"]
    properties |= key_values_raw(options["formatter_property"] or options["old_formatter_property"])
    class_name = options["formatter"] or "DefaultMessageFormatter"
    found = coordinator_formatter(class_name)
    if found is not None:
        return found
    name = class_name.rpartition(".")[2]
    if name == "NoOpMessageFormatter":
        return lambda _record: ""
    # Kafka's LoggingMessageFormatter also logs each record; its tools do not show that log
    if name not in {"DefaultMessageFormatter", "LoggingMessageFormatter"}:
        raise FormatterError(class_name)  # the text of ClassNotFoundException
    return Formatter(properties).format


def _choose(consumer: Consumer, options: dict[str, Any], offset: int | None) -> None:
    topic, partition = options["topic"], options["partition"]
    if offset is not None:
        where = TopicPartition(topic, partition)
        consumer.assign([where])
        consumer.seek(where, offset)
    elif topic is not None:
        consumer.subscribe([topic])
    else:
        try:
            consumer.subscribe(pattern=options["include"])
        except re.error as error:
            raise FormatterError(f"{options['include']} is an invalid regex: {error}") from error


def _offset(options: dict[str, Any]) -> int:
    given = options["offset"]
    if given is None:
        return EARLIEST_TIMESTAMP if options["from_beginning"] else LATEST_TIMESTAMP
    word = given.lower()
    if word in ("earliest", "latest"):
        return EARLIEST_TIMESTAMP if word == "earliest" else LATEST_TIMESTAMP
    try:
        offset = java_integer(word, 64)
    except ValueError:
        offset = -1
    if offset < 0:
        raise click.UsageError(
            f"The provided offset value '{given}' is incorrect. Valid values are 'earliest', "
            "'latest', or a non-negative long."
        )
    return offset


def _print(
    record: ConsumerRecord, write: Callable[[ConsumerRecord], str], options: dict[str, Any]
) -> None:
    print_record(record, write, "skipping" if options["skip_message_on_error"] else None)


def print_record(record: R, write: Callable[[R], str], otherwise: str | None) -> bool:
    """Print a record; return whether it was printed.

    `otherwise` names the fate of a record that cannot be printed; None raises FormatterError.
    """
    try:
        text = write(record)
    except ValueError as error:
        if otherwise is None:
            raise FormatterError(str(error)) from error
        click.echo(f"Error processing message, {otherwise} this message: {error}", err=True)
        return False
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    return True


class RecordJson:
    """Writes records with key, value, headers and place.

    Bytes that are no UTF-8 are written as base64, under the name `key_base64` or `value_base64`.
    """

    def __init__(self, key_deserializer: str, value_deserializer: str) -> None:
        self._read_key = reader(key_deserializer) if key_deserializer else None
        self._read_value = reader(value_deserializer) if value_deserializer else None

    def format(self, record: ConsumerRecord) -> str:
        """Return one line; raises ValueError if the record cannot be decoded."""
        document = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            **_field("key", record.key, self._read_key),
            **_field("value", record.value, self._read_value),
            "headers": [{"key": name, **_field("value", one)} for name, one in record.headers],
        }
        return json.dumps(document, ensure_ascii=False) + "\n"


def _field(
    name: str, data: bytes | None, read: Callable[[bytes], str] | None = None
) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode() if read is None else read(data)}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
